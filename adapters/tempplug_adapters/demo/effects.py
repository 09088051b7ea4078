"""Reads or generates pairs of embeddings, and computes the temperatures of a strategy on them and its effect on the gradient.

The pairs are one cross-view batch: for every row of view_a as an anchor, the same row of view_b is the positive, and all
others are negatives. It is independent of particular strategies and of the plot.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import tempplug
from tempplug import Batch, LogitMap, NegativeTerm, Strategy, positions
from tempplug.arguments import parse_spec
from tempplug.create import load_class
from tempplug.errors import ConfigError, DataError, NonFiniteError, ShapeError
from tempplug.negatives.base import Pairs as Block
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.contexts import in_context, refuse_missing
from tempplug_adapters.data_files.matrices import read_matrix

LEARNING_STEPS = 60
_LEARNING_RATE = 0.1
_MOMENTS = 16
_DIMENSION, _TOPICS = 128, 32
HARDEST = 0.01
"""Fraction of the negatives, those with the highest similarity, that are called the hardest."""


@dataclass(frozen=True)
class Pairs:
    """A batch of pairs and its similarities.

    Attributes:
        view_a: [N, D] unit rows.
        view_b: [N, D] unit rows.
        similarity: [N, N], with the positives on the diagonal.
        labels: [N] class of each pair, if known.
        terms: on negatives.
        term: [N, N] what they add to the logits, 0 on the diagonal; None without terms.
    """

    view_a: Tensor
    view_b: Tensor
    similarity: Tensor
    labels: Tensor | None = None
    terms: tuple[NegativeTerm, ...] = ()
    term: Tensor | None = None

    @classmethod
    def of(cls, view_a: Tensor, view_b: Tensor, labels: Tensor | None = None) -> Pairs:
        """Returns the batch of two matrices [N, D] of raw embeddings."""
        a, b = (torch.nn.functional.normalize(each.float(), dim=1) for each in (view_a, view_b))
        return cls(a, b, (a @ b.T).clamp(-1, 1), labels)

    def with_negatives(self, spec: str) -> Pairs:
        """Returns the batch with terms on negatives.

        Args:
            spec: of the terms, such as ``false-negatives:margin=0.1``; ``same-key`` compares the labels.

        Raises:
            ConfigError: an option is out of range, or a term reads more than embeddings and labels, or sums of rows.
            UnknownNameError: a term or an option is unknown.
        """
        terms = tempplug.create_negatives(spec)
        offered = {} if self.labels is None else {"keys": self.labels}
        refuse_missing(terms, offered, "a batch of embeddings" + (" without --labels" if self.labels is None else ""))
        rows = torch.arange(len(self.view_a))
        block = Block(
            anchors=self.view_a,
            candidates=self.view_b,
            roles=positions.cross_view(len(rows), 0, len(rows), 0, rows.device),
            positive_similarity=self.positives,
            row_of_anchors=rows,
            row_of_candidates=rows,
            of_anchors=lambda name, of_row=False: offered[name],
            of_candidates=lambda name, of_row=False: offered[name],
        )
        total = torch.zeros_like(self.similarity)
        for each in terms:
            if each.reads_rows:
                raise ConfigError(f"negative term '{each.name}' changes sums of rows, not pairs, which a demo cannot show.")
            found = each.prepare(block) if not each.blocks or "ab" in each.blocks else None
            if found is not None:
                total += found.at(slice(None), slice(None)).term(self.similarity)
        return replace(self, terms=tuple(terms), term=total.fill_diagonal_(0.0))

    @property
    def positives(self) -> Tensor:
        """The similarities of the positives, [N]."""
        return self.similarity.diagonal()

    @property
    def negatives(self) -> Tensor:
        """The similarities of the negatives, [N, N - 1]."""
        size = len(self.similarity)
        return self.similarity.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


@dataclass(frozen=True)
class Effect:
    """The effect of a strategy on a batch.

    Attributes:
        label: spec string as given, with the time in the training for a schedule.
        low: smallest temperature of all pairs.
        mean: mean temperature of all pairs.
        high: largest temperature of all pairs.
        effective: effective number of negatives in an anchor's gradient, at most N - 1.
        hardest: share of the negatives' gradient that the hardest `HARDEST` of them have, in [0, 1].
        scale: mean of 1 - the positive's probability, in [0, 1].
        begins: mean temperature before the first step, for a strategy that was trained on these pairs.
    """

    label: str
    low: float
    mean: float
    high: float
    effective: float
    hardest: float
    scale: float
    begins: float | None = None


def default_specs() -> list[str]:
    """Returns a low and a high fixed temperature for comparison, and every registered strategy with its defaults."""
    return ["fixed:temperature=0.02", "fixed:temperature=0.5", *(info.name for info in registry().all(StrategyInfo))]


def effects(spec: str, pairs: Pairs) -> list[Effect]:
    """Returns the effect of a strategy on the pairs; two effects for a schedule, at its highest and lowest temperature.

    Parameters of the strategy are first trained on the pairs for `LEARNING_STEPS` steps, with fixed embeddings.

    Args:
        spec: spec string.
        pairs: the batch.

    Raises:
        ConfigError: an option is out of range, or the strategy needs more inputs than pairs.
        UnknownNameError: a strategy or an option is unknown.
    """
    strategy, given = _create(spec, pairs)
    if getattr(strategy.set_progress, "__func__", None) is Strategy.set_progress:  # it does not follow the training
        begins = None
        if strategy.observes or any(True for _ in strategy.parameters()):
            begins = _effect(spec, strategy, pairs, given).mean
            _learn(strategy, pairs, given)
        return [_effect(spec, strategy, pairs, given, begins)]
    strategy.set_length(1.0)
    found = []
    for moment in range(_MOMENTS + 1):
        strategy.set_progress(moment / _MOMENTS, step=moment)
        found.append(_effect(spec, strategy, pairs, given))
    warmest, coldest = (choose(found, key=lambda each: each.mean) for choose in (max, min))
    if warmest.mean == coldest.mean:
        return [found[0]]
    return [Effect(**{**vars(each), "label": f"{spec}, {word}"}) for each, word in ((warmest, "warmest"), (coldest, "coldest"))]


def _create(spec: str, pairs: Pairs) -> tuple[Strategy, dict[str, Tensor]]:
    """Returns the strategy, with options from the pairs, and its further inputs."""
    name = parse_spec(spec)[0]
    target = cast(type[Strategy], load_class(registry().get(StrategyInfo, name)))
    offered = {"index": torch.arange(len(pairs.view_a)), "labels": pairs.labels}
    taken = {argument: value for argument, value in offered.items() if argument in target.takes and value is not None}
    if missing := sorted(target.takes - taken.keys()):
        raise ConfigError(f"strategy '{name}' needs {' and '.join(missing)}, which embeddings do not contain.")
    known: dict[str, Any] = {"size": len(pairs.view_a), "dimension": pairs.view_a.shape[1]}
    if pairs.labels is not None:
        known["class_counts"] = torch.bincount(pairs.labels).tolist()
    return in_context(spec, {}, **known), taken


def _learn(strategy: Strategy, pairs: Pairs, given: Mapping[str, Tensor]) -> None:
    loss_fn = tempplug.ContrastiveLoss(strategy, layout="cross-view", negatives=pairs.terms)
    given = {**given, **loss_fn.accepted(keys=pairs.labels)}
    parameters = list(strategy.parameters())
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE) if parameters else None
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), torch.enable_grad():
        for _ in range(LEARNING_STEPS):
            loss = loss_fn(pairs.view_a, pairs.view_b, **given)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()


@torch.no_grad()
def _effect(label: str, strategy: Strategy, pairs: Pairs, given: Mapping[str, Any], begins: float | None = None) -> Effect:
    batch = Batch(positive_similarity=pairs.positives, anchors=pairs.view_a, candidates=pairs.view_b, **given)
    # the output shows temperatures at floors and bounds
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        bound: LogitMap = strategy.prepare(batch).at(slice(None), slice(None))
    temperature, logit = bound.temperature(pairs.similarity), bound.logit(pairs.similarity)
    logit = logit if pairs.term is None else logit + pairs.term
    weights = logit + bound.slope(pairs.similarity).abs().log()
    weights = weights.clone().fill_diagonal_(-torch.inf)
    shares = weights.softmax(dim=1)
    hardest = max(1, math.ceil(HARDEST * (len(shares) - 1)))
    hard = pairs.similarity.clone().fill_diagonal_(-torch.inf).topk(hardest, dim=1).indices
    return Effect(
        label=label,
        low=float(temperature.min()),
        mean=float(temperature.mean()),
        high=float(temperature.max()),
        effective=float(tempplug.metrics.effective_negatives(weights)),
        hardest=float(shares.gather(1, hard).sum(dim=1).nanmean()),
        scale=float((1 - logit.softmax(dim=1).diagonal()).mean()),
        begins=begins,
    )


def read_pairs(view_a: Path, view_b: Path, rows: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns two matrices [N, D] of float32, N at most ``rows``, the positions of their rows in the files, and the total.

    Args:
        view_a: ``.npy``, ``.pt`` or text with a matrix [N, D].
        view_b: likewise; row i is the positive of row i of ``view_a``.
        rows: at least 2.

    Raises:
        DataError: a file does not contain a matrix of numbers.
        ShapeError: they are not two matrices of the same shape, with at least two rows and two columns.
        NonFiniteError: one contains NaN or infinite values.
        ConfigError: ``rows`` is less than 2.
    """
    _check_rows(rows)
    found = {}
    for name, path in (("view_a", view_a), ("view_b", view_b)):
        try:
            matrix = found[name] = read_matrix(path).float()
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        if len(matrix) < 2 or matrix.shape[1] < 2:
            raise ShapeError(
                f"{name}={path} of shape {list(matrix.shape)} must be [N, D], a row an embedding, N and D at least 2."
            )
        bad = (~torch.isfinite(matrix)).any(dim=1).nonzero().flatten()
        if len(bad):
            raise NonFiniteError(f"{name}={path} holds NaN or infinite values in {len(bad)} rows, row {int(bad[0])} first.")
    a, b = found.values()
    if a.shape != b.shape:
        raise ShapeError(f"view_b={view_b} of shape {list(b.shape)} must have the shape of view_a={view_a}, {list(a.shape)}.")
    chosen = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))[:rows].sort().values
    return a[chosen], b[chosen], chosen, len(a)


