"""Frameworks with tensor parallelism: losses contrast the processes that hold different data, and no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import ParallelismConfig
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from tempplug import ContrastiveLoss
from tempplug_adapters.data_parallel import use_accelerate, use_mesh

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


def batch(half: slice = slice(None)) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    a, b = torch.randn(2, 8, 6, dtype=torch.float64)
    return a[half], b[half]


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=4)
    both = ParallelismConfig(dp_shard_size=2, tp_size=2)
    accelerate: Any = SimpleNamespace(parallelism_config=both, torch_device_mesh=both.get_device_mesh("cpu"))
    alone = ParallelismConfig(tp_size=4)
    one_replica: Any = SimpleNamespace(parallelism_config=alone, torch_device_mesh=alone.get_device_mesh("cpu"))
    lightning = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data_parallel", "tensor_parallel"))
    half = slice(4 * (rank // 2), 4 * (rank // 2) + 4)
    found = {}
    for name, rows in (("accelerate", half), ("lightning", half), ("one replica", slice(None)), ("given", half)):
        group = lightning["data_parallel"] if name == "given" else None
        model = nn.Sequential(ContrastiveLoss("macl", gather=True, group=group))
        given = model[0].group
        if name == "lightning":
            use_mesh(model, lightning, "data_parallel")
        else:
            use_accelerate(model, one_replica if name == "one replica" else accelerate)
        assert name != "given" or model[0].group is given
        loss = model[0](*batch(rows))
        dist.all_reduce(loss)
        found[name] = loss / 4
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_losses_contrast_the_data_parallel_processes_of_a_framework(tmp_path: Path) -> None:
    mp.spawn(worker, (str(tmp_path),), nprocs=4)
    expected = ContrastiveLoss("macl")(*batch())
    for name, found in torch.load(tmp_path / "found.pt").items():
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13, msg=name)


def test_without_other_parallelism_all_processes_are_contrasted() -> None:
    loss_fn = ContrastiveLoss(gather=True)
    for config in (None, SimpleNamespace(non_data_parallel_size=1)):
        use_accelerate(loss_fn, SimpleNamespace(parallelism_config=config))
    use_mesh(loss_fn, None, "data_parallel")
    assert loss_fn.group is None
    assert loss_fn.gather
