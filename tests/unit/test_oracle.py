"""The oracle itself, against closed forms and numbers worked out by hand: what it says must not rest on the code it judges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.testing import oracle_loss, oracle_row_losses

HALF = {"temperature": 0.5}


def at_angles(*degrees: float) -> Tensor:
    radians = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def random_views(rows: int = 6, dimension: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, dimension, generator=generator, dtype=torch.float64) for _ in range(2))
    return a.requires_grad_(), b.requires_grad_()


def value(logits: list[float], positives: int = 1) -> float:
    """Returns InfoNCE of one row whose first logits are its positives."""
    total = math.log(sum(math.exp(each) for each in logits))
    return total - sum(logits[:positives]) / positives


def test_labels_average_over_the_positives_and_drop_lone_rows() -> None:
    z, labels = at_angles(0, 60, 90, 180), torch.tensor([3, 3, 3, 8])
    rows, kept = oracle_row_losses(z, layout="labels", labels=labels, strategy_options=HALF)
    assert kept.tolist() == [True, True, True, False]
    assert rows[0].item() == pytest.approx(value([1, 0, -2], positives=2))
    assert rows[3].item() == 0
    mean = oracle_loss(z, layout="labels", labels=labels, strategy_options=HALF)
    assert mean.item() == pytest.approx(rows.sum().item() / 3)


def test_hard_negatives_are_shared_of_their_row_or_absent() -> None:
    """One at 0°, of the first query, and one at 180°, of the second; all documents at 90° to the queries."""
    a, b, hard = at_angles(0, 0), at_angles(90, 90), at_angles(0, 180).view(2, 1, 2)
    for options, mask, first, second in (
        ({}, None, [0, 0, 2, -2], [0, 0, 2, -2]),
        ({}, [[True], [False]], [0, 0, 2], [0, 0, 2]),
        ({"hard": "own"}, None, [0, 0, 2], [0, 0, -2]),
        ({"hard": "own", "in_batch": False}, [[False], [True]], [0], [0, -2]),
        ({"directions": "ab+bb"}, None, [0, 0, 2, -2, 2, 0], [0, 0, 2, -2, 2, 0]),
        ({"directions": "ab+bb", "hard": "ab"}, None, [0, 0, 2, -2, 2], [0, 0, 2, -2, 2]),
    ):
        given: dict[str, Any] = {"hard_negatives": hard, "hard_negative_mask": None if mask is None else torch.tensor(mask)}
        chosen: dict[str, Any] = {"layout_options": options, "strategy_options": HALF, "reduction": "none", **given}
        found = oracle_loss(a, b, layout="cross-view", **chosen)
        assert found.tolist() == pytest.approx([value(first), value(second)]), options


def test_terms_on_the_negatives_of_one_row() -> None:
    """Similarity 0.5 to the positive, logit 1; 0.87, 0 and -1 to the negatives of a queue."""
    a, b, queue, c = at_angles(0), at_angles(60), at_angles(30, 90, 180), math.cos(math.radians(30))
    keys, groups = (
        {"view_a": torch.tensor([4]), "view_b": torch.tensor([4]), "queue": torch.tensor(each)}
        for each in ([1, 4, 2], [4, 4, 5])
    )
    guide = {"view_a": at_angles(0), "view_b": at_angles(90), "queue": at_angles(120, 60, 180)}
    log_q = {"view_b": torch.zeros(1), "queue": torch.tensor([0.5, 0.25, 1]).log()}
    index = {"view_a": torch.tensor([0]), "view_b": torch.tensor([1]), "queue": torch.tensor([0, 1, 0])}
    n, h = 2 * c, math.log(0.5)
    for name, options, given, logits in (
        ("false-negatives", {"margin": 0.3}, {}, [1, 0, -2]),
        ("false-negatives", {"margin": 0.4}, {}, [1, n, 0, -2]),
        ("false-negatives", {"margin": -0.5, "rule": "relative", "weight": 0.5}, {}, [1, n + h, 0, -2]),
        ("guide", {}, {"guide": guide}, [1, n, -2]),
        ("same-key", {}, {"keys": keys}, [1, n, -2]),
        ("within-group", {}, {"groups": groups}, [1, n, 0]),
        ("hardness", {"strength": 2}, {}, [1, n + 2 * c, 0, -4]),
        ("hardness", {"of": "hard"}, {}, [1, n, 0, -2]),
        ("log-q", {}, {"candidate_log_q": log_q}, [1, n - h, -2 * h, -2]),
        ("log-q", {"size": 2}, {"index": index, "counts": torch.tensor([1, 2])}, [1, n - 2 * h, -math.log(0.75), -2 - 2 * h]),
    ):
        found = oracle_loss(a, b, layout="queue", queue=queue, strategy_options=HALF, negatives={name: options}, **given)
        assert found.item() == pytest.approx(value(logits)), (name, options)
    total = math.exp(n) + 1 + math.exp(-2)
    for prior, estimate in ((0.1, (total - 0.3 * math.e) / 0.9), (0.9, 3 * math.exp(-2))):
        chosen: dict[str, Any] = {"strategy_options": HALF, "negatives": {"debiased": {"prior": prior}}}
        found = oracle_loss(a, b, layout="queue", queue=queue, **chosen)
        assert found.item() == pytest.approx(math.log(math.e + estimate) - 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "warm"}, "strategy='warm' has no oracle"),
        ({"objective": "warm"}, "objective='warm' is unknown"),
        ({"layout": "queue"}, "layout='queue'"),
        ({"strategy": "uncertainty"}, "uncertainty=None"),
        ({"strategy": "head-tail", "strategy_options": {"class_counts": [1, 2]}}, "labels=None"),
        ({"strategy": "schedule", "strategy_options": {"shape": "random"}}, "shape=random"),
        ({"strategy": "dystress", "objective": "dual-temperature"}, "second_temperature=None"),
        ({"layout": "labels", "labels": torch.arange(6) % 2, "objective": "dclw"}, "several positives"),
        ({"negatives": {"warm": {}}}, "negatives='warm' has no oracle"),
        ({"negatives": {"same-key": {}}}, "keys=: the oracle's negatives need it of view_a"),
        ({"negatives": {"hardness": {"of": "hard"}}, "hard_negatives": torch.ones(3, 4)}, "hardness of=hard: the oracle needs"),
        ({"negatives": {"log-q": {"size": 3}}}, "index=None"),
        (
            {"layout": "cross-view", "layout_options": {"hard": "own"}, "hard_negatives": torch.ones(3, 4)},
            "hard=own: the oracle",
        ),
        ({"objective": "amcl-top", "negatives": {"debiased": {}}}, "objective 'amcl-top' ranks the negatives of one block"),
        ({"strategy": "amcl", "negatives": {"debiased": {}}}, "debiased needs the smallest logit of a row"),
    ],
)
def test_calls_without_a_formula_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        oracle_loss(*random_views(), **arguments)


@pytest.mark.parametrize("objective", ["infonce", "dcl"])
def test_without_negatives_a_loss_is_that_of_the_formula_or_none(objective: str) -> None:
    """Three of one class and no other: the positives alone are in InfoNCE's denominator, and DCL's is empty."""
    rows = torch.eye(3, dtype=torch.float64)
    found = oracle_loss(rows, layout="labels", labels=torch.zeros(3).long(), objective=objective)
    assert found.item() == pytest.approx(math.log(2) if objective == "infonce" else 0)
    one, kept = oracle_row_losses(rows[:1], rows[1:2], objective=objective, hard_negatives=rows[2:])
    expected = math.log(2) if objective == "infonce" else 0.0
    assert one.tolist() == pytest.approx([expected, 0.0])
    assert kept.tolist() == [True, objective == "infonce"]
