"""What ``tempplug advise`` trains: linear heads on fixed embeddings, or all of a static model, and the pairs for it.

The pairs are texts with a model, two matrices of embeddings, or handwritten digits.
"""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tempplug.errors import ConfigError, DataError, NonFiniteError, ShapeError
from tempplug.plugins import AdapterInfo, registry
from tempplug_adapters.storage.tensors import read_matrix

STEP = 0.014
"""Relative change of a head's row in an early step of Adam: as fast as a small BERT learns at a learning rate of 2e-4."""
STATIC_STEP = 0.0125
"""Step of Adam for a static model, in standard deviations of its weights: half the first rate of a linear decay."""


class Trainee(nn.Module):
    """A small model with the inputs of all pairs. Call it with rows [B] for their views, each [B, D]."""

    @abstractmethod
    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the embeddings of anchors, positives and, if there are any, hard negatives."""

    @abstractmethod
    def optimizer(self, rate: float = 1.0) -> torch.optim.Optimizer:
        """Returns the optimizer of the parameters, at a multiple of the usual learning rate."""

    def copy(self) -> Trainee:
        """Returns a copy with parameters of its own and the same inputs."""
        return copy.deepcopy(self, {id(each): each for each in self.inputs()})

    @abstractmethod
    def inputs(self) -> list[object]:
        """Returns the objects that copies share."""


class Heads(Trainee):
    """Linear heads, first the identity, so that the embeddings are the start.

    Args:
        views: [N, D] embeddings of anchors, positives and hard negatives.
        shared: one head for all views; otherwise one each, as the views have different encoders.
    """

    def __init__(self, views: Sequence[Tensor], shared: bool) -> None:
        super().__init__()
        self.views = [view / view.norm(dim=1).mean().clamp_min(1e-12) for view in views]
        width = min(view.shape[1] for view in views)
        heads = [nn.Linear(view.shape[1], width, bias=False) for view in views[: 1 if shared else len(views)]]
        for head in heads:
            nn.init.eye_(head.weight)
        self.heads = nn.ModuleList(heads)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the views of the rows [B], each [B, D]."""
        return [self.heads[min(place, len(self.heads) - 1)](view[rows]) for place, view in enumerate(self.views)]

    def optimizer(self, rate: float = 1.0) -> torch.optim.Optimizer:
        """Returns Adam with a step that is proportional to the size of a row of the head."""
        return torch.optim.Adam(self.parameters(), lr=rate * STEP / math.sqrt(self.views[0].shape[1]))

    def inputs(self) -> list[object]:
        """Returns the embeddings."""
        return [self.views]


