"""Trainings on two processes with gloo, in one launch, against one process: those of methods, and those with the mixin.

Every weight is the same on both processes, and what is not random is that of one process.
"""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import Encoder
from launched.train_huggingface import STEPS, noisy, runs
from launched.train_methods import EXACT, JOBS, RESIZED, resized, train_all
from launcher import launched, torchrun
from method_toys import Points, run
from torch import nn

from tempplug.errors import ConfigError
from tempplug_adapters.training.batches import BatchOrder
from tempplug_adapters.training.checkpoints import batch_of_process

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    run(folder / "alone", "learnable", data=Points(24), **EXACT)
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


@pytest.mark.parametrize("job", ["exact", "simcse", "simcse, mini-batches"])
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


def test_a_training_goes_on_with_another_number_of_processes(ranks: list[dict[str, Any]], folder: Path, tmp_path: Path) -> None:
    """From one to two, and from two to one, with the batches of an undisturbed one."""
    alone = json.loads((folder / "alone" / "metrics.json").read_text())
    with pytest.warns(
        UserWarning, match=r"written by 2 processes with 4 items each.*goes on with 1 and 8 items each: the same"
    ):
        shrunk = resized(tmp_path, folder / "exact" / f"checkpoint-{RESIZED}")
    for found, processes in ((ranks[0]["grown"], 2), (shrunk, 1)):
        results = found["results"]
        assert (results["processes"], results["effective_batch_size"], results["steps"]) == (processes, 8, 9)
        assert results["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        for name, value in ranks[0]["exact"]["weights"].items():
            torch.testing.assert_close(found["weights"][name], value, rtol=1e-4, atol=1e-5)
    recipe = {"recipe": {"per_device_train_batch_size": 4}, "processes": 3}
    (tmp_path / "settings.json").write_text(json.dumps(recipe))
    with pytest.raises(ConfigError, match=r"processes=5 cannot share the batches of 12 items.*processes: 1, 2, 3, 4, 6\."):
        batch_of_process(tmp_path, 5, 8, 24, drop_last=False)
    # no other number of processes may merge an incomplete last batch where the checkpoint's has kept it, or the other way round
    for items, drop_last in ((30, False), (28, False), (24, False), (14, False), (30, True)):
        for processes in (1, 2, 3, 4, 6):
            alike = {len(BatchOrder(items, 12, 0, world=each, drop_last=drop_last)) for each in (3, processes)}
            fits = nullcontext() if processes == 3 else pytest.warns(match="the same batches")
            with fits if len(alike) == 1 else pytest.raises(ConfigError, match="cannot share"):
                batch_of_process(tmp_path, processes, 8, items, drop_last=drop_last)


# Trainings with the mixin


@pytest.fixture(scope="module")
def results(ranks: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What rank 0, rank 1 and a single process on the joint batches ended with."""
    return [*(rank["mixin"] for rank in ranks), runs(tmp_path_factory.mktemp("single"), 0, 1)]


@pytest.mark.parametrize("name", ["learnable", "accumulated", "resumed", "macl", "mini-batches", "best", "objective"])
def test_two_processes_equal_each_other_and_one_on_the_joint_batch(results: list[dict[str, Any]], name: str) -> None:
    """Same losses, same temperatures, same weights, to the rounding of another order of summation."""
    two, other, one = (each[name] for each in results)
    assert ((two["backend"], two["gather"]), (one["backend"], one["gather"])) == (("gloo", True), (None, False))
    assert (two["learned"], two["weights"]) == (other["learned"], other["weights"])
    assert [each[-1] for each in (two["batches"], other["batches"], one["batches"])] == [8, 2, 10] or name in (
        "accumulated",
        "mini-batches",
        "best",
    )
    for figures in ("loss", "temperature", "learned"):
        assert two[figures] == pytest.approx(one[figures], rel=1e-4)
    for key, values in two["weights"].items():
        assert values == pytest.approx(one["weights"][key], rel=1e-3, abs=1e-5), key


def test_the_temperature_and_the_bias_of_an_objective_are_learned(results: list[dict[str, Any]]) -> None:
    temperatures, (bias,) = results[1]["learnable"]["temperature"], results[1]["objective"]["learned"].items()
    assert temperatures[0] == pytest.approx(0.07, rel=1e-5)
    assert len(set(temperatures)) == STEPS
    assert bias[0] == "objective.offset"
    assert abs(bias[1] - 0.5) > 0.05


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(results: list[dict[str, Any]]) -> None:
    for rank in results[:2]:
        for name in ("learned", "weights", "temperature"):
            assert rank["resumed"][name] == rank["learnable"][name]
        assert rank["best"]["learned"] != rank["learnable"]["learned"], "the best model is an earlier one"


def test_evaluation_takes_the_mean_over_the_items_of_all_processes(results: list[dict[str, Any]]) -> None:
    found, again = (rank["evaluated"] for rank in results[:2])
    data = noisy()
    torch.manual_seed(0)
    encoder = Encoder(dropout=0.0)
    a, b = (nn.functional.normalize(encoder(each)) for each in (data.a, data.b))
    expected = []
    for start, own in ((0, 4), (4, 4), (8, 4), (12, 1)):
        items = [each % 13 for each in range(start, start + 4)]
        similarity = a[items] @ b[items].T
        loss = nn.functional.cross_entropy(similarity / 0.1, torch.arange(4), reduction="none")
        expected += list(zip((similarity.argmax(1) == torch.arange(4))[:own].tolist(), loss[:own].tolist(), strict=True))
    for name, values in zip(("eval_contrastive_accuracy", "eval_infonce_loss"), zip(*expected, strict=True), strict=True):
        assert found[name] == again[name] == pytest.approx(sum(values) / 13, rel=1e-5)
    assert 0 < found["eval_contrastive_accuracy"] < 1


def test_one_item_left_for_one_process_ends_no_run(results: list[dict[str, Any]]) -> None:
    first, second = (rank["one left"] for rank in results[:2])
    assert first == second
    assert all(math.isfinite(each) for each in first)
