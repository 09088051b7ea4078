"""Gathering over real process groups (gloo): two and three processes must equal one, for loss and gradient."""

from __future__ import annotations

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
    "sigmoid": ("cross-view", "learnable:initial_temperature=0.1,max_scale=none", "sigmoid:relative_bias=true", {}),
    "labels-sigmoid": ("labels", "learnable", "sigmoid", {}),
    "individual": ("two-view", "individual:size=20", "dcl", {}),
    "sogclr": ("cross-view", "learnable", "sogclr:size=20,gamma=0.4,rho=1", {"symmetric": True}),
    "sogclr-shared": ("two-view", "fixed", "sogclr:size=20,per_view=false,relative=false", {}),
}


def data(rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    a, b, hard, queue = torch.randn(4, max(rows, 7), DIMENSION, generator=generator, dtype=torch.float64)
    return {"a": a[:rows], "b": (a + b)[:rows], "hard": hard[:rows], "queue": queue[:7], "labels": torch.arange(rows) % 3}


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
    if case.startswith(("individual", "sogclr")):
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


def worker(rank: int, sizes: tuple[int, ...], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=len(sizes))
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
    dist.barrier()  # they leave together: one that is left alone may abort
    dist.destroy_process_group()


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (2, 4, 3)], ids=str)
def test_processes_together_equal_one(sizes: tuple[int, ...], tmp_path: Path) -> None:
    mp.spawn(worker, (sizes, str(tmp_path)), nprocs=len(sizes))
    results = torch.load(tmp_path / "results.pt")
    for case in CASES:
        single = outcome(*step(case, slice(None), sum(sizes), gather=False))
        assert len(single) == len(results[case])
        for ours, expected in zip(results[case], single, strict=True):
            assert torch.allclose(ours, expected, rtol=1e-11, atol=1e-13), case


def test_without_gathering_the_loss_is_another_and_without_a_process_group_it_is_the_same() -> None:
    together, _, _ = step("macl", slice(None), 8, gather=False)
    halves = [step("macl", rows, 8, gather=False)[0] for rows in (slice(0, 4), slice(4, 8))]
    assert not torch.allclose(torch.stack(halves).mean(), together, rtol=1e-3)
    assert torch.equal(together, step("macl", slice(None), 8, gather=True)[0])
