"""A plugin of pytest that puts our losses in the place of a library's, before the library's own tests are imported."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

KEPT: list[Any] = []
"""What must live as long as the tests."""


def named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def declare_operators_of_torchvision() -> None:
    """Lets torchvision, which PyPI has linked against CUDA alone, be imported with a torch for CPUs."""
    if find_spec("torchvision") is None or torch.cuda.is_available():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)


def read_models_from(folder: str) -> None:
    """Takes one small model of a folder for every model that tests would fetch from the hub."""
    from sentence_transformers import SentenceTransformer

    original = SentenceTransformer.__init__

    def from_folder(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        original(self, folder if isinstance(name, str) and not Path(name).exists() else name, *args, **kwargs)

    SentenceTransformer.__init__ = from_folder


def leave_out_labels_of_zeros() -> None:
    """Passes None for labels of zeros, which tests of sentence-transformers pass where their losses read none.

    Our losses refuse them, because 0 is no positive (`tests/adapters/test_sentence_transformers_positives.py`).
    """
    from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss

    def with_none(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda loss, features, labels=None: forward(
            loss, features, labels if labels is not None and labels.any() else None
        )

    for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss):
        kind.forward = with_none(kind.forward)  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)  # their conftest.py imports the library
def pytest_load_initial_conftests() -> None:
    declare_operators_of_torchvision()
    settings = json.loads(os.environ["TEMPPLUG_PEER"])
    if settings.get("model"):
        read_models_from(settings["model"])
        leave_out_labels_of_zeros()
    for theirs, ours in settings["replace"].items():
        module, _, name = theirs.partition(":")
        replacement = named(ours)
        import_module(module)
        setattr(sys.modules[module], name, replacement)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
