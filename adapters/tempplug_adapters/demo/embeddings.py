"""The pairs of embeddings that ``tempplug demo`` looks at: from two files, or generated. It must not know strategies."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, NonFiniteError, ShapeError
from tempplug_adapters.data_files.matrices import read_matrix

_DIMENSION, _TOPICS = 128, 32


def read_pairs(view_a: Path, view_b: Path, rows: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Returns two matrices [N, D] of float32, N at most ``rows``, which rows of the files they are, and their number.

    Args:
        view_a: ``.npy``, ``.pt`` or text with a matrix [N, D].
        view_b: likewise; row i is the positive of row i of ``view_a``.
        rows: at least 2.

    Raises:
        DataError: a file does not hold a matrix of numbers.
        ShapeError: they are not two matrices of one shape, with at least two rows and two columns.
        NonFiniteError: one holds NaN or infinite values.
        ConfigError: ``rows`` is less than 2.
    """
    if rows < 2:
        raise ConfigError(f"rows={rows} must be at least 2: an anchor needs a negative.")
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
    """Returns the class of each pair, [N].

    Args:
        path: file with one whole number a pair.
        total: N.

    Raises:
        DataError: the file does not hold whole numbers of at least 0.
        ShapeError: it holds another number of them.
    """
    found = read_matrix(path)
    if found.numel() != total:
        raise ShapeError(f"labels={path} of shape {list(found.shape)} must be [{total}], the class of each pair.")
    if found.is_floating_point() or bool((found < 0).any()):
        raise DataError(f"labels={path} must hold whole numbers of at least 0, the class of each pair.")
    return found.flatten()


def generate_pairs(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns pairs as an encoder in the middle of its training has them: aligned, and like other pairs of their topic.

    Args:
        rows: at least 2.
        seed: of the generator.

    Raises:
        ConfigError: ``rows`` is less than 2.
    """
    if rows < 2:
        raise ConfigError(f"rows={rows} must be at least 2: an anchor needs a negative.")
    generator = torch.Generator().manual_seed(seed)

    def noise(count: int) -> Tensor:
        return torch.randn(count, _DIMENSION, generator=generator)

    topics = noise(_TOPICS)[torch.randint(_TOPICS, (rows,), generator=generator)]
    items = 1.2 * topics + noise(rows)
    return items + 0.8 * noise(rows), items + 0.8 * noise(rows)
