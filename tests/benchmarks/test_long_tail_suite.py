from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from suite_checks import check_imports_are_light, check_profile, run_context
from torch import Tensor, nn

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.images.long_tail import hold_out, long_tail_counts
from tempplug_adapters.vision.recipe import VisionSettings
from tempplug_adapters.vision.recipes import RECIPES, known_options
from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES, RunContext
from tempplug_benchmarks.tasks import long_tail_runs
from tempplug_benchmarks.tasks.long_tail import BASELINE, METRICS, SIZES, SUITE
from tempplug_benchmarks.tasks.long_tail_runs import long_tailed, strategy_of, train_long_tail
from tempplug_benchmarks.tasks.vision_runs import RANDOM, settings_of

TASKS = [task.name for task in SUITE.tasks]


def context_of(
    work_dir: Path, label: str = BASELINE, profile: str = "quick", task: str = "cifar10-lt", seed: int = 0, **more: Any
) -> RunContext:
    return run_context(SUITE, work_dir, label, profile, task, seed, **more)


def balanced(classes: int, each: int) -> ImageArray:
    """Images of one pixel, whose colour says where in the set they are."""
    labels = torch.arange(classes).repeat_interleave(each)
    position = torch.arange(len(labels))
    colours = torch.stack([position // 65536, position // 256 % 256, position % 256], dim=1)
    return ImageArray(colours.to(torch.uint8)[:, :, None, None], labels, tuple(map(str, range(classes))), "balanced")


def places(images: ImageArray) -> list[int]:
    pixels = images.images[:, :, 0, 0].long()
    return (pixels[:, 0] * 65536 + pixels[:, 1] * 256 + pixels[:, 2]).tolist()


def test_importing_the_suite_loads_no_framework() -> None:
    check_imports_are_light("tempplug_benchmarks.tasks.long_tail")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert tuple(task.profiles) == (PROFILES if name == "cifar10-lt" else ("paper",))
    for profile_name, profile in task.profiles.items():
        check_profile(profile)
        assert {"schedule", "schedule-early", "dystress", RANDOM} <= {arm.label for arm in profile.arms}
        assert (profile.arm("head-tail") is not None) == (name == "cifar10-lt")
        assert bool(profile.needs) == (profile_name == "small" or name == "imagenet-100-lt")
        assert [metric.name for metric in profile.metrics] == [metric.name for metric in METRICS]


@pytest.mark.parametrize("name", TASKS)
def test_the_papers_profile_is_the_recipe_of_the_adapter(name: str, tmp_path: Path) -> None:
    expected = replace(RECIPES["simclr"]["long-tail"], seed=2)
    if name == "imagenet-100-lt":
        expected = replace(
            expected,
            backbone="resnet50",
            stem="imagenet",
            image_size=224,
            augmentation="amcl-abcde",
            epochs=800,
            batch_size=256,
        )
    settings = settings_of(context_of(tmp_path, BASELINE, "paper", name, seed=2))
    assert settings == expected
    assert {each.name for each in fields(VisionSettings)} > {"epochs"}
    arms = {arm.label: arm for arm in SUITE.task(name).profile("paper").arms}
    for label, strategy in {BASELINE: "fixed", "schedule": "schedule"}.items():
        known = known_options("simclr", strategy, settings, 1)
        if name == "imagenet-100-lt" and strategy == "schedule":
            known["period"] = 400  # of 800 epochs, as all of the paper's
        words = ",".join(f"{key}={value}" for key, value in known.items() if key not in ("size", "dimension"))
        assert resolve(arms[label]).strategy == resolve(replace(arms[label], strategy=f"{strategy}:{words}")).strategy


def test_schedules_end_where_the_paper_does_and_where_it_advises() -> None:
    for name, profile in SUITE.task("cifar10-lt").profiles.items():
        epochs, whole = float(profile.recipe["epochs"] or 0), 2 if name == "small" else 5
        for label, periods in (("schedule", whole), ("schedule-early", whole - 0.3)):
            arm = profile.arm(label)
            assert arm is not None
            options = parse_spec(arm.strategy)[1]
            assert (options["temperature_min"], options["temperature_max"]) == (0.1, 1)
            assert epochs / options["period"] == pytest.approx(periods, rel=1e-4)
    paper = SUITE.task("cifar10-lt").profile("paper").arm("schedule")
    assert paper is not None
    assert "period=400" in paper.strategy


def test_sizes_of_classes_are_the_papers() -> None:
    assert list(SIZES["cifar10"]) == long_tail_counts(10, 100, 4500)
    assert list(SIZES["digits"]) == long_tail_counts(10, 10, 100)
    assert sum(SIZES["cifar10"]) == 11_165


@pytest.mark.parametrize("profile", ["small", "paper"])
def test_a_seed_is_a_split_of_what_is_not_held_out(profile: str, tmp_path: Path) -> None:
    images = balanced(10, 5000)
    splits = {}
    for seed in (0, 1, 2):
        context = context_of(tmp_path, profile=profile, seed=seed)
        part = long_tailed(images, context)
        assert isinstance(part, ImageArray)
        assert part.labels is not None
        assert sorted(part.labels.bincount().tolist(), reverse=True) == list(SIZES["cifar10"])
        chosen = places(part)
        assert torch.equal(part.labels, torch.tensor(chosen) // 5000)
        _, held = hold_out(images.labels, 5000, seed)  # type: ignore[arg-type]
        assert len(held) == 5000
        assert not set(chosen) & set(held.tolist())
        assert places(long_tailed(images, context)) == chosen  # type: ignore[arg-type]
        splits[seed] = tuple(part.labels.bincount().tolist())
    assert len(set(splits.values())) == 3, "which class is how large is drawn, too"


def test_cifar100_has_the_papers_sizes(tmp_path: Path) -> None:
    part = long_tailed(balanced(100, 500), context_of(tmp_path, profile="paper", task="cifar100-lt"))
    assert part.labels is not None
    counts = part.labels.bincount().tolist()
    assert (sum(counts), max(counts), min(counts)) == (9_754, 450, 4)


def test_a_set_that_is_long_tailed_already_stays(tmp_path: Path) -> None:
    images = balanced(3, 4)
    assert long_tailed(images, context_of(tmp_path, profile="paper", task="imagenet-100-lt")) is images


def test_the_arm_that_knows_sizes_gets_them_in_the_order_of_the_classes(tmp_path: Path) -> None:
    images = long_tailed(balanced(10, 5000), context_of(tmp_path, profile="small"))
    assert images.labels is not None
    arm = context_of(tmp_path, "head-tail", "small")
    options = parse_spec(strategy_of(arm, images))[1]
    assert options["class_counts"] == images.labels.bincount().tolist() != sorted(options["class_counts"], reverse=True)
    assert (options["temperature_head"], options["temperature_tail"]) == (1, 0.1)
    fixed = context_of(tmp_path, BASELINE, "small")
    assert strategy_of(fixed, images) == fixed.arm.strategy
    with pytest.raises(DataError, match=r"class_counts=\[4500, .* are not those of the set 'balanced', \[5000, 5000"):
        strategy_of(arm, balanced(10, 5000))


def test_the_arm_trains_with_the_counts_of_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def train(context: RunContext, images: Any) -> Any:
        told.append(context.arm.strategy)
        raise KeyboardInterrupt

    monkeypatch.setattr(long_tail_runs, "train_backbone", train)
    for seed in (0, 1):
        context = context_of(tmp_path, "head-tail", seed=seed)
        part = long_tailed(load_images("digits", "train", None), context)
        assert part.labels is not None
        with pytest.raises(KeyboardInterrupt):
            train_long_tail(context)
        assert parse_spec(told[-1])[1]["class_counts"] == part.labels.bincount().tolist()
    assert told[0] != told[1]


class Pixels(nn.Module):
    """The grey values themselves as representations."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0].flatten(1)


def test_metrics_are_those_of_their_definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = Backbone(Pixels(), mean=(0, 0, 0), std=(1, 1, 1), dimension=64)
    monkeypatch.setattr(long_tail_runs, "train_backbone", lambda context, images: pixels)
    context = context_of(tmp_path, seed=1)
    found = train_long_tail(context)
    train, test = long_tailed(load_images("digits", "train", None), context), load_images("digits", "test", None)
    assert train.labels is not None
    assert test.labels is not None
    bank, queries = (
        nn.functional.normalize(each.batch(torch.arange(len(each)))[:, 0].flatten(1).double()) for each in (train, test)
    )
    order = torch.cdist(queries, bank).argsort(dim=1, stable=True)
    by_size = sorted(range(10), key=lambda number: -int((train.labels == number).sum()))  # type: ignore[union-attr]
    groups = {"": by_size, " head": by_size[:4], " mid": by_size[4:7], " tail": by_size[7:]}
    for k in (1, 10):
        votes = nn.functional.one_hot(train.labels[order[:, :k]], 10).sum(1)
        right = votes.argmax(1) == test.labels
        for group, numbers in groups.items():
            shares = [100 * right[test.labels == number].double().mean().item() for number in numbers]
            assert found[f"kNN@{k}{group}"] == pytest.approx(sum(shares) / len(shares), abs=1e-6)
    assert found["kNN@1 head"] > found["kNN@1 tail"]
    assert {"FS LP", "LT LP"} < found.keys()
    assert found["FS LP"] != found["LT LP"]
    assert min(found["FS LP"], found["LT LP"]) > 60


def test_the_quick_profile_trains_and_measures_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "long-tail", "--seeds", "0", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "long-tail / cifar10-lt / quick" in captured.out
    arms = SUITE.task("cifar10-lt").profile("quick").arms
    assert len(captured.err.splitlines()) == len(arms)
    found = {}
    for arm in arms:
        content = json.loads((tmp_path / "long-tail/quick/cifar10-lt" / slug(arm.label) / "seed-0.json").read_text())
        found[arm.label] = tuple(content["metrics"].values())
        assert content["metrics"].keys() == {metric.name for metric in METRICS}
        assert all(0 <= value <= 100 for value in found[arm.label])
        assert content["metrics"]["kNN@1"] > 30
        assert content["metrics"]["kNN@1 head"] > content["metrics"]["kNN@1 tail"]
    assert len(set(found.values())) == len(arms)
    assert not list(tmp_path.rglob("*.work"))


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    told: list[str] = []

    def stop(fraction: float, text: str) -> None:
        told.append(text.partition(",")[0])
        if told[-1] == "epoch 1 of 2":
            raise KeyboardInterrupt

    smaller = {"epochs": 2, "save_epochs": 1}
    whole = train_long_tail(context_of(tmp_path / "whole", "head-tail", seed=5, **smaller))
    with pytest.raises(KeyboardInterrupt):
        train_long_tail(context_of(tmp_path / "killed", "head-tail", seed=5, **smaller, progress=stop))
    told.clear()
    assert train_long_tail(context_of(tmp_path / "killed", "head-tail", seed=5, **smaller, progress=stop)) == whole
    assert [text for text in told if text.startswith("epoch")] == ["epoch 2 of 2"]


@pytest.mark.parametrize("name", TASKS)
def test_reported_rows_exist_and_are_of_their_arms(name: str) -> None:
    task = SUITE.task(name)
    tables = load(task.papers)
    found = {}
    for arm in task.profile("paper").arms:
        own, options = parse_spec(resolve(arm).strategy)
        for row in arm.reported:
            for metric, cell in tables.row(row).items():
                assert metric in {each.name for each in METRICS}
                assert cell.settings["strategy"] == own
                assert cell.settings["epochs"] == task.profile("paper").recipe["epochs"]
                for key in cell.settings.keys() & options.keys():
                    assert cell.settings[key] == options[key]
                found.setdefault(arm.label, set()).add(metric)
    grouped = {metric.name for metric in METRICS}
    assert found[BASELINE] == found["schedule"] == (grouped - {"kNN@1"} if name == "imagenet-100-lt" else grouped)
    assert found.keys() - {"dystress"} == {BASELINE, "schedule"}
    for profile_name, profile in task.profiles.items():
        assert profile_name == "paper" or not any(arm.reported for arm in profile.arms), "papers answer another question"


def test_every_cell_is_answered_by_an_arm() -> None:
    rows = {row for task in SUITE.tasks for arm in task.profile("paper").arms for row in arm.reported}
    cells = {(cell.paper, cell.table, cell.method, cell.dataset) for cell in load("long_tail").cells}
    assert {(row.paper, row.table, row.method, row.dataset) for row in rows} == cells


@pytest.mark.parametrize(
    ("table", "dataset", "method", "metric", "printed", "deviation"),
    [
        ("1", "CIFAR-10-LT", "SimCLR", "kNN@1", 59.84, None),
        ("1", "CIFAR-10-LT", "SimCLR + TS", "FS LP", 71.86, None),
        ("1", "CIFAR-100-LT", "SimCLR + TS", "kNN@10", 30.06, None),
        ("1", "CIFAR-100-LT", "SimCLR", "LT LP", 31.20, None),
        ("3", "ImageNet-100-LT", "SimCLR + TS", "LT LP", 47.26, None),
        ("7", "CIFAR-10-LT", "SimCLR", "kNN@10 tail", 29.52, 9.44),
        ("7", "CIFAR-10-LT", "SimCLR + TS", "kNN@1 mid", 58.96, 5.21),
        ("8", "CIFAR-100-LT", "SimCLR", "kNN@1 head", 53.87, 2.12),
        ("9", "ImageNet-100-LT", "SimCLR + TS", "kNN@1 tail", 13.14, None),
        ("4", "CIFAR-10-LT", "DySTreSS", "kNN@10", 64.98, None),
    ],
)
def test_cells_stand_as_printed(
    table: str, dataset: str, method: str, metric: str, printed: float, deviation: float | None
) -> None:
    found = [
        (cell.value, cell.std)
        for cell in load("long_tail").cells
        if (cell.table, cell.dataset, cell.method, cell.metric) == (table, dataset, method, metric)
    ]
    assert found == [(printed, deviation)]


def test_overall_figures_are_the_means_of_their_groups_or_say_that_they_are_not() -> None:
    cells = {(cell.table, cell.dataset, cell.method, cell.metric): cell for cell in load("long_tail").cells}
    shares = {"CIFAR-10-LT": ("7", (0.4, 0.3, 0.3)), "CIFAR-100-LT": ("8", (0.34, 0.33, 0.33))}
    told = []
    for dataset, (table, weights) in shares.items():
        for method in ("SimCLR", "SimCLR + TS"):
            for metric in ("kNN@1", "kNN@10"):
                overall = cells["1", dataset, method, metric]
                groups = [cells[table, dataset, method, f"{metric} {group}"].value for group in ("head", "mid", "tail")]
                mean = sum(weight * float(value or 0) for weight, value in zip(weights, groups, strict=True))
                agrees = abs(mean - float(overall.value or 0)) < 0.02
                assert agrees != (f"give {mean:.2f}" in overall.note)
                told += [] if agrees else [(dataset, method, metric)]
    assert told == [("CIFAR-100-LT", "SimCLR + TS", "kNN@1")]


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "long-tail", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main([*words, "--profile", "small"]) == 2
    assert "needs vision/cifar10_train_jpeg.npz, vision/cifar10_test_jpeg.npz under the data folder" in capsys.readouterr().err
    assert main([*words, "--profile", "paper", "--tasks", "imagenet-100-lt"]) == 2
    assert "needs imagenet-100-lt under the data folder" in capsys.readouterr().err


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        tasks = [task for task in SUITE.tasks if profile in task.profiles]
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in tasks) > 0
