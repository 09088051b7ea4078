"""How well frozen node representations tell classes apart: logistic regression on a random split, micro- and macro-F1.

Source: Zhu et al. 2021, An Empirical Study of Graph Contrastive Learning (PyGCL), whose evaluator trains 5,000 steps of Adam
and reports the test scores at the best validation score. This module must not know how the representations were trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError

PROTOCOLS: dict[str, tuple[float, float]] = {"10/80/10": (0.1, 0.8), "10/10/80": (0.1, 0.1)}
"""Shares of the nodes for training and validation by name; the rest is the test set.

PyGCL's ``get_split(train_ratio=0.1, test_ratio=0.8)`` hands the 80 % out as validation nodes and tests on the last 10 %:
``10/80/10`` is what its users have measured, ``10/10/80`` what the names of its arguments say.
"""

STEPS = 5000
_EVALUATE_EVERY = 20


@dataclass(frozen=True)
class NodeScores:
    """Scores of a test set.

    Attributes:
        micro: micro-averaged F1 × 100, which is accuracy.
        macro: F1 × 100 averaged over the classes.
    """

    micro: float
    macro: float


def f1_scores(labels: Tensor, predicted: Tensor, classes: int) -> NodeScores:
    """Returns the scores; a class that is neither among the labels nor predicted has no part in the macro average.

    Args:
        labels: [n] in 0 … classes - 1.
        predicted: [n] likewise.
        classes: how many there are.

    >>> scores = f1_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 3)
    >>> scores.micro, round(scores.macro, 2)
    (75.0, 73.33)
    """
    hits = torch.bincount(labels[labels == predicted], minlength=classes).double()
    # F1 = 2·hits / (labelled + predicted): the harmonic mean of precision and recall, written out.
    total = torch.bincount(labels, minlength=classes) + torch.bincount(predicted, minlength=classes)
    present = total > 0
    macro = (2 * hits[present] / total[present]).mean()
    return NodeScores(100 * hits.sum().item() / len(labels), 100 * macro.item())


def evaluate_nodes(
    representations: Tensor, labels: Tensor, protocol: str = "10/80/10", seed: int = 0, steps: int = STEPS
) -> NodeScores:
    """Returns the test scores of a logistic regression at its best validation micro-F1.

    Args:
        representations: [N, D], frozen.
        labels: [N] integers, one class a node.
        protocol: one of `PROTOCOLS`.
        seed: of the split and of the initial weights; nothing else is random, and no other generator is touched.
        steps: of Adam, learning rate 0.01, over all training nodes at once; validated every 20.

    Raises:
        ConfigError: the protocol is not known.
        DataError: fewer than ten nodes, or representations that are not finite.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"protocol='{protocol}' must be one of {', '.join(PROTOCOLS)}.")
    if len(labels) < 10:
        raise DataError(f"evaluation needs at least 10 nodes, one of them to train on, but there are {len(labels)}.")
    if not torch.isfinite(representations).all():
        raise DataError("representations must be finite to be evaluated, but hold NaN or infinite values.")
    features, (names, targets) = representations.detach().cpu().float(), torch.unique(labels.cpu(), return_inverse=True)
    classes = len(names)
    generator = torch.Generator().manual_seed(seed)
    train, valid, test = split(len(targets), protocol, generator)
    model = nn.utils.skip_init(nn.Linear, features.shape[1], classes)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(model.weight, generator=generator)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_features, train_targets = features[train], targets[train]
    held_out = torch.cat((valid, test))
    best, scores = -1.0, NodeScores(0.0, 0.0)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train_features), train_targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % _EVALUATE_EVERY == 0 or step == steps:
            with torch.no_grad():
                predicted = model(features[held_out]).argmax(1)
            right = float((predicted[: len(valid)] == targets[valid]).double().mean())
            if right > best:
                best, scores = right, f1_scores(targets[test], predicted[len(valid) :], classes)
    return scores


def split(nodes: int, protocol: str, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the positions of the training, validation and test nodes, a random partition of all.

    Args:
        nodes: at least 10.
        protocol: one of `PROTOCOLS`.
        generator: what the permutation is drawn from.
    """
    training, validation = (int(nodes * share) for share in PROTOCOLS[protocol])
    order = torch.randperm(nodes, generator=generator)
    return order[:training], order[training : training + validation], order[training + validation :]