class StaticModel(Trainee):
    """A static model: the mean of the vectors of a text's tokens.

    Args:
        tokens: for each view, the token numbers of each text.
        weight: [V, D] vectors; those of the texts' tokens are kept.
    """

    def __init__(self, tokens: Sequence[Sequence[Sequence[int]]], weight: Tensor) -> None:
        super().__init__()
        flat = [torch.tensor(list(chain.from_iterable(view)), dtype=torch.long) for view in tokens]
        used, places = torch.cat(flat).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        lengths = [torch.tensor([len(text) for text in view]) for view in tokens]
        parts = places.split([len(each) for each in flat])
        self.tokens = [(part, length, length.cumsum(0) - length) for part, length in zip(parts, lengths, strict=True)]
        kept = weight[used].float()
        self.scale = float(kept.std())
        self.bag = nn.EmbeddingBag(len(kept), kept.shape[1], _weight=kept, sparse=True)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Returns the views of the rows [B], each [B, D]."""
        views = []
        for tokens, lengths, starts in self.tokens:
            length = lengths[rows]
            first = length.cumsum(0) - length
            position = torch.arange(int(length.sum())) + (starts[rows] - first).repeat_interleave(length)
            views.append(self.bag(tokens[position], first))
        return views

    def optimizer(self, rate: float = 1.0) -> torch.optim.Optimizer:
        """Returns Adam for sparse gradients."""
        return torch.optim.SparseAdam(self.parameters(), lr=rate * STATIC_STEP * self.scale)

    def inputs(self) -> list[object]:
        """Returns the tokens."""
        return [self.tokens]


MATRICES = (".npy", ".pt")
MAX_LENGTH = 128
"""Tokens of a text that are read, so that encoding takes seconds."""
WIDEST = 256
"""Dimensions of embeddings that a head is trained on."""
LARGEST = 4_000_000
"""Weights of a static model that is trained as a whole."""
CHUNK = 128
"""Pairs that are encoded before the time is looked at again."""
LEAST_ENCODED = 500
"""Pairs that are encoded however long it takes: fewer tell nothing."""
COMPARED = 500
"""Largest number of pairs that are compared with each other before the training."""
_LEAST = 50


@dataclass(frozen=True)
class Pairs:
    """Pairs to train on, with what is trained.

    Attributes:
        trainee: an untrained copy is trained for each temperature.
        size: number of pairs used.
        total: number of pairs that the training will have.
        origin: description of the data.
        method: description of what is trained.
        read: what was read of a table, a line a role, and what was left out.
    """

    trainee: Trainee
    size: int
    total: int
    origin: str
    method: str
    read: tuple[str, ...] = ()

    @torch.no_grad()
    def alike(self) -> float:
        """Returns the mean cosine similarity of anchors to the positives of other pairs, before the training."""
        anchors, positives = (normalize(each, dim=1) for each in self.trainee(torch.arange(min(self.size, COMPARED)))[:2])
        similarity = anchors @ positives.T
        return float((similarity.sum() - similarity.trace()) / (similarity.numel() - len(similarity)))


def read_pairs(
    data: Sequence[Path],
    model: str | None,
    columns: Sequence[str],
    limit: int,
    where: Sequence[str] = (),
    min_score: float | None = None,
    until: float = math.inf,
    progress: Callable[[str], None] | None = None,
) -> Pairs:
    """Returns the pairs of the files, or of the digits if there are none.

    Args:
        data: nothing; a table of texts; or two matrices, row i of the second being the positive of row i of the first.
        model: sentence-transformers model that encodes texts.
        columns: of the table, see `open_texts`.
        limit: pairs used at most, chosen at random.
        where: see `open_texts`.
        min_score: see `open_texts`.
        until: `time.monotonic` after which no more texts are encoded; then fewer pairs are used.
        progress: called with the number of encoded pairs, in words.

    Raises:
        ConfigError: the files and the options do not go together, or the model cannot be loaded.
        DataError: a file cannot be read, has too few pairs, or is no embeddings; anchors and positives are the same.
        ShapeError: two matrices do not have the same number of rows.
        NonFiniteError: a matrix contains NaN or infinite values.
        MissingDependencyError: texts are given, and sentence-transformers is not installed.
    """
    if limit < _LEAST:
        raise ConfigError(f"max_pairs={limit} must be at least {_LEAST}.")
    matrices = [path for path in data if path.suffix in MATRICES]
    if len(data) == 1 and not matrices:
        return _texts(data[0], model, columns, limit, where, min_score, until, progress)
    score = "" if min_score is None else f"{min_score:g}"
    for name, given in (("model", model), ("columns", " ".join(columns)), ("where", " ".join(where)), ("min_score", score)):
        if given:
            raise ConfigError(f"{name}={given} goes with a table of texts; embeddings and digits have none.")
    if not data:
        return _digits(limit)
    if len(data) == len(matrices) == 2:
        return _matrices(data[0], data[1], limit)
    raise ConfigError(
        f"data={' '.join(map(str, data))} must be one table of texts (.jsonl, .csv, .tsv, .parquet …), or two matrices "
        f"({' or '.join(MATRICES)}), a row an embedding."
    )


def _digits(limit: int) -> Pairs:
    """The two halves of each of scikit-learn's handwritten digits: the black and the white squares of a chessboard."""
    from sklearn.datasets import load_digits

    images = torch.from_numpy(load_digits().images).float()
    black = (torch.arange(8)[:, None] + torch.arange(8)) % 2 == 0
    halves = [images[:, half] - images[:, half].mean(dim=0) for half in (black, ~black)]
    views = [_spread(half, limit) for half in halves]
    origin = f"{len(views[0]):,} handwritten digits of scikit-learn, each cut into two halves like the colours of a chessboard"
    return Pairs(Heads(views, shared=False), len(views[0]), len(images), origin, "two linear heads")


def _matrices(first: Path, second: Path, limit: int) -> Pairs:
    views = []
    for path in (first, second):
        matrix = read_matrix(path)
        if not matrix.is_floating_point():
            raise DataError(f"data={path} has whole numbers, such as ids or labels; embeddings have a floating-point type.")
        if matrix.shape[1] < 2:
            raise ShapeError(f"data={path} of shape {list(matrix.shape)} must be [N, D], a row an embedding, D at least 2.")
        bad = (~torch.isfinite(matrix)).any(dim=1).nonzero().flatten()
        if len(bad):
            raise NonFiniteError(f"data={path} has NaN or infinite values in {len(bad)} rows, row {int(bad[0])} first.")
        views.append(matrix)
    if len(views[0]) != len(views[1]):
        raise ShapeError(f"data={second} has {len(views[1])} rows; it must have as many as {first}, {len(views[0])}.")
    if torch.equal(*views):
        raise DataError(
            f"data={first} and {second} are the same matrix: row i of the second is the positive of row i of the first."
        )
    total = len(views[0])
    _check_number(total, f"{first} and {second}")
    views = [_spread(view, limit) for view in views]
    origin = f"{_of(len(views[0]), total)} pairs of {first.name} and {second.name}"
    method = f"a linear head on each matrix{_narrow(views)}"
    return Pairs(Heads(narrowed(views), shared=False), len(views[0]), total, origin, method)


