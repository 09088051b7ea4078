"""Writes the table of strategies and integrations in ``docs/which-loss.md`` anew: ``python docs/tools/integrations.py``.

Each cell is the outcome of computing a loss with the strategy; a test computes the cells again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import dot_score
from tokenizers import Tokenizer, models
from torch import Tensor

import tempplug
from tempplug.errors import TempplugError
from tempplug_adapters.graph.pygcl import PyGCLLoss
from tempplug_adapters.sentence_transformers import TemperatureRankingLoss
from tempplug_adapters.vision.lightly import NTXentLoss

PAGE = Path(__file__).resolve().parents[1] / "which-loss.md"
MARKER = re.compile(r"(<!-- integrations -->\n\n)(?:\|[^\n]*\n)*")
NEEDED = {
    "head-tail": "class_counts=3/1",
    "mm-ts": "class_counts=3/1",
    "by-group": "temperatures=0.05/0.1",
    "individual": "size=4",
    "amcl": "dimension=8",
    "tempnet": "dimension=8",
}
"""Options without a default."""
OF_ROWS = {"labels": torch.tensor([0, 0, 0, 1]), "index": torch.arange(4), "uncertainty": torch.rand(4)}
OF_ROWS["groups"] = OF_ROWS["labels"]

Run = Callable[[str, Mapping[str, Tensor]], object]


def own_loop(strategy: str, given: Mapping[str, Tensor]) -> object:
    """Computes the loss as a loop, the Hugging Face mixin and Lightning do."""
    loss_fn = tempplug.ContrastiveLoss(strategy, layout="cross-view")
    loss_fn.set_progress(0.0)
    return loss_fn(torch.randn(4, 8), torch.randn(4, 8), **given)


def sentence_transformers(strategy: str, given: Mapping[str, Tensor], **options: Any) -> object:
    """Computes a ranking loss."""
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu")
    loss = TemperatureRankingLoss(model, strategy, **options)
    loss.take_charge()
    loss.contrastive_loss.set_progress(0.0)
    first, second = (model.preprocess(["a", "b", "a b", "b"]) for _ in range(2))
    return loss([{**first, **given}, second])


def pygcl(strategy: str, given: Mapping[str, Tensor]) -> object:
    """Computes PyGCL's loss, which accepts no further arguments."""
    positive = torch.eye(4)
    loss = PyGCLLoss(strategy)
    loss.contrastive_loss.set_progress(0.0)
    return loss(torch.randn(4, 8), torch.randn(4, 8), positive, 1 - positive)


def lightly(strategy: str, given: Mapping[str, Tensor]) -> object:
    """Computes lightly's loss, which accepts no further arguments."""
    loss = NTXentLoss(strategy)
    loss.contrastive_loss.set_progress(0.0)
    return loss(torch.randn(4, 8), torch.randn(4, 8))


COLUMNS: dict[str, Run] = {
    "own loop, Hugging Face, Lightning": own_loop,
    "sentence-transformers": sentence_transformers,
    "sentence-transformers with `dot_score`": lambda strategy, given: sentence_transformers(
        strategy, given, similarity_fct=dot_score
    ),
    "`PyGCLLoss`": pygcl,
    "lightly's `NTXentLoss`": lightly,
}


def cell(run: Run, name: str) -> str:
    """Returns whether a strategy works, and with which argument."""
    strategy = f"{name}:{NEEDED[name]}" if name in NEEDED else name
    takes = tempplug.create_strategy(strategy).takes
    try:
        run(strategy, {argument: OF_ROWS[argument] for argument in takes})
    except TempplugError:
        return "–"
    return " ".join(["yes", *(f"with `{argument}`" for argument in sorted(takes))])


def rewritten(text: str) -> str:
    """Returns the page with the table as the code has it now."""
    names = [info.name for info in tempplug.strategies() if info.distribution == "tempplug"]
    lines = [["strategy", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    with torch.random.fork_rng():
        lines += [[f"`{name}`", *(cell(run, name) for run in COLUMNS.values())] for name in names]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return MARKER.sub(lambda found: found[1] + table, text)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
