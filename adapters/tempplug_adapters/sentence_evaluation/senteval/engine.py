"""SentEval's ``SE(params, batcher, prepare).eval(tasks)`` with this package's protocols: same keys, same numbers, less time.

Tasks: the transfer tasks, STS12 to STS16 (with ``all``, as in SimCSE's fork), and STSBenchmark and SICKRelatedness as cosine
similarities of ``dev`` and ``test``, without SentEval's regressions on these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from tempplug.errors import ConfigError, UnknownNameError, listed, nearest
from tempplug_adapters.sentence_evaluation.encoding import check_batch_size, encode_distinct
from tempplug_adapters.sentence_evaluation.logistic_regression import SEED, Classifier
from tempplug_adapters.sentence_evaluation.sts_data import StsPairs, load_sts, load_sts_subsets
from tempplug_adapters.sentence_evaluation.transfer import Protocol, evaluate_transfer
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS, load_transfer
from tempplug_adapters.training.command_line import choose_device

Sentences = list[list[str]]
"""Words of each sentence."""

_YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
_BENCHMARKS = {"STSBenchmark": "STSB", "SICKRelatedness": "SICKR"}
_CORRELATIONS: dict[str, Callable[..., Any]] = {"pearson": pearsonr, "spearman": spearmanr}
_FOR_THE_CLASSIFIER = ("batch_size", "tenacity", "epoch_size", "max_epoch")


class Parameters(dict[str, Any]):
    """Arguments of ``prepare`` and ``batcher``: a dictionary with its entries as attributes, ``None`` for missing ones."""

    def __getattr__(self, name: str) -> Any:
        """Returns the entry of that name."""
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets the entry of that name."""
        self[name] = value