def read_labels(path: Path, total: int) -> Tensor:
    """Returns the class of each pair, [total], from a file with one integer of at least 0 per pair."""
    found = read_matrix(path)
    if found.numel() != total:
        raise ShapeError(f"labels={path} of shape {list(found.shape)} must be [{total}], the class of each pair.")
    if found.is_floating_point() or bool((found < 0).any()):
        raise DataError(f"labels={path} must hold whole numbers of at least 0, the class of each pair.")
    return found.flatten()


def generate_pairs(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns pairs like those of a partly trained encoder: aligned, and similar to other pairs of their topic.

    Args:
        rows: at least 2.
        seed: seed of the generator.

    Raises:
        ConfigError: ``rows`` is less than 2.
    """
    _check_rows(rows)
    generator = torch.Generator().manual_seed(seed)

    def noise(count: int) -> Tensor:
        return torch.randn(count, _DIMENSION, generator=generator)

    topics = noise(_TOPICS)[torch.randint(_TOPICS, (rows,), generator=generator)]
    items = 1.2 * topics + noise(rows)
    return items + 0.8 * noise(rows), items + 0.8 * noise(rows)


def _check_rows(rows: int) -> None:
    if rows < 2:
        raise ConfigError(f"rows={rows} must be at least 2: an anchor needs a negative.")
