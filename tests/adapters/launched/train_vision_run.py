"""Run by torchrun: whole vision trainings on several processes, from `train_vision`; saves what each process ended with.

Argument: the folder of the results. `train` without a process group is the same training in one process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from launched.pairs import save
from torch import Tensor, nn
from vision_train_toys import TinyBackbone, images, small

from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.vision import methods, processes, train

# As many images as a batch holds: an epoch is one step, and its temperature that of the step.
ROWS = 8
MACL = "macl:alpha=1.5,threshold=0.2"
CASES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "simclr": ("simclr", MACL, {}),
    "simclr-individual": ("simclr", "individual", {}),
    "moco": ("moco", MACL, {"heads": 2}),
    "nnclr": ("nnclr", "learnable", {}),
    "barlow-twins": ("barlow-twins", "amcl", {}),
    "lars": ("simclr", "head-tail", {"optimizer": "lars", "warmup_epochs": 1}),
}
# With random views and batch normalisation, each process its own: only what resuming needs to be told.
RESUMED = ("moco", "learnable", {"augmentation": "simclr"})


class Mirror(nn.Module):
    """Views without chance: the images as they are, and mirrored."""

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = pairs.chunk(2)
        return torch.cat([first, second.flip(3)])


def plain(inputs: int, *, hidden_dimension: int = 0, out_dimension: int = 8, layers: int = 0) -> nn.Module:
    """A projection head without batch normalisation, which would see the batch of its own process only."""
    return nn.Linear(inputs, out_dimension)


def run(case: tuple[str, str | None, dict[str, Any]], folder: Path, **more: Any) -> dict[str, Any]:
    """Returns results and state at the end of a training."""
    method, strategy, changes = case
    made: list[nn.Module] = []
    original = train.create_optimizer

    def watch(module: nn.Module, settings: Any) -> Any:
        made.append(module)
        return original(module, settings)  # type: ignore[arg-type]

    train.create_optimizer = watch  # type: ignore[assignment]
    try:
        settings = small(method, epochs=4, batch_size=ROWS, **changes)
        data, test = images(more.pop("count", ROWS)), images(9, seed=1)
        flags = TemperatureArguments(strategy, [], None)
        results = train.train_vision(data, method, flags, settings, folder, test=test, save_epochs=1, **more)
    finally:
        train.create_optimizer = original
    return {"results": results, "state": made[0].state_dict()}


def without_chance(folder: Path) -> dict[str, Any]:
    """Trains every case in double precision, with views without chance and nothing normalised over the batch."""
    kept = {name: getattr(methods, name) for name in ("create_backbone", *HEADS)}
    create, method = train.create_augmentation, train.create_method
    methods.create_backbone = lambda name, **options: TinyBackbone(batch_norm=False)  # type: ignore[assignment, return-value]
    train.create_augmentation = lambda recipe, size: Mirror()  # type: ignore[assignment]
    train.create_method = lambda *given, **named: method(*given, **named).double()  # type: ignore[assignment]
    for name in HEADS:
        setattr(methods, name, plain)
    try:
        return {name: run(case, folder / name) for name, case in CASES.items()}
    finally:
        train.create_augmentation, train.create_method = create, method
        for name, value in kept.items():
            setattr(methods, name, value)


HEADS = ("simclr_projection_head", "nnclr_projection_head", "nnclr_prediction_head", "barlow_twins_projection_head")


def resumed(folder: Path) -> dict[str, Any]:
    """Trains in one go, and again with a stop after two epochs."""
    kept = methods.create_backbone
    methods.create_backbone = lambda name, **options: TinyBackbone()  # type: ignore[assignment, return-value]

    class Stopped(Exception):
        pass

    def stop(done: int, loss: float) -> None:
        if done == 2:
            raise Stopped

    try:
        whole = run(RESUMED, folder / "whole", count=3 * ROWS)
        try:
            run(RESUMED, folder / "part", count=3 * ROWS, progress=stop)
        except Stopped:
            torch.manual_seed(99)
        part = run(RESUMED, folder / "part", count=3 * ROWS, resume_from_checkpoint="auto")
        return {"whole": whole, "part": part}
    finally:
        methods.create_backbone = kept


def refused(folder: Path) -> str:
    """Returns what a process says about synchronised batch normalisation without a GPU."""
    try:
        run(("simclr", None, {"sync_batch_norm": True}), folder)
    except ValueError as error:
        return str(error)
    return "nothing"


def main(name: str) -> None:
    folder = Path(name)
    with processes.process_group(torch.device("cpu")) as device:
        rank = processes.rank()
        ended: dict[str, Any] = {"device": str(device), "world": processes.world()}
        ended["cases"] = without_chance(folder / "runs")
        ended["resumed"] = resumed(folder / "resumed")
        ended["refused"] = refused(folder / "refused")
    save(folder, rank, ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
