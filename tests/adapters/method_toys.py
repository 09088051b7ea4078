"""A method as small as it can be: points, two noisy views of each, a linear encoder with dropout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tempplug.errors import DataError
from tempplug.options import Choice, Number, Text
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.batches import BatchOrder, seed_of
from tempplug_adapters.training.method import Method, Restored, Run, Source, load_weights
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.optimizer import Treatment, create_optimizer, parameter_groups
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around
from tempplug_adapters.training.train import train

_LOSS = LossRecipe(temperatures=around(0.3), objectives={"macl": "reweighted"})


@dataclass(frozen=True, kw_only=True)
class ToyRecipe(Recipe):
    loss: LossRecipe = _LOSS
    running: ClassVar[Mapping[str, Any]] = {"save_steps": 2}

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the points")] = 3
    per_device_train_batch_size: Annotated[int | None, Number(at_least=2, integer=True, optional=True, help="points")] = 8
    noise: Annotated[float, Number(at_least=0, help="of views")] = 0.1
    dropout: Annotated[float, Number(at_least=0, below=1, help="in the head")] = 0.2
    kind: Annotated[str, Choice(("plain", "broken"), help="of points")] = "plain"
    note: Annotated[str | None, Text(optional=True, help="of no consequence")] = None


METHOD = MethodInfo(
    name="toy",
    summary="Train on points.",
    target="method_toys:ToyMethod",
    recipes={"paper": ToyRecipe(), "long": ToyRecipe(num_train_epochs=30)},
    datasets="points",
)


class Points:
    def __init__(self, count: int = 20) -> None:
        self.x = torch.randn(count, 6, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return len(self.x)


class ToyModule(nn.Module):
    def __init__(self, loss_fn: Any, dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(4, 4))
        self.loss_fn = loss_fn

    def forward(self, view_a: Tensor, view_b: Tensor, index: Tensor) -> Tensor:
        loss: Tensor = self.loss_fn(
            self.head(self.encoder(view_a)), self.head(self.encoder(view_b)), **self.loss_fn.accepted(index=index)
        )
        return loss


class ToyMethod(Method[ToyRecipe, Points]):
    def load(self, recipe: ToyRecipe, source: Source) -> Points:
        if source.dataset != "points":
            raise DataError(f"no data set '{source.dataset}'.")
        return Points()

    def known(self, recipe: ToyRecipe, data: Points) -> dict[str, Any]:
        return {"size": len(data), "dimension": 4}

    def build(self, recipe: ToyRecipe, data: Points, loss: Any) -> ToyModule:
        return ToyModule(loss, recipe.dropout)

    def treatment(self, recipe: ToyRecipe, name: str, parameter: nn.Parameter) -> Treatment:
        return Treatment(decays=parameter.ndim > 1, constant=name.startswith("head"))

    def collate(self, recipe: ToyRecipe, data: Points, index: Tensor) -> dict[str, Any]:
        if recipe.kind == "broken":
            raise DataError("point 3 is damaged.")
        view_a, view_b = (data.x[index] + recipe.noise * torch.randn(len(index), 6) for _ in range(2))
        return {"view_a": view_a, "view_b": view_b, "index": index}

    @torch.no_grad()
    def evaluate(self, recipe: ToyRecipe, module: Any, data: Points, run: Run) -> dict[str, float]:
        assert not module.training
        run.progress(1.0)
        return {"spread": float(module.encoder(data.x).std()), "final": float(run.final)}

    def restore(self, recipe: ToyRecipe, kept: Mapping[str, Any], folder: Path) -> Restored:
        encoder = nn.Linear(6, 4)
        load_weights(encoder, folder)
        return Restored(encoder)

    def embed(self, recipe: ToyRecipe, module: Any, given: Tensor) -> Tensor:
        found: Tensor = module.encoder(given)
        return found


def run(folder: Path, strategy: str = "fixed", *, data: Points | None = None, **more: Any) -> dict[str, Any]:
    """Trains on points, with ``strategy+objective``; what is no setting of the recipe goes to `train`."""
    strategy, _, objective = strategy.partition("+")
    method = METHOD.load()
    settings = {name: more.pop(name) for name in list(more) if name in ToyRecipe.kinds()}
    terms = more.pop("contrastive_negatives", None)
    record = more.pop("log_record", "brief")
    temperature = TemperatureArguments(strategy, [], objective or None, contrastive_negatives=terms, log_record=record)
    return train(method, METHOD.recipe(**settings), data or Points(), temperature, folder, **more)


def train_toy(
    info: MethodInfo, folder: Path, data: Any, strategy: str | None = "fixed", method: Any = None, **more: Any
) -> dict[str, Any]:
    """Trains with settings of the recipe and arguments of `train`."""
    recipe = info.recipe(**{name: more.pop(name) for name in list(more) if name in info.recipe().kinds()})
    return train(method or info.load(), recipe, data, TemperatureArguments(strategy, [], None), folder, **more)


class Killed(Exception):
    """Stands for a run that ends in the middle."""


class Kill(TrainerCallback):
    """Ends the run at the end of a step, after its checkpoint where one is due."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def without_seconds(results: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in results.items() if name != "seconds_per_epoch"}


