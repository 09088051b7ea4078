"""Nearest neighbours as a measure of representations: a weighted vote (balanced sets), a plain majority (long tails).

Nothing is approximated: every query meets the whole bank, a tile at a time, so that memory does not grow with either.
Similarities are computed in the bank's precision, at least float32. Among equally similar neighbours the earlier of the bank
counts, among classes with equally many votes the lowest. scikit-learn's exact search takes 0.6 to 1.3 times the processor time
(10,000 queries; 10,000 x 512 and 50,000 x 128 in the bank; k = 1, 10, 200), but among equals it takes any, and it leaves a GPU
idle. This module must not know images or models.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tempplug.options import Number
from tempplug_adapters.images.representations import check_held_out, check_labels, check_representations, unit_rows
from tempplug_adapters.vision.evaluation.accuracy import accuracy

_QUERIES = 256
_BANK = 8192


def weighted_knn(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    *,
    k: int = 200,
    temperature: float = 0.1,
    classes: int | None = None,
) -> Tensor:
    """Returns the class of each query by the vote of its k most similar neighbours, each of weight exp(s/τ), [M] int64.

    Args:
        bank: [N, F] raw representations of the training images.
        bank_labels: [N] their classes, from 0.
        queries: [M, F] raw representations of other images, on the device of ``bank``.
        k: neighbours, at least 1; a smaller bank votes as a whole. 200 for CIFAR, 20 for ImageNet-100 (DySTreSS).
        temperature: τ of the vote, greater than 0; has nothing to do with that of training.
        classes: how many there are; None takes the highest label plus 1.

    Returns:
        [M] on the device of ``queries``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: an option is out of range, or bank and queries are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Wu et al. 2018 (instance discrimination), in lightly's settings. DySTreSS and lightly report the epoch that is best
    on the test set; what is classified here is one backbone, once.

    >>> bank, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), torch.tensor([1, 0, 0])
    >>> weighted_knn(bank, labels, torch.tensor([[5.0, 1.0], [1.0, 5.0]]), k=3)
    tensor([1, 0])
    """
    votes = _weighted_votes(bank, bank_labels, queries, k, temperature, classes)
    return torch.cat([each.argmax(dim=1) for each in votes]).to(queries.device)


def weighted_votes(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int = 200, temperature: float = 0.1, classes: int | None = None
) -> Tensor:
    """Returns the votes of `weighted_knn` for each class, [M, classes] float64 on the CPU, the nearest neighbour's being 1.

    Args:
        bank: as there, like all that follow.
        bank_labels: likewise.
        queries: likewise.
        k: likewise.
        temperature: likewise.
        classes: likewise.

    Raises:
        TempplugError: as there.
    """
    return torch.cat(list(_weighted_votes(bank, bank_labels, queries, k, temperature, classes)))


def majority_knn(bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int, classes: int | None = None) -> Tensor:
    """Returns the class that most of the k nearest neighbours of each query have, [M] int64.

    Nearest by Euclidean distance between rows of unit length: the order of cosine similarity, but for rows of zeros, which
    are at distance 1 from every other.

    Args:
        bank: [N, F] raw representations of the training images.
        bank_labels: [N] their classes, from 0.
        queries: [M, F] raw representations of other images, on the device of ``bank``.
        k: neighbours, at least 1; a smaller bank votes as a whole. 1 and 10 in the paper.
        classes: how many there are; None takes the highest label plus 1.

    Returns:
        [M] on the device of ``queries``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: an option is out of range, or bank and queries are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Kukleva et al. 2023 (temperature schedules), whose released code is followed. DySTreSS's text speaks of weights by
    distance where its code has none either.

    >>> bank, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), torch.tensor([1, 0, 0])
    >>> majority_knn(bank, labels, torch.tensor([[5.0, 1.0]]), k=3)
    tensor([0])
    """
    classes = _check(bank, bank_labels, queries, k, classes)
    points = unit_rows(bank)
    # ‖q - b‖² = ‖q‖² - 2(q·b - ‖b‖²/2): the nearest have the largest q·b - ‖b‖²/2, which is q·b - 1/2 but for b = 0.
    offset = torch.where((points == 0).all(dim=1), 0.0, 0.5).to(points)
    predicted = []
    for rows in torch.split(unit_rows(queries).to(points.dtype), _QUERIES):
        _, index = _nearest(rows, points, offset, k)
        predicted.append(_votes(bank_labels, index, torch.ones_like(index), classes).argmax(dim=1))
    return torch.cat(predicted).to(queries.device)


def knn_accuracy(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    query_labels: Tensor,
    *,
    k: int = 200,
    temperature: float = 0.1,
    classes: int | None = None,
) -> float:
    """Returns how many queries `weighted_knn` gives their class, 0 to 100.

    Args:
        bank: as there, like all that follow.
        bank_labels: likewise.
        queries: likewise.
        query_labels: [M] classes of the queries, from 0.
        k: likewise.
        temperature: likewise.
        classes: likewise.

    Raises:
        TempplugError: as there.
    """
    check_representations(queries, "queries")
    check_labels(query_labels, queries, "query_labels")
    return accuracy(query_labels, weighted_knn(bank, bank_labels, queries, k=k, temperature=temperature, classes=classes))


def _weighted_votes(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, k: int, temperature: float, classes: int | None
) -> Iterator[Tensor]:
    Number(above=0).check(f"temperature={temperature:g} of the vote", temperature)
    classes = _check(bank, bank_labels, queries, k, classes)
    points = unit_rows(bank)
    for rows in torch.split(unit_rows(queries).to(points.dtype), _QUERIES):
        similarity, index = _nearest(rows, points, points.new_zeros(len(points)), k)
        # A factor common to a query's votes changes nothing: the largest exponent is 0 and never overflows.
        weight = ((similarity - similarity[:, :1]).double() / temperature).exp()
        yield _votes(bank_labels, index, weight, classes)


def _check(bank: Tensor, bank_labels: Tensor, queries: Tensor, k: int, classes: int | None) -> int:
    check_representations(bank, "bank")
    check_representations(queries, "queries")
    check_held_out(bank, queries)
    Number(at_least=1, integer=True).check(f"k={k} neighbours", k)
    return check_labels(bank_labels, bank, "bank_labels", classes)


def _nearest(rows: Tensor, points: Tensor, offset: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns ``rows @ points.T - offset`` of the k points where it is largest, and their positions, both [m, min(k, N)]."""
    best, index = rows.new_empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long, device=rows.device)
    for start in range(0, len(points), _BANK):
        tile = slice(start, start + _BANK)
        # Autocast would round the products to 8 bits and with them the order of the neighbours.
        with torch.autocast(rows.device.type, enabled=False):
            values = rows @ points[tile].T - offset[tile]
        positions = torch.arange(start, start + values.shape[1], device=rows.device).expand_as(values)
        best, index = torch.cat((best, values), dim=1), torch.cat((index, positions), dim=1)
        chosen = _largest(best, min(k, best.shape[1]))
        best, index = best.gather(1, chosen), index.gather(1, chosen)
    return best, index


def _largest(values: Tensor, k: int) -> Tensor:
    """Returns the columns of the k largest values of each row, largest first, the earlier of equals first, [m, k]."""
    found = values.topk(k, dim=1)
    # topk takes any of those that equal the k-th; where not all of them fit, a stable sort says which.
    crowded = (values >= found.values[:, -1:]).sum(dim=1) > k
    columns = found.indices
    if bool(crowded.any()):
        columns[crowded] = values[crowded].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values
    return columns.gather(1, values.gather(1, columns).sort(dim=1, descending=True, stable=True).indices)


def _votes(bank_labels: Tensor, index: Tensor, weight: Tensor, classes: int) -> Tensor:
    """Returns the votes for each class, [m, classes] on the CPU, where sums have one order and ties stay ties.

    ``argmax`` takes the lowest class of equals.
    """
    labels, weight = bank_labels.cpu()[index.cpu()].long(), weight.cpu()
    return weight.new_zeros(len(labels), classes).scatter_add_(1, labels, weight)
