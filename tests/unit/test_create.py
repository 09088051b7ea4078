"""From spec strings to strategies and objectives, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tempplug
from tempplug import Objective, Strategy, create_objective, create_strategy
from tempplug.errors import ConfigError, MissingDependencyError, UnknownNameError
from tempplug.objectives.infonce import InfoNCE
from tempplug.options import options_of
from tempplug.plugins import ObjectiveInfo, Registry, StrategyInfo, registry
from tempplug.strategies.fixed import Fixed

REQUIRED: dict[str, dict[str, Any]] = {
    "head-tail": {"class_counts": (50, 5, 20)},
    "amcl": {"dimension": 8},
    "individual": {"size": 10},
    "tempnet": {"dimension": 4},
    "mm-ts": {"class_counts": [5, 3]},
    "by-group": {"temperatures": (0.05, 0.1)},
    "sogclr": {"size": 10},
    "amcl-top": {"top_k": 3, "beta": 0.1},
}
STRATEGIES = [info.name for info in Registry().all(StrategyInfo)]
OBJECTIVES = [info.name for info in Registry().all(ObjectiveInfo)]


def same(left: Strategy | Objective, right: Strategy | Objective) -> bool:
    """Returns whether two objects are of one class, with equal options, resolved attributes and state."""
    plain, states = [], []
    for each in (left, right):
        plain.append({key: value for key, value in vars(each).items() if not key.startswith("_") and key != "training"})
        states.append({key: value.tolist() for key, value in each.state_dict().items() if "extra_state" not in key})
    return type(left) is type(right) and plain[0] == plain[1] and left.options == right.options and states[0] == states[1]


@pytest.mark.parametrize("name", [*STRATEGIES, *OBJECTIVES])
def test_everything_is_rebuilt_from_its_spec(name: str) -> None:
    create: Any = create_strategy if name in STRATEGIES else create_objective
    made = create(name, **REQUIRED.get(name, {}))
    assert made.spec().startswith(name)
    assert create(made.spec()).options == made.options
    assert name in ("amcl", "tempnet") or same(create(made.spec()), made)  # whose weights are drawn
    assert set(made.options) == {option.name for option in options_of(type(made))}


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("fixed", {"temperature": 1 / 3}),
        ("fixed", {"temperature": 1.0000000000000002}),
        ("fixed", {"temperature": 1e-8}),
        ("macl:alpha=2,strict=true", {"threshold": -1}),
        ("dystress:profile=shifted,shift=-0.4", {}),
        ("dystress:profile=exponential,rate=2,detach=false", {}),
        ("head-tail:class_counts=450/270/162", {"head_classes": (2,)}),
        ("head-tail:class_counts=450/270/162", {"head_classes": 2}),
        ("head-tail:class_counts=450/270/162", {"head_classes": {2, 0}}),
        ("schedule:shape=random,seed=12345678901234567891", {}),
        ("temperature-free:eps=1.2e-07", {}),
    ],
)
def test_options_away_from_their_defaults_are_rebuilt_too(spec: str, options: dict[str, Any]) -> None:
    made = create_strategy(spec, **options)
    assert made.spec() != create_strategy(made.name, **REQUIRED.get(made.name, {})).spec()
    assert same(create_strategy(made.spec()), made)


def test_one_head_class_in_a_list_is_not_a_number_of_classes() -> None:
    one = create_strategy("head-tail:class_counts=5/50/20,head_classes=2/")
    assert one.spec() == "head-tail:class_counts=5/50/20,temperature_head=1,temperature_tail=0.1,head_classes=2/"
    assert one.head == (2,)
    assert create_strategy("head-tail:class_counts=5/50/20,head_classes=2").head == (1, 2)


def test_keyword_options_win_over_the_spec_string() -> None:
    assert create_strategy("fixed:temperature=0.2", temperature=0.3).spec() == "fixed:temperature=0.3"
    assert create_objective("dclw:sigma=0.2", sigma=0.3).spec() == "dclw:sigma=0.3"


def test_instances_are_returned_as_they_are() -> None:
    strategy, objective = Fixed(0.2), InfoNCE()
    assert create_strategy(strategy) is strategy
    assert create_objective(objective) is objective
    with pytest.raises(ConfigError, match="options temperature cannot be given beside a Fixed instance"):
        create_strategy(strategy, temperature=0.1)
    with pytest.raises(ConfigError, match="options sigma cannot be given beside a InfoNCE instance"):
        create_objective(objective, sigma=0.1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("macle", "unknown strategy 'macle'. Did you mean 'macl'? Known: "),
        ("temperature_free", "unknown strategy 'temperature_free'. Did you mean 'temperature-free'? Known: "),
        (
            "macl:treshold=0.8",
            "unknown option 'treshold' of strategy 'macl'. Did you mean 'threshold'? Known: base_temperature, ",
        ),
        ("fixed:zzz=1", "unknown option 'zzz' of strategy 'fixed'. Known: temperature."),
        ("dlc", "unknown objective 'dlc'. Did you mean 'dcl'? Known: amcl-top, dcl, "),
        ("flatnce:sigma=1", "unknown option 'sigma' of objective 'flatnce'. Known: none."),
        ("dclw:sigm=1", "unknown option 'sigm' of objective 'dclw'. Did you mean 'sigma'?"),
    ],
)
def test_unknown_names_and_options_suggest_the_nearest(spec: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        (create_objective if "objective" in message else create_strategy)(spec)
    assert str(error.value).startswith(message)
    assert isinstance(error.value, LookupError)


@pytest.mark.parametrize(
    ("create", "thing", "message"),
    [
        (create_strategy, Fixed, r"strategy=<class .*Fixed'> must be a spec string .*, or an instance of tempplug\.Strategy\."),
        (create_strategy, InfoNCE(), r"strategy=InfoNCE\(infonce\) must be a spec string such as 'macl:alpha=0\.5'"),
        (create_objective, Fixed(), r"objective=Fixed\(.*\) must be a spec string .*, or an instance of tempplug\.Objective\."),
    ],
)
def test_other_objects_are_refused_by_what_is_wanted(create: Callable[[Any], Any], thing: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(thing)


class Misnamed(Fixed):
    name = "other"


class Sound(Fixed):
    name = "sound"


@pytest.fixture
def theirs(register: Callable[..., None]) -> None:
    """A plugin whose declarations point to all sorts of things."""
    needy = StrategyInfo(
        name="needy", target="no_such_framework.inner:Thing", summary="a test", requires=("no_such_framework",)
    )
    register(
        "theirs",
        needy,
        function="json:loads",
        misnamed=f"{__name__}:Misnamed",
        sound=f"{__name__}:Sound",
        objective="tempplug.objectives.dcl:DCL",
        absent="json:Absent",
    )


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("function", "must point to a subclass of tempplug.Strategy, not to <function"),
        ("objective", "must point to a subclass of tempplug.Strategy, not to <class"),
        ("misnamed", "points to a class that calls itself 'other': set name = 'misnamed'"),
        ("absent", "cannot be loaded from 'json:Absent': AttributeError: "),
    ],
)
def test_a_declaration_that_points_to_the_wrong_thing_names_its_plugin(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        create_strategy(name)
    assert str(error.value).startswith(f"strategy '{name}' of the plugin 'theirs' {message}")
    assert create_strategy("sound").spec() == "sound:temperature=0.1"
    with pytest.raises(MissingDependencyError, match="pip install 'no_such_framework'"):
        tempplug.ContrastiveLoss("needy")


def test_the_public_lists_are_those_of_the_registry() -> None:
    # type checkers see the packages, which are callable only when the program runs
    strategies: Any = tempplug.strategies
    objectives: Any = tempplug.objectives
    assert strategies() == registry().all(StrategyInfo)
    assert objectives() == registry().all(ObjectiveInfo)
    assert [info.name for info in strategies()][:2] == ["fixed", "learnable"]
    assert objectives()[0].name == "infonce"
