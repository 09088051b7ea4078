"""Chooses the engine. An explicit choice never falls back silently; ``auto`` means dense until a faster engine is there."""

from __future__ import annotations

from torch import Tensor

from tempplug.engine.dense import dense_statistics
from tempplug.errors import ConfigError
from tempplug.roles import PairRoles
from tempplug.strategies.maps import LogitMap
from tempplug.types import RowStatistics

ENGINES = {"dense": dense_statistics}


def check_engine(engine: str) -> str:
    """Returns the name if it is ``auto`` or an engine of this version, else raises `ConfigError`."""
    if engine != "auto" and engine not in ENGINES:
        raise ConfigError(f"engine='{engine}' is not available: choose one of auto, {', '.join(ENGINES)}.")
    return engine


def row_statistics(
    engine: str, anchors: Tensor, candidates: Tensor, roles: PairRoles, logit_map: LogitMap
) -> tuple[RowStatistics, str]:
    """Returns the statistics of every row, and the name of the engine that computed them.

    Args:
        engine: ``auto`` or the name of an engine.
        anchors: [N, D] unit rows, at least float32.
        candidates: [M, D] unit rows.
        roles: of the N×M pairs.
        logit_map: of this batch.
    """
    name = "dense" if engine == "auto" else engine
    return ENGINES[name](anchors, candidates, roles, logit_map), name
