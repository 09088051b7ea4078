"""Run by torchrun: one step of every case, engine and precision under DistributedDataParallel; saves what each process got.

And how large its largest tensor is in a call with more rows; two processes also take a step with kernels, under Triton's
interpreter (TRITON_INTERPRET=1), and train with the Hugging Face Trainer.

Arguments: the folder of the results, then groups of rows for each process, such as ``4,3``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from launched import train_trainer
from launched.largest import LAYOUTS, largest
from launched.pairs import (
    CASES,
    ENGINES,
    KERNEL_CASES,
    PRECISIONS,
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


def main(folder: str, *groups: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    results: dict[Any, Any] = {
        ("largest", dist.get_world_size(), engine, layout): largest(engine, layout) for engine in ENGINES for layout in LAYOUTS
    }
    for group in groups:
        sizes = tuple(map(int, group.split(",")))
        for name, case in CASES.items():
            for engine in ENGINES:
                for precision, dtype in PRECISIONS.items():
                    results[group, name, engine, precision] = step(case, engine, dtype, sizes, rank)
    if dist.get_world_size() == 2:
        results["kernels"] = {name: step(CASES[name], "triton", torch.float32, (4, 3), rank) for name in KERNEL_CASES}
        results["trainer"] = {name: train_trainer.train(name, 2, Path(folder)) for name in train_trainer.STRATEGIES}
    save(folder, rank, results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
