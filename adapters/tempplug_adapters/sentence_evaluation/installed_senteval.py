"""The backend `senteval`: an installed package trains the classifiers, by its ``SE(…).eval(task)``.

It is on no package index; as published it needs Python below 3.11 and a CUDA device, so current systems need a fork.
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
"""Sentences per call by senteval; no effect on results, because the vectors are looked up."""


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
            missing = f"backend='senteval': the installed senteval needs {error.name}, which is missing."
            if error.name == "senteval":
                missing = (
                    "backend='senteval' needs the package senteval, which is not installed. No index has it: clone SentEval or "
                    "a fork of it and pip install the folder, or use the backend tempplug, which gives the same numbers."
                )
            raise ConfigError(missing) from error
        except Exception as error:
            raise ConfigError(f"backend='senteval': senteval cannot be imported: {_said(error)}.") from error
        self.where = getattr(package, "__file__", None) or "of unknown place"
        if not callable(getattr(package, "SE", None)):
            raise ConfigError(f"backend='senteval': that at {self.where} has no SE(params, batcher, prepare); it is another.")
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
                "and a CUDA device; use a fork without these needs, or the backend tempplug, which gives the same numbers."
            ) from error
        wanted = ("devacc", "acc", "ntest", *(["f1"] if task == "MRPC" else []))
        if not isinstance(found, dict) or not set(wanted) <= found.keys():
            raise ConfigError(f"senteval at {self.where} returned {str(found)[:80]} for {task}, wanted {', '.join(wanted)}.")
        return {key: int(found[key]) if key == "ntest" else float(found[key]) for key in wanted}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": .")
