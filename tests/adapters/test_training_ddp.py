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
    assert (first["loss"], first["figures"], first["steps"]) == (second["loss"], second["figures"], second["steps"])
    assert math.isfinite(first["loss"])
    assert first["steps"] > 0
    figures = {"toy": {"spread", "final"}, "molecule": {"roc_auc one", "valid_roc_auc one"}}
    assert first["figures"].keys() == figures.get(name, first["figures"].keys())


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


def test_a_killed_run_goes_on_to_the_same_results_with_as_many_processes(ranks: list[dict[str, Any]], folder: Path) -> None:
    """Losses of an epoch that was interrupted included, of which each process has its own."""
    (whole, again), (second, second_again) = (rank["resumed"] for rank in ranks)
    assert again == whole, "what the first process writes"
    assert second_again["loss"] == second["loss"]
    assert (whole["steps"], whole["processes"], whole["effective_batch_size"]) == (9, 2, 8)
    assert json.loads((folder / "whole" / "settings.json").read_text())["processes"] == 2
    with pytest.raises(
        ConfigError, match=r"^processes=1 differs from the checkpoint's 2: start as many processes as it was tr"
    ):
        run(folder / "killed", "learnable", per_device_train_batch_size=4, resume_from_checkpoint="auto")
