"""`cached_backward` in Lightning's manual optimisation, in one process and in two: the weights of whole batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tempplug
from tempplug_adapters.lightning import TemperatureCallback, optimizer_groups

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(many workers|logging interval|sampler)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]
BATCH, STEPS = 8, 3


class Pairs(pl.LightningModule):
    """Pairs of points to a loss with a learned temperature; embeds parts of ``size`` rows where it is given."""

    def __init__(self, size: int | None, gather: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.loss_fn = tempplug.ContrastiveLoss("learnable", layout="cross-view", gather=gather)
        self.size, self.automatic_optimization = size, size is None
        self.double()

    def forward(self, rows: Tensor) -> Tensor:
        embeddings: Tensor = self.encoder(rows)
        return embeddings

    def training_step(self, batch: list[Tensor], number: int) -> Tensor | None:
        view_a, view_b = batch
        if self.size is None:
            return self.loss_fn(self(view_a), self(view_b))
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        model: Any = self.trainer.strategy.model
        tempplug.cached_backward(self.loss_fn, model, view_a, view_b, mini_batch_size=self.size)
        optimizer.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(optimizer_groups(self), lr=0.3)


def loader() -> DataLoader[Any]:
    points = torch.randn(2, BATCH * STEPS, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return DataLoader(TensorDataset(points[0], points[0] + 0.5 * points[1]), batch_size=BATCH)


def fit(module: Pairs, folder: Path, **more: Any) -> dict[str, Tensor]:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"accelerator": "cpu", "default_root_dir": folder, "max_epochs": 1, "callbacks": [TemperatureCallback()]}
    batches = more.pop("batches", None) or loader()
    pl.Trainer(**{**options, **quiet, **more}).fit(module, batches)
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def test_manual_optimisation_in_parts_ends_with_the_weights_of_whole_batches(tmp_path: Path) -> None:
    """The learned temperature is one of them."""
    whole = fit(Pairs(None), tmp_path)
    start = Pairs(None).state_dict()
    for size in (3, BATCH):
        found = fit(Pairs(size), tmp_path)
        for name, value in whole.items():
            torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)
    changed = [name for name, value in whole.items() if not torch.equal(value, start[name])]
    assert any("log_scale" in name for name in changed)
    assert any("encoder" in name for name in changed)


class Halves(Pairs):
    """The share of a process of every batch; counts the numbers that are sent."""

    def on_train_start(self) -> None:
        self.sent: list[int] = []

        def hook(state: Any, bucket: Any) -> Any:
            self.sent.append(bucket.buffer().numel())
            reduced = dist.all_reduce(bucket.buffer() / 2, async_op=True)
            return reduced.get_future().then(lambda future: future.value()[0])

        hook.__annotations__.clear()  # torch compares them, and these are strings
        model: Any = self.trainer.strategy.model
        model.register_comm_hook(None, hook)

    def training_step(self, batch: list[Tensor], number: int) -> Tensor | None:
        half = slice(BATCH // 2 * self.global_rank, BATCH // 2 * (self.global_rank + 1))
        return super().training_step([view[half] for view in batch], number)

    def on_train_end(self) -> None:
        numbers = sum(parameter.numel() for parameter in self.parameters())
        assert sum(self.sent) == STEPS * numbers, "each number is sent once a step"
        torch.save(self.state_dict(), Path(self.trainer.default_root_dir) / f"{self.global_rank}.pt")


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(tmp_path: Path) -> None:
    """Each gradient is sent once a step."""
    strategy: Any = DDPStrategy(start_method="spawn", process_group_backend="gloo")
    more = {"strategy": strategy, "devices": 2, "use_distributed_sampler": False}
    fit(Halves(2, gather=True), tmp_path, **more)
    whole = fit(Pairs(None), tmp_path)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        for name, value in whole.items():
            torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)
