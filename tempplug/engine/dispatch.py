"""Chooses the engine. An explicit choice never falls back silently; ``auto`` takes the fastest that can do the block.

That is ``tiled``, on a CPU and on CUDA; only small blocks without a fast path (a third party's map, statistics beside the
log-sum-exps, whatever is on CUDA) go to ``dense``, which is done with them sooner. ``triton`` is asked for by name: ``auto``
takes it only on cards where a measurement says that it is faster (`MEASURED`).
"""

from __future__ import annotations

from typing import get_args

import torch

from tempplug.engine.dense import dense_statistics
from tempplug.engine.tiled import closes, streams, tiled_statistics
from tempplug.engine.triton import mirrored_statistics, refusal, triton_statistics
from tempplug.errors import ConfigError
from tempplug.roles import Block
from tempplug.strategies.maps import LogitMap
from tempplug.transforms import transformed
from tempplug.types import NOTHING, EngineName, RowStatistics, Wanted

# A matrix of so many numbers is done at once sooner than in slabs.
DENSE_UP_TO = 1 << 20
# CUDA compute capabilities, such as (9, 0), at which a result under benchmarks/results/speed shows ``triton`` to be faster than
# ``tiled``, with errors no larger: none yet.
MEASURED: frozenset[tuple[int, int]] = frozenset()


def check_engine(engine: EngineName) -> EngineName:
    """Returns the name if it is ``auto`` or that of an engine, else raises `ConfigError`."""
    if not isinstance(engine, str) or engine not in get_args(EngineName):
        raise ConfigError(f"engine={engine!r} is not available: choose one of {', '.join(get_args(EngineName))}.")
    return engine


def row_statistics(
    engine: EngineName, block: Block, logit_map: LogitMap, *, mirrored: bool = False, wanted: Wanted = NOTHING
) -> tuple[list[RowStatistics], EngineName]:
    """Returns the statistics of every row, and the name of the engine that computed them.

    Args:
        engine: ``auto`` or the name of an engine.
        block: anchors, candidates and their roles.
        logit_map: of this batch.
        mirrored: whether to return those of the transposed block as well, which may come from the same pass.
        wanted: what beside the log-sum-exps.

    Raises:
        ConfigError: the engine that was asked for cannot do this block.
    """
    if transformed() and engine in ("tiled", "triton"):
        raise ConfigError(f"engine='{engine}' has no rule for the transforms of torch.func: use engine='dense', or 'auto'.")
    name = _choose(block, logit_map, wanted) if engine == "auto" else engine
    if name == "tiled":
        return tiled_statistics(block, logit_map, mirrored=mirrored, wanted=wanted), name
    if name == "triton":
        if wanted:
            raise ConfigError(
                "engine='triton' computes log-sum-exps alone, and this strategy or objective needs more of each row: use "
                "engine='tiled', or 'auto'."
            )
        return list(mirrored_statistics(block, logit_map)) if mirrored else [triton_statistics(block, logit_map)], name
    found = [dense_statistics(block, logit_map, wanted=wanted)]
    if mirrored:
        found.append(dense_statistics(block.mirrored(), logit_map, wanted=wanted))
    return found, name


def _choose(block: Block, logit_map: LogitMap, wanted: Wanted) -> EngineName:
    if transformed():
        return "dense"
    device = block.anchors.device
    measured = device.type == "cuda" and torch.cuda.get_device_capability(device) in MEASURED
    if measured and not wanted and refusal(block, logit_map) is None:
        return "triton"
    fast = not wanted and (streams(block, logit_map) or closes(block, logit_map))
    if fast or block.roles.anchors * block.roles.candidates > DENSE_UP_TO:
        return "tiled"
    return "dense"
