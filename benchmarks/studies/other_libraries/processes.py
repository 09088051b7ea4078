"""Time, memory, bytes and exactness of a gathered loss by number of processes, and whether they agree with one process.

    torchrun --nproc-per-node 8 -m studies.other_libraries.processes --rows 4096 --dimension 1024 --output results.jsonl

``--gather ring`` measures the candidates that go round.

Process 0 appends one JSON line: the arguments, the world size, and of the slowest or largest process milliseconds, peak MiB and
MiB sent by a step (of a collective its share as a ring, (W - 1) times what a process gives or receives). ``error`` is the
largest difference of the gradient from that of one process with all rows, relative to its largest entry; it needs the memory of
all rows, and is left out with ``--no-check``.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tempplug

COLLECTIVES = ("all_gather_single", "all_gather_into_tensor", "reduce_scatter_single", "reduce_scatter_tensor")
"""Those that send rows: what a process gives to a gathering, and receives from a scattering, goes round the ring."""


def parse() -> argparse.Namespace:
    """Returns the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2048, help="rows of each view on each process (default: %(default)s)")
    parser.add_argument("--dimension", type=int, default=128, help="of the embeddings (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float64"), default="float32", help="of the embeddings")
    parser.add_argument("--strategy", default="learnable", help="spec string (default: %(default)s)")
    parser.add_argument("--layout", default="two-view", help="spec string (default: %(default)s)")
    parser.add_argument(
        "--gather", choices=("all", "ring"), default="all", help="candidates at once, or one process's at a time"
    )
    parser.add_argument("--steps", type=int, default=5, help="timed steps (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-check", action="store_true", help="do not compare with one process")
    parser.add_argument("--output", type=Path, default=Path("processes.jsonl"), help="file to append to (default: %(default)s)")
    return parser.parse_args()


def views(arguments: argparse.Namespace, rank: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the two views of a process, [B, D] each."""
    generator = torch.Generator().manual_seed(rank)
    shape, dtype = (2, arguments.rows, arguments.dimension), getattr(torch, arguments.dtype)
    first, noise = torch.randn(*shape, generator=generator, dtype=torch.float64)
    view_a, view_b = (each.to(device, dtype).requires_grad_() for each in (first, first + noise))
    return view_a, view_b


@contextmanager
def counting(sent: list[int]) -> Iterator[None]:
    """Appends the bytes that this process sends in each message of rows."""
    before = {name: getattr(dist, name) for name in (*COLLECTIVES, "batch_isend_irecv") if hasattr(dist, name)}

    def replacement(name: str, call: Any) -> Any:
        def noting(output: Tensor, given: Tensor, **options: Any) -> Any:
            part = given if name.startswith("all_gather") else output
            sent.append(part.nbytes * (dist.get_world_size() - 1))
            return call(output, given, **options)

        return noting

    def noting_sends(operations: list[dist.P2POp]) -> Any:
        sent.append(sum(each.tensor.nbytes for each in operations if each.op is dist.isend))
        return before["batch_isend_irecv"](operations)

    for name, call in before.items():
        setattr(dist, name, noting_sends if name == "batch_isend_irecv" else replacement(name, call))
    try:
        yield
    finally:
        for name, call in before.items():
            setattr(dist, name, call)


def peak(device: torch.device) -> float:
    """Returns the peak of this process's memory in MiB: of the device, or on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Measures, compares and writes."""
    arguments = parse()
    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    if arguments.device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    device = torch.device(arguments.device, torch.cuda.current_device() if arguments.device == "cuda" else 0)
    torch.set_num_threads(1)
    loss_fn = tempplug.ContrastiveLoss(
        arguments.strategy, layout=arguments.layout, gather=True if arguments.gather == "all" else "ring"
    ).to(device)
    view_a, view_b = views(arguments, rank, device)
    start, sent, times = peak(device), list[int](), []
    with counting(sent):
        for _ in range(arguments.steps):
            view_a.grad = view_b.grad = None
            dist.barrier()
            began = time.perf_counter()
            loss_fn(view_a, view_b).backward()  # type: ignore[no-untyped-call]
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - began))
    found = {
        "ms": sorted(times)[len(times) // 2],
        "peak_mib": peak(device) - start,
        "sent_mib": sum(sent) / arguments.steps / 2**20,
    }
    if not arguments.no_check:
        found["error"] = _error(arguments, rank, world, device, view_a, view_b)
    largest = torch.tensor(list(found.values()), dtype=torch.float64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    if rank == 0:
        given = {name: value for name, value in vars(arguments).items() if name not in ("output", "no_check")}
        line = json.dumps(
            {"world": world, **given, "torch": torch.__version__, **dict(zip(found, largest.tolist(), strict=True))}
        )
        with arguments.output.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads end


def _error(arguments: Any, rank: int, world: int, device: torch.device, view_a: Tensor, view_b: Tensor) -> float:
    """Returns the largest difference of this process's gradients from those of one process, relative to the largest entry."""
    alone = tempplug.ContrastiveLoss(arguments.strategy, layout=arguments.layout).to(device)
    everyone = [views(arguments, each, device) for each in range(world)]
    all_a, all_b = (torch.cat([each.detach() for each in view]).requires_grad_() for view in zip(*everyone, strict=True))
    alone(all_a, all_b).backward()  # type: ignore[no-untyped-call]
    own, errors = slice(rank * arguments.rows, (rank + 1) * arguments.rows), []
    for mine, all_rows in ((view_a, all_a), (view_b, all_b)):
        if mine.grad is None or all_rows.grad is None:
            raise RuntimeError("no gradient")
        wanted = world * all_rows.grad[own].double()  # a process has the gradient of its own mean, world times the whole's
        errors.append(float((mine.grad.double() - wanted).abs().max() / wanted.abs().max()))
    return max(errors)


if __name__ == "__main__":
    main()
