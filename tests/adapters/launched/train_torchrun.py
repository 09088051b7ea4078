"""Run by torchrun: one step of chosen cases, engines and precisions under DistributedDataParallel; saves what each process got.

And how large its largest tensor is in a call with more rows; two processes also take a step with kernels, under Triton's
interpreter (TRITON_INTERPRET=1), and make calls that one of them refuses, or that differ. Argument: the folder of the results.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from launched import differing, refused
from launched.largest import LAYOUTS, largest
from launched.pairs import (
    CASES,
    ENGINES,
    KERNEL_CASES,
    PRECISIONS,
    STEPS,
    Case,
    Encoder,
    call,
    create_loss,
    gradients,
    local,
    pairs,
    rows_of,
    save,
)
from torch.nn.parallel import DistributedDataParallel


def step(case: Case, engine: str, dtype: torch.dtype, sizes: tuple[int, ...], rank: int) -> dict[str, Any]:
    """Returns the loss averaged over processes, as logs have it, and what DistributedDataParallel left as gradients."""
    encoder, loss_fn = DistributedDataParallel(Encoder().to(dtype)), create_loss(case, engine, gather=True).to(dtype)
    learns = any(True for _ in loss_fn.parameters())
    wrapped = DistributedDataParallel(loss_fn) if learns else loss_fn
    loss = call(case, encoder, wrapped, local(pairs(sum(sizes)), rows_of(sizes, rank), dtype))
    loss.backward()
    averaged = loss.detach().clone()
    dist.all_reduce(averaged)
    return {"loss": averaged / len(sizes), "engine": loss_fn.record.engine, "gradients": gradients(encoder, loss_fn)}


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    results: dict[Any, Any] = {
        ("largest", processes, engine, layout): largest(engine, layout) for engine in ENGINES for layout in LAYOUTS
    }
    for group, name, engine, precision in STEPS:
        sizes = tuple(map(int, group.split(",")))
        if len(sizes) == processes:
            results[group, name, engine, precision] = step(CASES[name], engine, PRECISIONS[precision], sizes, rank)
    if processes == 2:
        results["kernels"] = {name: step(CASES[name], "triton", torch.float32, (4, 3), rank) for name in KERNEL_CASES}
        results["refused"] = refused.ends(rank)
        results["differing"] = differing.ends(rank)
    save(folder, rank, results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
