"""Everything that the speed suite compares computes the same loss; otherwise its times would mean nothing."""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest
import torch

from tempplug import LogitMap
from tempplug.errors import UnknownNameError
from tempplug_benchmarks.speed.formulas import LossFunction
from tempplug_benchmarks.speed.losses import LOSSES, CosineMap
from tempplug_benchmarks.speed.measure import Step, views
from tempplug_benchmarks.speed.recipe import SpeedRecipe

# Compiling takes seconds; its own tests are below. The Triton kernels take no float64.
COMPARED = [
    (loss, name)
    for loss, made in LOSSES.items()
    for name, way in made.implementations().items()
    if way.installed and not way.is_compiled and name not in ("tempplug", "tempplug-triton")
]


@pytest.mark.parametrize(("loss", "name"), COMPARED)
def test_every_implementation_computes_the_loss_and_gradient_of_tempplug(loss: str, name: str) -> None:
    temperature = 0.2
    pair = views(SpeedRecipe(rows=24, dimension=8), torch.float64)
    ours = Step(LOSSES[loss].ours(temperature), *pair)
    ours()
    expected = ours.gradient()
    other = Step(LOSSES[loss].implementation(name).make(temperature), *pair)
    other()
    assert float(other.value) == pytest.approx(float(ours.value), rel=1e-6)
    assert torch.allclose(other.gradient(), expected, rtol=1e-5, atol=1e-8)
    assert expected.abs().max() > 1e-3


def test_the_temperature_of_the_case_reaches_every_implementation_that_has_one() -> None:
    pair = views(SpeedRecipe(rows=24, dimension=8), torch.float64)
    for loss, name in COMPARED:
        way = LOSSES[loss].implementation(name)
        low, high = (float(way.make(temperature)(*pair).detach()) for temperature in (0.1, 0.3))
        assert (low == high) == (loss in ("dystress", "temperature-free", "plugin-map")), (loss, name)


@pytest.mark.parametrize(
    ("loss", "name", "reference", "options"),
    [
        ("nt-xent", "compiled", "eager", {"dynamic": False}),
        ("masks", "compiled", "eager", {"dynamic": False}),
        ("two-way", "tempplug-compiled", "tempplug-dense", {"fullgraph": True, "dynamic": False}),
    ],
)
def test_what_is_compiled_is_the_formula_alone_or_tempplugs_call(
    loss: str, name: str, reference: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **given: compiled.append((function, given)) or function)
    pair, made = views(SpeedRecipe(rows=8, dimension=4)), LOSSES[loss]
    found, expected = (made.implementation(each).make(0.1)(*pair) for each in (name, reference))
    assert torch.equal(found, expected)
    assert [given for _, given in compiled] == [options]
    assert name != "compiled" or compiled[0][0] is made.formula, "not what makes its masks"


def test_the_map_of_the_plugin_has_three_methods_and_nothing_else() -> None:
    # What is inherited, `LogitMap` sets anew where a subclass writes its own logit or slope.
    own = {name for name, value in vars(CosineMap).items() if value is not vars(LogitMap).get(name)}
    assert {name for name in own if not name.startswith("_")} == {"logit", "slope", "temperature"}


def test_views_follow_the_seed_are_correlated_and_run_under_autocast_in_half_precision() -> None:
    case = SpeedRecipe(rows=64, dimension=16, seed=1)
    first, again, other = views(case), views(case), views(case.changed(seed=2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert 0.4 < float(torch.nn.functional.cosine_similarity(*first).mean().detach()) < 0.6
    counts = {name: of(first[0])["positive_mask"].sum(1) for name in ("masks", "masks-several") if (of := LOSSES[name].inputs)}
    assert counts["masks"].tolist() == [1] * 64
    assert counts["masks-several"].min() == 6
    step = Step(LOSSES["one-way"].eager(0.1), *first)
    step()
    once = step.gradient()
    step()
    assert torch.equal(step.gradient(), once), "a step drops the gradient of the one before"
    seen: list[bool] = []
    pair = views(case.changed(precision="bfloat16"))
    Step(lambda a, b: seen.append(torch.is_autocast_enabled("cpu")) or (a * b).sum(), *pair)()
    assert (pair[0].dtype, seen) == (torch.bfloat16, [True])


@pytest.mark.parametrize(("loss", "rows"), [("labels", 64), ("labels", 256), ("amcl", 256)])
def test_gradients_are_closer_to_float64_than_eager_ones(loss: str, rows: int) -> None:
    """Where an anchor has several positives, or every pair a temperature."""
    errors: dict[str, list[float]] = {"ours": [], "eager": []}
    for seed in range(8):
        case = SpeedRecipe(rows=rows, dimension=128, seed=seed)
        exact = gradient(LOSSES[loss].eager(0.1), views(case, torch.float64))
        for name, found in errors.items():
            ours = gradient(getattr(LOSSES[loss], name)(0.1), views(case))
            found.append(((ours - exact).abs().max() / exact.abs().max()).item())
    assert mean(errors["ours"]) < 0.9 * mean(errors["eager"])


def gradient(function: LossFunction, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    step = Step(function, *pair)
    step()
    return step.gradient()


def test_an_unknown_implementation_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown implementation 'lightlx'. Did you mean 'lightly'\?"):
        LOSSES["nt-xent"].implementation("lightlx")
