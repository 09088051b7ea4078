"""Recipes: one declaration is the check, the record and the change of a setting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from method_toys import METHOD, ToyRecipe
from transformers import TrainingArguments

import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.options import Words, format_value
from tempplug_adapters.contexts import filled
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0}, "learning_rate=0 must be greater than 0."),
        ({"kind": "odd"}, "kind='odd' must be one of plain, broken."),
        ({"seed": 2**32}, "seed=4294967296 must be an integer, at least 0 and at most 4.29497e+09."),
        ({"learning_rat": 1}, "no setting 'learning_rat'. Did you mean 'learning_rate'? Known: "),
        ({"name": "pape"}, "toy has no recipe 'pape'. Did you mean 'paper'? Known: paper, long."),
    ],
)
def test_every_setting_is_checked_where_it_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as raised:
        METHOD.recipe(**changes)
    assert str(raised.value).startswith(message)


def test_values_are_all_settings_as_json_holds_them() -> None:
    assert METHOD.recipe() == METHOD.recipes["paper"]
    assert METHOD.recipe("long").num_train_epochs == 30
    values = METHOD.recipe(noise=0.25, note="a word").values()
    assert json.loads(json.dumps(values)) == values
    assert values.keys() == ToyRecipe.kinds().keys()
    assert (values["noise"], values["note"], values["per_device_train_batch_size"]) == (0.25, "a word", 8)
    assert METHOD.recipe(**values) == METHOD.recipe(noise=0.25, note="a word")
    assert all(getattr(kind, "help", "") for kind in Recipe.kinds().values())


def test_the_trainer_gets_its_own_settings_under_its_names() -> None:
    training = METHOD.recipe(per_device_train_batch_size=None).training()
    assert not training.keys() & {"per_device_train_batch_size", "noise"}
    assert training.keys() <= TrainingArguments.__dataclass_fields__.keys()
    assert METHOD.recipe().training()["per_device_train_batch_size"] == 8


def test_options_stand_around_a_methods_temperature() -> None:
    for temperature in (0.05, 0.07, 0.1, 0.15, 0.7):
        written = " ".join(format_value(value) for options in around(temperature).values() for value in options.values())
        assert max(map(len, written.split())) <= 5, written
    table = around(0.4, macl={"base_temperature": 0.05})
    assert table["macl"] == {"base_temperature": 0.05}
    assert table["dystress"] == {"temperature_min": 0.2, "temperature_max": 0.4}
    for name, options in table.items():
        needed = {"individual": {"size": 4}, "tempnet": {"dimension": 4}, "mm-ts": {"class_counts": (3, 9)}}.get(name, {})
        created = tempplug.create_strategy(name, **options, **needed)
        assert {option: created.options[option] for option in options} == options
    temperatures = LossRecipe(temperatures=around(0.2)).temperatures
    assert filled("schedule", temperatures) == ("schedule", {"temperature_min": 0.1, "temperature_max": 0.4})
    assert filled("temperature-free", temperatures) == ("temperature-free", {})


def test_the_objective_of_a_strategy_is_that_of_its_paper() -> None:
    loss = LossRecipe(objective="dcl", objectives={"learnable": "infonce"})
    assert [loss.objective_of(spec) for spec in ("learnable:max_scale=5", "macl")] == ["infonce", "dcl"]
    assert [LossRecipe().objective_of(name) for name in ("fixed", "macl", "amcl")] == ["infonce", "reweighted", "dcl"]


def test_lists_of_words_are_checked() -> None:
    kind = Words(("a", "b"), minimum_length=1)
    assert kind.check("x", ["b", "a"]) == ("b", "a")
    for wrong in ([], ["c"], "a", [1]):
        with pytest.raises(ConfigError, match="must be a list of 1 or more words, each one of a, b"):
            kind.check("x", wrong)
