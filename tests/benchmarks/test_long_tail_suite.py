from __future__ import annotations

from pathlib import Path

import pytest
import torch
from image_metrics import measure_pixels
from suite_checks import bench as main
from suite_checks import read
from torch import nn

from tempplug.arguments import parse_spec
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.long_tail import long_tail_counts
from tempplug_benchmarks.arm import resolve
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.tasks.long_tail import DRAWS, REDUCED, SUITE


def test_schedules_end_where_the_paper_does_and_where_it_advises() -> None:
    for task in SUITE.tasks:
        for name, profile in task.profiles.items():
            epochs = profile.recipe.num_train_epochs
            whole = 2 if name == "small" or epochs == 800 else 5
            schedules = [resolve(arm, profile.recipe).strategy for arm in profile.arms if arm.label.startswith("schedule")]
            for strategy, periods in zip(schedules, (whole, whole - 0.3), strict=True):
                options = parse_spec(str(strategy))[1]
                assert (options["temperature_min"], options["temperature_max"]) == (0.1, 1)
                assert epochs / options["period"] == pytest.approx(periods, rel=1e-4)
                assert epochs < 800 or periods != whole or options["period"] == 400


def test_parts_are_as_large_as_their_profiles_say() -> None:
    for draw in (*DRAWS.values(), *REDUCED.values()):
        counts = long_tail_counts(draw.classes, draw.ratio, draw.largest)
        assert (sum(counts), counts[0], counts[-1]) == (draw.images, draw.largest, draw.smallest)
    for name, draw in DRAWS.items():
        for task in (each for each in SUITE.tasks if each.name in (name, f"{name}-moco")):
            for size, part in (("small", REDUCED[draw.ratio]), ("paper", draw)):
                profile = task.profile(size)
                assert f"{part.images:,} training images in classes of {part.largest:,} to {part.smallest:,}" in profile.dataset
                settings = profile.recipe.values()
                drawn = (settings["imbalance_ratio"], settings["largest_class"], settings["held_out"])
                assert drawn == (part.ratio, part.largest, 5000)


def test_a_seed_is_a_split(tmp_path: Path) -> None:
    splits = {}
    for seed in (0, 1, 2):
        _, data = read(SUITE.task("cifar10-lt").profile("quick"), None, tmp_path, seed=seed)
        assert sorted(data.train.labels.bincount().tolist(), reverse=True) == long_tail_counts(10, 10, 100)
        assert data.bank is data.train, "what is trained on is what neighbours are looked for among"
        _, again = read(SUITE.task("cifar10-lt").profile("quick"), None, tmp_path, seed=seed)
        assert torch.equal(again.train.images, data.train.images)
        splits[seed] = tuple(data.train.labels.bincount().tolist())
    assert len(set(splits.values())) == 3, "which class is how large is drawn, too"


def test_metrics_are_those_of_their_definitions(tmp_path: Path) -> None:
    found, images = measure_pixels(SUITE.task("cifar10-lt").profile("quick"), 0.0, tmp_path, seed=1)
    train, test = images.train, load_images("digits", "test", None)
    assert train.labels is not None
    assert test.labels is not None
    bank, queries = (
        nn.functional.normalize(each.batch(torch.arange(len(each)))[:, 0].flatten(1).double()) for each in (train, test)
    )
    order = torch.cdist(queries, bank).argsort(dim=1, stable=True)
    sizes = train.labels.bincount().tolist()
    by_size = sorted(range(10), key=lambda number: -sizes[number])
    groups = {"": by_size, " head": by_size[:4], " mid": by_size[4:7], " tail": by_size[7:]}
    for k in (1, 10):
        votes = nn.functional.one_hot(train.labels[order[:, :k]], 10).sum(1)
        right = votes.argmax(1) == test.labels
        for group, numbers in groups.items():
            shares = [100 * right[test.labels == number].double().mean().item() for number in numbers]
            assert found[f"kNN@{k}{group}"] == pytest.approx(sum(shares) / len(shares), abs=1e-6)
    assert found["kNN@1 head"] > found["kNN@1 tail"]
    assert found["FS LP"] != found["LT LP"]
    assert min(found["FS LP"], found["LT LP"]) > 60


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
