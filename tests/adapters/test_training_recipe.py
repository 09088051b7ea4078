"""Recipes: one declaration is the check, the record and the change of a setting."""

from __future__ import annotations

import json

import pytest
from method_toys import METHOD, ToyRecipe

import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.options import Words
from tempplug_adapters.contexts import filled
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around


def test_every_setting_is_checked_where_it_is_made() -> None:
    for changes, message in [
        ({"learning_rate": 0}, "learning_rate=0 must be greater than 0."),
        ({"noise": -1}, "noise=-1 must be at least 0."),
        ({"noise": float("nan")}, "noise=nan must be at least 0."),
        ({"per_device_train_batch_size": 1}, "per_device_train_batch_size=1 must be an integer, at least 2."),
        ({"kind": "odd"}, "kind='odd' must be one of plain, broken."),
        ({"note": ""}, "note='' must be a word that is not empty."),
        ({"optimizer": "adma"}, "optimizer='adma' must be one of adam, adamw, sgd, lars."),
        ({"momentum": 1.0}, "momentum=1.0 must be at least 0 and less than 1."),
        ({"seed": 2**32}, "seed=4294967296 must be an integer, at least 0 and at most 4.29497e+09."),
        ({"bf16": 1}, "bf16=1 must be true or false."),
    ]:
        with pytest.raises(ConfigError) as raised:
            METHOD.recipe(**changes)
        assert str(raised.value) == message


def test_a_misspelled_setting_or_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"no setting 'learning_rat'\. Did you mean 'learning_rate'\?"):
        METHOD.recipe(learning_rat=1)
    with pytest.raises(UnknownNameError, match=r"toy has no recipe 'pape'\. Did you mean 'paper'\?"):
        METHOD.recipe("pape")
    assert METHOD.recipe() == METHOD.recipes["paper"]
    assert METHOD.recipe("long").num_train_epochs == 30


def test_values_are_all_settings_as_json_holds_them() -> None:
    values = METHOD.recipe(noise=0.25, note="a word").values()
    assert json.loads(json.dumps(values)) == values
    assert values.keys() == ToyRecipe.kinds().keys()
    assert (values["noise"], values["note"], values["per_device_train_batch_size"]) == (0.25, "a word", 8)
    assert METHOD.recipe(**values) == METHOD.recipe(noise=0.25, note="a word")


def test_the_trainer_gets_its_own_settings_under_its_names() -> None:
    from transformers import TrainingArguments

    training = METHOD.recipe(per_device_train_batch_size=None).training()
    assert "per_device_train_batch_size" not in training
    assert "noise" not in training
    assert training.keys() <= {name for name in TrainingArguments.__dataclass_fields__}
    assert METHOD.recipe().training()["per_device_train_batch_size"] == 8


def test_options_stand_around_a_methods_temperature() -> None:
    table = around(0.4, macl={"base_temperature": 0.05})
    assert table["macl"] == {"base_temperature": 0.05}
    assert table["dystress"] == {"temperature_min": 0.2, "temperature_max": 0.4}
    for name, options in table.items():
        needed = {"size": 4} if name == "individual" else {}
        created = tempplug.create_strategy(name, **options, **needed)
        assert {option: created.options[option] for option in options} == options


def test_what_a_paper_does_not_name_has_no_options() -> None:
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


def test_base_settings_have_help_and_ranges() -> None:
    assert all(getattr(kind, "help", "") for kind in Recipe.kinds().values())
