"""The suites ``sentence``, ``retrieval`` and ``bias``, each declared in its TOML file, and how they generate or read texts.

A missing data set is never replaced by another one. Importing this module loads no framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug_adapters.mabel.recipe import METHOD as MABEL, MabelRecipe
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE, SimCSERecipe
from tempplug_adapters.simcse.retrieval_recipe import METHOD as RETRIEVAL_METHOD
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_benchmarks.data import gendered_sentences, sentences
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from tempplug_adapters.mabel.method import Quadruples
    from tempplug_adapters.simcse.data import Sentences
    from tempplug_adapters.training.method import Source

FOR_THE_MEAN = 1000
"""Training pairs from which the mean embedding of a centred encoder is computed."""


def read_text(recipe: Any, source: Source, *, method: MethodInfo, centred: bool = False) -> tuple[Any, Any]:
    """Returns the recipe and data with paths in the data folder; a missing encoder is loaded from the hub.

    ``centred`` subtracts the mean embedding of `FOR_THE_MEAN` training pairs from those of the encoder.
    """
    folder = source.data_dir or Path()
    if (folder / recipe.model_name_or_path).is_dir():
        recipe = recipe.changed(model_name_or_path=str(folder / recipe.model_name_or_path))
    if centred:
        written = source.cache_dir / "encoder"
        _write_centred(recipe, folder / source.dataset, written)
        recipe = recipe.changed(model_name_or_path=str(written))
    return recipe, method.load().load(recipe, replace(source, dataset=str(folder / source.dataset)))


def _write_centred(recipe: Any, dataset: Path, written: Path) -> None:
    """Writes the encoder of a recipe without its mean."""
    from sentence_transformers import SentenceTransformer

    from tempplug_adapters.data_files.text_rows import open_texts
    from tempplug_adapters.sentence_transformers import subtract_mean
    from tempplug_adapters.sentence_transformers.library import dimension_of, modules

    first = modules.Transformer(recipe.model_name_or_path, max_seq_length=recipe.max_length)
    model = SentenceTransformer(modules=[first, modules.Pooling(dimension_of(first)["dimension"])], device="cpu")
    samples = open_texts(dataset, recipe.columns, recipe.where, most=FOR_THE_MEAN)
    subtract_mean(model, [text for sample in samples for text in sample.texts])
    first.save(str(written))


def static_pairs(
    recipe: Any, source: Source, *, method: MethodInfo, collection: str = "", centred: bool = False
) -> tuple[Any, Sentences]:
    """Returns the recipe with a static encoder and the pairs.

    The encoder has the words of the pairs and of a collection, or all; ``centred`` subtracts the mean of the pairs' words.
    """
    from tempplug_benchmarks.data.static_encoder import ENCODER, write_static_encoder

    folder, written = source.data_dir or Path(), source.cache_dir / "encoder"
    pairs = (folder / source.dataset, recipe.columns, recipe.where)
    write_static_encoder(written, *_words(folder / recipe.model_name_or_path, pairs, collection, centred, folder))
    recipe = recipe.changed(model_name_or_path=str(written), encoder=ENCODER)
    return recipe, method.load().load(recipe, replace(source, dataset=str(folder / source.dataset)))


@cache
def _words(vectors: Path, pairs: tuple[Any, ...], collection: str, centred: bool, data_dir: Path) -> tuple[Any, Any]:
    from tempplug_adapters.data_files.text_rows import open_texts
    from tempplug_adapters.sentence_evaluation.retrieval_data import load_collection
    from tempplug_benchmarks.data.static_encoder import static_words

    trained = [text for sample in open_texts(*pairs) for text in sample.texts]
    searched = load_collection(collection, data_dir) if collection else None
    kept = [*trained, *searched.documents.values(), *searched.queries.values()] if searched else None
    return static_words(vectors, kept, trained if centred else ())


def generated_pairs(recipe: Any, source: Source, *, method: MethodInfo = SIMCSE) -> tuple[Any, Any]:
    """Returns the recipe and data with paraphrases for the run's seed."""
    pairs = sentences.paraphrase_pairs(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, method, "pairs.tsv", ("view_a", "view_b"), *pairs)


def generated_sentences(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with sentences for the run's seed."""
    lines = sentences.plain_sentences(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, SIMCSE, "sentences.txt", *([line] for line in lines))


def _generated(recipe: Any, source: Source, method: MethodInfo, name: str, *rows: Sequence[str]) -> tuple[Any, Any]:
    """Writes encoder, training data and evaluation data; the evaluation data are the same for every seed."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    sentences.write_rows(folder / name, *rows)
    write_tiny_encoder(folder / "encoder", seed=recipe.seed)
    sentences.write_sts(folder / "sts", seed=0, dev=1000)
    sentences.write_transfer(folder / "sts" / "transfer", seed=0)
    recipe = recipe.changed(model_name_or_path=str(folder / "encoder"))
    return recipe, method.load().load(recipe, replace(source, dataset=str(folder / name), data_dir=folder / "sts"))


def gendered_pairs(recipe: MabelRecipe, source: Source) -> tuple[MabelRecipe, Quadruples]:
    """Returns the recipe and data with pairs and a model for the run's seed; the evaluation data are the same for all seeds."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    gendered_sentences.write_gendered(folder, recipe.max_train_samples or 0, recipe.seed)
    write_tiny_encoder(folder / "model", recipe.seed, words=gendered_sentences.vocabulary(), masked=True)
    recipe = recipe.changed(model_name_or_path=str(folder / "model"))
    return recipe, MABEL.load().load(recipe, replace(source, dataset=str(folder / "pairs.tsv"), data_dir=folder))


SENTENCE = make_suite(
    read_file("sentence"), SIMCSE, generated_pairs, generated_sentences, static_pairs, read_text, version=sentences.VERSION
)
RETRIEVAL = make_suite(
    read_file("retrieval"), RETRIEVAL_METHOD, generated_pairs, static_pairs, read_text, version=sentences.VERSION
)
BIAS = make_suite(read_file("bias"), MABEL, gendered_pairs, read_text, version=gendered_sentences.VERSION)
