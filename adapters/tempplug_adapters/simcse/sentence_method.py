"""What SimCSE and MABEL share once they are trained: a folder of transformers with its tokenizer, texts in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from tempplug.errors import DataError
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.simcse.data import Sentences, read_samples
from tempplug_adapters.training.method import Inputs, Method, Source
from tempplug_adapters.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)
S = TypeVar("S", bound=Sentences)


class SentenceMethod(Method[R, S]):
    """A method whose module has ``encoder``, a model of transformers, ``tokenizer`` and ``pooling``."""

    def reopened(self, recipe: R, folder: Path) -> R:
        """Returns the recipe with the trained model as the pretrained one."""
        return recipe.changed(model_name_or_path=str(folder))

    def read(self, recipe: Any, source: Source, split: str) -> Inputs:
        """Returns the sentences of a file, row by row: one a line, or the columns of a table that the training had."""
        table = Path(source.dataset.removesuffix(".gz")).suffix != ".txt"
        samples = read_samples(source.dataset, recipe.columns if table else (), recipe.where if table else (), least=1)
        texts = [sentence for sample in samples for sentence in sample]
        return Inputs(texts, texts)

    def embed(self, recipe: R, module: Any, given: Sequence[str]) -> Tensor:
        """Returns the vectors of sentences, [n, D]."""
        if isinstance(given, str) or not given or not all(isinstance(each, str) for each in given):
            raise DataError(f"embed takes a list of sentences, at least one, not {type(given).__name__} {given!r:.40}.")
        return SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling)(list(given))
