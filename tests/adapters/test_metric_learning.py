"""pytorch-metric-learning's losses: the library's values and gradients, its reducers, distances, miners and memory."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters import metric_learning

NAMES = ["NTXentLoss", "SupConLoss"]


def batch(rows: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(rows, 8, dtype=torch.float64, generator=generator)
    return embeddings, torch.randint(0, 6, (rows,), generator=generator)


def compare(name: str, options: dict[str, Any], *arguments: Any, **given: Any) -> None:
    embeddings, *others = arguments
    found = []
    for module in (losses, metric_learning):
        rows = embeddings.clone().requires_grad_()
        loss = getattr(module, name)(temperature=0.2, **options)(rows, *others, **given)
        loss = loss["loss"]["losses"] if isinstance(loss, dict) else loss
        found.append((loss.detach(), *torch.autograd.grad(loss.sum(), rows)))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reducer": reducers.PerAnchorReducer(reducers.AvgNonZeroReducer())},
        {"reducer": reducers.DoNothingReducer()},
        {"reducer": reducers.ThresholdReducer(low=2)},
        {"distance": distances.DotProductSimilarity()},
        {"distance": distances.DotProductSimilarity(normalize_embeddings=False)},
        {"distance": distances.CosineSimilarity(p=1)},
        {"distance": distances.LpDistance()},
    ],
    ids=lambda options: "".join(type(each).__name__ for each in options.values()) or "plain",
)
def test_value_and_gradient_are_the_librarys(name: str, options: dict[str, Any]) -> None:
    compare(name, options, *batch())
    if not isinstance(options.get("reducer"), reducers.PerAnchorReducer):
        ref_emb, ref_labels = batch(30, seed=1)
        compare(name, options, *batch(), ref_emb=ref_emb, ref_labels=ref_labels)


@pytest.mark.parametrize("name", NAMES)
def test_miners_and_batches_without_pairs(name: str) -> None:
    embeddings, labels = batch()
    compare(name, {}, embeddings, labels, miners.MultiSimilarityMiner(0.1)(embeddings, labels))
    for nothing in (torch.zeros(20, dtype=torch.long), torch.arange(20)):
        compare(name, {}, embeddings, nothing)
    compare("NTXentLoss", {}, embeddings, None, tuple(torch.tensor([each]) for each in (0, 1, 0, 2)))


def test_a_strategy_is_that_of_the_core_and_learns() -> None:
    embeddings, labels = batch()
    ours = metric_learning.SupConLoss("macl:base_temperature=0.1", reducer=reducers.MeanReducer())
    expected = tempplug.ContrastiveLoss("macl:base_temperature=0.1", layout="labels", reduction="none")
    torch.testing.assert_close(ours(embeddings, labels), expected(embeddings, labels=labels).mean())
    assert ours.temperature.startswith("macl")
    assert metric_learning.NTXentLoss("fixed").temperature == 0.07
    learned = metric_learning.NTXentLoss("learnable")
    learned(embeddings, labels).backward()
    assert [each.grad is not None for each in learned.parameters()] == [True]
    assert learned.no_weight_decay() == {name for name, _ in learned.named_parameters()}


def test_what_needs_cosines_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"distance=LpDistance\(\) gives scores, no cosines: strategy 'macl'"):
        metric_learning.NTXentLoss("macl", distance=distances.LpDistance())
    with pytest.raises(ConfigError, match="negative term 'log-q' reads"):
        metric_learning.NTXentLoss(negatives="log-q")
    with pytest.raises(ConfigError, match="must be greater than 0"):
        metric_learning.NTXentLoss(-1.0)


def test_a_memory_goes_on_after_a_checkpoint() -> None:
    memories = [metric_learning.CrossBatchMemory(metric_learning.NTXentLoss(0.2), 8, 64).double() for _ in range(3)]
    library = losses.CrossBatchMemory(losses.NTXentLoss(0.2), 8, 64).double()
    for step in range(4):  # the fourth wraps around
        torch.testing.assert_close(memories[0](*batch(seed=step)), library(*batch(seed=step)))
    memories[1].load_state_dict(memories[0].state_dict())
    memories[2].load_state_dict(library.state_dict())
    goes_on, resumed, starts_anew = (memory(*batch(seed=9)) for memory in memories)
    torch.testing.assert_close(resumed, goes_on, rtol=0, atol=0)
    assert starts_anew != goes_on, "the library saves no position"


def test_what_stands_in_for_other_libraries_is_there_and_has_their_names() -> None:
    """`tests/peers/run.py`, which is not run here, puts these classes into the libraries."""
    peers = tomllib.loads((Path(__file__).parents[1] / "peers" / "peers.toml").read_text(encoding="utf-8"))
    replaced = {theirs: ours.partition(":") for peer in peers.values() for theirs, ours in peer["replace"].items()}
    assert len(replaced) == 6
    for theirs, (module, _, name) in replaced.items():
        ours = getattr(import_module(module), name)
        if theirs.startswith("lightly."):
            assert ours.__name__ == theirs.partition(":")[2]
        else:
            library = getattr(import_module(theirs.partition(":")[0]), theirs.partition(":")[2])
            assert issubclass(ours, library) or ours.__name__.startswith("Cached")
