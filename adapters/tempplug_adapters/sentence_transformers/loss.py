"""`TemperatureRankingLoss`: MultipleNegativesRankingLoss of sentence-transformers with any temperature strategy.

It embeds, and computes `tempplug.ContrastiveLoss`. It does not depend on Trainers: a Trainer that manages what the loss learns
calls `take_charge`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

import tempplug
from tempplug import Objective, Strategy
from tempplug.errors import ConfigError, ShapeError
from tempplug.strategies.fixed import Fixed
from tempplug.types import EngineName, ObjectiveName
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.contexts import in_context
from tempplug_adapters.huggingface.callback import TemperatureCallback
from tempplug_adapters.huggingface.citation import bibtex
from tempplug_adapters.huggingface.parameters import trainable
from tempplug_adapters.sentence_transformers import LIBRARY_TEMPERATURE
from tempplug_adapters.training.recipe import around

Directions = Literal["query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"]

_FORWARD: Literal["query_to_doc"] = "query_to_doc"
_BACKWARD: Literal["doc_to_query"] = "doc_to_query"
_KNOWN_DIRECTIONS = f"('{_FORWARD}',), or ('{_FORWARD}', '{_BACKWARD}') with partition_mode='per_direction'"


class TemperatureRankingLoss(MultipleNegativesRankingLoss):
    """The ranking loss of pairs (anchor, positive) and of tuples with further negatives, with any strategy and objective.

    With ``fixed`` it equals the library's loss with ``scale = 1 / temperature``, including hard negatives, both directions and
    gathering, alone and in MatryoshkaLoss and AdaptiveLayerLoss. A loss that learns, counts or follows a schedule needs a
    `TemperatureSentenceTransformerTrainer`, or a `TemperatureRankingCallback` in any other Trainer of the library: they exempt
    τ from weight decay, clip, save, restore and synchronise it, and update schedules, which the library does not do.

    Args:
        model: a SentenceTransformer.
        strategy: spec string or instance. Options missing in a spec string are set around 0.05, from the library's default
            scale of 20 (``fixed`` has it, ``learnable`` starts there, ``schedule`` goes from half to twice of it). A schedule
            without ``period`` gets a fifth of the run's epochs when training starts.
        objective: spec string or instance.
        scale: 1 / temperature of ``fixed``, as in the library; not together with a strategy.
        similarity_fct: only the library's ``cos_sim``.
        gather_across_devices: whether to use the candidates of all processes.
        directions: ``("query_to_doc",)``, or with ``doc_to_query`` the mean of both.
        partition_mode: ``per_direction`` for both directions, which have separate softmaxes; no effect with one direction.
        hardness_mode: None; strategies such as ``dystress`` weight negatives by their similarity.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        contrastive_loss: the loss itself; ``contrastive_loss.record`` contains statistics of its last call. MatryoshkaLoss and
            AdaptiveLayerLoss call it several times per batch.

    Raises:
        UnknownNameError: the strategy, the objective or an option is unknown.
        ConfigError: an option is not allowed; ``scale`` is given with a strategy; no layout equals the directions; in training,
            no Trainer manages a loss that learns, counts or follows a schedule.

    Source: sentence-transformers 6.2, ``MultipleNegativesRankingLoss``.
    """

    def __init__(
        self,
        model: Any,
        strategy: str | Strategy | None = None,
        objective: ObjectiveName | Objective = "infonce",
        *,
        scale: float | None = None,
        similarity_fct: Callable[[Tensor, Tensor], Tensor] = cos_sim,
        gather_across_devices: bool = False,
        directions: tuple[Directions, ...] = (_FORWARD,),
        partition_mode: Literal["joint", "per_direction"] = "joint",
        hardness_mode: None = None,
        engine: EngineName = "auto",
    ) -> None:
        # the constructor of the library's class would set an unused scale and repeat the checks below
        nn.Module.__init__(self)
        _refuse("similarity_fct", similarity_fct, similarity_fct is not cos_sim, "must be the library's cos_sim")
        _refuse("hardness_mode", hardness_mode, hardness_mode is not None, "must be None: a strategy decides about negatives")
        known = set(directions) in ({_FORWARD}, {_FORWARD, _BACKWARD})
        _refuse("directions", tuple(directions), not known, f"must be {_KNOWN_DIRECTIONS}: no layout equals others")
        symmetric = set(directions) == {_FORWARD, _BACKWARD}
        fits = partition_mode == "per_direction" or (partition_mode == "joint" and not symmetric)
        _refuse(
            "partition_mode",
            partition_mode,
            not fits,
            f"does not fit directions={tuple(directions)}; known: {_KNOWN_DIRECTIONS}",
        )
        if scale is not None:
            _refuse("scale", scale, strategy is not None, "belongs to 'fixed' alone: leave it out, or leave out the strategy")
            _refuse("scale", scale, not 0 < scale < float("inf"), "must be a number greater than 0")
        self.model = model
        self.similarity_fct = similarity_fct
        self.gather_across_devices = gather_across_devices
        self.directions = tuple(directions)
        self.partition_mode = partition_mode
        self.hardness_mode, self.hardness_strength = None, 0.0
        named = "fixed" if strategy is None else strategy
        chosen = Fixed(temperature=1 / scale) if scale else in_context(named, around(LIBRARY_TEMPERATURE))
        self.contrastive_loss = tempplug.ContrastiveLoss(
            chosen, objective, "cross-view", symmetric=symmetric, gather=gather_across_devices, engine=engine
        )
        self._in_charge: TemperatureCallback | bool = False

    def take_charge(self, watcher: TemperatureCallback | None = None) -> None:
        """Declares that the training manages this loss; ``watcher`` observes its batches.

        Our callback and Trainer call it. In your own loop, call it too, pass ``contrastive_loss.parameters()`` to the optimizer
        without weight decay, and call ``contrastive_loss.set_progress`` at every step.
        """
        self._in_charge = watcher or True

    def release(self) -> None:
        """Declares the end of a training; the next one must call `take_charge` again."""
        self._in_charge = False

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Returns the mean loss over the anchors, in nats.

        Args:
            embeddings: of anchors, positives and any number of negatives, [B, D] each.
            labels: not used.

        Raises:
            ShapeError: there are no positives, or shapes do not fit.
            ConfigError: the model is in training, and no Trainer or callback of ours manages a loss that needs one.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        if len(embeddings) < 2:
            raise ShapeError(f"embeddings of {len(embeddings)} column must be of two or more: anchors, positives, negatives.")
        anchors, positives, *negatives = embeddings
        training = bool(self.model.training)
        if training and torch.is_grad_enabled() and not self._in_charge:
            self._refuse_alone()
            announce_once(self.contrastive_loss)
        watcher = self._in_charge if isinstance(self._in_charge, TemperatureCallback) else None
        if watcher is not None and not training:
            # a log after this evaluation still describes the last training batch
            watcher.record()
        if self.contrastive_loss.training != training:
            self.contrastive_loss.train(training)
        hard = negatives[0] if len(negatives) == 1 else torch.cat(negatives) if negatives else None
        loss = self.contrastive_loss(anchors, positives, hard_negatives=hard)
        if watcher is not None and training:
            watcher.observe(anchors, positives)
        return loss

    def _refuse_alone(self) -> None:
        strategy, objective = self.contrastive_loss.strategy, self.contrastive_loss.objective
        does = [
            ("learns", bool(trainable(strategy))),
            ("counts", type(strategy).observe is not Strategy.observe),
            ("follows a schedule", type(strategy).set_progress is not Strategy.set_progress),
        ]
        reasons = " and ".join(verb for verb, true in does if true)
        parts = [f"strategy '{strategy.name}' {reasons}"] if reasons else []
        if trainable(objective):
            parts.append(f"objective '{objective.name}' learns")
        if parts:
            raise ConfigError(
                f"{' and '.join(parts)}, and no Trainer or callback manages it: train with "
                "TemperatureSentenceTransformerTrainer, or pass callbacks=[TemperatureRankingCallback(loss)], both of "
                "tempplug_adapters.sentence_transformers; in your own loop call loss.take_charge()."
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card, with full spec strings."""
        return {
            "strategy": self.contrastive_loss.strategy.spec(),
            "objective": self.contrastive_loss.objective.spec(),
            "gather_across_devices": self.gather_across_devices,
            "directions": self.directions,
            "partition_mode": self.partition_mode,
        }

    @property
    def temperature(self) -> float | str:  # type: ignore[override]
        """The fixed temperature, or the spec of another strategy."""
        strategy = self.contrastive_loss.strategy
        return float(strategy.temperature) if isinstance(strategy, Fixed) else strategy.spec()

    @property
    def scale(self) -> float:
        """1 / temperature of ``fixed``, which can be set; raises AttributeError for other strategies."""
        if not isinstance(self.contrastive_loss.strategy, Fixed):
            raise AttributeError(f"strategy '{self.contrastive_loss.strategy.name}' has no scale.")
        return 1 / float(self.contrastive_loss.strategy.temperature)

    @scale.setter
    def scale(self, value: float) -> None:
        strategy = self.contrastive_loss.strategy
        _refuse("scale", value, not isinstance(strategy, Fixed), f"cannot be set: strategy '{strategy.name}' decides")
        _refuse("scale", value, not 0 < value < float("inf"), "must be a number greater than 0")
        self.contrastive_loss.strategy = Fixed(temperature=1 / value)

    @property
    def citation(self) -> str:
        """BibTeX of the strategy's source, and of the library's loss."""
        library: str = super().citation
        strategy = self.contrastive_loss.strategy
        return library if isinstance(strategy, Fixed) else f"{bibtex(strategy)}\n{library.strip()}\n"


def _refuse(argument: str, value: object, wrong: bool, wanted: str) -> None:
    if wrong:
        raise ConfigError(f"{argument}={value!r} {wanted}.")


__all__ = ["TemperatureRankingLoss"]
