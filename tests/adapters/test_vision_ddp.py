"""Two processes train images as one does: the same losses, temperatures and weights; one of them writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from launched import train_vision_run
from launcher import launched, torchrun
from vision_train_toys import differences, saved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def together(folder: Path) -> list[Any]:
    """What both processes ended with."""
    return launched(torchrun(2), "train_vision_run.py", folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train_vision_run.without_chance(tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("name", train_vision_run.CASES)
def test_two_processes_train_as_one(together: list[Any], alone: dict[str, Any], name: str) -> None:
    one = alone[name]
    for rank in together:
        two = rank["cases"][name]
        for mine, its in zip(two["results"]["history"], one["results"]["history"], strict=True):
            assert mine["loss"] == pytest.approx(its["loss"], rel=1e-6)
        assert two["state"].keys() == one["state"].keys()
        for key, value in one["state"].items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(
                    two["state"][key], value, rtol=1e-8, atol=1e-10, msg=lambda text, key=key: f"{key}: {text}"
                )
    losses = [row["loss"] for row in one["results"]["history"]]
    assert len({round(loss, 5) for loss in losses}) == len(losses)


@pytest.mark.parametrize("name", train_vision_run.CASES)
def test_both_processes_end_with_the_same_weights(together: list[Any], name: str) -> None:
    first, second = (rank["cases"][name]["state"] for rank in together)
    assert differences(first, second) == []


@pytest.mark.parametrize("name", ["simclr", "moco"])
def test_the_temperature_of_macl_is_that_of_the_joined_batch(together: list[Any], alone: dict[str, Any], name: str) -> None:
    expected = [row["temperature"] for row in alone[name]["results"]["history"]]
    assert len({round(each, 6) for each in expected}) == len(expected)
    for rank in together:
        found = [row["temperature"] for row in rank["cases"][name]["results"]["history"]]
        assert found == pytest.approx(expected, rel=1e-9)


def test_the_first_process_writes_and_measures(together: list[Any], alone: dict[str, Any], folder: Path) -> None:
    first, second = (rank["cases"]["simclr"]["results"] for rank in together)
    assert first["knn"] == alone["simclr"]["results"]["knn"]
    assert second["knn"] is None
    assert sorted(file.name for file in (folder / "runs" / "simclr").iterdir()) == ["checkpoint.pt", "metrics.json"]
    state = saved(folder / "runs" / "simclr")["model"]
    assert differences(state, dict(together[0]["cases"]["simclr"]["state"])) == []


def test_an_interrupted_run_of_two_processes_resumes_to_the_same_bits(together: list[Any], folder: Path) -> None:
    whole, part = (saved(folder / "resumed" / name) for name in ("whole", "part"))
    for name in ("epoch", "model", "optimizer", "history"):
        assert differences(whole[name], part[name]) == []
    for rank in together:
        weights = [dict(rank["resumed"][name]["state"]) for name in ("whole", "part")]
        # running statistics are those of the first process once a checkpoint was read, and no training step uses them
        assert all("running_" in found for found in differences(*weights))


def test_processes_have_views_of_their_own(together: list[Any]) -> None:
    first, second = (dict(rank["resumed"]["whole"]["state"]) for rank in together)
    assert all("running_" in found for found in differences(first, second))
    assert differences(first, second)


def test_processes_meet_and_part(together: list[Any]) -> None:
    assert [(rank["device"], rank["world"]) for rank in together] == [("cpu", 2), ("cpu", 2)]
    assert all("sync_batch_norm=True needs GPUs" in rank["refused"] for rank in together)
