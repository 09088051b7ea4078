"""Run by torchrun with TRITON_INTERPRET=1: one step of the cases that have kernels; saves what each process got.

Arguments: the folder of the results, and the rows of each process, such as ``4,3``.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from launched.pairs import CASES, KERNEL_CASES, save
from launched.train_torchrun import step


def main(folder: str, group: str) -> None:
    dist.init_process_group("gloo")
    rank, sizes = dist.get_rank(), tuple(map(int, group.split(",")))
    save(folder, rank, {name: step(CASES[name], "triton", torch.float32, sizes, rank) for name in KERNEL_CASES})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
