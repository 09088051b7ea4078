"""The loss inside a model that FSDP shards, both generations, over two processes: the training of one process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from tempplug import ContrastiveLoss
from tempplug.strategies.learnable import bounded

# The second one's optimizer pushes it against its bound at every step.
SPECS = ["learnable", "learnable:initial_temperature=0.5,max_scale=2.05", "amcl:dimension=6"]
KINDS = ["fully_shard", "FullyShardedDataParallel"]


class Model(nn.Module):
    """An encoder and a loss."""

    def __init__(self, spec: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(6, 6)
        self.loss = ContrastiveLoss(spec, gather=True)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.loss(self.encoder(a), self.encoder(b))  # type: ignore[no-any-return]


def train(model: nn.Module, rows: slice) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(3)
    a, noise = torch.randn(2, 8, 6, generator=generator)
    losses = []
    for _ in range(5):
        loss = model(a[rows], (a + noise)[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    for spec in SPECS:
        for kind in KINDS:
            model: Any = Model(spec)
            if kind == "fully_shard":
                fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
            else:
                model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
            losses = torch.stack(train(model, slice(4 * rank, 4 * rank + 4)))
            dist.all_reduce(losses)
            found[f"{spec} {kind}"] = losses / 2
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()  # they leave together: one that is left alone may abort
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_sharded_training_is_that_of_one_process(tmp_path: Path) -> None:
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    for spec in SPECS:
        expected = torch.stack(train(Model(spec), slice(None)))
        for kind in KINDS:
            torch.testing.assert_close(found[f"{spec} {kind}"], expected, rtol=1e-5, atol=1e-5, msg=f"{spec} {kind}")


def test_a_part_of_a_larger_tensor_is_bounded_without_being_written_to() -> None:
    """As FSDP has it, whose copy of the parameter is gone after the step; a gradient that leads back passes."""
    strategy = ContrastiveLoss("learnable:initial_temperature=0.5,max_scale=4").strategy
    flat = torch.tensor([0.0, math.log(5.0), 0.0])
    strategy.log_scale = nn.Parameter(flat[1:2])
    within = bounded(strategy.log_scale, strategy.max_scale)
    assert within.item() == pytest.approx(math.log(4.0))
    assert strategy.log_scale.item() == pytest.approx(math.log(5.0))
    for upstream, passed in ((-1.0, 0.0), (1.0, 1.0)):
        (gradient,) = torch.autograd.grad(within, strategy.log_scale, torch.tensor([upstream]), retain_graph=True)
        assert gradient.item() == passed
