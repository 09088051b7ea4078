"""How well frozen node representations tell classes apart: logistic regression on splits of the nodes, micro- and macro-F1.

All splits and all strengths of the weight decay are trained together (`LinearFits`), and splits that share their training nodes
share the training. This module must not know how the representations were trained.

Source: Zhu et al. 2021, An Empirical Study of Graph Contrastive Learning (PyGCL), whose evaluator trains 5,000 steps of Adam
and reports the test scores at the best validation score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.evaluation.linear_fits import LinearFits, with_ones
from tempplug_adapters.graph.grace_recipe import PROTOCOLS, PUBLIC
from tempplug_adapters.training.batches import seed_of

STEPS = 5000
_EVALUATE_EVERY = 20
_AT_ONCE = 2**22  # logits


@dataclass(frozen=True)
class NodeScores:
    """Scores of a test set.

    Attributes:
        micro: micro-averaged F1 × 100, which is accuracy where a node has one class.
        macro: F1 × 100 averaged over the classes.
        validation: micro-averaged F1 × 100 of the validation nodes, at the step that it chose; NaN of scores by themselves.
    """

    micro: float
    macro: float
    validation: float = math.nan


@dataclass(frozen=True)
class Split:
    """Positions of nodes to train on, to choose by and to test on."""

    train: Tensor
    valid: Tensor
    test: Tensor


def f1_scores(labels: Tensor, predicted: Tensor) -> NodeScores:
    """Returns the scores; a class that is neither among the labels nor predicted has no part in the macro average.

    Args:
        labels: [n, C], whether a node is of a class.
        predicted: [n, C] likewise.

    >>> classes = torch.eye(3, dtype=torch.bool)
    >>> scores = f1_scores(classes[[0, 0, 1, 1]], classes[[0, 1, 1, 1]])
    >>> scores.micro, round(scores.macro, 2)
    (75.0, 73.33)
    """
    hits = (labels & predicted).sum(0).double()
    # F1 = 2·hits / (labelled + predicted): the harmonic mean of precision and recall, written out.
    total = labels.sum(0) + predicted.sum(0)
    present = total > 0
    macro = float((2 * hits[present] / total[present]).mean()) if bool(present.any()) else 0.0
    return NodeScores(200 * float(hits.sum()) / max(1, int(total.sum())), 100 * macro)


def evaluate_nodes(
    representations: Tensor,
    labels: Tensor,
    protocols: Sequence[str] = ("10/80/10",),
    seed: int = 0,
    *,
    splits: int = 1,
    strengths: Sequence[float] = (0.0,),
    masks: Sequence[Tensor] | None = None,
    steps: int = STEPS,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, NodeScores]:
    """Returns the scores of a logistic regression at its best validation micro-F1, mean over the splits, by protocol.

    Args:
        representations: [N, D], frozen.
        labels: [N] integers, one class a node; or [N, C] of 0 and 1, several classes a node, each with a regression of its
            own. A node with a label below 0 is not labelled, and left out.
        protocols: of `PROTOCOLS` or `PUBLIC`.
        seed: of the first random split and its initial weights; nothing else is random, and no other generator is touched.
        splits: random ones of each protocol that has them.
        strengths: of the weight decay, of which the best on the validation nodes counts.
        masks: training, validation and test nodes [N] or, of several splits, [N, K], for `PUBLIC`.
        steps: of Adam, learning rate 0.01, over all training nodes at once; validated every 20.
        progress: called with the fraction done.

    Raises:
        ConfigError: a protocol is not known, or needs masks.
        DataError: fewer than ten labelled nodes, or representations that are not finite.
    """
    labelled = check_evaluation(labels, protocols, masks)
    if not torch.isfinite(representations).all():
        raise DataError("representations must be finite to be evaluated, but hold NaN or infinite values.")
    kept = labelled.nonzero().flatten()
    chosen, several = labels.cpu()[kept], labels.ndim == 2
    # positions among the classes that are there; several classes a node are 0 or 1 already
    targets = chosen if several else nn.functional.one_hot(torch.unique(chosen, return_inverse=True)[1])
    rows = with_ones(representations.detach().cpu()[kept])
    wanted: dict[str, list[tuple[Split, torch.Generator]]] = {}
    for protocol in protocols:
        seeds = [seed, *(seed_of(seed, number) for number in range(1, splits))]
        generators = [torch.Generator().manual_seed(each) for each in seeds]
        if protocol != PUBLIC:
            wanted[protocol] = [(split(len(kept), protocol, each), each) for each in generators]
        elif masks is not None:
            wanted[protocol] = [(each, generators[0]) for each in _public(masks, labelled)]
    flat = [(protocol, *each) for protocol, every in wanted.items() for each in every]
    scores = _Regressions(rows, targets.bool(), several, flat, strengths).train(steps, progress)
    means = {}
    for protocol in wanted:
        own = [score for (name, *_), score in zip(flat, scores, strict=True) if name == protocol]
        kinds = ([getattr(each, kind) for each in own] for kind in ("micro", "macro", "validation"))
        means[protocol] = NodeScores(*map(fmean, kinds))
    return means


def check_evaluation(labels: Tensor, protocols: Sequence[str], masks: Sequence[Tensor] | None) -> Tensor:
    """Returns which nodes are labelled [N], after making sure that there is something to measure by.

    Args:
        labels: see `evaluate_nodes`.
        protocols: likewise.
        masks: likewise.

    Raises:
        ConfigError: a protocol is not known, or needs masks.
        DataError: too few nodes are labelled, or a public split has an empty part.
    """
    for protocol in protocols:
        if protocol not in (*PROTOCOLS, PUBLIC):
            raise ConfigError(f"protocol='{protocol}' must be one of {', '.join((*PROTOCOLS, PUBLIC))}.")
    labelled = (labels >= 0 if labels.ndim == 1 else (labels >= 0).all(1)).cpu()
    count = int(labelled.sum())
    if count < 10:
        raise DataError(f"evaluation needs at least 10 labelled nodes, one of them to train on, but there are {count}.")
    if PUBLIC in protocols:
        if masks is None:
            raise ConfigError(
                f"protocol='{PUBLIC}' needs a data set with train_mask, val_mask and test_mask, which this one lacks: leave "
                "it out of --protocols."
            )
        for each in _public(masks, labelled):
            if not min(map(len, (each.train, each.valid, each.test))):
                raise DataError("a public split must have labelled nodes to train on, to choose by and to test on.")
    return labelled


def split(nodes: int, protocol: str, generator: torch.Generator) -> Split:
    """Returns a random partition of the nodes.

    Args:
        nodes: at least 10.
        protocol: one of `PROTOCOLS`.
        generator: what the permutation is drawn from.
    """
    training, validation = (int(nodes * share) for share in PROTOCOLS[protocol])
    order = torch.randperm(nodes, generator=generator)
    return Split(order[:training], order[training : training + validation], order[training + validation :])


class _Regressions:
    """Logistic regressions of several splits and strengths, each kept as it was at its best validation score."""

    def __init__(
        self,
        rows: Tensor,
        targets: Tensor,
        several: bool,
        wanted: Sequence[tuple[str, Split, torch.Generator]],
        strengths: Sequence[float],
    ) -> None:
        self.rows, self.targets, self.several, self.wanted, self.strengths = rows, targets, several, wanted, strengths
        self.numbers = targets.byte().argmax(1)
        # Those that train on the same nodes from the same weights differ in what they are measured on alone.
        self.trained: list[Tensor] = []
        self.of: list[int] = []
        first: list[Tensor] = []
        for _, each, generator in wanted:
            same = [place for place, train in enumerate(self.trained) if torch.equal(train, each.train)]
            self.of.append(same[0] if same else len(self.trained))
            if not same:
                self.trained.append(each.train)
                first.append(_first_weights(rows.shape[1] - 1, targets.shape[1], generator))
        longest = max(map(len, self.trained))
        padded = [nn.functional.pad(train, (0, longest - len(train))) for train in self.trained]
        place = torch.stack(padded)
        self.share = torch.stack([(torch.arange(longest) < len(train)) / len(train) for train in self.trained])
        self.train_rows, self.train_targets = rows[place], targets[place].float()
        decay = rows.new_tensor(strengths).repeat(len(self.trained), 1)
        self.fits = LinearFits(torch.stack(first).repeat(1, len(strengths), 1), decay, rate=0.01)

    def train(self, steps: int, progress: Callable[[float], None]) -> list[NodeScores]:
        """Returns the scores of each split."""
        best = torch.full((len(self.wanted), len(self.strengths)), -1.0, dtype=torch.float64)
        kept = torch.stack([self.fits.weights[place] for place in self.of])
        by_strength = self._by_strength(kept)
        for step in range(1, steps + 1):
            self.fits.step(self.train_rows, self.train_targets, self.share, several=self.several)
            if step % _EVALUATE_EVERY and step != steps:
                continue
            found = self._predicted(self.fits.weights)
            now = self._by_strength(self.fits.weights)
            for number, (place, (_, each, _)) in enumerate(zip(self.of, self.wanted, strict=True)):
                for strength in range(len(self.strengths)):
                    score = self._micro(each.valid, found[each.valid, place, strength])
                    if score > best[number, strength]:
                        best[number, strength] = score
                        by_strength[number, strength] = now[place, strength]
            progress(step / steps)
        found = self._predicted(kept)
        scores = []
        for number, (_, each, _) in enumerate(self.wanted):
            predicted = found[each.test, number, int(best[number].argmax())]
            found_here = f1_scores(self.targets[each.test], predicted if self.several else self._one_hot(predicted))
            scores.append(replace(found_here, validation=float(best[number].max())))
        return scores

    def _predicted(self, weights: Tensor) -> Tensor:
        """Returns the class of each node by each classifier [N, S, R]; with several a node, whether it is of each [N, S, R, C].

        Args:
            weights: of the classifiers [S, R · C, D + 1].
        """
        flat, shape = weights.flatten(0, 1).T.contiguous(), (len(weights), len(self.strengths), self.targets.shape[1])
        parts = torch.split(self.rows, max(1, _AT_ONCE // flat.shape[1]))
        logits = ((part @ flat).reshape(len(part), *shape) for part in parts)
        return torch.cat([each > 0 if self.several else each.argmax(3) for each in logits])

    def _by_strength(self, weights: Tensor) -> Tensor:
        """Returns weights [S, R · C, D + 1] as [S, R, C, D + 1]."""
        return weights.view(len(weights), len(self.strengths), -1, weights.shape[2])

    def _micro(self, nodes: Tensor, predicted: Tensor) -> float:
        if self.several:
            return f1_scores(self.targets[nodes], predicted).micro
        return 100 * float((predicted == self.numbers[nodes]).double().mean())

    def _one_hot(self, numbers: Tensor) -> Tensor:
        return nn.functional.one_hot(numbers, self.targets.shape[1]).bool()


def _first_weights(dimension: int, classes: int, generator: torch.Generator) -> Tensor:
    weights = torch.empty(classes, dimension)
    nn.init.xavier_uniform_(weights, generator=generator)
    return nn.functional.pad(weights, (0, 1))


def _public(masks: Sequence[Tensor], labelled: Tensor) -> list[Split]:
    """Returns the splits of masks [N] or [N, K], positions among the labelled nodes."""
    columns = [(each.cpu()[:, None] if each.ndim == 1 else each.cpu())[labelled].bool() for each in masks]
    # a mask without columns of its own serves all splits
    width = max(each.shape[1] for each in columns)
    return [Split(*(each[:, min(k, each.shape[1] - 1)].nonzero().flatten() for each in columns)) for k in range(width)]
