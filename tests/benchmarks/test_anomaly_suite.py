from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from suite_checks import check_imports_are_light, check_profile, run_context

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.msc.one_class import OneClassData
from tempplug_adapters.msc.recipe import OPTIONS, RECIPES, MSCSettings
from tempplug_adapters.msc.score import represent
from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.plan import plan, slug
from tempplug_benchmarks.task import PROFILES, RunContext
from tempplug_benchmarks.tasks.anomaly import BASELINE, CLASSES, METRICS, REDUCED, SUITE
from tempplug_benchmarks.tasks.anomaly_runs import train_anomaly

TASKS = [task.name for task in SUITE.tasks]


def context_of(
    work_dir: Path, label: str = BASELINE, profile: str = "quick", task: str = "airplane", seed: int = 0, **more: Any
) -> RunContext:
    return run_context(SUITE, work_dir, label, profile, task, seed, **more)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, OneClassData, Any, MSCSettings]]:
    """What is handed to the training, which is left out."""
    import tempplug_adapters.msc.train as training

    calls: list[tuple[Any, OneClassData, Any, MSCSettings]] = []

    def train(*given: Any, **more: Any) -> dict[str, float]:
        calls.append(given[:4])
        return {"roc_auc_before": 70.0, "roc_auc_after": 72.5}

    monkeypatch.setattr(training, "train_msc", train)
    return calls


def test_importing_the_suite_loads_no_framework() -> None:
    check_imports_are_light("tempplug_benchmarks.tasks.anomaly")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert set(task.profiles) == set(PROFILES if name in REDUCED else ("paper",))
    for profile_name, profile in task.profiles.items():
        check_profile(profile)
        assert len(profile.arms) == 6
        assert len(profile.needs) == (2 if profile_name == "small" else 0)
        assert profile.metrics == METRICS


def test_the_class_on_which_settings_were_chosen_is_none_of_the_results() -> None:
    assert len(REDUCED) >= 3
    assert "cat" not in REDUCED
    assert tuple(TASKS) == CLASSES


def test_classes_are_those_of_the_data(data_dir: Path) -> None:
    images = load_images("cifar10-lossless4k", "train", data_dir)
    assert images.classes == CLASSES
    assert images.labels is not None
    assert int(images.labels.bincount().min()) > 280


