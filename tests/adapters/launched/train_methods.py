"""Run by torchrun: trains one method after the other on several processes; saves what each process ended with.

Argument: the folder of the results. Without a process group, `train_all` is the same training in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clip_toys
import msc_toys
import recommendation_toys
import simcse_toys
import torch
import torch.distributed as dist
from graphcl_toys import toy_set
from launched.pairs import save
from method_toys import METHOD as TOY, Kill, Killed, Points, run, without_seconds
from molecule_toys import labelled, unlabelled

from tempplug_adapters.clip.recipe import METHOD as CLIP
from tempplug_adapters.graph.graph_data import Graphs
from tempplug_adapters.graph.molecule_method import Molecules
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.recipes import GRACE, GRAPHCL, MOLECULE
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.msc.method import Anomalies
from tempplug_adapters.msc.recipe import METHOD as MSC
from tempplug_adapters.recommendation.recipes import DCREC
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE
from tempplug_adapters.training import trainer
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node import citation_graph

WRITTEN = TemporaryDirectory()


def exact(world: int) -> tuple[Any, Any, Any]:
    """Nothing random in it: several processes compute what one does."""
    return TOY, TOY.recipe(noise=0.0, dropout=0.0, optimizer="sgd", per_device_train_batch_size=8 // world), Points(24)


def toy(world: int) -> tuple[Any, Any, Any]:
    return TOY, TOY.recipe(per_device_train_batch_size=4), Points()


def grace(world: int) -> tuple[Any, Any, Any]:
    recipe = GRACE.recipe(num_train_epochs=2, per_device_train_batch_size=100, hidden=8)
    return GRACE, recipe, Nodes(citation_graph(0))


def graphcl(world: int) -> tuple[Any, Any, Any]:
    recipe = GRAPHCL.recipe(num_train_epochs=3, per_device_train_batch_size=8, hidden=8, layers=2)
    return GRAPHCL, recipe, Graphs(toy_set(40))


def molecule(world: int) -> tuple[Any, Any, Any]:
    recipe = MOLECULE.recipe(
        num_train_epochs=1, per_device_train_batch_size=16, finetune_epochs=2, finetune_batch_size=16, layers=2, width=8
    )
    return MOLECULE, recipe, Molecules(unlabelled(100), {"one": labelled(200, 1)})


def msc(world: int) -> tuple[Any, Any, Any]:
    return MSC, msc_toys.recipe(), Anomalies(msc_toys.toy_data(), msc_toys.toy_backbone())


def dcrec(world: int) -> tuple[Any, Any, Any]:
    return DCREC, DCREC.recipe(**{**recommendation_toys.SMALL, "num_train_epochs": 2}), recommendation_toys.toy_log()


@cache
def sentences() -> Path:
    """Each process has its own; to be called before they have met, from when on only the first one saves models."""
    return simcse_toys.write_toys(Path(WRITTEN.name))


def simcse(world: int) -> tuple[Any, Any, Any]:
    """Nothing random in it."""
    folder = sentences()
    exact = {"dropout": 0.0, "optimizer": "sgd", "learning_rate": 0.3, "per_device_train_batch_size": 16 // world}
    recipe = simcse_toys.recipe(folder, **exact)
    return SIMCSE, recipe, simcse_toys.read(folder, "triplets.csv", recipe)


@cache
def pictures() -> tuple[Path, Path]:
    """Each process has its own, likewise."""
    folder = Path(WRITTEN.name)
    return clip_toys.save_clip(folder / "clip", clip_toys.WORDS), clip_toys.save_pictures(folder / "pictures", count=16)


def clip(world: int) -> tuple[Any, Any, Any]:
    model, folder = pictures()
    recipe = CLIP.recipe(model_name_or_path=str(model), num_train_epochs=2, per_device_train_batch_size=8 // world)
    return CLIP, recipe, CLIP.load().load(recipe, Source(str(folder), None, Path(), evaluated=False))


JOBS: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {
    "exact": exact,
    "toy": toy,
    "grace": grace,
    "graphcl": graphcl,
    "molecule": molecule,
    "msc": msc,
    "simcse": simcse,
    "dcrec": dcrec,
    "clip": clip,
}
MEASURED = ("toy", "molecule", "simcse")


def train_all(folder: Path, world: int = 1) -> dict[str, Any]:
    """Returns, by job, the weights and the results of this process, and how many sentences it encoded for evaluations."""
    found = {}
    encode, encoded = SentenceEncoder.__call__, [0]

    def counted(encoder: Any, given: list[str]) -> torch.Tensor:
        encoded[0] += len(given)
        return encode(encoder, given)

    SentenceEncoder.__call__ = counted  # type: ignore[method-assign]
    for name, job in JOBS.items():
        info, recipe, data = job(world)
        modules: list[torch.nn.Module] = []
        method = info.load()
        build = method.build
        method.build = lambda *given, build=build, modules=modules: modules.append(build(*given)) or modules[0]
        results = train(
            method, recipe, data, TemperatureArguments("learnable", [], None), folder / name, evaluate=name in MEASURED
        )
        state = {key: value for key, value in modules[0].state_dict().items() if isinstance(value, torch.Tensor)}
        found[name] = {"weights": state, "loss": results["loss"], "steps": results["steps"], "figures": results["evaluation"]}
        found[name]["encoded"] = encoded[0]
    SentenceEncoder.__call__ = encode  # type: ignore[method-assign]
    return found


def resumed(folder: Path) -> list[dict[str, Any]]:
    """Returns the results of a whole training, and of one that went on in the middle of an epoch."""
    settings = {"strategy": "learnable", "per_device_train_batch_size": 4}
    whole = run(folder / "whole", **settings)
    with suppress(Killed):  # the second epoch begins after step 3, the last checkpoint is of step 4
        run(folder / "killed", callbacks=[Kill(5)], **settings)
    again = run(folder / "killed", resume_from_checkpoint="auto", **settings)
    return [without_seconds(whole), without_seconds(again)]


def refuse(path: Path, write: Any) -> None:
    raise AssertionError(f"{path} is the first process's to write")


def main(folder: str) -> None:
    sentences()
    pictures()
    dist.init_process_group("gloo")
    if dist.get_rank():
        trainer.write_file = refuse
    found = train_all(Path(folder), dist.get_world_size())
    found["resumed"] = resumed(Path(folder))
    save(folder, dist.get_rank(), found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
