"""The Triton engine: one-positive layouts on a CUDA device, O(N·D) memory, no N×M matrix and no synchronisation.

Row sums and gradients are kernels in which the logit map is compiled in; half-precision embeddings are multiplied as they are,
float32 ones in full precision, and all sums are float32. The same inputs give the same bits. Triton and the kernels load with
the first block that the engine takes; the first call of a map, precision and number of dimensions compiles for some seconds,
batch sizes do not. With ``TRITON_INTERPRET=1`` in the environment the kernels run on a CPU, slowly, for tests.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from tempplug.block import Block
from tempplug.engine.triton.plan import CRAMPED, plan_map, plan_roles, shared_memory
from tempplug.errors import ConfigError, install_command
from tempplug.strategies.maps import LogitMap
from tempplug.types import RowStatistics


def refusal(block: Block, logit_map: LogitMap) -> str | None:
    """Returns why this engine cannot take the block, or None where it can; loads nothing."""
    if plan_roles(block.roles) is None:
        return "layouts with several positives or masks have no kernel"
    if plan_map(logit_map) is None:
        return f"logit map {type(logit_map).__name__} has no kernel"
    if block.anchors.dtype != torch.float32 or block.precision == torch.float64:
        return f"{block.anchors.dtype} similarities have no kernel: they stay below float64"
    if not _installed():
        return f"triton is not installed: {install_command('triton')}"
    device = block.anchors.device.type
    if device != "cuda" and not (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        return f"the embeddings are on '{device}', and kernels run on CUDA (or on a CPU with TRITON_INTERPRET=1)"
    if shared_memory(block.anchors.device) < CRAMPED:
        return f"kernels need {CRAMPED // 1024} KiB of shared memory a program, more than this GPU has"
    return None


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def triton_statistics(block: Block, logit_map: LogitMap) -> RowStatistics:
    """Returns the statistics of every row; raises `ConfigError` where `refusal` has a reason."""
    square = block.candidates is block.anchors and block.roles.square and logit_map.uniform and logit_map.symmetric
    positive, negative_lse = _log_sum_exp(block, logit_map, square=square)
    return _assemble(block, logit_map, positive, negative_lse)


def mirrored_statistics(block: Block, logit_map: LogitMap) -> tuple[RowStatistics, RowStatistics]:
    """Returns the statistics of every row and every column of a symmetric cross-view block, from one gradient pass."""
    if not (logit_map.uniform and logit_map.symmetric):
        return triton_statistics(block, logit_map), triton_statistics(block.mirrored(), logit_map)
    positive, rows, columns = _log_sum_exp(block, logit_map, mirrored=True)
    return _assemble(block, logit_map, positive, rows), _assemble(block.mirrored(), logit_map, positive, columns)


def _log_sum_exp(block: Block, logit_map: LogitMap, *, square: bool = False, mirrored: bool = False) -> tuple[Tensor, ...]:
    plan, roles, positives = plan_map(logit_map), plan_roles(block.roles), block.roles.positives
    reason = refusal(block, logit_map)
    if reason is not None or plan is None or roles is None or positives is None:
        raise ConfigError(f"engine='triton' cannot take this block: {reason}. Use engine='dense', or 'auto'.")
    from tempplug.engine.triton.autograd import Job, LogSumExp

    device = block.anchors.device
    scale = torch.ones((), device=device) if plan.scale is None else plan.scale.to(device, torch.float32)
    job = Job(plan, roles, positives.runs, block.precision, square, mirrored)
    sums: tuple[Tensor, ...] = LogSumExp.apply(  # type: ignore[no-untyped-call]
        block.anchors, block.candidates, scale, block.positive_similarity, job
    )
    return sums


def _assemble(block: Block, logit_map: LogitMap, positive: Tensor, negative_lse: Tensor) -> RowStatistics:
    """Returns the statistics, the positives' logit under autograd: a learned scale has its gradient there as well."""
    roles = block.roles
    if roles.positives is None:
        raise RuntimeError("a block of several positives was not refused.")
    if roles.without_negatives is not None:
        negative_lse = negative_lse.masked_fill(roles.without_negatives, -torch.inf)
    rows = torch.arange(roles.anchors, device=positive.device)
    positive_logit = logit_map.restrict(rows, roles.positive_columns, paired=True).logit(positive)
    return RowStatistics(
        positive_logit=positive_logit,
        positive_similarity=positive,
        positive_lse=positive_logit,
        negative_lse=negative_lse,
        positive_count=roles.positive_count,
        negative_count=roles.negative_count,
    )