def weights(folder: Path) -> dict[str, Tensor]:
    """Returns the module's state in the newest checkpoint, its loss's tensors included."""
    newest = max(folder.glob("checkpoint-*"), key=lambda each: int(each.name.split("-")[1]))
    state = torch.load(newest / "pytorch_model.bin", weights_only=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def assert_same_end(folder: Path) -> None:
    """Compares what the runs in ``whole`` and ``killed`` have left: figures, weights of the checkpoint and of the encoder."""
    whole, killed = (without_seconds(json.loads((folder / name / "metrics.json").read_text())) for name in ("whole", "killed"))
    assert json.dumps(killed) == json.dumps(whole)
    for read in (weights, lambda each: torch.load(each / "encoder.pt", weights_only=True)):
        expected, found = read(folder / "whole"), read(folder / "killed")
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def plain_loop(
    method: Method[Any, Any], recipe: Any, data: Any, strategy: str = "fixed", *, accumulation: int = 1, losses: Any = None
) -> nn.Module:
    """Trains as `MethodTrainer` must, one process and a constant learning rate, in a plain loop; adds to ``losses``."""
    torch.manual_seed(recipe.seed)
    loss = method.create_loss(recipe, data, TemperatureArguments(strategy, [], None))
    module = method.build(recipe, data, loss)
    method.prepare(recipe, module, data, Run(Path()))
    order = BatchOrder(
        len(data),
        recipe.per_device_train_batch_size,
        recipe.seed,
        drop_last=recipe.dataloader_drop_last,
        reshuffled=method.reshuffled,
    )
    rate = recipe.learning_rate * recipe.learning_rate_factor(order.size)
    groups = parameter_groups(module, recipe, rate, lambda name, each: method.treatment(recipe, name, each))
    optimizer = create_optimizer(groups, recipe, rate)
    starts = range(0, len(order), accumulation)
    for epoch in range(int(recipe.num_train_epochs)):
        order.set_epoch(epoch)
        draws = list(order)
        for step, start in enumerate(starts, epoch * len(starts)):
            if loss is not None and hasattr(loss, "set_progress"):
                loss.set_progress(epoch=epoch + start / len(order), step=step)
            optimizer.zero_grad()
            window = draws[start : start + accumulation]
            for number, draw in enumerate(window):
                torch.manual_seed(draw.seed)
                batch = method.collate(recipe, data, draw.index)
                module.train()
                torch.manual_seed(seed_of(recipe.seed, "step", step, number, 0))
                found = module(**batch)
                (found / len(window)).backward()
                if losses is not None:
                    losses.append(float(found.detach()))
            optimizer.step()
    return module
