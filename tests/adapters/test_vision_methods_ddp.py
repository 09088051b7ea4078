"""Two processes train every vision method as one does that holds the joined batch, queues and temperatures included.

Step by step by hand, and whole trainings, all in one launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import train_vision
from launcher import launched, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vision")


@pytest.fixture(scope="module")
def together(folder: Path) -> list[Any]:
    """What both processes ended with."""
    return launched(torchrun(2), "train_vision.py", folder)


@pytest.mark.parametrize("name", train_vision.METHODS)
def test_two_processes_train_as_one(together: list[Any], name: str) -> None:
    one = train_vision.train(name, (train_vision.ROWS,), 0)
    rows = [key for key in one["state"] if key.endswith(".rows")]
    assert bool(rows) == name.startswith(("moco", "nnclr", "lightly"))
    for two in (rank[name] for rank in together):
        assert two["losses"] == pytest.approx(one["losses"], rel=1e-9)
        assert two["temperatures"] == pytest.approx(one["temperatures"], rel=1e-9), "MACL's is that of the joined batch"
        assert len(set(two["temperatures"])) == len(two["temperatures"])
        assert two["state"].keys() == one["state"].keys()
        for key, value in one["state"].items():
            torch.testing.assert_close(two["state"][key], value, rtol=1e-8, atol=1e-10)
    for key in rows:
        first, second = (rank[name]["state"] for rank in together)
        assert torch.equal(first[key], second[key])
        assert int(first[key.replace(".rows", ".position")]) == train_vision.STEPS * train_vision.ROWS % 11


PLAIN = [name for name in train_vision.TRAININGS if name.startswith("plain")]


@pytest.fixture(scope="module")
def trained_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the launched processes have: sums in another order round otherwise
    yield train_vision.train_all(tmp_path_factory.mktemp("alone"), PLAIN)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", PLAIN)
def test_trainings_of_two_processes_are_those_of_one(together: list[Any], trained_alone: dict[str, Any], name: str) -> None:
    one, two = trained_alone[name], together[0]["trainings"][name]
    logs = [[entry for entry in each["results"]["history"] if "loss" in entry] for each in (one, two)]
    # AMCL's loss is a difference of terms and passes near zero; logs are float32.
    rounding = 1e-6 * max(entry["loss"] for entry in logs[0])
    for mine, its in zip(*logs, strict=True):
        assert its["loss"] == pytest.approx(mine["loss"], abs=rounding)
        if name == "plain-simclr":  # MACL's is that of the joined batch
            assert its["temperature"] == pytest.approx(mine["temperature"], rel=1e-9)
    assert len({round(entry["loss"], 4) for entry in logs[0]}) == 2
    for key, value in one["state"].items():
        torch.testing.assert_close(two["state"][key], value, rtol=1e-7, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")
    assert two["results"]["evaluation"] == one["results"]["evaluation"]


@pytest.mark.parametrize("name", train_vision.TRAININGS)
def test_both_processes_end_with_the_same_weights_and_figures(together: list[Any], name: str) -> None:
    first, second = (rank["trainings"][name] for rank in together)
    assert first["state"].keys() == second["state"].keys()
    for key, value in first["state"].items():
        # running statistics are each process's own, and no training step uses them
        assert "running_" in key or torch.equal(value, second["state"][key]), key
    assert first["results"]["evaluation"] == second["results"]["evaluation"]
    assert first["results"]["evaluation"].keys() == {"knn", "knn validation"}


def test_views_are_each_processs_own_and_one_process_writes(together: list[Any], folder: Path) -> None:
    first, second = (rank["trainings"]["simclr"]["state"] for rank in together)
    running = [key for key in first if "running_mean" in key]
    assert running
    assert not all(torch.equal(first[key], second[key]) for key in running)
    assert float(first["step.loss_fn.strategy.log_scale"]) != pytest.approx(math.log(10), abs=1e-6)
    names = {file.name.partition("-")[0] for file in (folder / "runs" / "simclr").iterdir()}
    assert names == {"README.md", "checkpoint", "encoder.pt", "log.jsonl", "metrics.json", "settings.json", "tempplug.json"}
    assert all("sync_batch_norm=true needs GPUs" in rank["refused"] for rank in together)
