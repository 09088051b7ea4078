"""What a warning says is compared with the value: each warning of the core says something that a test here finds to be so."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import every_pair
from torch import Tensor

import tempplug
from tempplug import ContrastiveLoss, create_strategy
from tempplug.types import Batch

KNOWN = {
    "call/memory.py": "the first five tests here",
    "objectives/amcl_top.py": "test_top_k_takes_all_that_there_are",
    "plugins/manager.py": "test_registry.py: names and errors, no values",
    "call/record.py": "test_bounds.py",
    "strategies/amcl.py": "test_a_low_floor_of_amcl_does_what_the_warning_says",
    "strategies/dystress.py": "test_the_end_of_a_shifted_profile_is_what_the_warning_says",
    "strategies/macl.py": "test_the_floor_of_macl_is_what_the_warning_says",
    "call/between_calls.py": "test_unlearned.py",
    "layouts/__init__.py": "test_renamed.py",
    "renamed.py": "test_renamed.py",
}
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"


def told(call: Callable[[], Any]) -> tuple[str, Any]:
    """Returns the one warning of a call, and what it returned."""
    with pytest.warns(RuntimeWarning) as found:
        value = call()
    (message,) = [str(each.message) for each in found]
    return message, value


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_file_that_warns_has_its_test() -> None:
    folder = Path(tempplug.__file__).parent
    warning = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "warn" and ast.unparse(node) == "warnings.warn"
    }
    assert warning <= KNOWN.keys()


ALONE: list[tuple[Any, int, int, int]] = [
    # rows of a view, anchors, positives of each
    ("two-view", 1, 2, 1),
    ("cross-view", 1, 1, 1),
    ("labels", 1, 2, 1),
    ("labels", 2, 4, 3),
    ("labels", 3, 6, 5),
    ("masks", 2, 2, 2),
]


@pytest.mark.parametrize(("case", "objective", "engine"), every_pair(ALONE, ["infonce", "dcl"], ["auto", "dense", "tiled"]))
def test_anchors_without_a_negative_become_what_the_warning_says(
    case: tuple[Any, int, int, int], objective: str, engine: Any
) -> None:
    """Once. One class of n + 1 rows: the loss of n positives is ln n or more, not 0."""
    layout, count, anchors, positives = case
    loss_fn = ContrastiveLoss("fixed:temperature=2", objective, layout, engine=engine, reduction="none")
    every = torch.ones(count, count, dtype=torch.bool)
    offered = {"labels": torch.zeros(count, dtype=torch.int64), "positive_mask": every, "negative_mask": ~every}
    message, losses = told(lambda: loss_fn(rows(count), rows(count, seed=1), **loss_fn.accepted(**offered)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_fn(rows(count), rows(count, seed=1), **loss_fn.accepted(**offered))
    assert message.startswith(f"layout '{layout}' leaves {anchors} of {anchors} anchors without a negative: ")
    assert loss_fn.record.anchors_without_negative == anchors == len(losses)
    if objective == "dcl":
        assert "under objective 'dcl' they leave the mean" in message
        assert not losses.any()
        return
    assert "they have a loss of their positives alone (0 with one)" in message
    least = math.log(positives)
    assert ((losses >= least - 1e-12) & (losses < least + 0.5)).all(), "so warm a temperature is near the bound"
    if positives == 1:
        assert losses.tolist() == [0.0] * anchors


@pytest.mark.parametrize("spec", ["fixed:temperature=20", "learnable:initial_temperature=20", "macl:base_temperature=2.1"])
def test_a_temperature_that_is_a_scale_leaves_what_the_warning_says(spec: str) -> None:
    """Once: all losses are nearly ln N. Scores may be any number, and so may bounds."""
    a, b, name = rows(6), rows(6) + rows(6, seed=1) / 4, spec.partition(":")[2].partition("=")[0]
    loss_fn = ContrastiveLoss(spec, layout="cross-view")
    message, loss = told(lambda: loss_fn(a, b))
    found = re.search(rf"{name}={NUMBER} of strategy .* a scale of {NUMBER}, 1/temperature, is {name}={NUMBER}\.", message)
    assert found is not None
    scale, again, temperature = map(float, found.groups())
    assert scale == again == pytest.approx(1 / temperature, rel=1e-4)
    assert loss.item() == pytest.approx(math.log(6), rel=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_fn(a[:4], b[:4])
        ContrastiveLoss(temperature, layout="cross-view")(a, b)
        ContrastiveLoss(2, layout="cross-view")(a, b)
        ContrastiveLoss("fixed:temperature=20", layout="cross-view").from_scores(40 * a @ b.T)
        ContrastiveLoss("individual:size=9,temperature_max=100", layout="cross-view")(a, b, index=torch.arange(6))


def test_hard_negatives_of_zeros_are_what_the_warning_says() -> None:
    """Once; with the mask it is silent, and the loss that of the rest."""
    hard, own = torch.stack([rows(6, seed=2), rows(6, seed=3)], 1), "cross-view:hard=own,in_batch=false"
    mask = torch.ones(6, 2, dtype=torch.bool)
    mask[2:5, 1] = False
    hard = hard * mask[..., None]
    loss_fn = ContrastiveLoss("fixed:temperature=1", layout=own, reduction="none")
    message, losses = told(lambda: loss_fn(rows(6), rows(6, seed=1), hard_negatives=hard))
    assert message.startswith("3 of 12 hard_negatives are rows of zeros, which are negatives of similarity 0: ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masked = loss_fn(rows(6), rows(6, seed=1), hard_negatives=hard, hard_negative_mask=mask)
        loss_fn(rows(6), rows(6, seed=1), hard_negatives=hard)
        ContrastiveLoss()(rows(6), rows(6, seed=1), hard_negatives=rows(3) * 0)  # [H, D] fill nothing up
    positive = torch.cosine_similarity(rows(6), rows(6, seed=1))
    # exp(0) = 1 more in the denominator
    expected = torch.log(torch.exp(masked + positive) + (~mask).sum(1)) - positive
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_where_no_anchor_has_a_positive_the_loss_is_what_the_warning_says(reduction: Any) -> None:
    loss_fn = ContrastiveLoss(layout="labels", reduction=reduction)
    message, loss = told(lambda: loss_fn(rows(3), labels=torch.arange(3)))
    assert message == "layout 'labels': no anchor has a positive, so the loss is 0, here and in later such batches."
    assert not loss.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not loss_fn(rows(4), labels=torch.arange(4)).any()


@pytest.mark.parametrize(("shift", "width"), every_pair([-1.0, -0.4, 0.0, 0.3], [0.22, 0.3, 0.45, 0.9]))
def test_the_end_of_a_shifted_profile_is_what_the_warning_says(shift: float, width: float) -> None:
    message, strategy = told(lambda: create_strategy("dystress", profile="shifted", shift=shift, width=width))
    found = re.search(
        f"temperature at s = {NUMBER} is {NUMBER}, not temperature_max={NUMBER}, which width={NUMBER} gives", message
    )
    assert found is not None
    end, reached, highest, full = map(float, found.groups())
    other = create_strategy("dystress", profile="shifted", shift=shift, width=full)
    here, there = (each.prepare(Batch(torch.zeros(1))).temperature(torch.tensor(end)).item() for each in (strategy, other))
    assert here == pytest.approx(reached, rel=1e-3)
    assert there == pytest.approx(highest) == pytest.approx(0.2)
    assert here < 0.999 * highest
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_strategy("dystress", profile="shifted", width=0.25)  # which goes down and up once more on its way


def test_the_floor_of_macl_is_what_the_warning_says_once() -> None:
    a, b = rows(6), -rows(6) + 0.1 * rows(6, seed=1)
    loss_fn = ContrastiveLoss("macl:base_temperature=0.2,alpha=1.5,threshold=0.5,floor_ratio=0.3", layout="cross-view")
    message, _ = told(lambda: loss_fn(a, b))
    pattern = f"mean positive similarity {NUMBER} gives the temperature {NUMBER}, below its floor {NUMBER}; the floor is used"
    found = re.search(pattern, message)
    assert found is not None
    similarity = torch.cosine_similarity(a, b).mean().item()
    free = 0.2 * (1 + 1.5 * (similarity - 0.5))
    assert list(map(float, found.groups())) == pytest.approx([similarity, free, 0.06], rel=1e-2)
    assert free < 0.06
    record = loss_fn.record
    assert record.temperature_min.item() == record.temperature_max.item() == pytest.approx(0.06)
    assert record.temperature_at_bound.item() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_fn(a, b)
        loss_fn(a, a)
    assert loss_fn.record.temperature_at_bound.item() == 0
    assert loss_fn.strategy.state_dict()["floor_hits"].item() == 2


@pytest.mark.parametrize(("objective", "endless"), [("dcl", True), ("infonce", False)])
def test_a_low_floor_of_amcl_does_what_the_warning_says(objective: str, endless: bool) -> None:
    message, strategy = told(lambda: create_strategy("amcl:dimension=3,floor=0.0001"))
    assert "can run towards it, and the loss of dcl and amcl-top towards minus infinity" in message
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, objective).double()
    optimizer = torch.optim.Adam(loss_fn.parameters(), lr=0.05)
    a, b = rows(12), rows(12) + 0.1 * rows(12, seed=1)
    for _ in range(300):
        optimizer.zero_grad()
        loss = loss_fn(a, b)
        loss.backward()
        optimizer.step()
    if endless:
        assert loss < -1000
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert loss_fn.record.temperature_min.item() == pytest.approx(1e-4, rel=1e-2)
    else:
        assert loss >= 0


def test_top_k_takes_all_that_there_are() -> None:
    strategy, views = create_strategy("amcl:dimension=3"), (rows(3).float(), rows(3, seed=1).float())
    message, loss = told(lambda: ContrastiveLoss(strategy, "amcl-top:top_k=9,beta=0.1")(*views))
    assert "top_k=9 of objective 'amcl-top' is more than the 4 negatives of an anchor: it takes all it has" in message
    assert loss.item() == pytest.approx(ContrastiveLoss(strategy, "amcl-top:top_k=4,beta=0.1")(*views).item())