class SE:
    """Evaluates an encoder task by task.

    Args:
        params: ``task_path``, SentEval's data folder or one with this package's tables; ``kfold`` (5), ``batch_size`` (128) and
            ``classifier`` (``nhid`` 0; ``optim`` adam or rmsprop, ``batch_size`` 64, ``tenacity`` 5, ``epoch_size`` 4,
            ``max_epoch`` 200) as in SentEval, with its defaults; ``similarity`` of two vectors for STS, by default the cosine.
            Other entries are only for ``batcher``.
        batcher: from the parameters and lists of words, at least one list, to their vectors [n, D]. Called once for each
            distinct sentence of a task, long ones first.
        prepare: called before each task with the parameters and all of its sentences; may change the parameters.

    Raises:
        ConfigError: ``task_path`` is missing, or a parameter is not that of SentEval's reported results: scikit-learn's
            regression (``usepytorch`` false), hidden units, another seed or optimizer.

    Source:
        SentEval (Conneau and Kiela 2018) and its code; for STS, SimCSE (Gao et al. 2021), appendix B.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        batcher: Callable[[Parameters, Sentences], Any],
        prepare: Callable[[Parameters, Sentences], Any] | None = None,
    ) -> None:
        self.params = Parameters({"usepytorch": True, "seed": SEED, "batch_size": 128, "kfold": 5, "nhid": 0, **params})
        self.batcher, self.prepare = batcher, prepare
        self.results: dict[str, Any] = {}
        if not self.params.task_path:
            raise ConfigError("params lacks task_path, the folder with the data sets.")
        for name, wanted in {"usepytorch": True, "seed": SEED}.items():
            if self.params[name] != wanted:
                raise ConfigError(f"params: {name}={self.params[name]!r} is not supported; reported results have {wanted}.")
        check_batch_size(self.params.batch_size)
        self.protocol = Protocol(self.params.kfold, _classifier(self.params.classifier or {"nhid": 0}))

    def eval(self, name: str | list[str]) -> dict[str, Any]:
        """Returns the result of a task, or of a list of tasks by name; also stored in ``results``.

        For a transfer task: ``devacc`` and ``acc`` in per cent, ``ndev``, ``ntest``, and ``f1`` for MRPC. For each part of an
        STS task: ``pearson`` and ``spearman``, each with its p-value, and ``nsamples``; for a year also ``all``.

        Args:
            name: one of MR, CR, SUBJ, MPQA, SST2, TREC, MRPC, STS12 to STS16, STSBenchmark, SICKRelatedness.

        Raises:
            UnknownNameError: the task is unknown.
            ConfigError: a vector is not finite.
            ShapeError: ``batcher`` does not return one vector per sentence.
            DataError: a data file is missing or malformed.
        """
        if isinstance(name, list):
            self.results = {each: self.eval(each) for each in name}
            return self.results
        known = (*TRANSFER_TASKS, *_YEARS, *_BENCHMARKS)
        if name not in known:
            raise UnknownNameError(f"unknown task '{name}'.{nearest(name, known)} Known here: {listed(known)}.")
        self.params.current_task = name
        self.results = self._transfer(name) if name in TRANSFER_TASKS else self._sts(name)
        return self.results

    def _transfer(self, task: str) -> dict[str, Any]:
        path, size = self.params.task_path, self.params.batch_size
        splits = load_transfer(task, path)
        self._prepare(text for split in splits.values() for side in zip(*split.texts, strict=True) for text in side)
        given = {"protocol": self.protocol, "batch_size": size, "device": choose_device("auto")}
        found = evaluate_transfer(self._encode, path, [task], **given)
        # SentEval's dev rows are the dev split, or else the rows of the folds
        dev = len(splits["dev"] if "dev" in splits else next(iter(splits.values())))
        scores = {"devacc": found.dev[task], "acc": found.accuracy[task], "ndev": dev, "ntest": found.rows[task]}
        return scores | ({"f1": found.f1[task]} if task in found.f1 else {})

    def _sts(self, task: str) -> dict[str, Any]:
        path = self.params.task_path
        if task in _BENCHMARKS:
            parts = {split: load_sts(_BENCHMARKS[task], path, split) for split in ("dev", "test")}
        else:
            parts = load_sts_subsets(task, path)
        sides = [side for pairs in parts.values() for side in (pairs.sentences_a, pairs.sentences_b)]
        self._prepare(text for side in sides for text in side)
        rows, vectors = encode_distinct(self._encode, (text for side in sides for text in side), self.params.batch_size)
        near = {part: self._similarity(pairs, rows, vectors) for part, pairs in parts.items()}
        found: dict[str, Any] = {
            part: {name: correlate(near[part], pairs.scores) for name, correlate in _CORRELATIONS.items()}
            | {"nsamples": len(pairs)}
            for part, pairs in parts.items()
        }
        if task in _YEARS:
            together = np.concatenate(list(near.values())), np.concatenate([pairs.scores for pairs in parts.values()])
            sizes = [part["nsamples"] for part in found.values()]
            found["all"] = {
                name: {
                    "all": correlate(*together)[0],
                    "mean": np.average([part[name][0] for part in found.values()]),
                    "wmean": np.average([part[name][0] for part in found.values()], weights=sizes),
                }
                for name, correlate in _CORRELATIONS.items()
            }
        return found

    def _similarity(self, pairs: StsPairs, rows: dict[str, int], vectors: Tensor) -> NDArray[Any]:
        similarity = self.params.similarity or _cosine
        a, b = (vectors[[rows[text] for text in side]].numpy() for side in (pairs.sentences_a, pairs.sentences_b))
        return np.array([similarity(*pair) for pair in zip(a, b, strict=True)])

    def _prepare(self, texts: Iterable[str]) -> None:
        if self.prepare is not None:
            self.prepare(self.params, [text.split() for text in texts])

    def _encode(self, texts: Sequence[str]) -> Tensor:
        vectors = self.batcher(self.params, [text.split() for text in texts])
        return vectors if isinstance(vectors, Tensor) else torch.from_numpy(np.vstack(list(vectors)))


def _cosine(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Returns the cosine of two vectors, 0 if one is zero, in SentEval's order of operations, whose rounding decides ties."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def _classifier(given: Mapping[str, Any]) -> Classifier:
    known = ("nhid", "optim", "dropout", *_FOR_THE_CLASSIFIER)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UnknownNameError(f"params: classifier has {', '.join(unknown)}; known are {', '.join(known)}.")
    if given.get("nhid", 0) != 0:
        raise ConfigError(f"params: classifier nhid={given['nhid']} is not supported; reported results have 0.")
    settings = {name: given[name] for name in _FOR_THE_CLASSIFIER if name in given}
    return Classifier(optimizer=given.get("optim", "adam"), **settings)
