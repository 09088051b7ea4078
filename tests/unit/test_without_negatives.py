"""Anchors without a negative or without a positive: a batch of one ends no run, and counts as the formulas say."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.call.memory import Memory
from tempplug.roles import PairRoles

OBJECTIVES = ["infonce", "dcl", "dclw", "flatnce", "reweighted", "dual-temperature:second_temperature=1", "amcl-top"]
ENGINES = ["dense", "tiled", "auto"]
ONE: list[tuple[str, bool]] = [("two-view", False), ("cross-view", False), ("cross-view", True)]
TERMS = [None, "false-negatives:margin=-1+hardness:of=in-batch", "debiased+log-q:size=9", "guide:margin=-0.1+same-key"]
ROW = {"index": torch.zeros(1, dtype=torch.int64), "keys": torch.ones(1, dtype=torch.int64), "guide": torch.ones(1, 3)}
quiet = pytest.mark.filterwarnings("ignore:layout:RuntimeWarning", "ignore:top_k:RuntimeWarning")


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def make(objective: str, layout: Any, engine: Any = "auto", **options: Any) -> ContrastiveLoss:
    strategy = "amcl:dimension=3" if objective.startswith("amcl") else "learnable"
    objective = "amcl-top:top_k=2,beta=0.1" if objective == "amcl-top" else objective
    return ContrastiveLoss(strategy, objective, layout, engine=engine, **options).double()


@quiet
@pytest.mark.parametrize(
    ("objective", "engine", "one", "reduction", "negatives"),
    [
        *every_pair(OBJECTIVES[:-1], ENGINES, ONE, ["mean", "sum", "none"], TERMS),
        *every_pair(OBJECTIVES[-1:], ENGINES, ONE, ["mean", "sum", "none"], [None]),
    ],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_a_pair_alone_has_loss_zero_and_gradients_of_zero(
    objective: str, engine: str, one: tuple[str, bool], reduction: str, negatives: str | None
) -> None:
    layout, symmetric = one
    loss_fn = make(objective, layout, engine, symmetric=symmetric, reduction=reduction, negatives=negatives)
    a, b = rows(1), rows(1, seed=1)
    given = loss_fn.accepted(**ROW)
    loss = loss_fn(a, b, **given)
    assert loss.shape == (() if reduction != "none" else (2,) if layout == "two-view" else (1,))
    assert not loss.any()
    leaves = [a, b, *loss_fn.parameters()]
    assert not any(gradient.any() for gradient in torch.autograd.grad(loss.sum(), leaves))
    numbers = loss_fn.record.numbers()
    assert numbers["loss"] == 0
    assert numbers["finite"] == 1
    assert numbers["anchors_without_negative"] == (1 if layout == "cross-view" and not symmetric else 2)
    assert numbers["temperature_mean"] > 0
    assert "negative_similarity" not in numbers, "there is none"
    hard = rows(2, seed=2).detach()[None].requires_grad_()
    of_hard = {
        name: {**dict.fromkeys(("view_a", "view_b"), row), "hard_negatives": row.repeat(2, 1).view(2, *row.shape[1:])}
        for name, row in given.items()
    }
    with torch.autograd.detect_anomaly():  # beside hard negatives that one of the two anchors sees
        loss_fn(a, b, hard_negatives=hard, **of_hard).sum().backward()


@quiet
@pytest.mark.parametrize(
    ("strategy", "reduction"),
    [
        ("learnable", "mean"),
        ("macl", "sum"),
        ("individual:size=9", "none"),
        ("amcl:dimension=3", "mean"),
        ("uncertainty", "none"),
    ],
)
def test_where_no_anchor_has_a_positive_the_loss_is_zero_with_a_graph(strategy: str, reduction: Any) -> None:
    """A last batch of one image, or of as many classes as images."""
    for count in (1, 3):
        loss_fn = ContrastiveLoss(strategy, layout="labels", reduction=reduction).double()
        before = {name: value.clone() for name, value in loss_fn.state_dict().items()}
        a, uncertainty = rows(count), rows(3)[:count, 0].detach().requires_grad_()
        given = loss_fn.accepted(labels=torch.arange(count), index=torch.arange(count), uncertainty=uncertainty)
        loss = loss_fn(a, **given)
        assert loss.tolist() == (0.0 if reduction != "none" else [0.0] * count)
        leaves = [a, *loss_fn.parameters(), *([uncertainty] if "uncertainty" in given else [])]
        assert not any(gradient.any() for gradient in torch.autograd.grad(loss.sum(), leaves))
        numbers = loss_fn.record.numbers()
        assert (numbers["loss"], numbers["finite"]) == (0, 1)
        assert not {"temperature_mean", "infonce", "positive_similarity"} & numbers.keys()
        assert all(torch.equal(value, before[name]) for name, value in loss_fn.state_dict().items())


@quiet
def test_an_example_without_negatives_teaches_its_temperature_nothing() -> None:
    """But the others of its batch learn: hard negatives are view a's alone."""
    for hard, moves in ((None, False), (rows(3, seed=2), True)):
        loss_fn = ContrastiveLoss("individual:size=4").double()
        loss_fn(rows(1), rows(1, seed=1), index=torch.tensor([2]), hard_negatives=hard)
        assert loss_fn.strategy.log_means.isfinite().tolist() == [False, False, moves, False]
        assert loss_fn.strategy.temperatures.isfinite().all()


@quiet
@pytest.mark.parametrize("objective", ["infonce", "reweighted"])
def test_a_third_partys_objective_sees_no_infinity_unless_it_asks(objective: str) -> None:
    loss_fn = ContrastiveLoss("fixed", objective)
    seen: list[Tensor] = []
    original = loss_fn.objective.row_loss
    loss_fn.objective.row_loss = lambda statistics, auxiliary: (  # type: ignore[method-assign,assignment]
        seen.append(statistics.negative_lse.detach()) or original(statistics, auxiliary)  # type: ignore[func-returns-value]
    )
    loss_fn(rows(1), rows(1, seed=1))
    assert seen[0].isneginf().all() == (objective == "infonce")
    assert seen[0].isfinite().all() == (objective != "infonce")


@pytest.mark.parametrize("layout", ["labels", "masks"])
def test_a_device_is_waited_for_in_the_first_call_only(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on the CPU, only the first call looks for anchors without a negative; records count them in any call."""
    may_read = Memory.may_read
    monkeypatch.setattr(Memory, "may_read", lambda memory, what, device: may_read(memory, what, torch.device("meta")))
    monkeypatch.setattr(PairRoles, "without_negatives", property(lambda roles: roles.negative_count == 0), raising=False)
    eye, labels = torch.eye(4).bool(), torch.arange(4)
    lacking = {"labels": {"labels": labels * 0}, "masks": {"positive_mask": eye, "negative_mask": ~eye & (labels < 3)[:, None]}}
    enough = {"labels": {"labels": labels}, "masks": {"positive_mask": eye, "negative_mask": ~eye}}
    with pytest.warns(RuntimeWarning, match="without a negative"):
        make("infonce", layout)(rows(4), rows(4, 1), **lacking[layout])
    loss_fn = make("infonce", layout)
    loss_fn(rows(4), rows(4, 1), **enough[layout])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_fn(rows(4), rows(4, 1), **lacking[layout])
    assert loss_fn.record.anchors_without_negative == (8 if layout == "labels" else 1)
