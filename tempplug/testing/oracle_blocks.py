"""The oracle's layouts and terms: dense boolean masks of positives and negatives, and what is added to logits of negatives.

It must not import the layouts and terms that are tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError

Uncertainty = Tensor | tuple[Tensor, Tensor] | list[Tensor]
Given = Mapping[str, Any]
"""What the call gives of rows: a tensor of those of both views, or a dictionary of tensors by the name of the embeddings."""


@dataclass(frozen=True)
class Direction:
    """One block: unit rows, which pairs are positives and negatives, and what belongs to each anchor.

    Attributes:
        sources: arguments of the call that the anchors come from, and the candidates, one behind the other.
        name: of the block, in the layout ``cross-view``.
        share: [N, M] how much each positive counts; None where all count alike.
    """

    anchors: Tensor
    candidates: Tensor
    positive: Tensor
    negative: Tensor
    labels: Tensor | None
    uncertainty: Tensor | None
    sources: tuple[tuple[str, ...], tuple[str, ...]]
    name: str = ""
    averages: Tensor | None = None
    share: Tensor | None = None

    def with_hard_negatives(self, rows: Tensor, seen: Tensor) -> Direction:
        """Adds hard negatives as `with_negatives` does."""
        return self.with_negatives("hard_negatives", rows, seen)

    def with_negatives(self, name: str, rows: Tensor, seen: Tensor) -> Direction:
        """Adds candidates [H, D] that are negatives of the first n anchors where ``seen`` [n, H] is true, and else ignored."""
        added = torch.zeros(len(self.anchors), len(rows), dtype=torch.bool)
        added[: len(seen)] = seen
        return Direction(
            self.anchors,
            torch.cat([self.candidates, rows]),
            torch.cat([self.positive, torch.zeros_like(added)], dim=1),
            torch.cat([self.negative, added], dim=1),
            self.labels,
            self.uncertainty,
            (self.sources[0], (*self.sources[1], name)),
            self.name,
            self.averages,
        )


def unit_rows(embeddings: Tensor) -> Tensor:
    """Returns unit rows in float64; a row of zeros stays one and gets no gradient."""
    rows = embeddings.double()
    zero = (rows == 0).all(dim=-1, keepdim=True)
    length = torch.where(zero, torch.ones_like(rows), rows).square().sum(dim=-1, keepdim=True).sqrt()
    return torch.where(zero, torch.zeros_like(rows), rows / length)


def _join(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


def _pair(values: Uncertainty | None) -> tuple[Tensor | None, Tensor | None]:
    """Returns the values of view_a's rows and of view_b's, converted once so that their gradient is rounded once."""
    if isinstance(values, Tensor):
        values = values.double()
        return values, values
    of_a, of_b = (None, None) if values is None else values
    return None if of_a is None else of_a.double(), None if of_b is None else of_b.double()


def _seen(count: int, hard: Tensor, mask: Tensor | None, owners: str) -> Tensor:
    """Returns which hard negatives each anchor sees, [count, H]: of ``every`` row, of its ``own`` or of the ``others``."""
    seen = torch.ones(count, hard.shape[:-1].numel(), dtype=torch.bool)
    if hard.ndim == 3 and owners != "every":
        owned = torch.arange(count)[:, None] == torch.arange(count).repeat_interleave(hard.shape[1])
        seen = owned if owners == "own" else ~owned
    elif owners == "own":
        raise ConfigError("hard=own: the oracle needs hard_negatives [B, k, D], which belong to rows.")
    return seen if mask is None else seen & mask.flatten()


def _cross_view(
    a: Tensor,
    b: Tensor,
    queue: Tensor | None,
    hard: Tensor | None,
    mask: Tensor | None,
    labels: Tensor | None,
    uncertainty: tuple[Tensor | None, Tensor | None],
    averages: tuple[Tensor | None, Tensor | None],
    *,
    directions: str = "ab",
    softmax: str = "joint",
    hard_option: str = "shared",
    in_batch: bool = True,
    positives: str = "row",
) -> list[list[Direction]]:
    diagonal = torch.eye(len(a), dtype=torch.bool)
    views = {"a": (a, "view_a", uncertainty[0], averages[0]), "b": (b, "view_b", uncertainty[1], averages[1])}
    blocks = []
    for name in directions.split("+"):
        (anchors, source, of_anchors, average), (candidates, other, *_) = (views[letter] for letter in name)
        positive = diagonal if name in ("ab", "ba") else torch.zeros_like(diagonal)
        negative = ~diagonal if in_batch else torch.zeros_like(diagonal)
        block = Direction(anchors, candidates, positive, negative, labels, of_anchors, ((source,), (other,)), name, average)
        if queue is not None and name in ("ab", "bb"):
            block = block.with_negatives("queue", queue, torch.ones(len(a), len(queue), dtype=torch.bool))
        owners = {"ab": "own" if hard_option == "own" else "every", "bb": "others" if hard_option == "shared" else ""}.get(name)
        if hard is not None and owners:
            block = block.with_hard_negatives(hard.flatten(0, -2), _seen(len(a), hard, mask, owners))
        blocks.append(block)
    return [blocks] if softmax == "joint" else [[block] for block in blocks]


def _with_positives(blocks: list[Direction], share: Tensor) -> list[Direction]:
    """Returns the one block of a softmax with other positives, those that have a share; what had no role has none."""
    (block,), given = blocks, share > 0
    return [replace(block, positive=given, negative=(block.positive | block.negative) & ~given, share=share.double())]


def directions(
    layout: str,
    options: Mapping[str, Any],
    rows: Mapping[str, Tensor],
    *,
    labels: Tensor | None = None,
    uncertainty: Uncertainty | None = None,
    masks: Sequence[Tensor | None] = (None, None),
    hard_negative_mask: Tensor | None = None,
    averages: Uncertainty | None = None,
    targets: Tensor | tuple[Tensor, Tensor] | None = None,
    arguments: Given = MappingProxyType({}),
) -> list[list[Direction]]:
    """Returns the blocks of each softmax of a row; the first one of each holds the positives that its loss is about.

    ``rows`` are unit rows by the name of the argument, ``masks`` those of positives and of negatives; the rest is as of
    `tempplug.testing.oracle_row_losses`.
    """
    (of_a, of_b), (average_a, average_b) = _pair(uncertainty), _pair(averages)
    average_both = _join(average_a, average_b)
    a, b, queue, hard = (rows.get(name) for name in ("view_a", "view_b", "queue", "hard_negatives"))
    if a is None:
        raise ConfigError("view_a=None: the oracle needs anchors.")
    diagonal, both = torch.eye(len(a), dtype=torch.bool), ("view_a", "view_b")
    if layout == "cross-view" and b is not None:
        options = {"hard_option" if name == "hard" else name: value for name, value in options.items()}
        parts = a, b, queue, hard, hard_negative_mask, labels, (of_a, of_b), (average_a, average_b)
        softmaxes = _cross_view(*parts, **options)
        if options.get("positives") == "keys":
            keys = [[of_rows(arguments, "keys", names) for names in block.sources] for (block,) in softmaxes]
            return [_with_positives(blocks, of[:, None] == to) for blocks, (of, to) in zip(softmaxes, keys, strict=True)]
        if targets is None:
            return softmaxes
        shares = targets if isinstance(targets, tuple) else (targets, targets[:, : len(a)].T)
        return [_with_positives(blocks, share) for blocks, share in zip(softmaxes, shares, strict=False)]
    if layout == "two-view" and b is not None:
        self_pairs = torch.eye(2 * len(a), dtype=torch.bool)
        positive, z = self_pairs.roll(len(a), dims=1), torch.cat([a, b])
        negative = ~positive & ~self_pairs
        block = Direction(
            z, z, positive, negative, _join(labels, labels), _join(of_a, of_b), (both, both), averages=average_both
        )
    elif layout == "queue" and b is not None and queue is not None:
        none = torch.zeros(len(a), len(queue), dtype=torch.bool)
        positive, negative = torch.cat([diagonal, none], dim=1), torch.cat([torch.zeros_like(diagonal), ~none], dim=1)
        block = Direction(
            a, torch.cat([b, queue]), positive, negative, labels, of_a, (("view_a",), ("view_b", "queue")), averages=average_a
        )
    elif layout == "labels" and labels is not None:
        z, classes = (a, labels) if b is None else (torch.cat([a, b]), torch.cat([labels, labels]))
        same, self_pairs = classes[:, None] == classes[None, :], torch.eye(len(z), dtype=torch.bool)
        names = both if b is not None else ("view_a",)
        of_all, average = (of_a, average_a) if b is None else (_join(of_a, of_b), average_both)
        block = Direction(z, z, same & ~self_pairs, ~same, classes, of_all, (names, names), averages=average)
    elif layout == "masks" and b is not None and masks[0] is not None and masks[1] is not None:
        block = Direction(a, b, masks[0], masks[1], labels, of_a, (("view_a",), ("view_b",)), averages=average_a)
    else:
        raise ConfigError(f"layout='{layout}' is unknown to the oracle, or lacks an input that it needs.")
    if hard is not None:
        block = block.with_hard_negatives(hard.flatten(0, -2), _seen(len(a), hard, hard_negative_mask, "every"))
    return [[block]]


def of_rows(arguments: Given, name: str, sources: tuple[str, ...], rows: Tensor | None = None) -> Tensor:
    """Returns an argument of some rows; ``rows`` stand in where nothing is given of hard negatives."""
    value = arguments.get(name)
    parts: Mapping[str, Any] = value if isinstance(value, Mapping) else dict.fromkeys(("view_a", "view_b"), value)
    if rows is not None:
        parts = {"hard_negatives": rows, **parts}
    tensors = [parts[source] for source in sources if parts.get(source) is not None]
    if len(tensors) < len(sources):
        raise ConfigError(f"{name}=: the oracle's negatives need it of {', '.join(sources)}.")
    hard = arguments.get("hard_negatives")
    if hard is not None and hard.ndim == 3 and sources[-1] == "hard_negatives" and tensors[-1].shape[:2] == hard.shape[:2]:
        tensors[-1] = tensors[-1].flatten(0, 1)
    return torch.cat(tensors)


def _numbers(block: Direction, arguments: Given) -> tuple[Tensor, Tensor]:
    """Returns the number of the example of each anchor and of each candidate, -1 where there is none."""
    hard = arguments.get("hard_negatives")
    k = hard.shape[1] if hard is not None and hard.ndim == 3 else 0

    def of(sources: tuple[str, ...], total: int) -> Tensor:
        size = {name: len(arguments[name]) for name in ("view_a", "view_b", "queue") if arguments.get(name) is not None}
        owners = torch.arange(size["view_a"]).repeat_interleave(k) if k else torch.full((total,), -1)
        known = {"view_a": torch.arange(size["view_a"]), "view_b": torch.arange(size.get("view_b", 0))}
        known |= {"queue": torch.full((size.get("queue", 0),), -1), "hard_negatives": owners}
        return torch.cat([known[name] for name in sources])[:total]

    return of(block.sources[0], len(block.anchors)), of(block.sources[1], len(block.candidates))


def _mean_positive(similarity: Tensor, main: Direction) -> Tensor:
    share = main.positive.double() if main.share is None else main.share
    return (share * similarity).sum(1) / share.sum(1).masked_fill(~main.positive.any(1), 1.0)


def _above(judged: Tensor, positive: Tensor, margin: float, rule: str, weight: float) -> Tensor:
    threshold = positive + margin * (positive.abs() if rule == "relative" else 1.0)
    return torch.zeros_like(judged).masked_fill(judged > threshold[:, None], math.log(weight) if weight else -math.inf)


def _false_negatives(
    block: Direction, main: Direction, arguments: Given, *, margin: float = 0.1, rule: str = "absolute", weight: float = 0.0
) -> Tensor:
    positive = _mean_positive(main.anchors @ main.candidates.T, main)
    return _above(block.anchors @ block.candidates.T, positive, margin, rule, weight)


def _guide(
    block: Direction, main: Direction, arguments: Given, *, margin: float = 0.0, rule: str = "absolute", weight: float = 0.0
) -> Tensor:
    sides = [[unit_rows(of_rows(arguments, "guide", sources)) for sources in side.sources] for side in (block, main)]
    judged, of_main = (left @ right.T for left, right in sides)
    return _above(judged, _mean_positive(of_main, main), margin, rule, weight)


def _equal(left: Tensor, right: Tensor) -> Tensor:
    return left[:, None] == right[None, :]


def _same_key(block: Direction, main: Direction, arguments: Given) -> Tensor:
    equal = _equal(*(of_rows(arguments, "keys", sources) for sources in block.sources))
    return torch.where(equal, -math.inf, 0.0).double()


def _within_group(block: Direction, main: Direction, arguments: Given) -> Tensor:
    value, hard = arguments.get("groups"), arguments.get("hard_negatives")
    of_a = value.get("view_a") if isinstance(value, Mapping) else value
    of_hard = of_a.repeat_interleave(hard.shape[1]) if of_a is not None and hard is not None and hard.ndim == 3 else None
    equal = _equal(*(of_rows(arguments, "groups", sources, of_hard) for sources in block.sources))
    return torch.where(equal, 0.0, -math.inf).double()


def _hardness(block: Direction, main: Direction, arguments: Given, *, strength: float = 5.0, of: str = "all") -> Tensor:
    term = strength * (block.anchors @ block.candidates.T)
    if of == "all":
        return term
    hard = arguments.get("hard_negatives")
    if hard is not None and hard.ndim == 2:
        raise ConfigError(f"hardness of={of}: the oracle needs hard_negatives [B, k, D], which belong to rows.")
    same_row = _equal(*_numbers(block, arguments))
    if of == "in-batch":
        return torch.where(same_row, 0.0, term)
    behind = len(block.candidates) - (hard.shape[:-1].numel() if hard is not None else 0)
    is_hard = (torch.arange(len(block.candidates)) >= behind) & ("hard_negatives" in block.sources[1])
    return torch.where(same_row & is_hard, term, 0.0)


def _log_q(block: Direction, main: Direction, arguments: Given, *, size: int | None = None) -> Tensor:
    if size is None:
        log_q = of_rows(arguments, "candidate_log_q", block.sources[1]).double()
    else:
        index = arguments.get("index")
        counted = index.get("view_b", index.get("view_a")) if isinstance(index, Mapping) else index
        if counted is None:
            raise ConfigError("index=None: the oracle's log-q needs it.")
        counts = torch.bincount(counted, minlength=size).double() + arguments.get("counts", 0)
        log_q = (counts[of_rows(arguments, "index", block.sources[1])].clamp(min=1) / counts.sum()).log()
    return -log_q.expand(len(block.anchors), -1)


_TERMS: dict[str, Callable[..., Tensor]] = {
    "false-negatives": _false_negatives,
    "guide": _guide,
    "same-key": _same_key,
    "within-group": _within_group,
    "hardness": _hardness,
    "log-q": _log_q,
}


def oracle_term(negatives: Mapping[str, Mapping[str, Any]], block: Direction, main: Direction, arguments: Given) -> Tensor:
    """Returns what is added to the logits of a block's negatives, [N, M] float64 in nats, -inf where a pair is left out.

    Args:
        negatives: options of each term by its name; ``debiased`` works on rows and adds nothing here.
        block: of the pairs.
        main: the block with the positives of the same anchors.
        arguments: what the call gives of rows, and ``counts`` [size] of earlier batches for ``log-q``.

    Raises:
        ConfigError: no formula of that name, or an input that it needs is missing.
    """
    total = torch.zeros(len(block.anchors), len(block.candidates), dtype=torch.float64)
    for name, options in negatives.items():
        chosen = dict(options)
        blocks = chosen.pop("blocks", None)
        if name != "debiased" and name not in _TERMS:
            raise ConfigError(f"negatives='{name}' has no oracle: known are debiased, {', '.join(_TERMS)}.")
        if name != "debiased" and (blocks is None or block.name in blocks.split("/")):
            total = total + _TERMS[name](block, main, arguments, **chosen).detach()
    return total


def debiased_lse(lse: Tensor, positive_logit: Tensor, count: Tensor, lowest: Tensor, *, prior: float = 0.1) -> Tensor:
    """Returns ln max((e^lse - π·n·e^l⁺)/(1 - π), n·e^l(-1)) of each row that has negatives, [N]; π is the prior."""
    floor = (count.double().log() + lowest).detach()
    # In units of e^lse, so that nothing overflows.
    rest = (1 - prior * count.double() * (positive_logit - lse).clamp(max=700).exp()) / (1 - prior)
    above = rest > (floor - lse).clamp(max=700).exp()
    return torch.where(above, lse + torch.where(above, rest, 1.0).log(), floor)
