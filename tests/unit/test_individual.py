"""iSogCLR's temperatures: the update against the formula written out, what is saved, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError


class Reference:
    """The moving averages in plain Python, example by example.

    Of two joined views the means are averaged. Two directions have a state each and, as LibAUC's, take s - s⁺ in place of s.
    """

    def __init__(self, size: int, directions: int, **options: float) -> None:
        wanted = {"rho": 0.3, "gamma": 0.8, "momentum": 0.9, "rate": 0.01, "low": 0.05, "high": 1.0, "init": 0.1} | options
        self.__dict__.update(wanted)
        self.size, self.directions, states = size, directions, size * directions
        self.tau, self.s, self.u = [self.init] * states, [0.0] * states, [0.0] * states

    def step(self, a: Tensor, b: Tensor, index: list[int]) -> None:
        a, b, n = normalize(a), normalize(b), len(a)
        of_pairs, both = a @ b.T, torch.cat([a, b]) @ torch.cat([a, b]).T
        for place, example in enumerate(index):
            if self.directions == 1:
                others = torch.arange(2 * n) % n != place
                self.update(example, [both[anchor, others].tolist() for anchor in (place, n + place)])
                continue
            for side, rows in enumerate((of_pairs, of_pairs.T)):
                self.update(side * self.size + example, [(rows[place] - rows[place, place])[torch.arange(n) != place].tolist()])

    def update(self, example: int, negatives: list[list[float]]) -> None:
        """Moves one state by the similarities that one or two anchors have to their negatives."""
        tau = self.tau[example]
        g, product = (
            sum(sum(math.exp(s / tau) * factor(s) for s in each) / len(each) for each in negatives) / len(negatives)
            for factor in (lambda s: 1.0, lambda s: s)
        )
        self.s[example] = g if self.s[example] == 0 else (1 - self.gamma) * self.s[example] + self.gamma * g
        weighted = product / self.s[example]
        gradient = max(-3.0, min(3.0, math.log(self.s[example]) + self.rho - weighted / tau))
        self.u[example] = (1 - self.momentum) * self.u[example] + self.momentum * gradient
        self.tau[example] = min(self.high, max(self.low, tau - self.rate * self.u[example]))


def pairs(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rows, 4, dtype=torch.float64, generator=generator)
    return a, a + 0.8 * torch.randn(rows, 4, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(
    ("options", "directions", "engine"),
    [
        ({}, 1, "dense"),
        ({"rho": 1.5, "rate": 0.2}, 1, "tiled"),
        ({"gamma": 0.3, "momentum": 0.2, "init": 0.5}, 1, "tiled"),
        ({"init": 0.5, "gamma": 0.4, "rho": 1, "rate": 0.1}, 2, "tiled"),
    ],
)
def test_temperatures_move_as_the_formula_says(options: dict[str, float], directions: int, engine: Any) -> None:
    names = {"rate": "learning_rate", "init": "temperature_init"}
    spec = "individual:size=9," + ",".join(f"{names.get(key, key)}={value}" for key, value in options.items())
    if directions == 2:
        loss_fn = ContrastiveLoss(f"{spec},per_view=true,relative=true", "dcl", "cross-view", symmetric=True, engine=engine)
    else:
        loss_fn = ContrastiveLoss(spec.rstrip(","), "dcl", engine=engine)
    loss_fn, reference = loss_fn.double(), Reference(9, directions, **options)
    loss_fn.strategy.temperatures.fill_(reference.init)  # in float64, what the constructor rounded to float32
    for step, index in enumerate([[0, 3, 5, 8], [3, 1, 8, 2], [5, 3, 0, 7]]):
        a, b = pairs(4, step)
        loss_fn(a, b, index=torch.tensor(index))
        reference.step(a, b, index)
    assert loss_fn.strategy.temperatures.tolist() == pytest.approx(reference.tau, rel=1e-10)
    assert loss_fn.strategy.velocities.tolist() == pytest.approx(reference.u, rel=1e-10, abs=1e-12)
    assert loss_fn.strategy.log_means.exp().tolist() == pytest.approx(reference.s, rel=1e-10)  # 0 of what was not seen


def test_each_row_is_divided_by_the_temperature_of_its_example() -> None:
    loss_fn = ContrastiveLoss("individual:size=5", "dcl", "cross-view", reduction="none").double().eval()
    loss_fn.strategy.temperatures.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64))
    a, b = pairs(3, 0)
    found = loss_fn(a, b, index=torch.tensor([4, 0, 2]))
    assert torch.isneginf(loss_fn.strategy.log_means).all(), "evaluation moves nothing"
    for row, temperature in enumerate([0.5, 0.1, 0.3]):
        alone = ContrastiveLoss(f"fixed:temperature={temperature}", "dcl", "cross-view", reduction="none")(a, b)
        assert found[row].item() == pytest.approx(alone[row].item(), rel=1e-12)


def test_the_state_of_every_example_is_saved() -> None:
    used, resumed = (ContrastiveLoss("individual:size=6", "dcl").double() for _ in range(2))
    used(*pairs(3, 0), index=torch.tensor([1, 4, 5]))
    resumed.load_state_dict(used.state_dict())
    for loss_fn in (used, resumed):
        loss_fn(*pairs(3, 1), index=torch.tensor([4, 0, 1]))
    for name, value in used.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert not torch.equal(used.strategy.temperatures, torch.full((6,), 0.1).double())


def test_extreme_similarities_keep_temperatures_finite_and_within_their_bounds() -> None:
    loss_fn = ContrastiveLoss("individual:size=4,temperature_min=0.001,temperature_init=0.002,learning_rate=1", "dcl")
    same = torch.ones(4, 3)
    for _ in range(4):
        loss_fn(same, same, index=torch.arange(4))
    found = loss_fn.strategy.temperatures
    assert found.isfinite().all()
    assert ((found >= 0.001 - 1e-9) & (found <= 1)).all()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "strategy 'individual' needs the position of each row in the data set: pass index="),
        (torch.tensor([0, 1, 3]), "index holds 3; size=3 of strategy 'individual' allows 0 to 2."),
        (torch.tensor([-1, 1, 2]), "index holds -1;"),
    ],
)
def test_a_missing_or_impossible_index_is_named(index: Tensor | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ContrastiveLoss("individual:size=3", "dcl")(*pairs(3, 0), index=index)
    assert message in str(caught.value)
