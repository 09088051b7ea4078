"""Methods on two processes, in one launch: every weight is the same on both, and what is not random is that of one process."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from launched.train_methods import JOBS, train_all
from launcher import launched, torchrun
from method_toys import run

from tempplug.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return launched(torchrun(2), "train_methods.py", folder)


@pytest.mark.parametrize("name", JOBS)
def test_both_processes_end_with_the_same_weights(ranks: list[dict[str, Any]], name: str) -> None:
    first, second = (rank[name] for rank in ranks)
    assert first["weights"].keys() == second["weights"].keys()
    # running statistics are those of a process's own batches, and no training step uses them
    weights = {key: value for key, value in first["weights"].items() if "running_" not in key}
    assert all(torch.equal(value, second["weights"][key]) for key, value in weights.items())
    assert first["loss"] == second["loss"]
    assert math.isfinite(first["loss"])
    assert first["steps"] == second["steps"] > 0


@pytest.mark.parametrize("name", JOBS)
def test_the_temperature_was_learned(ranks: list[dict[str, Any]], name: str) -> None:
    (scale,) = (value for key, value in ranks[0][name]["weights"].items() if key.endswith("log_scale"))
    info, recipe, _ = JOBS[name](2)
    start = math.log(1 / recipe.loss.temperatures["learnable"]["initial_temperature"])
    assert scale.item() != pytest.approx(start, abs=1e-6), info.name


@pytest.mark.parametrize("job", ["exact", "simcse"])
def test_two_processes_compute_what_one_does(ranks: list[dict[str, Any]], tmp_path: Path, monkeypatch: Any, job: str) -> None:
    monkeypatch.setattr("launched.train_methods.JOBS", {job: JOBS[job]})
    alone = train_all(tmp_path)[job]
    together = ranks[0][job]
    assert together["steps"] == alone["steps"]
    for name, value in alone["weights"].items():
        torch.testing.assert_close(together["weights"][name], value, rtol=1e-4, atol=1e-5)
    assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert together["figures"] == pytest.approx(alone["figures"], abs=1e-3)
    shares = [rank[job]["encoded"] for rank in ranks]
    assert max(shares) <= 0.51 * alone["encoded"], "each encodes its half of the sentences"
    assert sum(shares) >= alone["encoded"]


def test_a_killed_run_goes_on_to_the_same_results(ranks: list[dict[str, Any]]) -> None:
    """Losses of an epoch that was interrupted included, of which each process has its own."""
    whole, again = ranks[0]["resumed"]
    assert whole["steps"] == 9
    assert again == whole, "what the first process writes"
    whole, again = ranks[1]["resumed"]
    assert again["loss"] == whole["loss"]


def test_another_number_of_processes_does_not_go_on_with_a_run(ranks: list[dict[str, Any]], folder: Path) -> None:
    whole, _ = ranks[0]["resumed"]
    assert (whole["processes"], whole["effective_batch_size"]) == (2, 8)
    assert json.loads((folder / "whole" / "settings.json").read_text())["processes"] == 2
    with pytest.raises(
        ConfigError, match=r"^processes=1 differs from the checkpoint's 2: start as many processes as it was tr"
    ):
        run(folder / "killed", "learnable", per_device_train_batch_size=4, resume_from_checkpoint="auto")


def test_processes_fine_tune_together(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["molecule"]["figures"] for rank in ranks)
    assert first == second
    assert first.keys() == {"roc_auc one", "valid_roc_auc one"}


def test_the_first_process_measures_for_all(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["toy"]["figures"] for rank in ranks)
    assert first == second
    assert first["final"] == 1.0
