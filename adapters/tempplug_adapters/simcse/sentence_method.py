"""What SimCSE and MABEL share: a module around a model of transformers, the folder that it is saved in, vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tempplug.errors import DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.data_files.tables import COMMIT
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.data_files.text_streams import file_kind
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.simcse.data import Sentences
from tempplug_adapters.storage.files import write_into
from tempplug_adapters.training.method import Inputs, Method, Source
from tempplug_adapters.training.optimizer import Treatment
from tempplug_adapters.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)
S = TypeVar("S", bound=Sentences)


class SentenceModule(nn.Module):
    """Maps sentences to the loss.

    Args:
        model: the model with its training heads; its ``encoder``, of transformers, is saved.
        data: the training data.
        loss_fn: the loss; None where nothing is trained.

    Attributes:
        text_keys: [n, sentences of a sample] number of each sentence, equal for equal sentences; None if no term on negatives
            reads it.
    """

    text_keys: Tensor | None

    def __init__(self, model: Any, data: Sentences, loss_fn: Any) -> None:
        super().__init__()
        self.model, self.loss_fn = model, loss_fn
        keys = torch.from_numpy(data.views.keys) if "keys" in getattr(loss_fn, "takes", ()) else None
        self.register_buffer("text_keys", keys, persistent=False)

    @property
    def encoder(self) -> nn.Module:
        """The model of transformers that is saved."""
        encoder: nn.Module = self.model.encoder
        return encoder


class SentenceMethod(Method[R, S]):
    """A method with a `SentenceModule`; a restored module has ``encoder``, ``tokenizer`` and ``pooling``."""

    def offered(self, data: S) -> frozenset[str]:
        """Returns ``index``, and ``keys`` of the texts."""
        return frozenset({"index", "keys"})

    def files(self, recipe: R, source: Source, data: S) -> dict[str, Path | str]:
        """Returns the file or the folder of the texts, or the commit of the hub's data set."""
        commit = data.tables[0].table.metadata.get(COMMIT) if data.tables else None
        return {"dataset": f"{source.dataset} {commit.decode()}"} if commit else super().files(recipe, source, data)

    def tables(self, data: S) -> Sequence[Assigned]:
        """Returns the table of the texts."""
        return data.tables

    def treatment(self, recipe: R, name: str, parameter: nn.Parameter) -> Treatment:
        """Excludes biases and normalisation from weight decay, as the Trainer does."""
        return Treatment(decays=parameter.ndim > 1)

    def collate(self, recipe: R, data: S, index: Tensor) -> dict[str, Any]:
        """Returns the padded views of some samples, with masked tokens if the recipe requires them."""
        return data.batch(index)

    def save(self, recipe: R, module: Any, data: S, output_dir: Path) -> None:
        """Writes the encoder with its tokenizer as a folder of transformers."""
        write_into(output_dir, lambda folder: self.write(module, data, folder))

    def write(self, module: Any, data: S, folder: Path) -> None:
        """Writes the files of `save` into a folder."""
        module.encoder.save_pretrained(folder)
        data.tokenizer.save_pretrained(folder)

    def reopened(self, recipe: R, folder: Path) -> R:
        """Returns the recipe with the trained model as the pretrained one."""
        return recipe.changed(model_name_or_path=str(folder))

    def read(self, recipe: Any, source: Source, split: str) -> Inputs:
        """Returns the sentences of a file, row by row: one a line, or the texts of a table, with the ids of their rows."""
        columns = () if file_kind(Path(source.dataset)) == ".txt" else recipe.columns
        rows = open_texts(source.dataset, columns, whole=True, least=1)
        table = rows.assigned.table
        named = [name for role, names in rows.assigned.columns.items() if role != "id" for name in names]
        texts = [text for sample in rows for text in sample.texts]
        more: dict[str, Sequence[Any]] = {}
        notes = [] if len(texts) == len(table) else [f"a vector for each text of {', '.join(named)}: {len(table)} rows"]
        counts = [len(sample.texts) for sample in rows]
        if "id" in rows.assigned:
            ids = table.ids(rows.assigned.column("id"))
            more["id"] = [key for key, count in zip(ids, counts, strict=True) for _ in range(count)]
        if len(texts) > len(table):
            more["row"] = [row for row, count in enumerate(counts) for _ in range(count)]
        return Inputs(texts, texts, more, notes)

    def embed(self, recipe: R, module: Any, given: Sequence[str]) -> Tensor:
        """Returns the vectors of sentences, [n, D]."""
        if isinstance(given, str) or not given or not all(isinstance(each, str) for each in given):
            raise DataError(f"embed takes a list of sentences, at least one, not {type(given).__name__} {given!r:.40}.")
        return SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling)(list(given))
