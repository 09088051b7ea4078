"""No damaged checkpoint of any command is loaded: bits flipped and files cut, in each of its files, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphcl_toys
import method_toys
import molecule_toys
import msc_toys
import pytest
import simcse_toys
import torch
import vision_train_toys
from method_toys import Kill, Killed, weights, without_seconds
from vision_train_toys import TinyBackbone

from tempplug.errors import DataError
from tempplug_adapters.graph import grace_recipe, graphcl_recipe, molecule_recipe
from tempplug_adapters.graph.graphcl_method import Graphs
from tempplug_adapters.graph.molecule_method import Molecules
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoints import COMPLETE, checkpoints, resume_point
from tempplug_adapters.training.train import train
from tempplug_adapters.vision import vision_method
from tempplug_benchmarks.tasks.node_generated import citation_graph

SAVES = {"save_steps": 1}


def toy(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    return method_toys.run(folder, "learnable", num_train_epochs=1, training=SAVES, **more)


def grace(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    recipe, flags = grace_recipe.METHOD.recipe(num_train_epochs=3, hidden=8), TemperatureArguments("learnable")
    data = Nodes(citation_graph(0))
    return train(grace_recipe.METHOD.load(), recipe, data, flags, folder, training=SAVES, evaluate=False, **more)


def graphcl(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    recipe = graphcl_recipe.METHOD.recipe(num_train_epochs=3, hidden=8)
    data, flags = Graphs(graphcl_toys.toy_set(16)), TemperatureArguments("learnable")
    return train(graphcl_recipe.METHOD.load(), recipe, data, flags, folder, training=SAVES, evaluate=False, **more)


def molecule(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    recipe = molecule_recipe.METHOD.recipe(layers=1, width=8, per_device_train_batch_size=10, num_train_epochs=1)
    data, flags = Molecules(molecule_toys.unlabelled(30)), TemperatureArguments("learnable")
    return train(molecule_recipe.METHOD.load(), recipe, data, flags, folder, training=SAVES, **more)


def moco(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    return vision_train_toys.run(folder, "moco", "learnable", num_train_epochs=1, training=SAVES, **more)


def msc(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    return msc_toys.run(folder, "learnable", num_train_epochs=1, training=SAVES, evaluate=False, **more)


def simcse(folder: Path, toys: Path, **more: Any) -> dict[str, Any]:
    training = {**SAVES, "max_steps": 3, "eval_strategy": "no"}
    return simcse_toys.run(toys, folder, strategy="learnable", training=training, evaluate=False, **more)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simcse_toys.write_toys(tmp_path_factory.mktemp("toys"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("method", "cases"), [(toy, 40), (grace, 3), (graphcl, 3), (molecule, 3), (moco, 3), (msc, 3), (simcse, 3)]
)
def test_damage_is_found_in_every_file_of_a_checkpoint(
    tmp_path: Path, toys: Path, monkeypatch: pytest.MonkeyPatch, method: Callable[..., dict[str, Any]], cases: int
) -> None:
    monkeypatch.setattr(vision_method, "create_backbone", lambda name, **options: TinyBackbone())
    whole = method(tmp_path / "whole", toys)
    with pytest.raises(Killed):
        method(tmp_path / "killed", toys, callbacks=[Kill(whole["steps"] - 1)])
    newest = checkpoints(tmp_path / "killed")[-1]
    files = [each for each in sorted(newest.rglob("*")) if each.is_file()]
    assert {*COMPLETE, "rng_state.pth", "manifest.json"} == {each.name for each in files}
    chance, refused = random.Random(0), f"^resume_from_checkpoint='{newest}' is not a complete checkpoint: its"
    for file in files:
        content = file.read_bytes()
        for _ in range(cases):
            at, bit = chance.randrange(len(content)), chance.randrange(8)
            for damaged in (content[:at], content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]):
                file.write_bytes(damaged)
                with pytest.raises(DataError, match=rf"{refused} {file.name} [^\n]*$"):
                    resume_point(tmp_path / "killed", str(newest))
        file.write_bytes(content)
    chosen = chance.choice(files)
    chosen.write_bytes(chosen.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged: its {chosen.name}"):
        again = method(tmp_path / "killed", toys, resume_from_checkpoint="auto")
    assert without_seconds(again) == without_seconds(whole)
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
