from __future__ import annotations

import pytest

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around
from tempplug_benchmarks.arm import UNTRAINED, Arm, Specs, arms, parse_arm, resolve

RECIPE = Recipe(
    num_train_epochs=20, loss=LossRecipe(temperatures=around(0.4), objective="dcl", objectives={"learnable": "infonce"})
)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("fixed:temperature=0.05", "fixed:temperature=0.05+dcl"),
        ("fixed+infonce", "fixed+infonce"),
        ("learnable", "learnable+infonce"),
        ("fixed:temperature=1e+0+dclw:sigma=5e+1", "fixed:temperature=1e+0+dclw:sigma=5e+1"),
    ],
)
def test_what_is_not_written_is_the_recipes_objective(text: str, label: str) -> None:
    assert parse_arm(text, RECIPE) == Arm(label)


@pytest.mark.parametrize("text", ["+dcl", " +dcl"])
def test_an_arm_without_a_strategy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be STRATEGY or STRATEGY"):
        parse_arm(text, RECIPE)


@pytest.mark.parametrize(
    ("label", "strategy", "objective"),
    [
        ("fixed+dcl", "fixed:temperature=0.4", "dcl"),
        ("fixed:temperature=1e+0+dclw:sigma=5e+1", "fixed:temperature=1", "dclw:sigma=50"),
        (
            "macl:alpha=2+reweighted",
            "macl:base_temperature=0.4,alpha=2,threshold=0,floor_ratio=0.1,strict=false",
            "reweighted",
        ),
        ("learnable+infonce", "learnable:initial_temperature=0.4,max_scale=100,learning_rate=0.01", "infonce"),
    ],
)
def test_what_is_not_written_is_the_recipes_option(label: str, strategy: str, objective: str) -> None:
    assert resolve(Arm(label), RECIPE) == Specs(strategy, objective)


def test_a_schedule_has_the_recipes_periods_unless_it_says() -> None:
    assert "period=4," in str(resolve(Arm("schedule+dcl"), RECIPE).strategy)
    assert "period=10," in str(resolve(Arm("schedule+dcl", changes={"num_train_epochs": 50}), RECIPE).strategy)
    assert "period=7," in str(resolve(Arm("schedule:period=7+dcl"), RECIPE).strategy)


def test_what_the_data_decide_is_left_out_until_they_are_read() -> None:
    assert resolve(Arm("amcl+dcl"), RECIPE).strategy == "amcl:span=2,floor=0.05,beta=1"
    written = resolve(Arm("head-tail:head_classes=3+dcl"), RECIPE).strategy
    assert written == "head-tail:temperature_head=1,temperature_tail=0.1,head_classes=3"
    known = resolve(Arm("head-tail:class_counts=9/5/1+dcl"), RECIPE).strategy
    assert known == "head-tail:class_counts=9/5/1,temperature_head=1,temperature_tail=0.1,head_classes=none"


@pytest.mark.parametrize(
    ("label", "error", "message"),
    [
        ("fixd+dcl", UnknownNameError, "unknown strategy 'fixd'"),
        ("fixed+dlc", UnknownNameError, "unknown objective 'dlc'"),
        ("fixed:temprature=1+dcl", UnknownNameError, "Did you mean 'temperature'"),
        ("amcl:spam=1+dcl", UnknownNameError, "Did you mean 'span'"),
        ("fixed:temperature=0+dcl", ConfigError, "temperature=0 of strategy 'fixed' must be greater than 0"),
        ("amcl:floor=-1+dcl", ConfigError, "floor=-1 of strategy 'amcl' must be"),
        ("head-tail:class_counts=2/1,head_classes=3+dcl", ConfigError, "head_classes=3"),
    ],
)
def test_faults_are_named_before_anything_is_trained(label: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve(Arm(label), RECIPE)


def test_an_arm_that_contrasts_nothing_has_no_specs() -> None:
    assert resolve(UNTRAINED, RECIPE) == Specs(None, None)
    assert [arm.contrasts for arm in (UNTRAINED, *arms("fixed+dcl"))] == [False, True]


def test_settings_of_one_arm_stand_behind_its_objective() -> None:
    arm = parse_arm("schedule@num_train_epochs=50,optimizer=sgd", RECIPE)
    assert (arm.label, arm.parts) == ("schedule+dcl@num_train_epochs=50,optimizer=sgd", ("schedule", "dcl"))
    assert arm.changes == {"num_train_epochs": 50, "optimizer": "sgd"}
    assert "period=10," in str(resolve(arm, RECIPE).strategy)
    assert arms("plain@seed=1")[0] == Arm("plain@seed=1", changes={"seed": 1})
    assert not Arm("plain@seed=1").contrasts
    for text, message in (
        ("fixed@seed", "'seed' is not an option"),
        ("fixed@", "is not an option"),
        ("fixed@a=1/2", "no slash"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_arm(text, RECIPE)


def test_a_method_without_a_softmax_has_a_strategy_and_no_objective() -> None:
    assert resolve(Arm("amcl+none"), RECIPE) == Specs("amcl:span=2,floor=0.05,beta=1", None)
