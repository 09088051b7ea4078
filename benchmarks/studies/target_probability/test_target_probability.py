"""The strategy target-probability: its declaration and contract, one step by the formula, and what does not move it."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import tempplug
from tempplug import ContrastiveLoss
from tempplug.errors import UnknownNameError
from tempplug.plugins import Registry
from tempplug_target_probability.strategy import TargetProbability


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers what the entry point of pyproject.toml names, as an installation does."""
    about = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
    registry = Registry()
    for name, module in about["project"]["entry-points"]["tempplug"].items():
        registry.register(resolve_name(module), name)
    monkeypatch.setattr("tempplug.plugins.manager._registry", registry)


def test_it_keeps_the_contract() -> None:
    tempplug.testing.check_strategy(tempplug.create_strategy("target-probability:rate=3"))


def test_without_the_plugin_its_specs_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPPLUG_DISABLE_PLUGINS", "target-probability")
    monkeypatch.setattr("tempplug.plugins.manager._registry", Registry())
    wanted = r"'target-probability' is no longer built in.*pip install \./benchmarks/studies/target_probability"
    with pytest.raises(UnknownNameError, match=wanted):
        ContrastiveLoss("target-probability:probability=0.7")


def embeddings(rows: int, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rows, 16, generator=generator, dtype=torch.float64)
    return a, a + noise * torch.randn(rows, 16, generator=generator, dtype=torch.float64)


def probability(a: Tensor, b: Tensor, temperature: float, mean: str = "plain") -> float:
    """Returns the mean probability of the positives by the definition of a softmax."""
    similarity = functional.normalize(a, dim=1) @ functional.normalize(b, dim=1).T
    found = (similarity / temperature).softmax(1).diagonal().tolist()
    weights = found if mean == "weighted" else [1.0] * len(found)
    return sum(p * w for p, w in zip(found, weights, strict=True)) / sum(weights)


def temperature(loss_fn: ContrastiveLoss) -> float:
    return math.exp(loss_fn.strategy.log_temperature.item())


@pytest.mark.parametrize("mean", ["plain", "weighted"])
@pytest.mark.parametrize("start", [0.02, 0.5])
def test_a_step_moves_the_logarithm_by_the_error_of_the_probability(start: float, mean: str) -> None:
    loss_fn = ContrastiveLoss(
        f"target-probability:temperature_init={start},rate=0.7,probability=0.6,mean={mean}", layout="cross-view"
    ).double()
    a, b = embeddings(24, 1.0)
    start = temperature(loss_fn)  # rounded to float32
    expected = math.log(start) + 0.7 * (probability(a, b, start, mean) - 0.6)
    loss = loss_fn(a, b)
    similarity = functional.normalize(a, dim=1) @ functional.normalize(b, dim=1).T
    assert loss.item() == pytest.approx(functional.cross_entropy(similarity / start, torch.arange(24)).item(), rel=1e-12)
    assert loss_fn.strategy.log_temperature.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rows", "noise", "wanted"), [(32, 0.8, 0.7), (256, 0.8, 0.7), (64, 0.5, 0.5), (64, 1.2, 0.3)])
@pytest.mark.parametrize("start", [0.02, 1.0])
def test_it_settles_where_the_positives_have_the_wanted_probability(
    rows: int, noise: float, wanted: float, start: float
) -> None:
    loss_fn = ContrastiveLoss(f"target-probability:probability={wanted},temperature_init={start}", layout="cross-view").double()
    a, b = embeddings(rows, noise)
    for _ in range(60):
        loss_fn(a, b)
    assert 0.0101 < temperature(loss_fn) < 0.99
    assert probability(a, b, temperature(loss_fn), "weighted") == pytest.approx(wanted, abs=0.005)


def test_positives_that_are_not_found_do_not_keep_a_weighted_mean_low() -> None:
    (a, b), (lost, others) = embeddings(32, 0.5), embeddings(32, 50.0, seed=1)
    views = torch.cat([a, lost]), torch.cat([b, others])
    settled = {}
    for mean in ("plain", "weighted"):
        loss_fn = ContrastiveLoss(f"target-probability:probability=0.5,mean={mean}", layout="cross-view").double()
        for _ in range(60):
            loss_fn(*views)
        assert probability(*views, temperature(loss_fn), mean) == pytest.approx(0.5, abs=0.01)
        settled[mean] = temperature(loss_fn)
    assert settled["weighted"] > 2 * settled["plain"]


def test_it_stays_within_its_bounds() -> None:
    unrelated, same = embeddings(64, 50.0), embeddings(4, 1e-3)
    for views, bound, mean in ((unrelated, 0.01, "plain"), (same, 0.4, "weighted")):
        spec = f"target-probability:temperature_min=0.01,temperature_max=0.4,mean={mean}"
        loss_fn = ContrastiveLoss(spec, layout="cross-view").double()
        for _ in range(40):
            loss_fn(*views)
        assert temperature(loss_fn) == pytest.approx(bound)
        with pytest.warns(RuntimeWarning, match="widen temperature_min or temperature_max"):
            assert loss_fn.record.temperature_at_bound.item() == 1


def test_only_training_and_anchors_with_negatives_move_it() -> None:
    a, b = embeddings(12, 1.0)
    loss_fn = ContrastiveLoss("target-probability", layout="cross-view").double()
    loss_fn.eval()(a, b)
    assert temperature(loss_fn) == pytest.approx(0.05)
    with pytest.warns(RuntimeWarning, match="without"):
        loss_fn.train()(a[:1], b[:1])
    assert temperature(loss_fn) == pytest.approx(0.05)
    loss_fn(a, b)
    assert temperature(loss_fn) != pytest.approx(0.05)
    other = ContrastiveLoss("target-probability", layout="cross-view").double()
    other.load_state_dict(loss_fn.state_dict())
    assert other(a, b).item() == loss_fn(a, b).item()


def test_options_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"temperature_init=2 of strategy 'target-probability' must lie between .*0\.001"):
        TargetProbability(temperature_init=2)
    with pytest.raises(
        ValueError, match=r"probability=1 of strategy 'target-probability' must be greater than 0 and less than 1"
    ):
        TargetProbability(probability=1)
