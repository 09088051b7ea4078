"""`TemperatureRankingLoss`: MultipleNegativesRankingLoss of sentence-transformers with any temperature strategy.

It embeds, and computes `tempplug.ContrastiveLoss`. It does not depend on Trainers: a Trainer that manages what the loss learns
calls `take_charge`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

import tempplug
from tempplug import CrossView, Hardness, NegativeTerm, Objective, SameKey, Strategy, distributed
from tempplug.call.read import SCALE
from tempplug.errors import ConfigError, ShapeError
from tempplug.negatives.base import joined_spec
from tempplug.strategies.fixed import Fixed
from tempplug.types import EngineName, ObjectiveName
from tempplug_adapters.announcement import announce_once, bibtex
from tempplug_adapters.contexts import in_context, refuse_missing
from tempplug_adapters.huggingface.callback import TemperatureCallback
from tempplug_adapters.positives import Positives, second_texts, some_positive
from tempplug_adapters.ring_buffer import PastBatches, add_past_batches, loss_with_past_batches
from tempplug_adapters.sentence_transformers import LIBRARY_TEMPERATURE
from tempplug_adapters.sentence_transformers.columns import (
    NAMED,
    Guide,
    as_argument,
    require_named,
    take_named,
    text_keys,
    token_rows,
)
from tempplug_adapters.sentence_transformers.library import MultipleNegativesRankingLoss, dimension_of
from tempplug_adapters.sentence_transformers.refusals import managed_parts, refuse, refuse_cosines
from tempplug_adapters.sentence_transformers.similarities import function_name, own_scores
from tempplug_adapters.training.recipe import around

Directions = Literal["query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"]

_BLOCKS = {"query_to_doc": "ab", "query_to_query": "aa", "doc_to_query": "ba", "doc_to_doc": "bb"}
"""Blocks of layout ``cross-view``."""
_SOFTMAX = {"joint": "joint", "per_direction": "separate"}
_HARDNESS = {"in_batch_negatives": "in-batch", "hard_negatives": "hard", "all_negatives": "all"}
"""Negatives of the term ``hardness``."""
_OF_OTHER_ROWS = "gather_across_devices, further directions, negatives, queue_size and positives='same-query'"


class TemperatureRankingLoss(MultipleNegativesRankingLoss):
    """The ranking loss of pairs (anchor, positive) and of tuples with further negatives, with any strategy and objective.

    With ``fixed`` it equals the library's loss with ``scale = 1 / temperature``, including hard negatives, all directions,
    hardness and gathering, alone and in MatryoshkaLoss and AdaptiveLayerLoss; with ``negatives="guide"`` its GISTEmbedLoss. A
    loss that learns, counts or follows a schedule needs a `TemperatureSentenceTransformerTrainer`, or a
    `TemperatureRankingCallback` in any other Trainer of the library: they exempt τ from weight decay, clip, save, restore and
    synchronise it, and update schedules, which the library does not do. Only that Trainer adds the temperature to the logs of
    ``report_to``, of ``fixed``, too.

    What a strategy, an objective or a term reads of each row beside the texts comes from the data set's column of that name:
    ``labels`` (or the library's label column), ``index``, ``uncertainty``, ``groups``, ``candidate_log_q``. A column holds one
    number a row; for terms on negatives it may also hold a list, of the positive and each negative, and ``uncertainty`` that
    of anchor and positive. The Trainer passes them on; with the callback, `NamedColumns` does. ``dimension`` of a strategy is
    the model's, if not given.

    Args:
        model: a SentenceTransformer.
        strategy: spec string or instance. Options missing in a spec string are set around 0.05, from the library's default
            scale of 20 (``fixed`` has it, ``learnable`` starts there, ``schedule`` goes from half to twice of it). A schedule
            without ``period`` gets a fifth of the run's epochs when training starts.
        objective: spec string or instance.
        negatives: terms on negatives, as in `tempplug.ContrastiveLoss`. ``same-key`` leaves out the texts that equal the
            positive of the anchor; ``guide`` needs ``guide``; ``within-group`` and ``log-q`` read columns of the data set.
        guide: a SentenceTransformer for the term ``guide``, which embeds the same texts and is not trained.
        scale: 1 / temperature of ``fixed``, as in the library; not together with a strategy.
        similarity_fct: the library's ``cos_sim``, or any function of it such as ``dot_score``, in whose units temperatures and
            margins then are. Strategies and terms that are defined for cosines refuse it, as do directions within a column,
            ``gather_across_devices``, and hardness other than that of all negatives.
        gather_across_devices: whether to use the candidates of all processes.
        group: the processes of ``gather_across_devices``, as of `tempplug.ContrastiveLoss`.
        directions: as in the library: ``query_to_doc`` and any of ``query_to_query``, ``doc_to_query`` and ``doc_to_doc``.
        partition_mode: as in the library: ``joint``, or ``per_direction`` for the mean of separate softmaxes.
        hardness_mode: as in the library; short for a term ``hardness``.
        hardness_strength: as in the library.
        queue_size: most positives of past batches that stay negatives, at least 1, or None. The memory starts empty, is used in
            training alone, and is saved with the loss; of all processes with ``gather_across_devices``. It adds the term
            ``same-key``, so that no past embedding of the anchor's own positive is a negative.
        engine: as in `tempplug.ContrastiveLoss`.
        positives: ``same-query``: rows with the same first text are each other's positives, not negatives; they share the
            probability, as do several texts of a row whose labels are 1.
        teacher_temperature: divides a teacher's scores in the label column, [1 + k] of the positive and each negative of a row,
            or one a row with ``same-query``; their softmax is the target. None: labels are 1 for a positive and 0 for none.
        teacher_weight: the teacher's share of the targets, from 0 to 1; the positives have the rest.
        in_batch: whether texts of other rows are candidates; without them, ``fixed`` with a teacher is the library's
            DistillKLDivLoss but for the teacher's entropy and a factor of the student's temperature squared.

    Attributes:
        contrastive_loss: the loss itself; ``contrastive_loss.record`` contains statistics of its last call. MatryoshkaLoss and
            AdaptiveLayerLoss call it several times per batch.

    Raises:
        UnknownNameError: the strategy, the objective, a term or an option is unknown.
        ConfigError: an option is not allowed; ``scale`` is given with a strategy; ``similarity_fct`` does not go with another
            part; a column that the loss reads is missing; in training, no Trainer manages a loss that learns, counts, has a
            schedule or past batches; a batch has a label that is neither read nor 0 or 1, at first zeros alone without a
            Trainer, or lacks a teacher's scores; ``in_batch=False`` with a setting of other rows; ``queue_size`` with a wrapper
            that calls the loss again, with ``similarity_fct``, with ``same-query``, or with a term that reads more than keys.

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
        group: Any = None,
        directions: tuple[Directions, ...] = ("query_to_doc",),
        partition_mode: Literal["joint", "per_direction"] = "joint",
        hardness_mode: Literal["in_batch_negatives", "hard_negatives", "all_negatives"] | None = None,
        hardness_strength: float = 0.0,
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        guide: Any = None,
        queue_size: int | None = None,
        engine: EngineName = "auto",
        positives: Literal["same-row", "same-query"] = "same-row",
        teacher_temperature: float | None = None,
        teacher_weight: float = 1.0,
        in_batch: bool = True,
    ) -> None:
        # the constructor of the library's class would set an unused scale and repeat the checks below
        nn.Module.__init__(self)
        refuse("similarity_fct", similarity_fct, not callable(similarity_fct), "must be a function such as cos_sim")
        chosen_directions = [name for name in _BLOCKS if name in directions]
        known = set(directions) <= set(_BLOCKS) and "query_to_doc" in directions
        refuse("directions", tuple(directions), not known, f"must be query_to_doc and any of {', '.join(list(_BLOCKS)[1:])}")
        refuse("partition_mode", partition_mode, partition_mode not in _SOFTMAX, f"must be one of {', '.join(_SOFTMAX)}")
        without_positives = partition_mode == "per_direction" and not {"query_to_query", "doc_to_doc"}.isdisjoint(directions)
        refuse("partition_mode", partition_mode, without_positives, "must be joint where a direction holds no positives")
        modes = ", ".join(_HARDNESS)
        refuse("hardness_mode", hardness_mode, hardness_mode not in (None, *_HARDNESS), f"must be None or one of {modes}")
        blocks = "+".join(_BLOCKS[name] for name in chosen_directions)
        terms = tempplug.create_negatives(negatives)
        if hardness_mode is not None:
            options = {"strength": hardness_strength, "of": _HARDNESS[hardness_mode], "blocks": "ab"}
            terms += tempplug.create_negatives("hardness", **options)
        if queue_size is not None and not any(isinstance(term, SameKey) for term in terms):
            terms += tempplug.create_negatives("same-key")
        given: object = strategy
        number = isinstance(given, int | float)
        refuse("strategy", strategy, number, f"is a number: write scale={strategy} for the library's, or Fixed(temperature)")
        if scale is not None:
            refuse("scale", scale, strategy is not None, "belongs to 'fixed' alone: leave it out, or leave out the strategy")
            refuse("scale", scale, not 0 < scale < float("inf"), "must be a number greater than 0")
        self.model = model
        self.similarity_fct = similarity_fct
        self.gather_across_devices = gather_across_devices
        self.directions = tuple(directions)
        self.partition_mode = partition_mode
        self.hardness_mode, self.hardness_strength = hardness_mode, hardness_strength
        self.positives = Positives(positives, teacher_temperature, teacher_weight, in_batch)
        named = "fixed" if strategy is None else strategy
        chosen = (
            Fixed(temperature=1 / scale) if scale else in_context(named, around(LIBRARY_TEMPERATURE), **dimension_of(model))
        )
        layout = CrossView(directions=blocks, softmax=_SOFTMAX[partition_mode])
        self.contrastive_loss = tempplug.ContrastiveLoss(
            chosen, objective, layout, negatives=terms, gather=gather_across_devices, group=group, engine=engine
        )
        if scale is not None:
            self._warn_of_scale(scale)
        takes = self.contrastive_loss.takes
        refuse("guide", guide, guide is not None and "guide" not in takes, "is read by no term: pass negatives='guide', too")
        offered, where = ({"keys"}, " without guide=") if guide is None else ({"keys", "guide"}, "")
        refuse_missing(terms, offered | NAMED, f"{type(self).__name__}{where}")
        if similarity_fct is not cos_sim:
            given = f"similarity_fct={function_name(similarity_fct)} gives scores"
            if any(isinstance(term, Hardness) and term.of != "all" for term in terms):
                raise ConfigError(
                    f"{given}, which belong to no row: use hardness_mode='all_negatives', or a term hardness with of=all."
                )
            refuse_cosines(self.contrastive_loss, given)
            refuse("queue_size", queue_size, queue_size is not None, "needs similarity_fct=cos_sim, whose rows it keeps")
        if queue_size is not None:
            refuse("queue_size", queue_size, self.positives.same_query, "keeps no first texts for positives='same-query'")
            add_past_batches(self.contrastive_loss, queue_size)
        if not in_batch:
            others = gather_across_devices or bool(terms) or self.positives.same_query or queue_size is not None
            refuse("in_batch", in_batch, others or blocks != "ab", "leaves no other rows for " + _OF_OTHER_ROWS)
            refuse_cosines(self.contrastive_loss, "in_batch=False compares a row's own texts, by their scores")
        self._batch: Tensor | None = None
        self._stored_batch: Tensor | None = None
        self._guide = None if guide is None else Guide(guide, model)  # no submodule: neither trained nor saved
        self._labelled = False
        self._of_rows: dict[str, Any] = {}
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

    @property
    def past_batches(self) -> PastBatches | None:
        """The memory of ``queue_size``, a part of ``contrastive_loss``."""
        return getattr(self.contrastive_loss, "past_batches", None)

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns of the data set, beside the texts, that the loss reads."""
        return self.contrastive_loss.takes & NAMED

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Returns the mean loss of a batch in nats; arguments as in the library.

        Args:
            sentence_features: of each text column; those of the first may contain the `columns`.
            labels: [B] or [B, 1 + k] the label column: ``labels`` of a loss that reads them, a teacher's scores with
                ``teacher_temperature``, otherwise 1 for a positive and 0 for none.
        """
        features = list(sentence_features)
        named = take_named(features[0])
        self._of_rows = self._read(features, labels, named)
        try:
            loss: Tensor = super().forward(features, labels)  # type: ignore[arg-type]
        finally:
            self._of_rows = {}
            features[0].update(named)  # MatryoshkaLoss and AdaptiveLayerLoss call again with the same features
        return loss

    def _read(self, features: list[dict[str, Tensor]], labels: Tensor | None, named: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns what the loss reads of a batch beside the embeddings, by the name of the argument."""
        self._refuse_alone()
        grades = None if "labels" in self.columns and "labels" not in named else labels
        found = require_named({"labels": labels, **named}, self.columns)
        if self.past_batches is not None:
            self._batch = next(iter(features[0].values()))  # the same tensor in all calls of a wrapper
        of_rows = frozenset().union(*(each.takes for each in self.contrastive_loss.terms))
        arguments = {name: as_argument(name, each, len(features) - 2, name in of_rows) for name, each in found.items()}
        like = next(self.model.parameters())
        queries = text_keys(token_rows(features[0])) if self.positives.same_query else None
        with distributed.using_group(self.contrastive_loss.group):
            if not (self._labelled or self._in_charge):
                self._labelled = some_positive(grades, self.positives, like, self.gather_across_devices)
            targets = self.positives.targets(grades, queries, len(features) - 1, like, self.gather_across_devices)
        of_targets = {} if targets is None else {"targets": targets}
        return {**self._read_texts(features), **arguments, **of_targets}

    def _read_texts(self, features: list[dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
        """Returns what terms on negatives read of the texts of a batch, by the name of the argument and of the embeddings."""
        if not self.contrastive_loss.takes & {"keys", "guide"}:
            return {}
        rows = [token_rows(each) for each in features]
        device = features[0]["input_ids"].device
        found = {}
        if "keys" in self.contrastive_loss.takes:
            _, *keys = (text_keys(each).to(device) for each in rows)
            found["keys"] = {"view_a": keys[0], **_by_name(keys)}
        if self._guide is not None:
            size = getattr(self, "mini_batch_size", len(rows[0]))
            anchors, *others = (self._guide.embed(each, size, device) for each in rows)
            found["guide"] = {"view_a": anchors, **_by_name(others)}
        return found

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Returns the mean loss over the anchors, in nats.

        Args:
            embeddings: of anchors, positives and any number of negatives, [B, D] each.
            labels: not used; a loss that reads labels has them from `forward`.

        Raises:
            ShapeError: there are no positives, or shapes do not fit.
            ConfigError: the model is in training, and no Trainer or callback of ours manages a loss that needs one.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        if len(embeddings) < 2:
            raise ShapeError(f"embeddings of {len(embeddings)} column must be of two or more: anchors, positives, negatives.")
        anchors, positives, *negatives = embeddings
        self._refuse_alone()
        training = bool(self.model.training)
        watcher = self._in_charge if isinstance(self._in_charge, TemperatureCallback) else None
        if watcher is not None and not training:
            # a log after this evaluation still describes the last training batch
            watcher.record()
        if self.contrastive_loss.training != training:
            self.contrastive_loss.train(training)
        if self.positives.in_batch:
            loss = self._loss_of(anchors, _by_name([positives, *negatives]))
        else:
            scores = own_scores(anchors, torch.stack([positives, *negatives], 1), self.similarity_fct)
            given = {"targets": second_texts(len(scores), scores.shape[1], scores.device), **self._of_rows}
            loss = self.contrastive_loss.from_scores(scores, **given)
        if watcher is not None and training:
            watcher.observe(anchors, positives)
        return loss

    def _loss_of(self, anchors: Tensor, others: dict[str, Tensor]) -> Tensor:
        if self.past_batches is not None and self.model.training:
            if self._batch is self._stored_batch is not None:
                raise ConfigError("queue_size goes with one call of the loss a batch, and its wrapper calls it several times.")
            self._stored_batch = self._batch
            positives, arguments = others["view_b"], {**others, **self._of_rows}
            del arguments["view_b"]
            return loss_with_past_batches(self.contrastive_loss, self.past_batches, anchors, positives, arguments)
        if self.similarity_fct is cos_sim:
            return self.contrastive_loss(anchors, **others, **self._of_rows)
        # from_scores has the hard negatives of all rows in one dimension
        flat: dict[str, Any] = {
            name: {part: each.flatten(0, 1) if part == "hard_negatives" else each for part, each in value.items()}
            if isinstance(value, Mapping)
            else value
            for name, value in self._of_rows.items()
        }
        candidates = torch.cat([each.flatten(0, 1) if name == "hard_negatives" else each for name, each in others.items()])
        return self.contrastive_loss.from_scores(self.similarity_fct(anchors, candidates), **flat)

    def _refuse_alone(self) -> None:
        """Raises ConfigError if the loss needs a Trainer or callback of ours and has none; announces other losses."""
        if self._in_charge or not (self.model.training and torch.is_grad_enabled()):
            return
        parts = managed_parts(self.contrastive_loss)
        parts += ["queue_size keeps past batches"] if self.past_batches is not None else []
        if parts:
            raise ConfigError(
                f"{' and '.join(parts)}, and no Trainer or callback manages it: train with "
                "TemperatureSentenceTransformerTrainer, or pass callbacks=[TemperatureRankingCallback(loss)], both of "
                "tempplug_adapters.sentence_transformers; in your own loop call loss.take_charge()."
            )
        announce_once(self.contrastive_loss, "not in the logs: TemperatureSentenceTransformerTrainer adds its temperature")

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card, with full spec strings."""
        return {
            "strategy": self.contrastive_loss.strategy.spec(),
            "objective": self.contrastive_loss.objective.spec(),
            "gather_across_devices": self.gather_across_devices,
            "directions": self.directions,
            "partition_mode": self.partition_mode,
            **self.positives.settings(),
            **({} if self.past_batches is None else {"queue_size": len(self.past_batches.rows)}),
            **({"negatives": joined_spec(self.contrastive_loss.terms)} if self.contrastive_loss.terms else {}),
            **({} if self.similarity_fct is cos_sim else {"similarity_fct": function_name(self.similarity_fct)}),
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
        refuse("scale", value, not isinstance(strategy, Fixed), f"cannot be set: strategy '{strategy.name}' decides")
        refuse("scale", value, not 0 < value < float("inf"), "must be a number greater than 0")
        self.contrastive_loss.strategy = Fixed(temperature=1 / value)
        self._warn_of_scale(value)

    def _warn_of_scale(self, scale: float) -> None:
        """Warns of a temperature in the place of a scale, and not once more when the loss is called."""
        if 1 / scale > SCALE and self.similarity_fct is cos_sim:
            told = f"scale={scale:g} is 1/temperature and leaves cosines nearly equal: a temperature of {scale:g} is"
            warnings.warn(f"{told} scale={1 / scale:g}.", RuntimeWarning, stacklevel=3)
            self.contrastive_loss.memory.warned.add("scale")

    @property
    def citation(self) -> str:
        """BibTeX of the strategy's source, and of the library's loss."""
        library: str = super().citation
        strategy = self.contrastive_loss.strategy
        return library if isinstance(strategy, Fixed) else f"{bibtex(strategy)}\n{library.strip()}\n"


def _by_name(columns: list[Tensor]) -> dict[str, Tensor]:
    """Returns what belongs to the positives and to the negatives of each row, [B, ...] a column, as arguments of the loss."""
    positives, *negatives = columns
    return {"view_b": positives, **({"hard_negatives": torch.stack(negatives, 1)} if negatives else {})}
