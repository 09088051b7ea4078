"""Two gloo processes under SentenceTransformerTrainer, in one launch: one temperature, and the training of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from launched.train_sentence_transformers import INITIAL, JOBS, STEPS, train_all
from launcher import launched, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


@pytest.fixture(scope="module")
def ranks(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    return launched(torchrun(2), "train_sentence_transformers.py", folder, str(tiny_bert))


@pytest.fixture(scope="module")
def alone(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train_all(0, 1, tiny_bert, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("name", JOBS)
def test_both_processes_keep_one_temperature_and_the_same_weights(ranks: list[dict[str, Any]], name: str) -> None:
    first, second = (rank[name] for rank in ranks)
    assert torch.equal(first["log_scale"], second["log_scale"])
    assert all(torch.equal(value, second["weights"][key]) for key, value in first["weights"].items())
    assert first["temperature"][0] == second["temperature"][0] == pytest.approx(INITIAL)
    assert len(set(first["temperature"])) == STEPS
    assert "manifest.json" in first["files"]


@pytest.mark.parametrize("name", JOBS)
def test_two_processes_compute_what_one_does(ranks: list[dict[str, Any]], alone: dict[str, Any], name: str) -> None:
    two, one = ranks[0][name], alone[name]
    assert two["temperature"] == pytest.approx(one["temperature"], rel=1e-5)
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    for key, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][key], value, rtol=1e-5, atol=1e-7)