@pytest.mark.parametrize("name", TASKS)
def test_recipes_are_the_adapters(name: str, tmp_path: Path, handed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from tempplug_benchmarks.tasks import anomaly_runs

    monkeypatch.setattr(anomaly_runs, "_backbone", lambda context: None)
    digits = {"dataset": "digits", "normal_class": "3", "train_total": None, "test_total": None}
    found = train_anomaly(context_of(tmp_path, profile="paper", task=name, seed=4, **digits))
    assert found == {"ROC-AUC": 72.5, "before": 70.0, "gain": 2.5}
    assert handed[-1][3] == MSCSettings(seed=4)
    recipe = SUITE.task(name).profile("paper").recipe
    assert (recipe["dataset"], recipe["normal_class"], recipe["backbone"]) == ("cifar10", name, "microsoft/resnet-152")
    assert (recipe["train_total"], recipe["test_total"]) == (50_000, 10_000)
    if name in REDUCED:
        small = dict(SUITE.task(name).profile("small").recipe)
        assert small["normal_class"] == name
        chosen = RECIPES["cpu"].values()
        for key in ("learning_rate", "image_size", "frozen_blocks", "batch_size", "optimizer", "neighbours"):
            assert small[key] == chosen[key]


def test_arms_are_those_of_the_paper_around_its_default() -> None:
    for name in TASKS:
        for profile in SUITE.task(name).profiles.values():
            arms = {arm.label: parse_spec(arm.strategy) for arm in profile.arms}
            assert arms[BASELINE] == ("fixed", OPTIONS["fixed"])
            assert arms["macl"] == ("macl", OPTIONS["macl"])
            assert [arms[f"fixed-{value}"][1]["temperature"] for value in ("0.1", "0.5", "1")] == [0.1, 0.5, 1]
            assert {arm.objective for arm in profile.arms} == {"infonce"}


@pytest.mark.parametrize("name", TASKS)
def test_reported_rows_exist_and_are_of_their_arms(name: str) -> None:
    task = SUITE.task(name)
    tables, labels = load(task.papers), []
    for arm in task.profile("paper").arms:
        for row in arm.reported:
            assert row.dataset == name
            cell = tables.row(row)["ROC-AUC"]
            options = {"temperature": cell.settings["temperature"]} if "temperature" in cell.settings else {}
            assert parse_spec(arm.strategy) == (cell.settings["strategy"], options)
            labels.append(arm.label)
    assert labels == ["fixed-0.1", "fixed-0.25", "fixed-0.5", "fixed-1", "temperature-free"]
    for profile_name, profile in task.profiles.items():
        assert profile_name == "paper" or not any(arm.reported for arm in profile.arms), "the paper answers another question"


@pytest.mark.parametrize(
    ("name", "method", "printed", "deviation"),
    [
        ("airplane", "temperature 0.1", 96.898, 0.019),
        ("airplane", "temperature free", 97.145, 0.011),
        ("bird", "temperature 0.5", 94.814, 0.044),
        ("cat", "temperature 0.25", 94.291, 0.020),
        ("deer", "temperature 1", 96.700, 0.007),
        ("ship", "temperature free", 98.809, 0.010),
        ("truck", "temperature 0.25", 98.274, 0.005),
    ],
)
def test_cells_stand_as_printed(name: str, method: str, printed: float, deviation: float) -> None:
    found = [(cell.value, cell.std) for cell in load("anomaly").cells if (cell.dataset, cell.method) == (name, method)]
    assert found == [(printed, deviation)]


@pytest.mark.parametrize(
    ("method", "printed"),
    [
        ("temperature 0.1", 96.902),
        ("temperature 0.25", 97.215),
        ("temperature 0.5", 97.184),
        ("temperature 1", 97.012),
        ("temperature free", 97.279),
    ],
)
def test_cells_have_the_printed_means(method: str, printed: float) -> None:
    values = [float(cell.value or 0) for cell in load("anomaly").cells if cell.method == method]
    assert len(values) == 10
    assert sum(values) / 10 == pytest.approx(printed, abs=6e-4)


def test_the_quick_profile_trains_and_measures_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "anomaly", "--tasks", "ship", "--seeds", "0", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "anomaly / ship / quick" in captured.out
    arms = SUITE.task("ship").profile("quick").arms
    assert len(captured.err.splitlines()) == len(arms)
    found = {
        arm.label: json.loads((tmp_path / "anomaly/quick/ship" / slug(arm.label) / "seed-0.json").read_text())["metrics"]
        for arm in arms
    }
    for metrics in found.values():
        assert 50 < metrics["ROC-AUC"] <= 100
        assert metrics["gain"] == pytest.approx(metrics["ROC-AUC"] - metrics["before"])
    assert len({metrics["before"] for metrics in found.values()}) == 1, "all arms start from one network"
    assert len({metrics["ROC-AUC"] for metrics in found.values()}) == len(arms)
    assert not list(tmp_path.rglob("*.work"))


def test_the_normal_class_alone_is_trained_on(tmp_path: Path, handed: list[tuple[Any, OneClassData, Any, MSCSettings]]) -> None:
    train, test = load_images("digits", "train", None), load_images("digits", "test", None)
    assert train.labels is not None
    assert test.labels is not None
    for name in REDUCED:
        train_anomaly(context_of(tmp_path, task=name))
        _, data, temperature, settings = handed[-1]
        number = CLASSES.index(name)
        assert data.train.labels is not None
        assert torch.equal(data.train.labels, train.labels[train.labels == number])
        assert torch.equal(data.anomalous, test.labels != number)
        assert (temperature.temperature_strategy, temperature.contrastive_objective) == ("fixed:temperature=0.25", "infonce")
        assert settings.seed == 0
    train_anomaly(context_of(tmp_path, "macl", seed=7, train_images=50, test_images=100))
    _, data, temperature, settings = handed[-1]
    assert (len(data.train), len(data.test), settings.seed) == (50, 100, 7)
    assert temperature.temperature_strategy.startswith("macl:base_temperature=0.25,alpha=0.5")


def test_the_small_network_is_always_the_same(tmp_path: Path, handed: list[Any]) -> None:
    images = load_images("digits", "train", None, count=8)
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        train_anomaly(context_of(tmp_path, seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
        found.append(represent(handed[-1][0].eval(), images, 8))
    assert torch.equal(*found)


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []

    def stop(fraction: float, text: str) -> None:
        told.append((fraction, text.partition(",")[0]))
        if text.startswith("epoch 1 "):
            raise KeyboardInterrupt

    whole = train_anomaly(context_of(tmp_path / "whole", "macl", seed=5))
    with pytest.raises(KeyboardInterrupt):
        train_anomaly(context_of(tmp_path / "killed", "macl", seed=5, progress=stop))
    assert train_anomaly(context_of(tmp_path / "killed", "macl", seed=5, progress=stop)) == whole
    assert [text for _, text in told] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert [fraction for fraction, _ in told] == [pytest.approx(0.5), pytest.approx(2.5 / 3)]


def test_parts_and_copies_are_refused_in_place_of_the_papers_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 1,437 images, but profile 'paper' is about 50,000"):
        train_anomaly(context_of(tmp_path, profile="paper", dataset="digits"))
    (tmp_path / "cifar10_train_jpeg.npz").touch()
    with pytest.raises(DataError, match="holds lossy copies of images, which are no cifar10"):
        train_anomaly(context_of(tmp_path, profile="paper", data_dir=tmp_path))


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "anomaly", "--profile", "small", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main(words) == 2
    assert "needs vision/cifar10_lossless4k.npz, vision/mobilenet_v2_imagenet.pth" in capsys.readouterr().err


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        tasks = [task for task in SUITE.tasks if profile in task.profiles]
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in tasks) > 0
