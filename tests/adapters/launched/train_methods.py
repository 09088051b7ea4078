"""Run by torchrun: trains one method after the other on several processes; saves what each process ended with.

Argument: the folder of the results. Without a process group, `train_all` is the same training in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import clip_toys
import msc_toys
import recommendation_toys
import simcse_toys
import torch
import torch.distributed as dist
from graphcl_toys import toy_set
from launched.pairs import save
from launched.train_huggingface import of_process
from method_toys import METHOD as TOY, Kill, Killed, Points, run, without_seconds
from molecule_toys import labelled, unlabelled

from tempplug_adapters.clip.recipe import METHOD as CLIP
from tempplug_adapters.graph.graph_data import Graphs
from tempplug_adapters.graph.molecule_method import Molecules
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.recipes import FINE_TUNING, GRACE, GRAPHCL, MOLECULE
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.msc.method import Anomalies
from tempplug_adapters.msc.recipe import METHOD as MSC
from tempplug_adapters.recommendation.recipes import DCREC, SASREC
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node import citation_graph

WRITTEN = TemporaryDirectory()


class Toy(NamedTuple):
    """A training of seconds."""

    info: MethodInfo
    recipe: Any
    data: Callable[[], Any]

    def run(self, folder: Path, strategy: str | None, **more: Any) -> dict[str, Any]:
        recipe = self.recipe.changed(**{name: more.pop(name) for name in list(more) if name == "bf16"})
        return train(self.info.load(), recipe, self.data(), TemperatureArguments(strategy, [], None), folder, **more)


MOLECULES = MOLECULE.recipe(layers=2, width=16, per_device_train_batch_size=50, num_train_epochs=2, finetune_epochs=3)
POOL = ("drop-nodes", "subgraph", "drop-edges")
GRAPHS = GRAPHCL.recipe(num_train_epochs=4, per_device_train_batch_size=16, hidden=8, layers=2, folds=2, augmentations=POOL)
SAMPLED = GRACE.recipe(num_train_epochs=4, per_device_train_batch_size=250, neighbours=2, activation="prelu")
SMALL = DCREC.recipe(**recommendation_toys.SMALL)


def with_terms(recipe: Any, negatives: str) -> Any:
    return replace(recipe, loss=replace(recipe.loss, negatives=negatives))


def nodes() -> Nodes:
    return Nodes(citation_graph(0))


TOYS = {
    "grace": Toy(GRACE, GRACE.recipe(num_train_epochs=4), nodes),
    "grace, batches": Toy(GRACE, SAMPLED, nodes),
    "graphcl": Toy(GRAPHCL, GRAPHS, lambda: Graphs(toy_set(33))),
    "molecule": Toy(MOLECULE, MOLECULES, lambda: Molecules(unlabelled(), {"one": labelled(200, 1)})),
    "fine-tuning": Toy(FINE_TUNING, FINE_TUNING.recipe(num_train_epochs=2), lambda: labelled(120, 3)),
    "sasrec": Toy(SASREC, SASREC.recipe(**recommendation_toys.SMALL), recommendation_toys.toy_log),
    "dcrec": Toy(DCREC, SMALL, recommendation_toys.toy_log),
    "grace, terms": Toy(GRACE, with_terms(SAMPLED, "log-q+false-negatives:margin=0.1"), nodes),
    "dcrec, terms": Toy(DCREC, with_terms(SMALL, "same-key+hardness:strength=2"), recommendation_toys.toy_log),
    "msc": Toy(MSC, msc_toys.recipe(), lambda: Anomalies(msc_toys.toy_data(), msc_toys.toy_backbone())),
}


def of_toys(name: str) -> Callable[[int], tuple[Any, Any, Any]]:
    toy = TOYS[name]
    return lambda world: (toy.info, toy.recipe, toy.data())


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


# Nothing random in it: several processes compute what one does.
EXACT: dict[str, Any] = {"noise": 0.0, "dropout": 0.0, "optimizer": "sgd"}
# The step of a checkpoint of it, in the middle of an epoch of three steps.
RESIZED = 8

JOBS: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {
    "exact": lambda world: (TOY, TOY.recipe(**EXACT, per_device_train_batch_size=8 // world), Points(24)),
    "toy": lambda world: (TOY, TOY.recipe(per_device_train_batch_size=4), Points()),
    **{name: of_toys(name) for name in ("grace, batches", "graphcl", "molecule", "msc", "dcrec")},
    "simcse": simcse,
    "clip": clip,
    "simcse, mini-batches": simcse,
    "clip, mini-batches": clip,
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
        encoded[0] = 0
        info, recipe, data = job(world)
        modules: list[torch.nn.Module] = []
        method = info.load()
        build = method.build
        method.build = lambda *given, build=build, modules=modules: modules.append(build(*given)) or modules[0]
        temperature, measured = TemperatureArguments("learnable", [], None), name in MEASURED
        training = {"contrastive_mini_batch_size": 3} if name.endswith("mini-batches") else {}
        results = train(method, recipe, data, temperature, folder / name, evaluate=measured, training=training)
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


def resized(folder: Path, checkpoint: Path) -> dict[str, Any]:
    """Returns the results and the weights of `EXACT` when it goes on from the checkpoint of another number of processes."""
    modules: list[torch.nn.Module] = []
    method = TOY.load()
    build = method.build
    method.build = lambda *given: modules.append(build(*given)) or modules[0]
    recipe, temperature = TOY.recipe(**EXACT), TemperatureArguments("learnable", [], None)
    results = train(method, recipe, Points(24), temperature, folder, resume_from_checkpoint=str(checkpoint))
    return {"results": results, "weights": modules[0].state_dict()}


def refuse(path: Path, write: Any) -> None:
    raise AssertionError(f"{path} is the first process's to write")


def main(folder: str) -> None:
    sentences()
    pictures()
    dist.init_process_group("gloo")
    if dist.get_rank():
        sys.modules[train.__module__].write_json = refuse  # type: ignore[attr-defined]
    found = train_all(Path(folder), dist.get_world_size())
    found["resumed"] = resumed(Path(folder))
    found["grown"] = resized(Path(folder, "grown"), Path(folder, "alone", f"checkpoint-{RESIZED}"))
    found["mixin"] = of_process(Path(folder, "mixin"), dist.get_rank(), dist.get_world_size())
    save(folder, dist.get_rank(), found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
