"""Which texts of a batch are the positives of each first text: by position, by equal first texts, by labels, by a teacher.

The result is ``targets=`` of the loss, or None where each row has its second text alone. It needs torch alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from tempplug import distributed
from tempplug.errors import ConfigError, ShapeError
from tempplug.targets import soft_targets

POSITIVES = ("same-row", "same-query")


@dataclass(frozen=True)
class Positives:
    """How labels and first texts of a batch become targets; attributes are arguments of `TemperatureRankingLoss`.

    Raises:
        ConfigError: an attribute is out of its range, or ``teacher_weight`` belongs to no teacher.
    """

    positives: str = "same-row"
    teacher_temperature: float | None = None
    teacher_weight: float = 1.0
    in_batch: bool = True

    def __post_init__(self) -> None:
        if self.positives not in POSITIVES:
            raise ConfigError(f"positives={self.positives!r} must be one of {', '.join(POSITIVES)}.")
        temperature, weight = self.teacher_temperature, self.teacher_weight
        if temperature is not None and not 0 < temperature < float("inf"):
            raise ConfigError(f"teacher_temperature={temperature!r} must be a number greater than 0.")
        if not 0 <= weight <= 1:
            raise ConfigError(f"teacher_weight={weight!r} must lie between 0 and 1.")
        if temperature is None and weight != 1:
            raise ConfigError(f"teacher_weight={weight!r} needs teacher_temperature=, without which there is no teacher.")

    @property
    def same_query(self) -> bool:
        """Whether rows with the same first text share their positives."""
        return self.positives == "same-query"

    def settings(self) -> dict[str, Any]:
        """Returns the attributes that are not their defaults, by name."""
        return {name: value for name, value in vars(self).items() if value != getattr(Positives, name)}

    def targets(self, labels: Tensor | None, queries: Tensor | None, texts: int, like: Tensor, gather: bool) -> Tensor | None:
        """Returns the targets of a batch, [B, M]: the second texts of all rows, then the other texts row by row.

        Without other rows as candidates they are [B, 1 + k], of each row's own texts.

        Args:
            labels: [B] or [B, 1 + k] the label column, None if there is none.
            queries: [B] int64 keys of the first texts; None where equal ones mean nothing.
            texts: 1 + k, the texts of a row beside the first.
            like: any weight of the model, which has the device and the type of its embeddings.
            gather: whether the candidates are those of all processes.

        Raises:
            ConfigError: a teacher is wanted, and there are no scores; there is none, and labels are other numbers than 0 and 1.
            ShapeError: labels are not one number a text.
        """
        taught, device = self.teacher_temperature is not None, like.device
        precision = torch.promote_types(like.dtype, torch.float32)
        if labels is None and taught:
            raise ConfigError(
                f"teacher_temperature={self.teacher_temperature:g} needs a teacher's scores, and the batch has none: give the "
                "data set a column 'score' with a list of numbers, of the positive and of each negative."
            )
        if labels is not None:
            with distributed.refused_together(device, gather):
                own_labels = self.read(labels, texts).to(device, precision)
        elif queries is not None:
            own_labels = second_texts(len(queries), texts, device).to(precision)
        else:
            return None
        shares = distributed.share_rows(len(own_labels), device, gather)
        keys = torch.arange(len(own_labels), device=device) + shares.offset if queries is None else queries.to(device)
        all_labels, all_keys = distributed.gather_all([own_labels, keys], [shares, shares])
        second = second_texts(len(all_labels), texts, device).to(precision)
        if not taught and queries is None and self.in_batch and torch.equal(all_labels, second):
            return None

        def spread(values: Tensor, other: float) -> Tensor:
            """Returns values of texts, [N, 1 + k], as those of each row's candidates; ``other`` for texts of other queries."""
            if not self.in_batch:
                return values
            of_rows = values.where((keys[:, None] == all_keys)[:, :, None], other)
            return torch.cat([of_rows[:, :, 0], of_rows[:, :, 1:].flatten(1)], 1)

        positive = spread(second if taught else all_labels, 0.0)
        one_hot = positive / positive.sum(1, keepdim=True).clamp(min=1)
        if self.teacher_temperature is None:
            return one_hot
        of_teacher = soft_targets(spread(all_labels, -torch.inf), self.teacher_temperature)
        return self.teacher_weight * of_teacher + (1 - self.teacher_weight) * one_hot

    def read(self, labels: Tensor, texts: int) -> Tensor:
        """Returns the checked label of each text, [B, 1 + k]: a teacher's score, or 1 for a positive and 0 for none.

        Arguments and errors as of `targets`.
        """
        taught, values = self.teacher_temperature is not None, labels.detach()
        if values.ndim == 1 and (not taught or (self.same_query and texts == 1)):
            values = pad(values[:, None], (0, texts - 1))  # the label of the second text; the others are no positives
        if values.ndim != 2 or values.shape[1] != texts or (taught and texts == 1 and not self.same_query):
            alone = ", or a number with positives='same-query'" * (texts == 1)
            raise ShapeError(
                f"labels of shape {list(labels.shape)} must be [B, {max(2, texts)}]: a list in each row, of numbers for the "
                f"positive and for each negative{alone}."
            )
        if not taught and (wrong := values[(values != 0) & (values != 1)]).numel():
            raise ConfigError(
                f"the label column holds {float(wrong[0]):g}, and labels are 1 for a positive and 0 for none. Scores and "
                "grades of several texts of a query need teacher_temperature=, graded pairs the library's CoSENTLoss; remove a "
                "column that is neither."
            )
        return values


def some_positive(labels: Tensor | None, positives: Positives, like: Tensor, gather: bool) -> bool:
    """Returns whether the labels of a batch name a positive; arguments as of `Positives.targets`.

    Raises:
        ConfigError: all are 0, as loops of the library pass them where they mean nothing.
    """
    if labels is None or positives.teacher_temperature is not None:
        return False
    with distributed.refused_together(like.device, gather):
        if not labels.any():
            raise ConfigError(
                "labels holds 0 alone, and 1 is a positive: pass None if they mean nothing. Where they do, train with "
                "TemperatureSentenceTransformerTrainer, which reads the whole column."
            )
    return True


def second_texts(rows: int, texts: int, device: torch.device) -> Tensor:
    """Returns 1 for the second text of each row and 0 for its others, [rows, texts]."""
    return torch.eye(texts, device=device)[:1].expand(rows, -1)
