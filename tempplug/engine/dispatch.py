"""Chooses the engine. An explicit choice never falls back silently; ``auto`` takes the fastest that can do the block.

That is ``tiled``, on a CPU and on CUDA; under the transforms of `torch.func`, and in compiled code, it is ``dense``, which is
plain operations. Large blocks of bfloat16 embeddings go to ``triton`` on cards where it was measured to be faster (`MEASURED`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch.torch_version import TorchVersion

from tempplug.block import Block
from tempplug.engine.dense import dense_similarity, dense_statistics
from tempplug.engine.tiled import tiled_statistics
from tempplug.engine.triton import mirrored_statistics, refusal, triton_statistics
from tempplug.errors import ConfigError
from tempplug.logit_map import LogitMap
from tempplug.term_map import TermMap
from tempplug.transforms import plain_only
from tempplug.types import NOTHING, EngineName, RowStatistics, Wanted

# CUDA compute capabilities at which results under benchmarks/results/speed show ``triton`` to be faster than ``tiled``, for
# bfloat16 embeddings and from so many pairs on; in float32 it is slower. Measured with torch 2.11 and its triton.
MEASURED = frozenset({(9, 0)})
MANY_PAIRS = 1 << 28
MEASURED_TORCH = "2.11"


def check_engine(engine: EngineName) -> EngineName:
    """Returns the name if it is ``auto`` or that of an engine, else raises `ConfigError`."""
    if not isinstance(engine, str) or engine not in get_args(EngineName):
        raise ConfigError(f"engine={engine!r} is not available: choose one of {', '.join(get_args(EngineName))}.")
    return engine


def row_statistics(
    engine: EngineName,
    block: Block,
    logit_map: LogitMap,
    *,
    mirrored: bool = False,
    wanted: Wanted = NOTHING,
    terms: Sequence[TermMap] = (),
    plain: bool | None = None,
) -> tuple[list[RowStatistics], EngineName]:
    """Returns the statistics of every row, and the name of the engine that computed them.

    With ``mirrored`` also those of the transposed block, which may come from the same pass; ``terms`` are added to the logits
    of negatives; ``plain`` says whether plain operations alone will do, None to have that found out.

    Raises:
        ConfigError: the given engine cannot compute this block, or a term that is not symmetric would have to serve both
            directions.
    """
    one_way = [type(term).__name__ for term in terms if not term.symmetric] if mirrored else []
    if one_way:
        raise ConfigError(
            f"the negative term {one_way[0]} is not symmetric, and both directions of a block were asked for at once: ask for "
            "each direction by itself, with a term of its own rows and columns."
        )
    inside = plain_only() if plain is None else plain
    if inside and engine in ("tiled", "triton"):
        raise ConfigError(f"engine='{engine}' has no rule for the transforms of torch.func: use engine='dense', or 'auto'.")
    only_sums = not (wanted.needs_pairs or wanted.pair_function or len(terms))
    if engine == "auto":
        engine = "dense" if inside or block.scores is not None else "tiled"
        if engine == "tiled" and only_sums and block.roles.device.type == "cuda" and _measured(block, logit_map):
            engine = "triton"
    if engine == "tiled":
        return tiled_statistics(block, logit_map, mirrored=mirrored, wanted=wanted, terms=terms), engine
    if engine == "triton":
        if not only_sums:
            raise ConfigError(
                "engine='triton' computes log-sum-exps alone, and this strategy or objective needs more of each row: use "
                "engine='tiled', or 'auto'."
            )
        return list(mirrored_statistics(block, logit_map)) if mirrored else [triton_statistics(block, logit_map)], engine
    similarity = dense_similarity(block)
    statistics = [dense_statistics(block, logit_map, wanted, terms, similarity)]
    if mirrored:
        statistics.append(dense_statistics(block.mirrored(), logit_map, wanted, terms, similarity.T))
    return statistics, engine


def _measured(block: Block, logit_map: LogitMap) -> bool:
    """Returns whether a measurement says that this card is fastest with ``triton``, which can do this block."""
    anchors = block.anchors
    if block.precision is not torch.bfloat16 or len(anchors) * len(block.candidates) < MANY_PAIRS:
        return False
    if TorchVersion(torch.__version__) < MEASURED_TORCH or torch.cuda.get_device_capability(anchors.device) not in MEASURED:
        return False
    return refusal(block, logit_map) is None
