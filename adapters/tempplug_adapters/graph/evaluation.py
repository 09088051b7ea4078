"""How well frozen representations predict classes: of nodes by logistic regression, of graphs by a support vector machine.

Nodes are measured as by PyGCL (Zhu et al. 2021): 5,000 steps of Adam, and the scores at the best validation score.
scikit-learn's regression does not stop early: without a penalty it scores up to five points less, and a penalty would change
the recipes. For graphs, ``GridSearchCV(SVC(), …)`` gives the same numbers in three to four times the time: it computes the
kernel for each penalty.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug.options import Choice
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.evaluation.linear_fits import LinearFits, with_ones
from tempplug_adapters.graph.recipes import PROTOCOLS, PUBLIC
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.training.batches import seed_of

STEPS = 5000
_EVALUATE_EVERY = 20


@dataclass(frozen=True)
class NodeScores:
    """Scores of a test set.

    Attributes:
        micro: micro-averaged F1 × 100, which is accuracy where a node has one class.
        macro: F1 × 100 averaged over the classes.
        validation: micro-averaged F1 × 100 of the validation nodes at the chosen step; NaN without validation nodes.
    """

    micro: float
    macro: float
    validation: float = math.nan


@dataclass(frozen=True)
class Split:
    """Positions of the training, validation and test nodes."""

    train: Tensor
    valid: Tensor
    test: Tensor


def f1_scores(labels: Tensor, predicted: Tensor) -> NodeScores:
    """Returns the scores for classes [n, C] of nodes; a class neither labelled nor predicted is left out of the macro mean."""
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
    progress: Progress = silent,
) -> dict[str, NodeScores]:
    """Returns the scores of a logistic regression at its best validation micro-F1, mean over the splits, by protocol.

    Args:
        representations: [N, D], frozen.
        labels: [N] integers, one class a node; or [N, C] of 0 and 1, several classes a node, with one regression for each
            class. Nodes with a label below 0 are left out.
        protocols: names of `PROTOCOLS`, or `PUBLIC`.
        seed: of the first random split and its initial weights. No global generator is used.
        splits: number of random splits of each protocol of `PROTOCOLS`.
        strengths: of the weight decay; the scores are those of the best on the validation nodes.
        masks: training, validation and test nodes for `PUBLIC`, [N] or, for several splits, [N, K].
        steps: of Adam with learning rate 0.01 on all training nodes; validated every 20.
        progress: called with the fraction done.

    Raises:
        ConfigError: a protocol is unknown, or needs masks.
        DataError: there are fewer than ten labelled nodes, or representations are not finite.
    """
    labelled = check_evaluation(labels, protocols, masks)
    if not torch.isfinite(representations).all():
        raise DataError("representations must be finite to be evaluated, but hold NaN or infinite values.")
    kept = labelled.nonzero().flatten()
    chosen, several = labels.cpu()[kept], labels.ndim == 2
    # classes are numbered without gaps; several classes a node are 0 or 1 already
    targets = chosen if several else nn.functional.one_hot(torch.unique(chosen, return_inverse=True)[1])
    rows = with_ones(representations.detach().cpu()[kept])
    # splits with the same training nodes use the same training
    wanted: dict[bytes, tuple[torch.Generator, list[tuple[str, Split]]]] = {}
    for protocol in protocols:
        seeds = [seed, *(seed_of(seed, number) for number in range(1, splits))]
        generators = [torch.Generator().manual_seed(each) for each in seeds]
        if protocol == PUBLIC:
            found = [(each, generators[0]) for each in _public(masks or (), labelled)]
        else:
            found = [(split(len(kept), protocol, each), each) for each in generators]
        for parts, generator in found:
            wanted.setdefault(parts.train.numpy().tobytes(), (generator, []))[1].append((protocol, parts))
    scores: dict[str, list[NodeScores]] = {}
    for done, (generator, own) in enumerate(wanted.values()):
        weights = torch.empty(targets.shape[1], rows.shape[1] - 1)
        nn.init.xavier_uniform_(weights, generator=generator)
        weights = nn.functional.pad(weights, (0, 1))[None]
        report = partial(lambda done, part: progress((done + part) / len(wanted)), done)
        measured = _scores(rows, targets.bool(), several, [parts for _, parts in own], weights, strengths, steps, report)
        for (protocol, _), score in zip(own, measured, strict=True):
            scores.setdefault(protocol, []).append(score)
    return {each: NodeScores(*map(statistics.fmean, zip(*map(astuple, own), strict=True))) for each, own in scores.items()}


def check_evaluation(labels: Tensor, protocols: Sequence[str], masks: Sequence[Tensor] | None) -> Tensor:
    """Returns which nodes are labelled [N] after checking the arguments of `evaluate_nodes`.

    Raises:
        ConfigError: a protocol is unknown, or needs masks.
        DataError: too few nodes are labelled, all have one class, or a public split has an empty part.
    """
    for protocol in protocols:
        Choice((*PROTOCOLS, PUBLIC)).check(f"protocol='{protocol}'", protocol)
    labelled = (labels >= 0 if labels.ndim == 1 else (labels >= 0).all(1)).cpu()
    count = int(labelled.sum())
    if count < 10:
        raise DataError(f"evaluation needs at least 10 labelled nodes, one of them to train on, but there are {count}.")
    if labels.ndim == 1 and len(set(labels[labelled].tolist())) < 2:
        raise DataError("labels hold one class only: at least two are needed; or pass --no-evaluate.")
    if PUBLIC in protocols:
        if masks is None:
            needed = "a data set with train_mask, val_mask and test_mask, which this one lacks: leave it out of --protocols"
            raise ConfigError(f"protocol='{PUBLIC}' needs {needed}.")
        for each in _public(masks, labelled):
            if not min(map(len, (each.train, each.valid, each.test))):
                raise DataError("a public split must have labelled nodes to train on, to choose by and to test on.")
    return labelled


def split(nodes: int, protocol: str, generator: torch.Generator) -> Split:
    """Returns a random partition of nodes, at least 10, by one of `PROTOCOLS`."""
    training, validation = (int(nodes * share) for share in PROTOCOLS[protocol])
    order = torch.randperm(nodes, generator=generator)
    return Split(order[:training], order[training : training + validation], order[training + validation :])


def _scores(
    rows: Tensor,
    targets: Tensor,
    several: bool,
    splits: Sequence[Split],
    weights: Tensor,
    strengths: Sequence[float],
    steps: int,
    progress: Callable[[float], None],
) -> list[NodeScores]:
    """Returns the scores of splits with the same training nodes, by the weights and strength with the best validation score."""
    train, classes, numbers = splits[0].train, targets.shape[1], targets.byte().argmax(1)
    fits = LinearFits(weights.repeat(1, len(strengths), 1), rows.new_tensor([strengths]), rate=0.01)
    given, wanted, share = rows[None, train], targets[None, train].float(), rows.new_full((1, len(train)), 1 / len(train))
    best, kept = [rows.new_full((len(strengths),), -1.0, dtype=torch.float64) for _ in splits], [fits.weights for _ in splits]
    valid = [(rows[None, each.valid], targets[each.valid, None], numbers[each.valid, None]) for each in splits]
    for step in range(1, steps + 1):
        fits.step(given, wanted, share, several=several)
        if step % _EVALUATE_EVERY and step != steps:
            continue
        for place, (held_out, labels, own) in enumerate(valid):
            logits = fits.logits(held_out)[0]
            if several:
                found = logits > 0
                score = 2 * (found & labels).sum((0, 2)) / (found.sum((0, 2)) + labels.sum()).clamp(min=1).double()
            else:
                score = (logits.argmax(2) == own).double().mean(0)
            better = (score > best[place]).repeat_interleave(classes)[:, None]
            best[place], kept[place] = torch.maximum(best[place], score), torch.where(better, fits.weights, kept[place])
        progress(step / steps)
    scores = []
    for each, fits.weights, score in zip(splits, kept, best, strict=True):
        logits = fits.logits(rows[None, each.test])[0, :, int(score.argmax())]
        found = logits > 0 if several else nn.functional.one_hot(logits.argmax(1), classes).bool()
        scores.append(replace(f1_scores(targets[each.test], found), validation=100 * float(score.max())))
    return scores


def _public(masks: Sequence[Tensor], labelled: Tensor) -> list[Split]:
    """Returns the splits of masks [N] or [N, K], positions among the labelled nodes."""
    columns = [(each.cpu()[:, None] if each.ndim == 1 else each.cpu())[labelled].bool() for each in masks]
    # a mask [N] is used for all splits
    width = max(each.shape[1] for each in columns)
    return [Split(*(each[:, min(k, each.shape[1] - 1)].nonzero().flatten() for each in columns)) for k in range(width)]


PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
INNER_FOLDS = 5

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SVMScore:
    """Accuracies in percent.

    Attributes:
        accuracy: mean over the folds.
        folds: of each fold.
        validation: of the chosen penalties on the held-out parts of the training graphs, mean over the folds.
    """

    accuracy: float
    folds: tuple[float, ...]
    validation: float


def evaluate_svm(
    representations: npt.ArrayLike, labels: npt.ArrayLike, seed: int = 0, folds: int = 10, progress: Progress = silent
) -> SVMScore:
    """Returns the accuracy of an RBF support vector machine in stratified cross-validation (You et al. 2020, Sun et al. 2020).

    In each fold, the penalty C of {0.001 … 1000} is chosen by 5-fold cross-validation on the training part alone.

    Args:
        representations: [N, D].
        labels: [N] classes, at least two, each with at least as many members as there are folds.
        seed: of the folds, at least 0.
        folds: number of folds, at least 2.
        progress: called with the fraction done.

    Raises:
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: there is one class only, or a class has too few members.
    """
    from scipy.spatial.distance import pdist, squareform
    from sklearn import config_context
    from sklearn.model_selection import StratifiedKFold

    points = np.asarray(representations, dtype=np.float64)
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    check_finite_rows(torch.from_numpy(points), "representations")
    check_classes(codes, folds)
    # from the differences: the expansion by products loses what is small beside the norms
    squared = squareform(pdist(points, "sqeuclidean"))
    scores, validation = [], []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(points, codes):
        with config_context(assume_finite=True, skip_parameter_validation=True):
            inner = StratifiedKFold(INNER_FOLDS).split(train, codes[train])
            table = [_accuracies(points, codes, squared, train[fit], train[held], PENALTIES) for fit, held in inner]
            shares = np.mean(table, axis=0)
            best = int(np.argmax(shares))  # the first of equally good ones, like GridSearchCV
            scores.append(100 * _accuracies(points, codes, squared, train, test, (PENALTIES[best],))[0])
        validation.append(100 * float(shares[best]))
        progress(len(scores) / folds)
    return SVMScore(statistics.fmean(scores), tuple(scores), statistics.fmean(validation))


def _accuracies(
    points: Floats, codes: Labels, squared: Floats, train: Labels, test: Labels, penalties: tuple[float, ...]
) -> list[float]:
    """Returns the accuracy on ``test`` for each penalty; the width of the kernel follows the training part."""
    from sklearn.svm import SVC

    variance = points[train].var()
    gamma = 1 / (points.shape[1] * variance) if variance > 0 else 1.0
    fitted, asked = (np.exp(-gamma * squared[np.ix_(rows, train)]) for rows in (train, test))
    machines = (SVC(C=penalty, kernel="precomputed").fit(fitted, codes[train]) for penalty in penalties)
    return [float(np.mean(machine.predict(asked) == codes[test])) for machine in machines]


def check_classes(labels: npt.ArrayLike, folds: int) -> None:
    """Raises `ConfigError` unless labels [N] have two classes, each with enough members for the folds and their inner folds."""
    if folds < 2:
        raise ConfigError(f"folds={folds} must be at least 2.")
    members = np.unique(np.asarray(labels), return_counts=True)[1]
    if len(members) < 2:
        raise ConfigError("labels hold one class only: at least two are needed.")
    fewest = int(members.min())
    if fewest < folds or fewest - math.ceil(fewest / folds) < INNER_FOLDS:
        needed = f"{folds} folds whose training parts are split into {INNER_FOLDS} again"
        raise ConfigError(f"a class has {fewest} members, too few for {needed}.")


def evaluate_labels(
    representations: Tensor, labels: Tensor, seed: int = 0, folds: int = 10, progress: Progress = silent
) -> dict[str, float]:
    """Returns ``roc_auc`` and ``average_precision`` × 100 of logistic regressions, averaged over labels and folds.

    The representations are standardised, and each label has a regression of its own.
    The graphs for which a label is known are split into stratified folds. In each fold, the strength C of {0.001 … 1000} is
    chosen by the ROC-AUC of a 5-fold cross-validation on the training part alone.

    Args:
        representations: [G, D].
        labels: [G, T] 0, 1 or NaN where it is not known.
        seed: of the folds, at least 0.
        folds: number of folds, at least 2.
        progress: called with the fraction done.

    Raises:
        NonFiniteError: representations hold NaN or infinite values.
        ConfigError: every label has too few graphs.
    """
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score, roc_auc_score
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    check_finite_rows(representations, "representations")
    points: Floats = representations.double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning was given when the data were loaded
        tasks = measurable_labels(labels, folds)
    found: list[tuple[float, float]] = []
    for task in tasks:
        known = ~labels[:, task].isnan()
        rows, truth = points[known.numpy()], labels[known, task].long().numpy()
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, truth):
            probe = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", max_iter=1000))
            search = GridSearchCV(probe, {"logisticregression__C": PENALTIES}, scoring="roc_auc", cv=INNER_FOLDS)
            with config_context(assume_finite=True, skip_parameter_validation=True):
                scores = search.fit(rows[train], truth[train]).decision_function(rows[test])
            found.append((roc_auc_score(truth[test], scores), average_precision_score(truth[test], scores)))
            progress(len(found) / (folds * len(tasks)))
    means = (float(100 * np.mean(each)) for each in zip(*found, strict=True))
    return dict(zip(("roc_auc", "average_precision"), means, strict=True))


def measurable_labels(labels: Tensor, folds: int) -> list[int]:
    """Returns the labels of [G, T] (0, 1 or NaN) that suffice for a cross-validation, and warns of the number of others.

    Raises:
        ConfigError: there is no such label.
    """
    wanted = max(folds, 2 * INNER_FOLDS)  # so that the training part of each fold can be split again
    found: list[int] = (((labels == 0).sum(0) >= wanted) & ((labels == 1).sum(0) >= wanted)).nonzero().flatten().tolist()
    tasks = labels.shape[1]
    needed = f"labels can be evaluated: {folds} folds need {wanted} graphs with 0 and {wanted} graphs with 1 of each label."
    if not found:
        raise ConfigError(f"none of {tasks} {needed}")
    if len(found) < tasks:
        warnings.warn(f"only {len(found)} of {tasks} {needed}", stacklevel=2)
    return found
