"""Run by torchrun: a few steps of every vision method, and whole trainings of some; saves what each process ended with.

Argument: the folder of the results. `train` and `train_all` without a process group are the same trainings in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from launched.pairs import rows_of, save
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from vision_method_toys import EMBEDDING, Toy, head, heads, views
from vision_train_toys import TinyBackbone, measured, run

from tempplug_adapters.vision import projection_heads, vision_method
from tempplug_adapters.vision.barlow_twins import BarlowTwins
from tempplug_adapters.vision.lightly import NTXentLoss
from tempplug_adapters.vision.moco import MoCo
from tempplug_adapters.vision.nnclr import NNCLR
from tempplug_adapters.vision.simclr import SimCLR
from tempplug_adapters.vision.simsiam import SimSiam
from tempplug_adapters.vision.vision_method import TwoViews

STEPS, ROWS = 3, 8
MACL = "macl:alpha=1.5,threshold=0.2"


class WithLoss(nn.Module):
    """A network beside a loss of lightly's signature."""

    def __init__(self, loss_fn: nn.Module) -> None:
        super().__init__()
        self.network = nn.Sequential(Toy(), head())
        self.loss_fn = loss_fn

    def forward(self, view_a: Tensor, view_b: Tensor, **given: Any) -> Tensor:
        with torch.no_grad():
            keys = self.network(view_b)
        loss: Tensor = self.loss_fn(self.network(view_a), keys)
        return loss


def moco(strategy: str, **options: Any) -> MoCo:
    return MoCo(Toy(), heads(2), strategy, embedding_dimension=EMBEDDING, queue_size=11, momentum=0.8, **options)


def nnclr(strategy: str, **options: Any) -> NNCLR:
    return NNCLR(Toy(), head(), head(EMBEDDING), strategy, embedding_dimension=EMBEDDING, queue_size=11, **options)


METHODS: dict[str, Callable[[], nn.Module]] = {
    "simclr": lambda: SimCLR(Toy(), heads(2), MACL, "reweighted", gather=True),
    "simclr-individual": lambda: SimCLR(Toy(), head(), "individual:size=8", gather=True),
    "simclr-amcl": lambda: SimCLR(Toy(), heads(2), f"amcl:dimension={EMBEDDING}", "dcl", gather=True),
    "moco": lambda: moco(MACL, gather=True),
    "moco-symmetric": lambda: moco("learnable", gather=True, symmetric=True),
    "moco-local": lambda: moco("fixed:temperature=0.2"),
    "nnclr": lambda: nnclr(MACL, gather=True),
    "simsiam": lambda: SimSiam(Toy(), heads(2), heads(2, EMBEDDING), f"amcl:dimension={EMBEDDING}"),
    "barlow-twins": lambda: BarlowTwins(Toy(), heads(2), gather=True),
    "barlow-twins-amcl": lambda: BarlowTwins(Toy(), head(), f"amcl:dimension={ROWS}", gather=True),
    "lightly": lambda: WithLoss(NTXentLoss(MACL, (11, EMBEDDING), gather_distributed=True)),
}


def rows_of_processes(name: str) -> tuple[int, int]:
    """Means over the rows of each process make the mean over all where the loss knows of the others, or all have as many."""
    return (4, 4) if name in ("moco-local", "simsiam") else (5, 3)


def train(name: str, sizes: tuple[int, ...], rank: int) -> dict[str, Any]:
    """Returns losses averaged over processes, temperatures and the state at the end; one size is one process."""
    # Of each process its own, so that DistributedDataParallel has something to make equal.
    torch.manual_seed(rank)
    module = METHODS[name]().double()
    wrapped = DistributedDataParallel(module) if len(sizes) > 1 else module
    optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=0.05)
    losses, temperatures = [], []
    for step in range(STEPS):
        rows = rows_of(sizes, rank)
        view_a, view_b = (view[rows] for view in views(ROWS, seed=step))
        loss = wrapped(view_a, view_b, index=torch.arange(ROWS)[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged = loss.detach().clone()
        if len(sizes) > 1:
            dist.all_reduce(averaged)
        losses.append(averaged.item() / len(sizes))
        contrastive = getattr(module.loss_fn, "contrastive_loss", module.loss_fn)
        if contrastive is not None and contrastive.strategy.name == "macl":
            temperatures.append(contrastive.record.temperature_mean.item())
    return {"losses": losses, "temperatures": temperatures, "state": module.state_dict()}


# Method, strategy, settings. With `plain` backbones and heads nothing is random or normalised over the batch: several processes
# compute what one does.
TRAININGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "simclr": ("simclr", "learnable", {"augmentation": "simclr"}),
    "plain-simclr": ("simclr", MACL, {}),
    "plain-moco": ("moco", "learnable", {"heads": 2}),
    "plain-barlow-twins": ("barlow-twins", "amcl", {"heads": 1}),
    "plain-lars": ("supcon", "head-tail", {"optimizer": "lars", "warmup_steps": 0.25}),
}


def plain_head(inputs: int, hidden: int, outputs: int, **options: Any) -> nn.Module:
    """A projection head without batch normalisation, which would see the batch of its own process only."""
    return nn.Linear(inputs, outputs)


@contextmanager
def watched() -> Iterator[list[nn.Module]]:
    """Gives the modules that are made while it lasts."""
    modules: list[nn.Module] = []
    original = TwoViews.__init__

    def init(self: TwoViews, *given: Any) -> None:
        original(self, *given)
        modules.append(self)

    TwoViews.__init__ = init  # type: ignore[method-assign]
    try:
        yield modules
    finally:
        TwoViews.__init__ = original  # type: ignore[method-assign]


def train_all(folder: Path, names: list[str], world: int = 1) -> dict[str, Any]:
    """Returns, by name, results and weights of this process."""
    create, usual, found = vision_method.create_backbone, projection_heads.ProjectionHead, {}
    for name in names:
        method, strategy, settings = TRAININGS[name]
        plain = name.startswith("plain")
        vision_method.create_backbone = lambda _, plain=plain, **given: TinyBackbone(batch_norm=not plain)  # type: ignore[assignment, misc, return-value]
        projection_heads.ProjectionHead = plain_head if plain else usual  # type: ignore[assignment, misc]
        sizes = {"per_device_train_batch_size": ROWS // world, "num_train_epochs": 2}
        given = {"augmentation": "none", "channels_last": False, **sizes, **settings}
        # Rounding that two processes do otherwise grows from step to step, where batches are normalised or losses near zero.
        torch.set_default_dtype(torch.float64 if plain else torch.float32)
        with watched() as modules:
            results = run(folder / name, method, strategy, data=measured(), **given)
        state = {key: value for key, value in modules[0].state_dict().items() if isinstance(value, Tensor)}
        found[name] = {"results": results, "state": state}
        projection_heads.ProjectionHead = usual  # type: ignore[misc]
    vision_method.create_backbone = create
    torch.set_default_dtype(torch.float32)
    return found


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ended: dict[str, Any] = {name: train(name, rows_of_processes(name), rank) for name in METHODS}
    ended["trainings"] = train_all(Path(folder) / "runs", list(TRAININGS), dist.get_world_size())
    try:
        run(Path(folder) / "refused", sync_batch_norm=True)
    except ValueError as error:
        ended["refused"] = str(error)
    save(folder, rank, ended)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
