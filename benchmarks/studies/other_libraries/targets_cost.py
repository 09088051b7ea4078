"""Memory and time of targets beside the same loss in plain PyTorch.

    python -m studies.other_libraries.targets_cost --rows 4096 --rounds 15

The loss is the cross-entropy of a teacher's softmax, forward and backward. Memory is measured in a process for each way, beyond
embeddings and targets. Steps of both ways take turns in one process, with a matrix product between them, as in a training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import normalize

import tempplug
from studies.other_libraries.turns import in_turn
from tempplug.targets import soft_targets
from tempplug_benchmarks.run.store import hardware, versions
from tempplug_benchmarks.speed.measure import peak_growth

WIDTH, TEMPERATURE = 128, 0.05


def data(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns two views [rows, WIDTH] that want gradients, and targets [rows, rows] from noisy similarities of both."""
    random = torch.Generator().manual_seed(0)
    first, noise = (torch.randn(rows, WIDTH, generator=random) for _ in range(2))
    second = first + noise
    targets = soft_targets(normalize(first) @ normalize(second).T, TEMPERATURE)
    return first.requires_grad_(), second.requires_grad_(), targets


def plain(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """Returns the loss as one writes it in PyTorch."""
    logits = normalize(first) @ normalize(second).T / TEMPERATURE
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def plugged() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Returns the same loss by tempplug."""
    loss_fn = tempplug.ContrastiveLoss(TEMPERATURE, layout="cross-view")
    return lambda first, second, targets: loss_fn(first, second, targets=targets)


WAYS = {"plain": lambda: plain, "tempplug": plugged}


def step(loss_of: Callable[[Tensor, Tensor, Tensor], Tensor], *inputs: Tensor) -> float:
    """Returns the loss after the backward pass."""
    loss = loss_of(*inputs)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def memory(way: str, rows: int) -> float:
    """Returns peak memory of a step beyond its inputs, MiB, in a process that was not used before."""
    loss_of, inputs = WAYS[way](), data(rows)
    step(loss_of, *data(8))

    def measured() -> None:
        step(loss_of, *inputs)

    return peak_growth(measured, "cpu")


def seconds(loss_of: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: tuple[Tensor, ...], turn: int) -> float:
    """Returns the CPU seconds of a step, after other work."""
    torch.mm(inputs[2][:512], inputs[2].T[:, :512])
    began = time.process_time()
    step(loss_of, *inputs)
    return time.process_time() - began


def main() -> None:
    """Prints the measurements as JSON."""
    parser = argparse.ArgumentParser(prog="python -m studies.other_libraries.targets_cost", description=__doc__)
    parser.add_argument("--rows", type=int, default=4096, help="of each view (default: 4096)")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each way (default: 15)")
    options = parser.parse_args()
    measured: dict[str, dict[str, float]] = {}
    for way in WAYS:
        with get_context("spawn").Pool(1) as alone:
            measured[way] = {"peak_mebibytes": alone.apply(memory, (way, options.rows))}
    inputs = data(options.rows)
    losses = {way: step(make(), *inputs) for way, make in WAYS.items()}
    times = in_turn({way: partial(seconds, make(), inputs) for way, make in WAYS.items()}, options.rounds)
    ratio = median(ours / theirs for ours, theirs in zip(times["tempplug"], times["plain"], strict=True))
    for way, values in times.items():
        measured[way] |= {"cpu_seconds": median(values), "loss": losses[way]}
    about = {"rows": options.rows, "rounds": options.rounds, "hardware": hardware(), "versions": versions(())}
    print(json.dumps({**about, "ratio": ratio, "ways": measured}))


if __name__ == "__main__":
    main()
