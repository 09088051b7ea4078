"""STS through an installed mteb: its own task classes score vectors that were encoded here, on the pairs that they are given.

Left alone, mteb reads its data from the Hugging Face hub, untokenised. Handed those of a folder, its numbers are of the texts
that the literature reports. Knows nothing of encoders.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug_adapters.sentence_evaluation.sts_data import StsPairs

NAMES = {"STSB": "STSBenchmark", "SICKR": "SICK-R"}
"""What mteb calls the data sets; the others have its names."""
BATCH = 4096
"""Rows that are asked for at once; vectors are looked up, so it decides nothing."""


class InstalledMteb:
    """The installed package, ready to be called.

    Raises:
        ConfigError: it is not installed, or is not what it was at version 2.
    """

    def __init__(self) -> None:
        try:
            package: Any = importlib.import_module("mteb")
        except ModuleNotFoundError as error:
            fault = "is not installed" if error.name == "mteb" else f"lacks {error.name}"
            raise ConfigError(f"backend='mteb' needs the package mteb, which {fault}: pip install 'tempplug[mteb]'.") from error
        if not hasattr(package, "EncoderProtocol") or not hasattr(package, "get_task"):
            version = getattr(package, "__version__", "of unknown version")
            raise ConfigError(f"backend='mteb' needs mteb 2, but {version} is installed: pip install 'tempplug[mteb]'.")
        self.package = package

    def spearman(self, name: str, pairs: StsPairs, split: str, rows: dict[str, int], vectors: Tensor) -> float:
        """Returns mteb's ``cosine_spearman`` × 100, NaN where it is undefined.

        Args:
            name: one of `sts_data.STS_TASKS`.
            pairs: to score.
            split: what they are called.
            rows: row of each sentence.
            vectors: [U, D].
        """
        from datasets import Dataset  # type: ignore[import-untyped]

        task = self.package.get_task(NAMES.get(name, name))
        columns = {"sentence1": pairs.sentences_a, "sentence2": pairs.sentences_b, "score": pairs.scores}
        task.dataset, task.data_loaded = {split: Dataset.from_dict(columns)}, True
        found = task.evaluate(_Vectors(rows, vectors), split, encode_kwargs={"batch_size": BATCH})
        return 100.0 * float(found["default"]["cosine_spearman"])


class _Vectors:
    """An encoder as mteb asks for it, which looks up what is encoded.

    Args:
        rows: row of each sentence.
        vectors: [U, D].
    """

    mteb_model_meta = None

    def __init__(self, rows: dict[str, int], vectors: Tensor) -> None:
        self.rows, self.vectors = rows, vectors.double().numpy()

    def encode(self, inputs: Any, **known: Any) -> NDArray[np.float64]:
        """Returns the vectors [n, D] of mteb's batches of sentences."""
        return np.concatenate([self.vectors[[self.rows[text] for text in batch["text"]]] for batch in inputs])

    def similarity(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the cosine similarities [n, m] of the rows of two arrays, [n, D] and [m, D]."""
        return np.asarray(_unit(a) @ _unit(b).T)

    def similarity_pairwise(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the cosine similarity [n] of each row of an array [n, D] with that of another."""
        return np.asarray((_unit(a) * _unit(b)).sum(1))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny))
