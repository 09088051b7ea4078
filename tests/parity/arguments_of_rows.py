"""What calls of the oracle's cases give of their rows: targets, and what terms on negatives and keys read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from oracle_cases import Call


def targets_of(call: Call, pair: bool, generator: torch.Generator) -> Any:
    """Some of the candidates that there are, with several in most rows and none in some."""
    rows, hard = len(call.views[0]), call.inputs.get("hard_negatives")
    width = rows + (0 if hard is None else hard.shape[:-1].numel())
    both = torch.rand(2, rows, width, generator=generator, dtype=torch.float64)
    both *= torch.rand(both.shape, generator=generator) < 4 / rows
    if "hard_negative_mask" in call.inputs:
        both[:, :, rows:] *= call.inputs["hard_negative_mask"].flatten()
    of_ab, of_ba = (of_block / of_block.sum(1, keepdim=True).clamp(min=1e-30) for of_block in both)
    return (of_ab, of_ba) if pair else of_ab


def of_rows(call: Call, generator: torch.Generator) -> dict[str, Any]:
    """What the terms of a call read of its rows."""
    rows, found, words = len(call.views[0]), {}, call.negatives
    parts = {**dict(zip(("view_a", "view_b"), call.views, strict=False)), **call.inputs}
    shapes = {part: parts[part].shape[:-1] for part in ("view_a", "view_b", "queue", "hard_negatives") if part in parts}
    if "guide" in words:
        found["guide"] = {part: torch.randn(*shape, 5, generator=generator) for part, shape in shapes.items()}
    if "same-key" in words or "positives=keys" in call.layout:
        found["keys"] = {part: torch.randint(2 * rows, shape, generator=generator) for part, shape in shapes.items()}
    if "positives=keys" in call.layout:  # some rows have their own pair as a positive
        keys = found["keys"]
        keys["view_b"] = torch.where(torch.arange(rows) % 3 == 0, keys["view_a"], keys["view_b"])
    if "within-group" in words:
        found["groups"] = {part: torch.arange(shape.numel()).view(shape) % 3 for part, shape in shapes.items()}
        if len(shapes.get("hard_negatives", ())) == 2:
            del found["groups"]["hard_negatives"]  # they have those of their rows
    if "log-q:size" in words:
        items = {part: torch.arange(shape.numel()).view(shape) * 7 % (rows + 1) for part, shape in shapes.items()}
        items["view_a"] = call.inputs.get("index", items["view_a"])  # a strategy's
        found["index"] = items if shapes.keys() - {"view_a", "view_b"} or call.layout == "masks" else items["view_a"]
    elif "log-q" in words:
        found["candidate_log_q"] = {
            part: -5 * torch.rand(shape, generator=generator, dtype=torch.float64) for part, shape in shapes.items()
        }
    return found
