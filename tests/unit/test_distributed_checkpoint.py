"""Everything that a loss learns, counts and averages, saved and loaded by torch.distributed.checkpoint under FSDP."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from tempplug import ContrastiveLoss

# Two learned numbers, moving averages of examples and how far the training is, a counter of items, and of a floor.
LOSSES: dict[str, dict[str, Any]] = {
    "learned": {"strategy": "learnable", "objective": "sigmoid"},
    "averages": {"strategy": "individual:size=8", "objective": "dcl"},
    "progress": {"strategy": "schedule:period=3", "objective": "sogclr:size=8,gamma=0.4"},
    "counters": {"strategy": "macl:alpha=9,threshold=0.9", "negatives": "log-q:size=8"},
}


class Model(nn.Module):
    """An encoder and a loss."""

    def __init__(self, name: str, gather: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(6, 6)
        self.loss = ContrastiveLoss(layout="cross-view", gather=gather, **LOSSES[name])
        self.double()

    def forward(self, a: Tensor, b: Tensor, index: Tensor) -> Tensor:
        return self.loss(self.encoder(a), self.encoder(b), **self.loss.accepted(index=index))  # type: ignore[no-any-return]


def made(name: str, sharded: bool) -> tuple[Model, torch.optim.Optimizer]:
    model = Model(name, gather=sharded)
    if sharded:
        fully_shard(model)  # type: ignore[no-untyped-call]
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: Model, optimizer: torch.optim.Optimizer, steps: Iterable[int], rows: slice) -> list[Tensor]:
    """Returns the losses; how far the training is is said after each step, so that the next one depends on what was saved."""
    losses = []
    for step in steps:
        a, noise = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        loss = model(a[rows], (a + noise)[rows], torch.arange(8)[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.loss.set_length(3)
        model.loss.set_progress(epoch=step / 2)
        losses.append(loss.detach())
    return losses


def saved(model: Model, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    of_model, of_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)


def loaded(name: str, sharded: bool, folder: Path) -> tuple[Model, torch.optim.Optimizer]:
    model, optimizer = made(name, sharded)
    of_model, of_optimizer = get_state_dict(model, optimizer)
    state = {"model": of_model, "optimizer": of_optimizer}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return model, optimizer


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found: dict[str, Tensor] = {}
    rows = slice(4 * rank, 4 * rank + 4)
    for name in LOSSES:
        model, optimizer = made(name, sharded=True)
        model.loss.set_progress(epoch=0)
        train(model, optimizer, range(3), rows)
        saved(model, optimizer, Path(folder) / name)
        undisturbed = torch.stack(train(model, optimizer, range(3, 6), rows))
        resumed = torch.stack(train(*loaded(name, True, Path(folder) / name), range(3, 6), rows))
        assert torch.equal(resumed, undisturbed), name
        dist.all_reduce(resumed)
        found[name] = resumed / 2
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()  # they leave together: one that is left alone may abort
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:strategy 'macl'.*below its floor:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_a_training_goes_on_from_a_distributed_checkpoint_in_two_processes_and_in_one(tmp_path: Path) -> None:
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    for name in LOSSES:
        alone = torch.stack(train(*loaded(name, False, tmp_path / name), range(3, 6), slice(None)))
        torch.testing.assert_close(alone, found[name], rtol=1e-12, atol=1e-12, msg=name)
