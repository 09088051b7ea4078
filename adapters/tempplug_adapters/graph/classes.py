"""Classes of nodes and graphs as numbers: words are numbered in their order, and -1 beside 1 is a class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from tempplug.errors import DataError, quoted
from tempplug_adapters.data_files.column_kinds import MISSING_NUMBERS


def class_numbers(words: Sequence[str | None], name: str) -> Tensor:
    """Returns the number of each class, [N] float64: its place among the sorted words; NaN where a label is missing.

    Args:
        words: the class of each node or graph; None or blank where it is missing.
        name: of the data, in messages.

    Raises:
        DataError: a class has the name of a missing number, such as ``nan``, or no class is there twice.
    """
    labels = [(word or "").strip() for word in words]
    classes = sorted({*labels} - {""})
    if doubtful := next((each for each in classes if each.lower() in MISSING_NUMBERS), None):
        remedy = "leave missing labels empty, or rename the class"
        raise DataError(f"{name}: {quoted(doubtful)} can be a class or a missing label: {remedy}.")
    if 2 < len(classes) == len(labels) - labels.count(""):
        remedy = "such names are no classes: rename or drop their column"
        raise DataError(f"{name}: each of {len(classes)} labels is another word; {remedy}.")
    numbers = {each: float(number) for number, each in enumerate(classes)}
    return torch.tensor([numbers.get(label, torch.nan) for label in labels], dtype=torch.float64)


def signed_classes(labels: Tensor, name: str) -> Tensor:
    """Returns 0 and 1 for labels that are -1 and 1 alone, with a warning; other labels, where -1 is a missing one, as given."""
    if set(labels[~labels.isnan()].tolist()) != {-1, 1}:
        return labels
    warnings.warn(f"{name}: the labels are -1 and 1 alone, which are read as the classes 0 and 1.", stacklevel=2)
    return (labels + 1) / 2


def classes_in(labels: Tensor | None) -> str:
    """Returns the number of classes of labels [N], of which -1 is missing, or [N, C], to be read after other numbers."""
    if labels is None:
        return ""
    return f", {len(set(labels[labels >= 0].tolist())) if labels.ndim == 1 else labels.shape[1]} classes"
