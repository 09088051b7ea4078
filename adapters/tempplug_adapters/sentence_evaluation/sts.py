"""The STS protocol: cosine similarity of sentence pairs against annotators' scores, as Spearman correlation × 100 by SciPy.

The "all" setting of the literature: the subsets of a year are concatenated and have one correlation. mteb's own task classes
are only a backend: they take seconds to import and load untokenised data from the hub.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr
from torch import Tensor
from torch.nn import functional

from tempplug.errors import ConfigError, DataError, install_command
from tempplug.options import Choice
from tempplug_adapters.sentence_evaluation.encoding import (
    Encode,
    Progress,
    check_batch_size,
    check_tasks,
    encode_distinct,
    no_progress,
)
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, StsPairs, find_task, load_sts

NAMES = {"STSB": "STSBenchmark", "SICKR": "SICK-R"}
"""mteb's names of data sets, where they differ."""
BATCH = 4096
"""Sentences per call by mteb; no effect on results, because the vectors are looked up."""


def installed_mteb() -> Any:
    """Returns the package mteb; raises `ConfigError` if it is not installed, or its interface is not that of version 2."""
    try:
        package = importlib.import_module("mteb")
    except ModuleNotFoundError as error:
        fault = "is not installed" if error.name == "mteb" else f"lacks {error.name}"
        raise ConfigError(f"backend='mteb' needs the package mteb, which {fault}: {install_command('mteb')}.") from error
    if not hasattr(package, "EncoderProtocol") or not hasattr(package, "get_task"):
        version = getattr(package, "__version__", "of unknown version")
        raise ConfigError(f"backend='mteb' needs mteb 2, but {version} is installed: {install_command('mteb')}.")
    return package


def _by_mteb(mteb: Any, name: str, pairs: StsPairs, split: str, rows: dict[str, int], vectors: Tensor) -> float:
    """Returns mteb's ``cosine_spearman`` × 100 of pairs from the vectors [U, D] of their rows, NaN if undefined."""
    from datasets import Dataset  # type: ignore[import-untyped]

    task = mteb.get_task(NAMES.get(name, name))
    columns = {"sentence1": pairs.sentences_a, "sentence2": pairs.sentences_b, "score": pairs.scores}
    task.dataset, task.data_loaded = {split: Dataset.from_dict(columns)}, True
    found = task.evaluate(_Vectors(rows, vectors), split, encode_kwargs={"batch_size": BATCH})
    return 100.0 * float(found["default"]["cosine_spearman"])


class _Vectors:
    """An encoder for mteb that looks vectors up, [U, D] by the row of each sentence."""

    mteb_model_meta = None

    def __init__(self, rows: dict[str, int], vectors: Tensor) -> None:
        self.rows, self.vectors = rows, vectors.double().numpy()

    def encode(self, inputs: Any, **known: Any) -> NDArray[np.float64]:
        """Returns the vectors of mteb's batches of sentences, [n, D]."""
        return np.concatenate([self.vectors[[self.rows[text] for text in batch["text"]]] for batch in inputs])

    def similarity(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the cosine similarities of the rows of two arrays, [n, D] and [m, D], as [n, m]."""
        return (_unit(torch.from_numpy(a)) @ _unit(torch.from_numpy(b)).T).numpy()

    def similarity_pairwise(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the cosine similarity of each row of an array, [n, D], with that of another, [n]."""
        return (_unit(torch.from_numpy(a)) * _unit(torch.from_numpy(b))).sum(1).numpy()


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows.double(), dim=1, eps=torch.finfo(torch.float64).tiny)


BACKENDS = ("tempplug", "mteb")
"""What computes correlations: this package, or an installed mteb."""
# cosine similarities between copies of one float32 vector with rounding noise (1e-7) differ by about 1e-14
CONSTANT_WITHIN = 1e-12


@dataclass(frozen=True, slots=True)
class StsResult:
    """The scores of an encoder.

    Attributes:
        spearman: Spearman correlation × 100, by task, in order of evaluation.
        pairs: number of pairs, by task.
        split: ``test`` or ``dev``.
        source: ``folder``, or ``hub`` if the data came from the Hugging Face hub (see `sts_data.load_sts`).
        sentences: number of distinct encoded sentences.
        backend: one of `BACKENDS`.
        resampled: mean over the tasks on bootstrap samples of their pairs. The samples are the same for every encoder, so the
            differences between two encoders show the uncertainty from the choice of pairs. Empty without ``resamples``.
    """

    spearman: dict[str, float]
    pairs: dict[str, int]
    split: str
    source: str
    sentences: int
    backend: str = "tempplug"
    resampled: tuple[float, ...] = ()

    @property
    def average(self) -> float | None:
        """The mean over the seven tasks; ``None`` if some are missing, since such a mean cannot be compared."""
        complete = set(self.spearman) == set(STS_TASKS)
        return sum(self.spearman.values()) / len(self.spearman) if complete else None

    def to_dict(self) -> dict[str, Any]:
        """Returns ``average`` and all fields but ``resampled`` as plain values for JSON."""
        names = ("spearman", "average", "pairs", "split", "source", "sentences", "backend")
        return {name: getattr(self, name) for name in names}


