"""Compiles the Triton engine's kernels for sm_90 on a machine without a GPU: JSON calls on stdin, their kernels on stdout.

The engine's own host code runs, on tensors of the CPU, with a driver that names a device and never launches: what is compiled
is what would have been launched, with the same tiles and specialisations.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]

from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import LogitMap, LogOddsMap, ProfileMap, ScaleMap

PLAN: Any = import_module("tempplug.engine.triton.plan")
PASSES: Any = import_module("tempplug.engine.triton.passes")
AUTOGRAD: Any = import_module("tempplug.engine.triton.autograd")


class Device:
    """A driver that knows what to compile for and has nothing to launch on."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def usage(kernel: Any) -> dict[str, Any]:
    """Registers a thread, bytes spilled and shared memory of a compiled kernel, and whether it uses Hopper's matrix units."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump names no registers: {text}")
    return {
        "registers": int(found[1]),
        "spilled": int(found[2]),
        "shared": kernel.metadata.shared,
        "wgmma": "wgmma.mma_async" in kernel.asm["ptx"],
    }


def logit_map(name: str) -> LogitMap:
    if name == "scale":
        return ScaleMap(torch.tensor(10.0))
    if name == "per-anchor":
        return ScaleMap(torch.full((64,), 10.0))
    if name == "log-odds":
        return LogOddsMap(1e-4)
    return ProfileMap("shifted", 0.1, 0.2, shift=0.2, detach=False) if name == "shifted" else ProfileMap("cosine", 0.1, 0.2)


def kernels(map: str, precision: str, dimension: int, block: str, roomy: bool = True) -> dict[str, Any]:
    """The kernels of a forward and backward pass over a block: ``square``, ``cross`` or ``mirrored``."""
    seen: dict[str, Any] = {}

    def compile_only(kernel: Any, grid: Any, tile: Any, tensors: dict[str, Tensor], **arguments: Any) -> None:
        name = kernel.fn.__name__ + ("_swapped" if arguments.get("SWAPPED") else "")
        seen[name] = usage(kernel.run(grid=grid, warmup=True, **tensors, **arguments, **tile.options()))

    PASSES._launch = compile_only
    # As on CUDA; off it bfloat16 is replaced.
    PLAN.choose_tiles = lambda precision, device: PLAN.Tiles(precision, roomy)
    positives = Pairing(((0, 32, 32), (32, 64, -32)))
    roles = PairRoles(anchors=64, candidates=64, device=torch.device("cpu"), positives=positives, square=True)
    plan, numbers = PLAN.plan_map(logit_map(map)), PLAN.plan_roles(roles)
    if plan is None or numbers is None:
        raise RuntimeError("the block was refused.")
    scale = torch.ones(()) if plan.scale is None else plan.scale
    job = AUTOGRAD.Job(
        replace(plan, scale=scale if map in ("scale", "per-anchor") else None),
        numbers,
        positives.runs,
        getattr(torch, precision),
        block == "square",
        block == "mirrored",
    )
    anchors = torch.zeros(64, dimension, requires_grad=True)
    candidates = anchors if block == "square" else torch.zeros(64, dimension, requires_grad=True)
    found = AUTOGRAD.LogSumExp.apply(anchors, candidates, scale, torch.zeros(64), job)
    sum(each.sum() for each in found).backward()
    return seen


def main() -> None:
    """Runs the calls of stdin, each the arguments of `kernels`."""
    triton.runtime.driver.set_active(Device())
    json.dump([kernels(*arguments) for arguments in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
