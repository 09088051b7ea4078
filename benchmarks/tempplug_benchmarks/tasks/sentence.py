"""The suite ``sentence``, declared in ``sentence.toml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tempplug_adapters.simcse.recipe import METHOD, SimCSERecipe
from tempplug_benchmarks.data import sentences
from tempplug_benchmarks.suite_file import make_suite, read_file
from tempplug_benchmarks.tasks.reading import read_text

if TYPE_CHECKING:
    from tempplug_adapters.simcse.data import Sentences
    from tempplug_adapters.training.method import Source


def generated_pairs(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with paraphrases for the run's seed."""
    pairs = sentences.paraphrase_pairs(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, "pairs.tsv", ("view_a", "view_b"), *pairs)


def generated_sentences(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with sentences for the run's seed."""
    lines = sentences.plain_sentences(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, "sentences.txt", *([line] for line in lines))


def _generated(recipe: SimCSERecipe, source: Source, name: str, *rows: Sequence[str]) -> tuple[SimCSERecipe, Sentences]:
    """Writes encoder, training data and evaluation data; the evaluation data are the same for every seed."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    sentences.write_rows(folder / name, *rows)
    write_tiny_encoder(folder / "encoder", seed=recipe.seed)
    sentences.write_sts(folder / "sts", seed=0, dev=1000)
    sentences.write_transfer(folder / "sts" / "transfer", seed=0)
    recipe = recipe.changed(model_name_or_path=str(folder / "encoder"))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / name), data_dir=folder / "sts"))


SUITE = make_suite(read_file("sentence"), METHOD, generated_pairs, generated_sentences, read_text, version=sentences.VERSION)
