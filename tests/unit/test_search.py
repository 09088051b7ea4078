"""`search_space`: every draw is a strategy, ranges are as declared, and tuners get what they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import pytest
from hypothesis import given, settings, strategies as st

import tempplug
from tempplug.create import load_class
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.options import Choice, Number, Temperature, options_of
from tempplug.search import Range

INFOS = {info.name: info for info in tempplug.strategies()}
SPECS = [*INFOS, "dystress:profile=shifted", "dystress:profile=exponential"]


class DrawnTrial:
    """Stands for Optuna's trial: draws from hypothesis, and refuses what Optuna refuses."""

    def __init__(self, data: st.DataObject) -> None:
        self.data, self.params = data, dict[str, Any]()

    def _note(self, name: str, value: Any) -> Any:
        assert name not in self.params
        self.params[name] = value
        return value

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        assert isinstance(low, float)
        assert low < high
        assert not log or low > 0
        return self._note(name, self.data.draw(st.floats(low, high)))

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return self._note(name, self.data.draw(st.integers(low, high)))

    def suggest_categorical(self, name: str, choices: list[str]) -> str:
        return self._note(name, self.data.draw(st.sampled_from(choices)))


def needed(name: str, spec: str) -> dict[str, Any]:
    """Returns values for the options that data decide."""
    return {each.name: each.kind.example() for each in options_of(load_class(INFOS[name])) if each.required and each.kind}


@cache
def space_of(spec: str) -> tempplug.SearchSpace:
    return tempplug.search_space(spec)


@pytest.mark.parametrize("spec", SPECS)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_every_draw_from_every_space_is_a_strategy(spec: str, data: st.DataObject) -> None:
    space, trial = space_of(spec), DrawnTrial(data)
    drawn = space.suggest(trial)
    assert trial.params
    assert {name.partition(".")[0] for name in trial.params} == {space.strategy}
    made = tempplug.create_strategy(drawn, **needed(space.strategy, spec))
    for name, value in trial.params.items():
        assert made.options[name.partition(".")[2]] == value, "what was drawn is not what is built"
    assert space.suggest(trial.params) == drawn, "a mapping of the drawn values gives another strategy"


def test_ranges_are_those_of_the_declarations_and_spans_of_a_decade_are_logarithmic() -> None:
    searched = tempplug.search_space("macl").searched
    assert searched == {"base_temperature": Range(0.01, 1.0), "alpha": Range(0.0, 2.0), "threshold": Range(0.0, 0.9)}
    assert [Range(*ends).log for ends in ((0.01, 1.0), (0.1, 1.0), (0.11, 1.0), (0.0, 100.0))] == [True, True, False, False]


def test_an_option_of_another_word_is_searched_with_that_word_alone() -> None:
    found = {spec: set(tempplug.search_space(spec).searched) & {"profile", "shift", "rate"} for spec in SPECS if "dys" in spec}
    assert found == {"dystress": {"profile"}, "dystress:profile=shifted": {"shift"}, "dystress:profile=exponential": {"rate"}}


def test_own_ends_replace_the_declared_ones_and_held_options_stay() -> None:
    space = tempplug.search_space("macl:alpha=2", base_temperature=(0.02, 0.2), floor_ratio=(0.05, 0.5))
    ends = {"base_temperature": Range(0.02, 0.2), "threshold": Range(0.0, 0.9), "floor_ratio": Range(0.05, 0.5)}
    assert space.searched == ends
    values = {"macl.base_temperature": 0.05, "macl.threshold": 0.8, "macl.floor_ratio": 0.1, "learning_rate": 1e-3}
    assert space.suggest(values) == "macl:alpha=2,base_temperature=0.05,threshold=0.8,floor_ratio=0.1"
    with pytest.raises(ConfigError, match=r"trial has no 'macl\.threshold'; it has macl\.base_temperature, macl\.alpha\."):
        tempplug.search_space("macl").suggest({"macl.base_temperature": 0.1, "macl.alpha": 1})


@pytest.mark.parametrize(
    ("spec", "ranges", "error", "message"),
    [
        ("macl", {"alfa": (0, 1)}, UnknownNameError, "unknown option 'alfa' of strategy 'macl'. Did you mean 'alpha'?"),
        ("macl", {"alpha": (-1, 1)}, ConfigError, "end -1 of alpha=(-1, 1) of the search space of 'macl' must be at least 0"),
        ("macl", {"alpha": (1, 1)}, ConfigError, "alpha=(1, 1) of the search space of 'macl' must be (low, high)"),
        ("macl", {"strict": (0, 1)}, ConfigError, "strict=(0, 1) of the search space of 'macl' must be the two ends"),
        ("macl:alpha=1", {"alpha": (0, 1)}, ConfigError, "alpha=(0, 1) of the search space of 'macl' is held at 1"),
        ("macl:alpha=-1", {}, ConfigError, "the search space of 'macl' holds 'macl:alpha=-1,"),
        ("dystress", {"temperature_min": (0.01, 0.5)}, ConfigError, "temperature_max=0.15 of strategy 'dystress' must be at"),
        ("dystress:temperature_max=0.1", {}, ConfigError, "the search space of 'dystress' holds 'dystress:temperature_max="),
    ],
)
def test_what_is_no_space_is_refused(spec: str, ranges: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        tempplug.search_space(spec, **ranges)
    assert message in str(caught.value)


class Wordy(tempplug.Strategy):
    """A third party's strategy, which says little of what is worth searching."""

    name = "wordy"

    def __init__(
        self,
        temperature: Annotated[float, Temperature()] = 0.1,
        depth: Annotated[int, Number(at_least=1, search=(1, 40), integer=True)] = 2,
        width: Annotated[float, Number(above=0)] = 1.0,
        word: Annotated[str, Choice(("a", "b"))] = "a",
        undeclared: int = 3,
    ) -> None:
        super().__init__(temperature=temperature, depth=depth, width=width, word=word, undeclared=undeclared)


def test_a_third_partys_strategy_has_a_space_and_ray_tune_draws_from_the_same_ranges(register: Callable[..., None]) -> None:
    register("theirs", wordy=f"{__name__}:Wordy")
    assert tempplug.search_space("wordy").searched == {
        "temperature": Range(0.01, 1.0),
        "depth": Range(1.0, 40.0, integer=True),
        "word": ("a", "b"),
    }
    from ray import tune

    space = tempplug.search_space("wordy", width=(1, 3))
    domains = space.ray(tune)
    draws = [{name: domain.sample() for name, domain in domains.items()} for _ in range(300)]
    for option, each in space.searched.items():
        values = [draw[f"wordy.{option}"] for draw in draws]
        if isinstance(each, tuple):
            assert set(values) == set(each)
            continue
        assert all(each.low <= value <= each.high for value in values)
        middle = math.sqrt(each.low * each.high) if each.log else (each.low + each.high) / 2
        below = sum(value < middle for value in values) / len(values)
        assert 0.35 < below < 0.65, f"{option} is not drawn on its scale"
    assert 40 in {tune.lograndint(1, 41).sample() for _ in range(3000)}, "the upper end belongs to the range"
    for draw in draws[:20]:
        tempplug.create_strategy(space.suggest(draw))
