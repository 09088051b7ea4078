"""Run by torchrun: trains one method after the other on several processes; saves what each process ended with.

Argument: the folder of the results. Without a process group, `train_all` is the same training in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from launched.pairs import save
from method_toys import METHOD as TOY
from method_toys import Points

from tempplug_adapters.graph.grace_method import Nodes
from tempplug_adapters.graph.grace_recipe import METHOD as GRACE
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node_generated import citation_graph


def exact(world: int) -> tuple[Any, Any, Any]:
    """Nothing random in it: several processes compute what one does."""
    return TOY, TOY.recipe(noise=0.0, dropout=0.0, optimizer="sgd", per_device_train_batch_size=8 // world), Points(24)


def toy(world: int) -> tuple[Any, Any, Any]:
    return TOY, TOY.recipe(per_device_train_batch_size=4), Points()


def grace(world: int) -> tuple[Any, Any, Any]:
    recipe = GRACE.recipe(num_train_epochs=2, per_device_train_batch_size=100, hidden=8)
    return GRACE, recipe, Nodes(citation_graph(0))


JOBS: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {"exact": exact, "toy": toy, "grace": grace}


def train_all(folder: Path, world: int = 1) -> dict[str, Any]:
    """Returns, by job, the weights and the results of this process."""
    found = {}
    for name, job in JOBS.items():
        info, recipe, data = job(world)
        modules: list[torch.nn.Module] = []
        method = info.load()
        build = method.build
        method.build = lambda *given, build=build, modules=modules: modules.append(build(*given)) or modules[0]
        results = train(
            method, recipe, data, TemperatureArguments("learnable", [], None), folder / name, evaluate=name == "toy"
        )
        state = {key: value for key, value in modules[0].state_dict().items() if isinstance(value, torch.Tensor)}
        found[name] = {"weights": state, "loss": results["loss"], "steps": results["steps"], "figures": results["evaluation"]}
    return found


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    found = train_all(Path(folder), dist.get_world_size())
    save(folder, dist.get_rank(), found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
