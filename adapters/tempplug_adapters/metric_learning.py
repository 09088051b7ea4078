"""pytorch-metric-learning's NT-Xent and SupCon losses with any temperature strategy, and its memory of past batches.

They are subclasses of the library's, so that its miners, reducers, regularizers, wrappers and ``ref_emb`` work with them.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity
from pytorch_metric_learning.losses.generic_pair_loss import GenericPairLoss
from pytorch_metric_learning.utils.common_functions import labels_or_indices_tuple_required
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor, nn

from tempplug import ContrastiveLoss, NegativeTerm, Objective, Strategy
from tempplug.call.scores import refuse_cosines_only
from tempplug.errors import ConfigError
from tempplug.types import EngineName, ObjectiveName
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.contexts import refuse_missing
from tempplug_adapters.library_loss import LibraryLoss, strategy_of


class _PairLoss(LibraryLoss):
    """Passes the library's pairs to a `ContrastiveLoss` as masks, and returns one loss for each pair or each anchor."""

    of_pairs: bool
    """Whether each pair of positives has a loss, or each anchor."""
    distance: Any
    zero_losses: Any
    add_to_recordable_attributes: Any

    def _make(
        self,
        strategy: Strategy,
        objective: ObjectiveName | Objective,
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None,
        engine: EngineName,
        of_library: dict[str, Any],
    ) -> None:
        # the constructors of the library's losses would set their own temperature
        GenericPairLoss.__init__(self, mat_based_loss=False, **of_library)
        self.contrastive_loss = ContrastiveLoss(
            strategy, objective, "masks", negatives=negatives, reduction="none", engine=engine
        )
        self.add_to_recordable_attributes(list_of_names=["temperature"], is_stat=False)
        refuse_missing(self.contrastive_loss.terms, (), "pytorch-metric-learning")
        if not _of_cosines(self.distance):
            try:
                refuse_cosines_only(self.contrastive_loss.parts)
            except ConfigError as error:
                raise ConfigError(f"distance={type(self.distance).__name__}() gives scores, no cosines: {error}") from error

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Any, ref_emb: Tensor, ref_labels: Tensor | None
    ) -> dict[str, Any]:
        """Returns the losses in nats for the library's reducer, which the library's ``forward`` calls.

        Args:
            embeddings: [N, D] raw embeddings of the anchors.
            labels: [N] classes, or None.
            indices_tuple: pairs or triplets of a miner; None for all pairs of the labels. A negative that is given twice counts
                once, and in the library twice.
            ref_emb: [M, D] raw embeddings of the candidates.
            ref_labels: [M] classes, or None.

        Raises:
            ConfigError: a pair is both positive and negative, or the strategy reads an argument that the library does not pass.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        labels_or_indices_tuple_required(labels, indices_tuple)
        a1, p, a2, n = pairs = convert_to_pairs(indices_tuple, labels, ref_labels)
        # as in the library, where one pair of each kind has no loss either
        if not len(a1) or not len(a2) or all(len(each) <= 1 for each in pairs):
            nothing: dict[str, Any] = self.zero_losses()
            return nothing
        if self.training and torch.is_grad_enabled():
            announce_once(self.contrastive_loss)
        anchors = torch.arange(len(embeddings), device=embeddings.device)
        negative = torch.zeros(len(embeddings), len(ref_emb), dtype=torch.bool, device=embeddings.device)
        negative[a2, n] = True
        indices: Any = anchors
        reduction_type, rows = "element", a1
        if self.of_pairs:
            indices, reduction_type, rows = (a1, p), "pos_pair", torch.arange(len(a1), device=embeddings.device)
            embeddings, negative, labels = embeddings[a1], negative[a1], None if labels is None else labels[a1]
        positive = torch.zeros_like(negative)
        positive[rows, p] = True
        given: dict[str, Any] = {"positive_mask": positive, "negative_mask": negative}
        if labels is not None:
            given |= self.contrastive_loss.accepted(labels=labels)
        if _of_cosines(self.distance):
            found = self.contrastive_loss(embeddings, ref_emb, **given)
        else:
            scores = self.distance(embeddings, ref_emb)
            found = self.contrastive_loss.from_scores(scores if self.distance.is_inverted else -scores, **given)
        losses_of_library = {"losses": found.to(embeddings.dtype), "indices": indices, "reduction_type": reduction_type}
        return {"loss": losses_of_library}


class NTXentLoss(_PairLoss, losses.NTXentLoss):  # type: ignore[misc]
    """Replaces the library's ``NTXentLoss``; the temperature may be a strategy. Each pair of positives has a loss.

    A pair's negatives are those of its anchor; the anchor's other positives are left out. With a number as temperature the
    value is the library's, except that the library adds a smallest number before the logarithm. Memory is linear in the pairs
    of positives times M; the library's is that times M again.

    Args:
        temperature: a number, a spec string such as ``macl:alpha=1`` or a strategy. Options missing in a spec string are
            derived from 0.07, the library's default.
        objective: spec string or instance.
        negatives: terms on negatives that read no argument of a call.
        engine: as in `tempplug.ContrastiveLoss`.
        **of_library: ``distance``, ``reducer`` and the others of the library's losses. Distances other than cosine similarity
            give scores (the negative of a distance such as ``LpDistance``), for strategies that are defined for any scores.

    Attributes:
        contrastive_loss: the loss itself: its ``record`` describes the last call, and ``set_progress`` drives schedules.

    Raises:
        ConfigError: an option is not allowed, a temperature is not greater than 0, or a strategy or term is defined for cosines
            alone and ``distance`` gives others.
        UnknownNameError: no such strategy, objective, term or option.

    Source: pytorch-metric-learning 2.9, ``losses.NTXentLoss``.

    >>> loss_fn = NTXentLoss("macl:base_temperature=0.1")
    >>> loss_fn(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    of_pairs = True

    def __init__(
        self,
        temperature: float | str | Strategy = 0.07,
        *,
        objective: ObjectiveName | Objective = "infonce",
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        engine: EngineName = "auto",
        **of_library: Any,
    ) -> None:
        self._make(strategy_of(temperature, 0.07), objective, negatives, engine, of_library)


class SupConLoss(_PairLoss, losses.SupConLoss):  # type: ignore[misc]
    """Replaces the library's ``SupConLoss``; the temperature may be a strategy. Each anchor has a loss, over all its positives.

    Args:
        temperature: as of `NTXentLoss`, with 0.1 in place of 0.07.
        objective: as of `NTXentLoss`; some do not support several positives.
        negatives: as of `NTXentLoss`, as the next two.
        engine: as in `tempplug.ContrastiveLoss`.
        **of_library: as of `NTXentLoss`.

    Raises:
        ConfigError: as of `NTXentLoss`.
        UnknownNameError: likewise.

    Source: pytorch-metric-learning 2.9, ``losses.SupConLoss``.
    """

    of_pairs = False

    def __init__(
        self,
        temperature: float | str | Strategy = 0.1,
        *,
        objective: ObjectiveName | Objective = "infonce",
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        engine: EngineName = "auto",
        **of_library: Any,
    ) -> None:
        self._make(strategy_of(temperature, 0.1), objective, negatives, engine, of_library)


class CrossBatchMemory(losses.CrossBatchMemory):  # type: ignore[misc]
    """The library's ``CrossBatchMemory``, which also saves its position: the library treats a loaded memory as empty.

    Arguments, attributes and calls are the library's. A checkpoint of the library's memory has no position: its
    rows are loaded, and the memory is filled from its first row.

    Source: pytorch-metric-learning 2.9, ``losses.CrossBatchMemory``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_load_state_dict_pre_hook(_complete)

    def get_extra_state(self) -> dict[str, int | bool]:
        """Returns the position in the memory, and whether it was filled once."""
        return {"queue_idx": self.queue_idx, "has_been_filled": self.has_been_filled}

    def set_extra_state(self, state: dict[str, int | bool]) -> None:
        """Sets what `get_extra_state` returns."""
        self.queue_idx, self.has_been_filled = state["queue_idx"], state["has_been_filled"]


def _complete(memory: nn.Module, state_dict: MutableMapping[str, Any], prefix: str, *_: object) -> None:
    """Adds the present position to a checkpoint of the library's memory, which has none."""
    state_dict.setdefault(f"{prefix}_extra_state", memory.get_extra_state())


def _of_cosines(distance: Any) -> bool:
    """Returns whether a distance of the library is the cosine similarity, which the loss computes itself."""
    known = type(distance) in (CosineSimilarity, DotProductSimilarity) and distance.normalize_embeddings
    return bool(known and distance.p == 2 and distance.power == 1)


__all__ = ["CrossBatchMemory", "NTXentLoss", "SupConLoss"]
