"""A small world of users who walk along a ring of items, so that what comes next can be learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from method_toys import train_toy

from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.training.method_info import MethodInfo

SMALL = {
    "num_train_epochs": 3,
    "per_device_train_batch_size": 64,
    "hidden": 8,
    "inner": 16,
    "layers": 1,
    "max_length": 12,
    "validation_share": 0.3,
    "dropout": 0.2,
    "attention_dropout": 0.2,
}


def walks(users: int = 40, items: int = 12) -> list[np.ndarray]:
    """Sequences of 3 to 8 items, each mostly the next one on the ring."""
    chance = np.random.default_rng(3)
    found = []
    for _ in range(users):
        steps = chance.choice([1, 1, 1, 2], size=chance.integers(2, 8))
        found.append((chance.integers(items) + np.concatenate([[0], np.cumsum(steps)])) % items + 1)
    return found


def toy_log(users: int = 40, items: int = 12) -> Interactions:
    return Interactions(walks(users, items), items, 12, 0.3)


def write_log(path: Path, sequences: list[np.ndarray]) -> Path:
    rows = [(user, item, time) for user, sequence in enumerate(sequences) for time, item in enumerate(sequence)]
    path.write_text("user,item,time\n" + "".join(f"{user},{item},{time}\n" for user, item, time in rows), encoding="utf-8")
    return path


def run(info: MethodInfo, folder: Path, strategy: str | None = None, **more: Any) -> dict[str, Any]:
    return train_toy(info, folder, more.pop("data", None) or toy_log(), strategy, **{**SMALL, **more})
