"""The suite ``bias``, declared in ``bias.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tempplug_adapters.mabel.recipe import METHOD, MabelRecipe
from tempplug_benchmarks.data import gendered_sentences
from tempplug_benchmarks.suite_file import make_suite, read_file
from tempplug_benchmarks.tasks.reading import read_text

if TYPE_CHECKING:
    from tempplug_adapters.mabel.method import Quadruples
    from tempplug_adapters.training.method import Source


def generated_pairs(recipe: MabelRecipe, source: Source) -> tuple[MabelRecipe, Quadruples]:
    """Returns the recipe and data with pairs and a model for the run's seed; the evaluation data are the same for all seeds."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    gendered_sentences.write_gendered(folder, recipe.max_train_samples or 0, recipe.seed)
    write_tiny_encoder(folder / "model", recipe.seed, words=gendered_sentences.vocabulary(), masked=True)
    recipe = recipe.changed(model_name_or_path=str(folder / "model"))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / "pairs.tsv"), data_dir=folder))


SUITE = make_suite(read_file("bias"), METHOD, generated_pairs, read_text, version=gendered_sentences.VERSION)