def evaluate_sts(
    encode: Encode,
    data_dir: str | Path | None = None,
    tasks: Sequence[str] | None = None,
    split: str = "test",
    batch_size: int = 512,
    backend: str = "tempplug",
    resamples: int = 0,
    progress: Progress = no_progress,
) -> StsResult:
    """Returns the rank correlations of an encoder's cosine similarities with the scores of sentence pairs.

    Each distinct sentence of all tasks is encoded once, long ones first, so that batches contain sentences of similar length.

    Args:
        encode: from at most ``batch_size`` sentences to their vectors [n, D]; any dtype, any device, any norm. A zero vector
            has similarity 0 to every vector.
        data_dir: the folder with the data; ``None`` loads from the Hugging Face hub (see `sts_data.load_sts`).
        tasks: names from `sts_data.STS_TASKS`; by default all that have the split: seven for ``test``, STSB and SICKR for
            ``dev``.
        split: ``test`` or ``dev``.
        batch_size: sentences per call, at least 1.
        backend: one of `BACKENDS`; with ``mteb``, mteb's own task classes score the same vectors on the same pairs.
        resamples: number of bootstrap samples of the pairs, about 4 ms each for all test sets.
        progress: called while sentences are encoded, and with the name of each task before it is scored.

    Raises:
        UnknownNameError: a task is unknown.
        ConfigError: an option is out of range; mteb is chosen but not installed; or all pairs of a task have the same
            similarity (a collapsed encoder), which leaves the correlation undefined. NaN or 0 could enter an average or the
            choice of a checkpoint.
        NonFiniteError: a vector is not finite.
        ShapeError: the encoder does not return one vector a sentence, or vectors of different widths.
        DataError: a data file is missing or malformed.

    Source:
        SimCSE (Gao et al. 2021), appendix B: "all" setting, Spearman, no regressor.
    """
    check_batch_size(batch_size)
    data, mteb = prepare_sts(data_dir, tasks, split, backend)
    sides = (side for pairs in data.values() for side in (pairs.sentences_a, pairs.sentences_b))
    texts, last = (sentence for side in sides for sentence in side), 1.0 if mteb is None else 0.5
    rows, vectors = encode_distinct(encode, texts, batch_size, lambda fraction: progress(last * fraction, "encoding"))
    spearman, samples = {}, []
    for number, (name, pairs) in enumerate(data.items()):
        progress(last + (1 - last) * number / len(data), name)
        similarity, scores = _cosine_similarity(vectors, rows, pairs), torch.tensor(pairs.scores, dtype=torch.float64)
        spearman[name] = _spearman(name, similarity, scores)
        samples.append(_resampled(name, similarity.numpy(), scores.numpy(), resamples))
        if mteb is not None:
            spearman[name] = _by_mteb(mteb, name, pairs, split, rows, vectors)
    source = "hub" if data_dir is None else "folder"
    counts, resampled = {name: len(pairs) for name, pairs in data.items()}, tuple(np.mean(samples, axis=0).tolist())
    return StsResult(spearman, counts, split, source, len(rows), backend, resampled)


def prepare_sts(
    data_dir: str | Path | None = None, tasks: Sequence[str] | None = None, split: str = "test", backend: str = "tempplug"
) -> tuple[dict[str, StsPairs], Any]:
    """Returns all that `evaluate_sts` needs besides an encoder, with its errors: the pairs by task, and mteb if chosen."""
    names = _tasks_of(tasks, split)
    Choice(BACKENDS).check(f"backend={backend!r}", backend)
    mteb = installed_mteb() if backend == "mteb" else None
    return {name: load_sts(name, data_dir, split) for name in names}, mteb


def evaluate_stsb(
    encode: Encode, data_dir: str | Path | None = None, split: str = "dev", progress: Progress = no_progress
) -> float:
    """Returns Spearman × 100 on STS-B, the criterion for the best checkpoint; see `evaluate_sts`."""
    return evaluate_sts(encode, data_dir, ("STSB",), split, progress=progress).spearman["STSB"]


def _tasks_of(tasks: Sequence[str] | None, split: str) -> tuple[str, ...]:
    if split not in ("test", "dev"):
        raise ConfigError(f"split='{split}' must be test or dev.")
    if tasks is None:
        return tuple(name for name in STS_TASKS if split in find_task(name).splits)
    names = check_tasks(tasks, STS_TASKS)
    for name in names:
        find_task(name).files(split)
    return names


def _cosine_similarity(vectors: Tensor, rows: dict[str, int], pairs: StsPairs) -> Tensor:
    """Returns the cosine similarity of each pair, in float64."""
    a, b = (_unit(vectors[[rows[text] for text in side]]) for side in (pairs.sentences_a, pairs.sentences_b))
    return (a * b).sum(dim=1)


def _resampled(name: str, similarity: NDArray[np.float64], scores: NDArray[np.float64], resamples: int) -> NDArray[np.float64]:
    """Returns Spearman × 100 on samples of the pairs, [resamples]; the seed is the name of the task."""
    generator = np.random.default_rng(crc32(name.encode()))
    found = np.empty(resamples)
    for number in range(resamples):
        drawn = generator.integers(len(scores), size=len(scores))
        found[number] = 100 * np.corrcoef(rankdata(similarity[drawn]), rankdata(scores[drawn]))[0, 1]
    return found


def _spearman(name: str, similarity: Tensor, scores: Tensor) -> float:
    """Returns Spearman × 100; raises if one side is constant, which has no ranking."""
    if scores.min() == scores.max():
        raise DataError(f"all {len(scores)} scores of {name} are {float(scores[0]):g}, so there is no ranking to compare with.")
    if similarity.max() - similarity.min() <= CONSTANT_WITHIN:
        reason = "the encoder has collapsed to one direction, and the Spearman correlation is undefined"
        raise ConfigError(f"all {len(scores)} pairs of {name} have the cosine similarity {float(similarity[0]):.6f}: {reason}.")
    return 100.0 * float(spearmanr(similarity.numpy(), scores.numpy()).statistic)
