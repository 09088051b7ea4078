"""Two processes train every vision method as one does that holds the joined batch, queues and temperatures included."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from launched import train_vision
from launcher import launched, torchrun


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What both processes ended with."""
    return launched(torchrun(2), "train_vision.py", tmp_path_factory.mktemp("vision"))


@cache
def alone(name: str) -> dict[str, Any]:
    return train_vision.train(name, (train_vision.ROWS,), 0)


@pytest.mark.parametrize("name", train_vision.METHODS)
def test_two_processes_train_as_one(together: list[Any], name: str) -> None:
    one = alone(name)
    for rank in together:
        two = rank[name]
        assert two["losses"] == pytest.approx(one["losses"], rel=1e-9)
        assert two["state"].keys() == one["state"].keys()
        for key, value in one["state"].items():
            torch.testing.assert_close(
                two["state"][key], value, rtol=1e-8, atol=1e-10, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize("name", ["simclr", "moco", "nnclr", "lightly"])
def test_the_temperature_of_macl_is_that_of_one_process(together: list[Any], name: str) -> None:
    expected = alone(name)["temperatures"]
    assert len(set(expected)) == train_vision.STEPS
    for rank in together:
        assert rank[name]["temperatures"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["moco", "moco-symmetric", "moco-local", "nnclr", "lightly"])
def test_queues_have_wrapped_and_are_the_same_everywhere(together: list[Any], name: str) -> None:
    first, second = (rank[name]["state"] for rank in together)
    rows = [key for key in first if key.endswith(".rows")]
    assert rows
    for key in rows:
        assert torch.equal(first[key], second[key])
        assert int(first[key.replace(".rows", ".position")]) == train_vision.STEPS * train_vision.ROWS % 11
