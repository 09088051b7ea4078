"""The transfer protocol of SentEval: accuracy of linear classifiers on frozen sentence vectors, on seven tasks.

The classifiers are trained here, or by an installed package senteval. It is on no package index, and as published it needs
Python below 3.11 and a CUDA device; current systems need a fork.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tempplug.errors import ConfigError, DataError, TempplugError
from tempplug.options import Number, check_fields
from tempplug_adapters.sentence_evaluation.encoding import (
    Encode,
    Progress,
    check_batch_size,
    check_tasks,
    encode_distinct,
    no_progress,
)
from tempplug_adapters.sentence_evaluation.logistic_regression import (
    Accuracy,
    Classifier,
    Split,
    dev_split,
    folds_on_train,
    nested_folds,
)
from tempplug_adapters.sentence_evaluation.senteval_files import senteval_folder, write_transfer_files
from tempplug_adapters.sentence_evaluation.transfer_data import (
    TRANSFER_TASKS,
    Labelled,
    TransferTask,
    find_transfer_task,
    load_rows,
    load_transfer,
)

BACKENDS = ("tempplug", "senteval")
"""The code that trains the classifiers: this package, or an installed `senteval`."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Folds and classifier; the defaults are those of reported results.

    Attributes:
        folds: folds of a cross-validation, at least 2.
        classifier: settings of the classifier.
    """

    folds: Annotated[int, Number(at_least=2, integer=True)] = 10
    classifier: Classifier = field(default_factory=Classifier)

    def __post_init__(self) -> None:
        check_fields(self)


REPORTED = Protocol()
FAST = Protocol(5, Classifier(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2))
"""SimCSE's protocol between checkpoints: fewer and shorter fits, for the dev accuracy."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The scores of an encoder, in per cent.

    Attributes:
        accuracy: accuracy on held-out rows, by task, in order of evaluation.
        dev: accuracy on the rows that chose the weight decay, by task.
        f1: F1 of the paraphrases of MRPC, by task; empty without it.
        rows: number of rows of ``accuracy``, by task.
        folds: folds of the cross-validation.
        sentences: number of distinct encoded sentences.
        backend: one of `BACKENDS`.
    """

    accuracy: dict[str, float]
    dev: dict[str, float]
    f1: dict[str, float]
    rows: dict[str, int]
    folds: int
    sentences: int
    backend: str = "tempplug"

    @property
    def average(self) -> float | None:
        """The mean accuracy over the seven tasks; ``None`` if some are missing, since such a mean cannot be compared."""
        complete = set(self.accuracy) == set(TRANSFER_TASKS)
        return sum(self.accuracy.values()) / len(self.accuracy) if complete else None

    def to_dict(self) -> dict[str, Any]:
        """Returns ``average`` and all fields as plain values for JSON."""
        return {**asdict(self), "average": self.average}


BATCH = 128
"""Sentences per call by senteval; no effect on results, because the vectors are looked up."""
_OTHERWISE = "the backend tempplug, which gives the same numbers."


class InstalledSentEval:
    """The installed senteval.

    Args:
        folds: folds of the cross-validation.
        classifier: settings of the classifier.

    Raises:
        ConfigError: senteval is not installed, cannot be imported, or is another package of that name.
    """

    def __init__(self, folds: int, classifier: Classifier) -> None:
        try:
            package: Any = importlib.import_module("senteval")
        except ModuleNotFoundError as error:
            missing = f": the installed senteval needs {error.name}, which is missing."
            if error.name == "senteval":
                remedy = "No index has it: clone SentEval or a fork of it and pip install the folder, or use"
                missing = f" needs the package senteval, which is not installed. {remedy} {_OTHERWISE}"
            raise ConfigError(f"backend='senteval'{missing}") from error
        except Exception as error:
            raise ConfigError(f"backend='senteval': senteval cannot be imported: {_said(error)}.") from error
        self.where = getattr(package, "__file__", None) or "of unknown place"
        if not callable(getattr(package, "SE", None)):
            fault = f"the package senteval at {self.where} has no SE(params, batcher, prepare)"
            raise ConfigError(f"backend='senteval': {fault}; it is another package of that name.")
        self.engine = package.SE
        chosen = asdict(classifier)
        trained = {"nhid": 0, "optim": chosen.pop("optimizer"), **chosen}
        self.settings = {"usepytorch": True, "kfold": folds, "batch_size": BATCH, "classifier": trained}

    def evaluate(
        self,
        tasks: Sequence[str],
        data_dir: str | Path,
        places: dict[str, int],
        vectors: Tensor,
        progress: Callable[[str], None],
    ) -> dict[str, dict[str, Any]]:
        """Returns senteval's results by task: ``devacc``, ``acc``, ``ntest``, and ``f1`` of MRPC.

        Args:
            tasks: names from `transfer_data.TRANSFER_TASKS`.
            data_dir: SentEval's own data folder, or one for `transfer_data.load_transfer`, which is converted to SentEval's
                layout in a temporary folder.
            places: row of each text, its words joined by spaces; ``.`` for a text without words.
            vectors: [U, D].
            progress: called with the name of each task before it starts.

        Raises:
            ConfigError: senteval fails, or returns another structure.
            DataError: the data cannot be converted.
        """
        table = vectors.numpy()

        def batcher(params: Any, batch: Sequence[Sequence[str]]) -> NDArray[Any]:
            return np.stack([table[places[" ".join(words) or "."]] for words in batch])

        with tempfile.TemporaryDirectory(prefix="senteval-") as converted:
            task_path = str(data_dir) if senteval_folder(data_dir) else converted
            for task in tasks if task_path == converted else ():
                for split, rows in load_rows(task, data_dir).items():
                    write_transfer_files(Path(converted) / "downstream", task, split, rows)
            return {task: self._one(task, task_path, batcher, progress) for task in tasks}

    def _one(self, task: str, task_path: str, batcher: Any, progress: Callable[[str], None]) -> dict[str, Any]:
        progress(task)
        try:
            found = self.engine({**self.settings, "task_path": task_path}, batcher, lambda params, samples: None).eval(task)
        except TempplugError:
            raise
        except Exception as error:
            needs = "SentEval as published needs Python below 3.11 and a CUDA device; use a fork without these needs, or"
            raise ConfigError(f"senteval at {self.where} failed on {task}: {_said(error)}. {needs} {_OTHERWISE}") from error
        wanted = ("devacc", "acc", "ntest", *(["f1"] if task == "MRPC" else []))
        if not isinstance(found, dict) or not set(wanted) <= found.keys():
            raise ConfigError(f"senteval at {self.where} returned {str(found)[:80]} for {task}, wanted {', '.join(wanted)}.")
        return {key: int(found[key]) if key == "ntest" else float(found[key]) for key in wanted}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": .")


def evaluate_transfer(
    encode: Encode,
    data_dir: str | Path,
    tasks: Sequence[str] | None = None,
    *,
    protocol: Protocol = REPORTED,
    backend: str = "tempplug",
    batch_size: int = 512,
    device: str | torch.device = "cpu",
    progress: Progress = no_progress,
) -> TransferResult:
    """Returns the accuracies of a linear classifier on an encoder's vectors.

    Each distinct sentence is encoded once. Folds, orders, first weights, early stopping and the choice of the weight decay are
    SentEval's, so that the numbers equal those of its own code except for rounding in float32.

    Args:
        encode: from at most ``batch_size`` sentences to their vectors [n, D]; any dtype, any device, any norm.
        data_dir: the folder with the data (see `transfer_data.load_transfer`).
        tasks: names from `transfer_data.TRANSFER_TASKS`; by default all seven.
        protocol: folds and classifier; `FAST` for ``dev`` during training.
        backend: one of `BACKENDS`; ``senteval`` passes the vectors to the installed package of that name, which takes many
            times as long (see `InstalledSentEval`).
        batch_size: sentences per call, at least 1.
        device: device for this package's classifiers.
        progress: called while sentences are encoded, which counts as half, and with the name of each task before its
            classifiers are trained.

    Raises:
        UnknownNameError: a task is unknown.
        ConfigError: an option is out of range, or senteval is not installed or fails.
        NonFiniteError: a vector is not finite.
        ShapeError: the encoder does not return one vector a sentence, or vectors of different widths.
        DataError: a data file is missing or malformed, or a class has fewer rows than there are folds.

    Source:
        SentEval (Conneau and Kiela 2018), section 4; SimCSE (Gao et al. 2021), appendix E, reports its accuracy.
    """
    check_batch_size(batch_size)
    data, senteval = prepare_transfer(data_dir, tasks, protocol=protocol, backend=backend)
    every = (text for splits in data.values() for split in splits.values() for texts in split.texts for text in texts)
    places, vectors = encode_distinct(encode, every, batch_size, lambda fraction: progress(fraction / 2, "encoding"))

    def begin(task: str) -> None:
        progress(0.5 + 0.5 * list(data).index(task) / len(data), task)

    result = TransferResult({}, {}, {}, {}, protocol.folds, len(places), backend)
    if senteval is not None:
        for name, found in senteval.evaluate(list(data), data_dir, places, vectors, begin).items():
            result.accuracy[name], result.dev[name], result.rows[name] = found["acc"], found["devacc"], found["ntest"]
            result.f1.update({name: found["f1"]} if "f1" in found else {})
        return result
    vectors = vectors.to(device)
    for task in map(find_transfer_task, data):
        begin(task.name)
        splits = {name: _features(split, places, vectors) for name, split in data[task.name].items()}
        labels, measured = splits[task.splits[-1]].labels, _measured(task, splits, protocol)
        result.accuracy[task.name], result.dev[task.name] = measured.test, measured.dev
        result.rows[task.name] = len(labels)
        if task.name == "MRPC":
            result.f1[task.name] = _f1(measured.predicted, labels)
    return result


def prepare_transfer(
    data_dir: str | Path, tasks: Sequence[str] | None = None, *, protocol: Protocol = REPORTED, backend: str = "tempplug"
) -> tuple[dict[str, dict[str, Labelled]], InstalledSentEval | None]:
    """Returns all that `evaluate_transfer` needs besides an encoder, with its errors: rows by task, and senteval if chosen."""
    names = check_tasks(TRANSFER_TASKS if tasks is None else tasks, TRANSFER_TASKS)
    if backend not in BACKENDS:
        raise ConfigError(f"backend={backend!r} must be one of {', '.join(BACKENDS)}.")
    chosen = [find_transfer_task(name) for name in names]
    senteval = InstalledSentEval(protocol.folds, protocol.classifier) if backend == "senteval" else None
    data = {task.name: load_transfer(task.name, data_dir) for task in chosen}
    for task in chosen:
        _check_classes(task, data[task.name], protocol.folds)
    return data, senteval


def _check_classes(task: TransferTask, splits: dict[str, Labelled], folds: int) -> None:
    for name, split in splits.items():
        counts = [split.labels.count(number) for number in range(len(task.classes))]
        if name in ("", "train") and len(task.splits) < 3 and min(counts) < folds:
            rarest = task.classes[counts.index(min(counts))]
            raise DataError(f"{task.name} has {min(counts)} rows of class {rarest}, but {folds} folds need at least {folds}.")


def _features(split: Labelled, places: dict[str, int], vectors: Tensor) -> Split:
    """Returns the vectors [N, D] of a split, of pairs [N, 2 D], with its classes."""
    sides = [vectors[[places[text] for text in side]] for side in zip(*split.texts, strict=True)]
    joined = sides[0] if len(sides) == 1 else torch.cat([(sides[0] - sides[1]).abs(), sides[0] * sides[1]], dim=1)
    return Split(joined, torch.tensor(split.labels, device=vectors.device))


def _measured(task: TransferTask, splits: dict[str, Split], protocol: Protocol) -> Accuracy:
    classes, folds, classifier = len(task.classes), protocol.folds, protocol.classifier
    if "dev" in splits:
        return dev_split(splits["train"], splits["dev"], splits["test"], classes, classifier)
    if "test" in splits:
        return folds_on_train(splits["train"], splits["test"], classes, folds, classifier)
    return nested_folds(splits[""], classes, folds, classifier)


def _f1(predicted: Tensor, labels: Tensor) -> float:
    """Returns F1 of class 1 in per cent, 0 if it neither occurs nor is predicted."""
    both = int(((predicted == 1) & (labels == 1)).sum())
    either = int((predicted == 1).sum()) + int((labels == 1).sum())
    return round(200 * both / max(either, 1), 2)
