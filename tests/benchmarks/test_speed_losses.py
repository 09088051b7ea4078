"""Everything that the speed suite compares computes the same loss; otherwise its times would mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tempplug import LogitMap
from tempplug.errors import UnknownNameError
from tempplug_benchmarks.speed.losses import LOSSES, CosineMap
from tempplug_benchmarks.speed.recipe import SpeedRecipe
from tempplug_benchmarks.speed.step import Step, views

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


def test_the_compiled_formula_is_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def compile_(function: Callable[..., torch.Tensor], *, dynamic: bool) -> Callable[..., torch.Tensor]:
        compiled.append((function, dynamic))
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    pair = views(SpeedRecipe(rows=8, dimension=4))
    found = LOSSES["nt-xent"].compiled(0.1)(*pair)
    assert torch.equal(found, LOSSES["nt-xent"].eager(0.1)(*pair))
    assert [dynamic for _, dynamic in compiled] == [False]


def test_only_the_formula_is_compiled_not_what_makes_its_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiled.append(function) or function)
    pair = views(SpeedRecipe(rows=8, dimension=4))
    found = LOSSES["masks"].compiled(0.1)(*pair)
    assert compiled == [LOSSES["masks"].formula]
    assert torch.equal(found, LOSSES["masks"].eager(0.1)(*pair))


def test_tempplug_is_compiled_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, bool]] = []

    def compile_(function: Callable[..., torch.Tensor], **options: bool) -> Callable[..., torch.Tensor]:
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    pair = views(SpeedRecipe(rows=8, dimension=4))
    found = LOSSES["two-way"].implementation("tempplug-compiled").make(0.1)(*pair)
    assert torch.equal(found, LOSSES["two-way"].ours(0.1)(*pair))
    assert asked == [{"fullgraph": True, "dynamic": False}]


def test_the_map_of_the_plugin_has_three_methods_and_nothing_else() -> None:
    # What is inherited, `LogitMap` sets anew where a subclass writes its own logit or slope.
    own = {name for name, value in vars(CosineMap).items() if value is not vars(LogitMap).get(name)}
    assert {name for name in own if not name.startswith("_")} == {"logit", "slope", "temperature"}


def test_some_masks_have_several_positives_in_every_row() -> None:
    (view, _) = views(SpeedRecipe(rows=24, dimension=4))
    counts = {name: of(view)["positive_mask"].sum(1) for name in ("masks", "masks-several") if (of := LOSSES[name].inputs)}
    assert counts["masks"].tolist() == [1] * 24
    assert counts["masks-several"].min() == 2


def test_a_step_drops_the_gradient_of_the_one_before() -> None:
    step = Step(LOSSES["one-way"].eager(0.1), *views(SpeedRecipe(rows=8, dimension=4)))
    step()
    once = step.gradient()
    step()
    assert torch.equal(step.gradient(), once)


def test_views_follow_the_seed_and_are_correlated() -> None:
    first = views(SpeedRecipe(rows=64, dimension=16, seed=1))
    assert torch.equal(first[0], views(SpeedRecipe(rows=64, dimension=16, seed=1))[0])
    assert not torch.equal(first[0], views(SpeedRecipe(rows=64, dimension=16, seed=2))[0])
    similarity = torch.nn.functional.cosine_similarity(*first).mean().detach()
    assert 0.4 < float(similarity) < 0.6


def test_half_precision_runs_under_autocast() -> None:
    pair = views(SpeedRecipe(rows=8, dimension=4, precision="bfloat16"))
    seen: list[bool] = []

    def loss(view_a: torch.Tensor, view_b: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return (view_a * view_b).sum()

    Step(loss, *pair)()
    assert (pair[0].dtype, seen) == (torch.bfloat16, [True])


def test_an_unknown_implementation_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown implementation 'lightlx'. Did you mean 'lightly'\?"):
        LOSSES["nt-xent"].implementation("lightlx")
