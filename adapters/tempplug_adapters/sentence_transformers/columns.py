"""What a loss reads of a batch beside the embeddings: columns of the data set, and token ids for terms on negatives.

A Trainer of the library hands a loss the features of each text column, and one label. Other numbers therefore travel among the
features of the first column, under the name of the loss's argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from datasets import Dataset  # type: ignore[import-untyped]
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.positives import Positives

INTEGERS = frozenset({"labels", "index", "groups"})
"""Arguments of a loss that a column of the same name can hold: those with an integer a row."""
NAMED = frozenset({*INTEGERS, "uncertainty", "candidate_log_q"})
"""All of them."""
LOOKED_AT = 1000
"""Rows of a data set that are checked before the training; the others are in their batch."""


class NamedColumns:
    """A data collator that passes numeric columns to the ranking losses, and the other columns to the library's collator.

    `TemperatureSentenceTransformerTrainer` has one. With `TemperatureRankingCallback`, pass it as ``data_collator``.

    Args:
        collator: the library's data collator, such as ``SentenceTransformerDataCollator(model.preprocess)``.
        names: names of the columns: ``labels``, ``index``, ``uncertainty``, ``groups`` or ``candidate_log_q``. Those that a
            data set lacks are skipped.

    Raises:
        ConfigError: a loss has no such argument.
        DataError: at a call, a column holds something else than numbers: words, None, lists of different lengths.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]], names: Iterable[str]) -> None:
        self.collator, self.names = collator, sorted(names)
        if unknown := set(self.names) - NAMED:
            raise ConfigError(f"names={sorted(unknown)} must be among {', '.join(sorted(NAMED))}.")

    def __getattr__(self, name: str) -> Any:
        if name in ("collator", "names"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.collator, name)

    @property
    def valid_label_columns(self) -> list[str]:
        """The library's label columns, then the named ones: a batch sampler does not take them for texts."""
        own: list[str] = getattr(self.collator, "valid_label_columns", [])
        return [*own, *(name for name in self.names if name not in own)]

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns a batch of the library, with the named columns among the features of the first text column."""
        names = [name for name in self.names if rows and name in rows[0]]
        if "labels" in self.names and "labels" not in names:
            for column in {*self.valid_label_columns} & {*(rows[0] if rows else ())}:
                as_numbers("labels", [row[column] for row in rows], column)  # the library's own error names no column
        batch = self.collator([{name: value for name, value in row.items() if name not in names} for row in rows])
        for name in names:
            first = next(column for column in rows[0] if any(key.startswith(f"{column}_") for key in batch))
            batch[f"{first}_{name}"] = as_numbers(name, [row[name] for row in rows])
        return batch


def as_numbers(argument: str, values: Sequence[Any], column: str | None = None) -> Tensor:
    """Returns the values of a column in a batch as numbers, [B] or [B, 1 + k]: int64 for `INTEGERS`, else floating point.

    Args:
        argument: of the loss.
        values: one a row: numbers, or lists of them.
        column: its name, if it is not that of the argument.

    Raises:
        DataError: they are no numbers of that kind; the message names the column, the first wrong value, and the remedy.
    """
    column = column or argument
    plain = [each.tolist() if isinstance(each, Tensor | np.ndarray | np.generic) else each for each in values]
    numbers = [one for each in plain for one in (each if isinstance(each, list | tuple) else (each,))]
    kind, wanted = (int, "integers") if argument in INTEGERS else (int | float, "numbers")
    if wrong := [each for each in numbers if isinstance(each, bool) or not isinstance(each, kind)]:
        remedy = f"convert it to {wanted}"
        if any(each is None for each in wrong):
            remedy = "leave out rows without a value"
        elif isinstance(wrong[0], str) and wanted == "integers":
            remedy = "number its words, equal ones alike in all rows"
        raise DataError(f"column '{column}' holds {wrong[0]!r} where the loss reads {wanted} as {argument}=: {remedy}.")
    lengths = {len(each) if isinstance(each, list | tuple) else 1 for each in plain}
    if len(lengths) > 1:
        raise DataError(
            f"column '{column}' holds {' and '.join(map(str, sorted(lengths)))} numbers in rows of one batch: give every row "
            "as many, that of its positive and one for each of its negatives."
        )
    if argument in INTEGERS and not all(-(2**63) <= each < 2**63 for each in numbers):
        raise DataError(f"column '{column}' holds integers beyond int64.")
    return torch.tensor(plain, dtype=torch.int64 if argument in INTEGERS else torch.get_default_dtype())


def take_named(features: dict[str, Any]) -> dict[str, Tensor]:
    """Removes the named columns from the features of the first column, which a model would not accept, and returns them."""
    return {name: features.pop(name) for name in NAMED & features.keys()}


def require_named(given: Mapping[str, Tensor | None], wanted: Iterable[str]) -> dict[str, Tensor]:
    """Returns the named columns that a loss reads; raises ConfigError if a batch lacks one."""
    found: dict[str, Tensor] = {}
    for name in sorted(wanted):
        if (value := given.get(name)) is None:
            raise ConfigError(
                f"the loss reads {name}=, and the batch has none: give the data set a column '{name}', and train with "
                "TemperatureSentenceTransformerTrainer, or pass data_collator=NamedColumns(collator, names)."
            )
        found[name] = value
    return found


def as_argument(name: str, values: Tensor, negatives: int, of_rows: bool) -> Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]:
    """Returns a column as the argument ``name`` of a loss.

    Args:
        name: name of the column and the argument.
        values: [B], of each row; or [B, 1 + k], of its positive and its negatives; or uncertainty [B, 2], of both views.
        negatives: k, the number of hard negatives of a row.
        of_rows: whether a term on negatives reads a value of each text.
    """
    if name == "uncertainty" and values.ndim == 2:
        return tuple(values.unbind(1))
    if of_rows and values.ndim == 2:
        return {"view_b": values[:, 0], **({"hard_negatives": values[:, 1:]} if negatives else {})}
    if name == "groups" and negatives:
        return {"view_a": values, "view_b": values, "hard_negatives": values[:, None].expand(-1, negatives)}
    return values


def check_columns(dataset: Any, wanted: Iterable[str], label_columns: Iterable[str], where: str) -> None:
    """Checks the columns of the data set ``where`` that its loss reads, the first `LOOKED_AT` rows of each.

    Unknown columns, and the rows of streams, are not checked.

    Raises:
        ConfigError: a column is missing.
        DataError: a column holds something else than numbers, as of `as_numbers`.
    """
    columns = getattr(dataset, "column_names", None)
    if not isinstance(columns, list):
        return
    for name in sorted(wanted):
        possible = [name, *(label_columns if name == "labels" else ())]
        column = next((each for each in possible if each in columns), None)
        if column is None:
            raise ConfigError(
                f"the loss reads {name}=, and {where} has no column '{name}', but {', '.join(columns)}: add or rename one."
            )
        if isinstance(dataset, Dataset):
            for value in dataset.select_columns(column)[:LOOKED_AT][column]:
                as_numbers(name, [value], column)


def check_labels(dataset: Any, positives: Positives, named: frozenset[str], label_columns: Iterable[str]) -> None:
    """Checks the label column that is neither a text nor ``named``, its first `LOOKED_AT` rows; errors as of `Positives`."""
    if not isinstance(dataset, Dataset) or ("labels" in named and "labels" not in dataset.column_names):
        return
    others = [name for name in dataset.column_names if name not in {*named, "dataset_name"}]
    labels, column = None, next((name for name in label_columns if name in others), None)
    if column is not None:
        values = dataset.select_columns(column)[:LOOKED_AT][column]
        labels = as_numbers("targets", [int(each) if isinstance(each, bool) else each for each in values], column)
        if positives.teacher_temperature is None and not labels.any():
            raise ConfigError(
                f"column '{column}' holds 0 alone, and 1 is a positive: remove a column that is no label of pairs."
            )
    positives.targets(labels, None, len(others) - 1 - (column is not None), torch.zeros(()), gather=False)


def check_texts(dataset: Any, where: str) -> None:
    """Raises `DataError` if a column of the data set ``where`` has lists of texts, which the library reads as one input."""
    for name, feature in (getattr(dataset, "features", None) or {}).items():
        if getattr(getattr(feature, "feature", None), "dtype", None) in ("string", "large_string"):
            raise DataError(
                f"column '{name}' of {where} holds lists of texts, and the library's collator reads a list as one input: give "
                f"each text a column of its own, {name}_1, {name}_2 and so on, and all rows a column 'label' with a list of "
                "numbers, 1 for each text that is a positive and 0 for each negative."
            )


def token_rows(features: Mapping[str, Any]) -> list[list[int]]:
    """Returns the token ids of each text of a column, from a padded, a flattened or a StaticEmbedding's batch.

    Raises:
        ConfigError: the column holds no token ids.
    """
    if "input_ids" not in features:
        raise ConfigError(f"negatives= read the token ids of a batch, but its columns hold only {', '.join(features)}.")
    ids = features["input_ids"]
    if "attention_mask" in features and ids.ndim == 2:
        masks = features["attention_mask"].bool().cpu()
        return [row[mask].tolist() for row, mask in zip(ids.cpu(), masks, strict=True)]
    flat = ids.flatten().tolist()
    ends = features["cu_seq_lens_q"].tolist() if "cu_seq_lens_q" in features else [*features["offsets"].tolist(), len(flat)]
    return [flat[start:end] for start, end in pairwise(ends)]


def text_keys(rows: list[list[int]]) -> Tensor:
    """Returns a number for each text, [B] int64, equal for equal texts, also on other processes."""
    digests = (hashlib.blake2b(np.array(row, np.int32).tobytes(), digest_size=8).digest() for row in rows)
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests])


class Guide:
    """A guide model's embeddings of the texts of a batch; the model is not trained.

    Args:
        guide: a SentenceTransformer.
        model: the SentenceTransformer that is trained. Where vocabulary or longest text differ, the guide's tokens come from
            the decoded texts, which lack special tokens.

    Raises:
        ConfigError: one of them has no tokenizer.
    """

    def __init__(self, guide: Any, model: Any) -> None:
        for name, each in (("guide", guide), ("model", model)):
            if getattr(each, "tokenizer", None) is None:
                raise ConfigError(
                    f"guide= needs the tokenizers of both models, and {name} of type {type(each).__name__} has none."
                )
        self.guide, self.tokenizer = guide.eval(), model.tokenizer
        both = isinstance(guide.tokenizer, PreTrainedTokenizerBase) and isinstance(model.tokenizer, PreTrainedTokenizerBase)
        alike = both and guide.tokenizer.get_vocab() == model.tokenizer.get_vocab()
        self.same_tokens = alike and guide.max_seq_length >= model.max_seq_length

    @torch.no_grad()
    def embed(self, rows: list[list[int]], size: int, device: torch.device) -> Tensor:
        """Returns the guide's embeddings, [B, E], of token ids of the trained model, ``size`` texts at a time."""
        guide = self.guide.to(device)
        found = []
        for begin in range(0, len(rows), size):
            some = rows[begin : begin + size]
            if self.same_tokens:
                features = dict(guide.tokenizer.pad({"input_ids": some}, return_tensors="pt"))
            else:
                decode = getattr(self.tokenizer, "batch_decode", None) or self.tokenizer.decode_batch
                read = getattr(guide, "preprocess", None) or guide.tokenize  # before 5.4
                features = read(decode(some, skip_special_tokens=True))
            moved = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in features.items()}
            found.append(guide(moved)["sentence_embedding"])
        return torch.cat(found)