def _texts(
    path: Path,
    model: str | None,
    columns: Sequence[str],
    limit: int,
    where: Sequence[str],
    min_score: float | None,
    until: float,
    progress: Callable[[str], None] | None,
) -> Pairs:
    if path.suffix in (".py", ".sh", ".ipynb"):
        raise ConfigError(f'data={path} is a program, not pairs: write tempplug advise --train --command "…".')
    if model is None:
        raise ConfigError(f"data={path} contains texts, which need --model: a folder or name of a sentence-transformers model.")
    registry().check_installed(registry().get(AdapterInfo, "sentence-transformers"))
    from tempplug_adapters.data_files.text_roles import PAIRS
    from tempplug_adapters.data_files.text_rows import open_texts

    rows = open_texts(path, columns, where, min_score=min_score, roles=PAIRS)
    hard = bool(rows.negative_counts[rows.rows].min())
    samples = [(anchor, positives[0], *negatives[:hard]) for anchor, positives, negatives, _ in rows]
    if samples and all(sample[0] == sample[1] for sample in samples):
        raise DataError(f"{path}: the anchor and the positive of every row are the same text. Name two columns with --columns.")
    distinct = list(_distinct(samples))
    _check_number(len(distinct), f"{path}, without repeated texts,")
    chosen = [distinct[position] for position in _positions(len(distinct), limit).tolist()]
    texts = [list(column) for column in zip(*chosen, strict=True)]
    repeated = f" ({len(samples) - len(distinct):,} with a repeated text left out)" if len(distinct) < len(samples) else ""
    kind = "triplets" if len(texts) == 3 else "pairs"
    trainee, method, size = _encoded(texts, model, until, progress)
    origin = f"{_of(size, len(samples))} {kind} of {path.name}{repeated}"
    uneven = "not all rows have a hard negative: none is used" if rows.most_negatives and not hard else ""
    fewer = f"{size:,} of {len(chosen):,} {kind} were encoded in two thirds of the time; a longer --time uses more"
    read = [*rows.assigned.lines(), *rows.notes, *filter(None, [uneven, fewer if size < len(chosen) else ""])]
    return Pairs(trainee, size, len(samples), origin, method, tuple(read))


def _encoded(
    texts: Sequence[list[str]], name: str, until: float, progress: Callable[[str], None] | None
) -> tuple[Trainee, str, int]:
    """Returns the model to train on the texts (all of a static model, or else a head), its description, and the pairs used."""
    from tempplug_adapters.huggingface.loading import load_sentence_transformer

    model = load_sentence_transformer(name)
    short = Path(name).name
    static: Any = model[0]
    rest = [type(module).__name__ for module in list(model)[1:]]
    if isinstance(getattr(static, "embedding", None), torch.nn.EmbeddingBag) and set(rest) <= {"Normalize"}:
        encode = static.tokenizer.encode_batch
        tokens = [[each.ids[:MAX_LENGTH] for each in encode(column, add_special_tokens=False)] for column in texts]
        trainee = StaticModel(tokens, static.embedding.weight.detach())
        if trainee.bag.weight.numel() <= LARGEST:
            return trainee, f"all of the static model {short}", len(texts[0])
    else:
        model.max_seq_length = min(model.max_seq_length or MAX_LENGTH, MAX_LENGTH)
    encoded: list[list[Tensor]] = []
    size = 0
    while size < len(texts[0]) and (size < LEAST_ENCODED or time.monotonic() < until):
        parts = [column[size : size + CHUNK] for column in texts]
        encoded.append([model.encode(part, convert_to_tensor=True, show_progress_bar=False).float().clone() for part in parts])
        size += len(parts[0])
        if progress is not None:
            progress(f"encoded {size:,} of {len(texts[0]):,} pairs")
    views = [torch.cat(parts) for parts in zip(*encoded, strict=True)]
    method = f"a linear head on the embeddings of {short}, which stay fixed{_narrow(views)}"
    return Heads(narrowed(views), shared=True), method, size


def narrowed(views: Sequence[Tensor]) -> list[Tensor]:
    """Projects views [N, D] of more than `WIDEST` dimensions on their main ones; views of equal D on the same."""
    together = torch.cat(list(views)) if len({view.shape[1] for view in views}) == 1 else None
    return [
        view if view.shape[1] <= WIDEST else view @ _main_dimensions(view if together is None else together) for view in views
    ]


def _main_dimensions(rows: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.svd_lowrank(rows, min(WIDEST, len(rows)))[2]


def _narrow(views: Sequence[Tensor]) -> str:
    return f", in their {WIDEST} main dimensions" if max(view.shape[1] for view in views) > WIDEST else ""


def _distinct(samples: Iterable[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """Yields the samples whose texts are new, so that no held-out text is also in the training pairs."""
    seen: set[str] = set()
    for sample in samples:
        if seen.isdisjoint(sample[:2]):
            seen.update(sample[:2])
            yield sample


def _check_number(number: int, where: str) -> None:
    if number < _LEAST:
        raise DataError(f"{where} has {number} pairs; advice needs at least {_LEAST}, better 1,000.")


def _positions(total: int, limit: int) -> Tensor:
    """Returns at most ``limit`` positions in a random order that depends on the total alone."""
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:limit]


def _spread(rows: Tensor, limit: int) -> Tensor:
    return rows[_positions(len(rows), limit)]


def _of(used: int, total: int) -> str:
    return f"{used:,}" if used == total else f"{used:,} of {total:,}"
