"""Gathering over real process groups (gloo): two and three processes must equal one, for loss and gradient."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from tempplug import ContrastiveLoss

pytestmark = pytest.mark.slow

DIMENSION = 6
CASES = {
    "two-view": ("two-view", "fixed", "infonce", {}),
    "cross-view": ("cross-view", "dystress", "infonce", {}),
    "symmetric": ("cross-view", "macl:alpha=1.5,threshold=0.2", "dcl", {"symmetric": True}),
    "macl": ("two-view", "macl:base_temperature=0.05,alpha=2,threshold=0.1", "reweighted", {}),
    "dclw": ("cross-view", "learnable", "dclw", {}),
    "labels": ("labels", "macl", "infonce", {}),
    "labels-one-view": ("labels", "macl", "infonce", {}),
    "queue": ("queue", "macl", "infonce", {}),
    "dual": ("two-view", "learnable", "dual-temperature", {}),
    "hard": ("cross-view", "temperature-free", "infonce", {}),
    "amcl": ("two-view", "amcl:dimension=6", "dcl", {}),
    "amcl-top": ("cross-view", "amcl:dimension=6", "amcl-top:top_k=2,beta=0.1", {"symmetric": True}),
    "individual": ("two-view", "individual:size=20", "dcl", {}),
}


def data(rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(rows, DIMENSION, generator=generator, dtype=torch.float64)
    return {
        "a": a,
        "b": a + torch.randn(rows, DIMENSION, generator=generator, dtype=torch.float64),
        "hard": torch.randn(rows, DIMENSION, generator=generator, dtype=torch.float64),
        "queue": torch.randn(7, DIMENSION, generator=generator, dtype=torch.float64),
        "labels": torch.arange(rows) % 3,
    }


def step(case: str, rows: slice, total: int, gather: bool) -> tuple[Tensor, nn.Module, ContrastiveLoss]:
    """One forward and backward of an encoder on some rows; the gradients of both are left on their parameters."""
    layout, strategy, objective, options = CASES[case]
    everything = data(total)
    torch.manual_seed(0)
    encoder = nn.Linear(DIMENSION, DIMENSION, dtype=torch.float64)
    loss_fn = ContrastiveLoss(strategy, objective, layout, gather=gather, **options).double()
    views = [encoder(everything[name][rows]) for name in (("a",) if case == "labels-one-view" else ("a", "b"))]
    given: dict[str, Any] = {}
    if case.startswith("labels"):
        given["labels"] = everything["labels"][rows]
    if case == "individual":
        given["index"] = torch.arange(0, 2 * total, 2)[rows]
    if case == "hard":
        given["hard_negatives"] = encoder(everything["hard"][rows])
    if case == "queue":
        given["queue"] = everything["queue"]
    loss = loss_fn(*views, **given)
    loss.backward()
    return loss.detach(), encoder, loss_fn


def outcome(loss: Tensor, encoder: nn.Module, loss_fn: ContrastiveLoss) -> list[Tensor]:
    """Returns what must agree: the loss, all gradients, and the temperatures that a strategy keeps."""
    gradients = [parameter.grad for module in (encoder, loss_fn) for parameter in module.parameters()]
    return [loss, *gradients, *(kept for kept in loss_fn.buffers() if kept.is_floating_point())]


def worker(rank: int, port: int, sizes: tuple[int, ...], folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=len(sizes))
    start = sum(sizes[:rank])
    results = {}
    for case in CASES:
        averaged = outcome(*step(case, slice(start, start + sizes[rank]), sum(sizes), gather=True))
        for value in averaged:
            dist.all_reduce(value)
            value /= len(sizes)
        results[case] = averaged
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (2, 4, 3)], ids=str)
def test_processes_together_equal_one(sizes: tuple[int, ...], tmp_path: Path) -> None:
    mp.spawn(worker, (free_port(), sizes, str(tmp_path)), nprocs=len(sizes))
    results = torch.load(tmp_path / "results.pt")
    for case in CASES:
        single = outcome(*step(case, slice(None), sum(sizes), gather=False))
        assert len(single) == len(results[case])
        for ours, expected in zip(results[case], single, strict=True):
            assert torch.allclose(ours, expected, rtol=1e-11, atol=1e-13), case


def test_without_gathering_the_loss_is_another(tmp_path: Path) -> None:
    together, _, _ = step("macl", slice(None), 8, gather=False)
    halves = [step("macl", rows, 8, gather=False)[0] for rows in (slice(0, 4), slice(4, 8))]
    assert not torch.allclose(torch.stack(halves).mean(), together, rtol=1e-3)


def test_gather_changes_nothing_without_a_process_group() -> None:
    alone, _, _ = step("macl", slice(None), 8, gather=False)
    gathering, _, _ = step("macl", slice(None), 8, gather=True)
    assert torch.equal(alone, gathering)
