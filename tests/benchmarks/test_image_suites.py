"""The suites vision, long-tail and anomaly: what they read, draw and measure."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from suite_checks import read
from torch import Tensor

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.long_tail import long_tail_counts
from tempplug_adapters.msc.method import represent
from tempplug_adapters.training.method import Source
from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_benchmarks.arm import resolve
from tempplug_benchmarks.tasks.images import ANOMALY, LONG_TAIL, VISION, read_images

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
REDUCED = tuple(task.name for task in ANOMALY.tasks if "quick" in task.profiles)
SIZES = r"([\d,]+) training images in classes of ([\d,]+) to ([\d,]+)"


def classes_of_digits(part: str) -> Tensor:
    labels = load_images("digits", part, None).labels
    assert labels is not None
    return labels


def test_figures_of_metrics_are_those_of_the_evaluations() -> None:
    long_tail = {each.name: each.figure for each in LONG_TAIL.task("cifar10-lt").profile("quick").metrics}
    assert long_tail.items() >= {("kNN@10", "knn@10"), ("FS LP", "few-shot"), ("LT LP tail", "long-tail tail")}
    vision = {each.name: each.figure for each in VISION.task("cifar10").profile("quick").metrics}
    assert vision.items() >= {("kNN", "knn"), ("linear", ""), ("validation", "knn validation")}


def test_large_images_have_dystress_with_its_higher_range() -> None:
    for task in (each for each in VISION.tasks if "paper" in each.profiles):
        profile = task.profile("paper")
        found = [arm for arm in profile.arms if arm.label.startswith("dystress")]
        assert bool(found) != (task.method.name in ("simsiam", "barlow-twins"))
        large = profile.recipe.values()["image_size"] > 64
        for arm in found:
            assert f"temperature_min={0.1 if large else 0.07}," in str(resolve(arm, profile.recipe).strategy)


@pytest.mark.slow
def test_small_profiles_draw_the_same_images_of_all_classes_for_every_seed(tmp_path: Path, data_dir: Path) -> None:
    for task, classes in (("imagenette", 10), ("tiny-imagenet-moco", 100), ("imagenet-100", 10)):
        profile = VISION.task(task).profile("small")
        profile.check_data(task, data_dir)
        drawn = [read(profile, data_dir, tmp_path, count=40, seed=seed)[1].train for seed in (0, 1)[: 1 + (classes == 10)]]
        assert (len(drawn[0].classes), drawn[0].batch(torch.tensor([0])).shape[-2:]) == (classes, (32, 32))
        assert torch.equal(drawn[0].batch(torch.arange(40)), drawn[-1].batch(torch.arange(40)))
        assert len(drawn[0].labels.unique()) > 5, "drawn from all classes, though the file is sorted by class"
        assert (profile.source == "cifar10") == ("CIFAR-10" in profile.dataset) == (task == "imagenet-100")


def test_copies_and_parts_are_refused_where_the_whole_is_meant(tmp_path: Path) -> None:
    (tmp_path / "vision").mkdir()
    copies = {"cifar10": "vision/cifar10_train_jpeg.npz", "imagenette": "imagenette224_train_jpeg.npz"}
    for copy in copies.values():
        (tmp_path / copy).touch()
    for suite, task, name in (
        (VISION, "cifar10", "cifar10"),
        (VISION, "imagenette", "imagenette"),
        (ANOMALY, "cat", "cifar10"),
    ):
        with pytest.raises(DataError, match=f"{copies[name]} holds lossy copies of images, which are no {name}"):
            read(suite.task(task).profile("paper"), tmp_path, tmp_path)
    whole = partial(read_images, method=SIMCLR, wanted=50_000)
    with pytest.raises(DataError, match="digits has 1,437 images to train on, but the profile is about 50,000"):
        whole(SIMCLR.recipe(), Source("digits", None, tmp_path))


def test_a_folder_of_the_users_own_is_read_below_the_data_folder(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "mine" / place).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "mine" / place / "1.png")
    _, data = read_images(SIMCLR.recipe(), Source("", tmp_path, tmp_path), method=SIMCLR, wanted=2, folder="mine")
    assert data.train.classes == ("a", "b")


def test_schedules_end_where_the_paper_does_and_where_it_advises() -> None:
    for task in LONG_TAIL.tasks:
        for name, profile in task.profiles.items():
            epochs = profile.recipe.num_train_epochs
            whole = 2 if name == "small" or epochs == 800 else 5
            schedules = [resolve(arm, profile.recipe).strategy for arm in profile.arms if arm.label.startswith("schedule")]
            for strategy, periods in zip(schedules, (whole, whole - 0.3), strict=True):
                options = parse_spec(str(strategy))[1]
                assert (options["temperature_min"], options["temperature_max"]) == (0.1, 1)
                assert epochs / options["period"] == pytest.approx(periods, rel=1e-4)
                assert epochs < 800 or periods != whole or options["period"] == 400


def test_long_tailed_parts_are_as_large_as_their_profiles_say() -> None:
    for task in LONG_TAIL.tasks:
        for size in task.profiles.keys() & {"small", "paper"}:
            profile = task.profile(size)
            found = re.search(SIZES, profile.dataset)
            assert found is not None
            images, largest, smallest = (int(number.replace(",", "")) for number in found.groups())
            assert isinstance(profile.load, partial)
            assert profile.load.keywords["wanted"] == images
            if profile.source == "imagenet-100-lt":
                continue  # its sizes are those of a list
            settings = profile.recipe.values()
            counts = long_tail_counts(int(profile.source.removeprefix("cifar")), settings["imbalance_ratio"], largest)
            assert (sum(counts), counts[0], counts[-1]) == (images, largest, smallest)
            assert settings["largest_class"] == largest
            assert settings["held_out"] == (0 if size == "paper" and task.name.endswith("dystress") else 5000)
            ratio = re.search(r"-lt-(\d+)-", task.name)
            known = int(ratio[1]) if ratio else 1 if "uniform" in task.name else 100
            assert settings["imbalance_ratio"] == (known if size == "paper" else max(1, known / 10))


def test_a_seed_is_a_long_tailed_split(tmp_path: Path) -> None:
    splits = set()
    for seed in (0, 1, 2):
        data, again = (read(LONG_TAIL.task("cifar10-lt").profile("quick"), None, tmp_path, seed=seed)[1] for _ in range(2))
        sizes = data.train.labels.bincount().tolist()
        assert sorted(sizes, reverse=True) == long_tail_counts(10, 10, 100)
        assert data.bank is data.train, "neighbours are searched among the training images"
        assert torch.equal(again.train.images, data.train.images)
        splits.add(tuple(sizes))
    assert len(splits) == 3, "the size of each class is drawn, too"


def test_a_tasks_class_is_normal_and_settings_were_chosen_on_another() -> None:
    assert tuple(task.name for task in ANOMALY.tasks) == (*CLASSES, "ship-short", "ship-long")
    assert len(REDUCED) >= 3
    assert "cat" not in REDUCED
    for task in ANOMALY.tasks:
        for name, profile in task.profiles.items():
            normal = str(CLASSES.index(task.name)) if name == "quick" else task.name.partition("-")[0]
            assert profile.recipe.values()["normal_class"] == normal


def test_anomaly_classes_are_those_of_the_data(data_dir: Path) -> None:
    images = load_images("cifar10-lossless4k", "train", data_dir)
    assert images.labels is not None
    assert images.classes == CLASSES
    assert int(images.labels.bincount().min()) > 280


def test_the_normal_digit_alone_is_trained_on(tmp_path: Path) -> None:
    train, test = classes_of_digits("train"), classes_of_digits("test")
    for name in REDUCED:
        _, data = read(ANOMALY.task(name).profile("quick"), None, tmp_path)
        number = CLASSES.index(name)
        assert torch.equal(data.images.train.labels, train[train == number])
        assert torch.equal(data.images.anomalous, test != number)


def test_the_small_network_is_always_the_same(tmp_path: Path) -> None:
    images, found = load_images("digits", "train", None, count=8), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        _, data = read(ANOMALY.task("ship").profile("quick"), None, tmp_path, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(represent(data.backbone.eval(), images, 8))
    assert torch.equal(*found)
