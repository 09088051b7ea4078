"""An installed package `senteval` as what trains the classifiers: an encoder's vectors through its ``SE(…).eval(task)``.

It is on no index; as published it needs Python below 3.11 and a CUDA device, so that a fork is what runs today.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tempplug.errors import ConfigError, TempplugError
from tempplug_adapters.sentence_evaluation.logistic_regression import Classifier
from tempplug_adapters.sentence_evaluation.senteval_files import senteval_folder, write_transfer_files
from tempplug_adapters.sentence_evaluation.transfer_data import load_rows

BATCH = 128
"""Rows that are asked for at once; vectors are looked up, so it decides nothing."""


class InstalledSentEval:
    """The installed package, ready to be called.

    Args:
        folds: of the cross-validation.
        classifier: to train.

    Raises:
        ConfigError: there is no package senteval, it cannot be imported, or it is another one that has taken the name.
    """

    def __init__(self, folds: int, classifier: Classifier) -> None:
        try:
            package: Any = importlib.import_module("senteval")
        except ModuleNotFoundError as error:
            if error.name != "senteval":
                raise ConfigError(
                    f"backend='senteval': the installed senteval needs {error.name}, which is missing."
                ) from error
            raise ConfigError(
                "backend='senteval' needs the package senteval, which is not installed. No index has it: clone SentEval or a "
                "fork of it and pip install the folder, or leave the backend tempplug, whose numbers are the same."
            ) from error
        except Exception as error:
            raise ConfigError(f"backend='senteval': senteval cannot be imported: {_said(error)}.") from error
        self.where = getattr(package, "__file__", None) or "of unknown place"
        if not callable(getattr(package, "SE", None)):
            raise ConfigError(
                f"backend='senteval': the package senteval at {self.where} has no SE(params, batcher, prepare); it is another "
                "package of that name."
            )
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
        """Returns what senteval measured by task: ``devacc``, ``acc``, ``ndev``, ``ntest``, of MRPC ``f1``.

        Args:
            tasks: names out of `transfer_data.TRANSFER_TASKS`.
            data_dir: SentEval's own data folder, or one that `transfer_data.load_transfer` reads, which is written in
                SentEval's layout to a temporary folder.
            places: row of each text, its words joined by spaces, ``.`` for a text without any.
            vectors: [U, D].
            progress: called with the name of each task before it starts.

        Raises:
            ConfigError: senteval fails, or returns something else.
            DataError: the data cannot be written as SentEval reads them.
        """
        table = vectors.numpy()

        def batcher(params: Any, batch: Sequence[Sequence[str]]) -> NDArray[Any]:
            return np.stack([table[places[" ".join(words) or "."]] for words in batch])

        with ExitStack() as stack:
            if senteval_folder(data_dir) is None:
                task_path = stack.enter_context(tempfile.TemporaryDirectory(prefix="senteval-"))
                for task in tasks:
                    for split, rows in load_rows(task, data_dir).items():
                        write_transfer_files(Path(task_path) / "downstream", task, split, rows)
            else:
                task_path = str(data_dir)
            return {task: self._one(task, task_path, batcher, progress) for task in tasks}

    def _one(self, task: str, task_path: str, batcher: Any, progress: Callable[[str], None]) -> dict[str, Any]:
        progress(task)
        try:
            found = self.engine({**self.settings, "task_path": task_path}, batcher, lambda params, samples: None).eval(task)
        except TempplugError:
            raise
        except Exception as error:
            raise ConfigError(
                f"senteval at {self.where} failed on {task}: {_said(error)}. SentEval as published needs Python below 3.11 "
                "and a CUDA device; take a fork without these needs, or the backend tempplug, whose numbers are the same."
            ) from error
        wanted = ("devacc", "acc", "ntest", *(["f1"] if task == "MRPC" else []))
        if not isinstance(found, dict) or not set(wanted) <= found.keys():
            raise ConfigError(f"senteval at {self.where} returned {str(found)[:80]} for {task}, wanted {', '.join(wanted)}.")
        numbers = {key: float(found[key]) for key in wanted}
        return {**numbers, "ntest": int(found["ntest"])}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": .")
