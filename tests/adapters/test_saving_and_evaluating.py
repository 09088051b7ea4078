"""A recipe that keeps the best model saves and evaluates at the same steps, whichever of the two is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simcse_toys import recipe, write_toys

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.recommendation.recipes import DCREC
from tempplug_adapters.simcse.recipe import SimCSERecipe
from tempplug_adapters.simcse.retrieval_recipe import METHOD as RETRIEVAL, RetrievalRecipe
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.train import running_arguments, train, training_arguments

NAMES = ("save_strategy", "eval_strategy", "save_steps", "eval_steps", "load_best_model_at_end")


@pytest.mark.parametrize(
    ("base", "given", "wanted"),
    [
        (SimCSERecipe(), {}, ("steps", "steps", 125, 125, True)),
        (SimCSERecipe(), {"save_steps": 250}, ("steps", "steps", 250, 125, True)),
        (SimCSERecipe(), {"save_steps": 100}, ("steps", "steps", 100, 100, True)),
        (SimCSERecipe(), {"eval_steps": 50}, ("steps", "steps", 50, 50, True)),
        (SimCSERecipe(), {"eval_steps": 25}, ("steps", "steps", 125, 25, True)),
        (SimCSERecipe(), {"save_steps": 0.5}, ("steps", "steps", 0.5, 0.5, True)),
        (SimCSERecipe(), {"save_strategy": "epoch"}, ("epoch", "epoch", 125, 125, True)),
        (SimCSERecipe(), {"eval_strategy": "epoch"}, ("epoch", "epoch", 125, 125, True)),
        (SimCSERecipe(), {"save_strategy": "best"}, ("best", "steps", 125, 125, True)),
        (SimCSERecipe(), {"eval_strategy": "no"}, ("steps", "no", 125, 125, False)),
        (SimCSERecipe(), {"load_best_model_at_end": False, "save_steps": 40}, ("steps", "steps", 40, 125, False)),
        (DCREC.recipe(), {"save_strategy": "steps", "save_steps": 40}, ("steps", "steps", 40, 40, True)),
        (DCREC.recipe(), {"save_strategy": "steps"}, ("steps", "steps", 0.1, 0.1, True)),
        (DCREC.recipe(), {"eval_strategy": "steps"}, ("steps", "steps", 0.1, 0.1, True)),
    ],
)
def test_what_is_given_for_one_holds_for_both_where_the_defaults_do_not_fit(
    base: Any, given: dict[str, Any], wanted: tuple[Any, ...], tmp_path: Path
) -> None:
    args = training_arguments(base, str(tmp_path), **running_arguments(base, given))
    assert tuple(getattr(args, name) for name in NAMES) == wanted


def test_a_retrieval_encoder_without_checkpoints_is_that_of_the_last_step(tmp_path: Path) -> None:
    folder = write_toys(tmp_path / "toys")
    settings = RetrievalRecipe(**{**recipe(folder).values(), "num_train_epochs": 1, "tasks": (), "held_out": 0.2})
    method = RETRIEVAL.load()
    data = method.load(settings, Source(str(folder / "pairs.tsv"), None, tmp_path))
    given = {"save_strategy": "no"}
    with pytest.warns(UserWarning, match="save_strategy=no: the weights after the last step are kept, not the best ones"):
        results = train(method, settings, data, TemperatureArguments("fixed", [], None), tmp_path / "out", training=given)
    assert results["steps"] == 8
    assert not list((tmp_path / "out").glob("checkpoint-*"))
    assert (tmp_path / "out" / "model.safetensors").is_file()
