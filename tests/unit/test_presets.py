"""Presets: each builds and trains, is what its table says, and three of them are their papers' formulas."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

import tempplug
from tempplug import preset, presets
from tempplug.errors import ConfigError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]
N, K = 6, 2
GENERATOR = torch.Generator().manual_seed(7)
A, B, OTHERS = (torch.randn(rows, 5, generator=GENERATOR, dtype=torch.float64) for rows in (N, N, N * K))
B = B + A
HARD = OTHERS.view(N, K, 5)
NEEDS: dict[str, Any] = {
    "hard_negatives": HARD,
    "queue": OTHERS,
    "labels": torch.tensor([0, 1, 0, 1, 2, 2]),
    "guide": {"view_a": A, "view_b": B},
    "keys": {
        "view_a": torch.arange(N),
        "view_b": torch.tensor([0, 1, 1, 3, 4, 5]),
        "hard_negatives": torch.arange(6, 6 + N * K),
    },
}
TABLE = presets()


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_every_preset_trains_and_is_what_its_table_says(entry: tempplug.preset_losses.Preset) -> None:
    stated = {} if "strategy" in entry.parts else {"strategy": "fixed:temperature=0.05"}
    loss_fn = preset(entry.name, **stated)
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    if "scores" in entry.needs:
        loss = loss_fn.from_scores(normalize(a) @ normalize(b).T)
    else:
        loss = loss_fn(a, b, **{name: NEEDS[name] for name in entry.needs})
    loss.backward()  # type: ignore[no-untyped-call]
    for each in (a, b, *loss_fn.parameters()):
        assert each.grad is not None
        assert each.grad.isfinite().all()
    line = entry.loss().replace("strategy=...", "strategy='fixed:temperature=0.05'")
    same = eval(line, {"ContrastiveLoss": tempplug.ContrastiveLoss})
    assert repr(same) == repr(loss_fn)
    assert re.search(r"@[0-9a-f]{10}: |\b(19|20)\d\d, ", entry.source), "a commit, or a paper with its year"


def logits_of(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    return normalize(first) @ normalize(second).T / temperature


def without_own(logits: Tensor) -> Tensor:
    return logits.masked_fill(torch.eye(N, dtype=torch.bool), -torch.inf)


def simcse(a: Tensor, b: Tensor) -> Tensor:
    return cross_entropy(logits_of(a, b, 0.05), torch.arange(N))


def simcse_supervised(a: Tensor, b: Tensor) -> Tensor:
    return cross_entropy(logits_of(a, torch.cat([b, OTHERS]), 0.05), torch.arange(N))


def gte(a: Tensor, b: Tensor) -> Tensor:
    """The positive stands in the denominator with the documents of a query, and with the queries of a document."""
    ab = logits_of(a, b, 0.01)
    blocks = [ab, without_own(logits_of(a, a, 0.01)), ab.T, without_own(logits_of(b, b, 0.01))]
    return (torch.cat(blocks, 1).logsumexp(1) - ab.diagonal()).mean()


def qwen3(a: Tensor, b: Tensor) -> Tensor:
    """Queries and documents more similar to a query than its document by 0.1 are left out, documents to documents are not."""
    cosines, own = logits_of(a, b, 1), logits_of(a, a, 1)
    limit = cosines.detach().diagonal()[:, None] + 0.1
    documents = cosines.masked_fill(cosines.detach() > limit, -torch.inf)
    queries = without_own(own.masked_fill(own.detach() > limit, -torch.inf))
    assert (documents == -torch.inf).any(), "the filter has something to do"
    blocks = torch.cat([documents, queries, without_own(logits_of(b, b, 1))], 1) / 0.1
    return (blocks.logsumexp(1) - cosines.diagonal() / 0.1).mean()


FORMULAS = {"simcse": simcse, "simcse-supervised": simcse_supervised, "gte": gte, "qwen3-embedding": qwen3}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_of_the_papers(name: str) -> None:
    given = {"hard_negatives": HARD} if name == "simcse-supervised" else {}
    second = B - 0.9 * A  # positives that some negatives pass
    results = []
    for loss_fn in (lambda a, b: preset(name)(a, b, **given), FORMULAS[name]):
        a, b = A.clone().requires_grad_(), second.clone().requires_grad_()
        loss = loss_fn(a, b)
        results.append((loss, *torch.autograd.grad(loss, (a, b))))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_changes_win_and_what_is_missing_is_told() -> None:
    assert preset("clip", symmetric=False, engine="dense").engine == "dense"
    assert preset("gte", strategy="learnable").strategy.name == "learnable"
    with pytest.raises(UnknownNameError, match=r"unknown preset 'gtee'. Did you mean 'gte'\? Known: simcse, "):
        preset("gtee")
    with pytest.raises(ConfigError, match=r"preset 'embeddinggemma' has no strategy, because its source states no temperature"):
        preset("embeddinggemma")


def test_the_page_has_the_table() -> None:
    table = runpy.run_path(str(ROOT / "docs" / "tools" / "presets.py"))["table"]()
    assert table in (ROOT / "docs" / "presets.md").read_text(encoding="utf-8"), "run python docs/tools/presets.py"
