"""Columns of a data set that a loss reads beside the texts, from the data collator to the loss.

A Trainer of the library hands a loss the features of each text column, and one label. Other numbers therefore travel among the
features of the first column, under the name of the loss's argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError

NAMED = frozenset({"labels", "index", "uncertainty", "groups", "candidate_log_q"})
"""Arguments of a loss that a column of the same name can hold."""


class NamedColumns:
    """A data collator that passes numeric columns to the ranking losses, and the other columns to the library's collator.

    `TemperatureSentenceTransformerTrainer` has one. With `TemperatureRankingCallback`, pass it as ``data_collator``.

    Args:
        collator: the library's data collator, such as ``SentenceTransformerDataCollator(model.preprocess)``.
        names: names of the columns: ``labels``, ``index``, ``uncertainty``, ``groups`` or ``candidate_log_q``. Those that a
            data set lacks are skipped.

    Raises:
        ConfigError: a loss has no such argument.
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
        batch = self.collator([{name: value for name, value in row.items() if name not in names} for row in rows])
        for name in names:
            first = next(column for column in rows[0] if any(key.startswith(f"{column}_") for key in batch))
            values = [row[name] for row in rows]
            batch[f"{first}_{name}"] = torch.stack(values) if isinstance(values[0], Tensor) else torch.tensor(values)
        return batch


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
    """Returns a column as the argument of a loss.

    Args:
        name: of the argument.
        values: [B], of a row; or [B, 1 + k], of its positive and its negatives; or uncertainty [B, 2], of both views.
        negatives: k.
        of_rows: whether terms on negatives read it, of each text.
    """
    if name == "uncertainty" and values.ndim == 2:
        return tuple(values.unbind(1))
    if of_rows and values.ndim == 2:
        return {"view_b": values[:, 0], **({"hard_negatives": values[:, 1:]} if negatives else {})}
    if name == "groups" and negatives:
        return {"view_a": values, "view_b": values, "hard_negatives": values[:, None].expand(-1, negatives)}
    return values


def refuse_missing_columns(dataset: Any, wanted: Iterable[str], label_columns: Iterable[str], where: str) -> None:
    """Raises ConfigError where a data set lacks a column that its loss reads; one of unknown columns passes.

    Args:
        dataset: of a Trainer, or None.
        wanted: names that the loss reads.
        label_columns: names of the library's label column.
        where: the data set's name in the message.
    """
    columns = getattr(dataset, "column_names", None)
    if not isinstance(columns, list):
        return
    for name in sorted(wanted):
        if name not in columns and not (name == "labels" and set(label_columns) & set(columns)):
            raise ConfigError(
                f"the loss reads {name}=, and {where} has no column '{name}', but {', '.join(columns)}: add or rename one."
            )
