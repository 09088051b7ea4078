from __future__ import annotations

from pathlib import Path

import pytest
import torch
from suite_checks import bench as main
from suite_checks import read

from tempplug.errors import DataError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.msc.method import represent
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.tasks.anomaly import CLASSES, REDUCED, SUITE

TASKS = [task.name for task in SUITE.tasks]


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
def test_the_tasks_class_is_normal(name: str) -> None:
    for profile_name, profile in SUITE.task(name).profiles.items():
        normal = profile.recipe.values()["normal_class"]
        assert normal == (str(CLASSES.index(name)) if profile_name == "quick" else name)


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


def test_the_normal_digit_alone_is_trained_on(tmp_path: Path) -> None:
    train, test = load_images("digits", "train", None), load_images("digits", "test", None)
    assert train.labels is not None
    assert test.labels is not None
    for name in REDUCED:
        _, data = read(SUITE.task(name).profile("quick"), None, tmp_path)
        number = CLASSES.index(name)
        assert data.images.train.labels is not None
        assert torch.equal(data.images.train.labels, train.labels[train.labels == number])
        assert torch.equal(data.images.anomalous, test.labels != number)


def test_the_small_network_is_always_the_same(tmp_path: Path) -> None:
    images = load_images("digits", "train", None, count=8)
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        _, data = read(SUITE.task("ship").profile("quick"), None, tmp_path, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(represent(data.backbone.eval(), images, 8))
    assert torch.equal(*found)


def test_copies_are_refused_in_place_of_the_papers_images(tmp_path: Path) -> None:
    (tmp_path / "cifar10_train_jpeg.npz").touch()
    with pytest.raises(DataError, match="holds lossy copies of images, which are no cifar10"):
        read(SUITE.task("cat").profile("paper"), tmp_path, tmp_path)


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "anomaly", "--profile", "small", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main(words) == 2
    assert "needs vision/cifar10_lossless4k.npz, vision/mobilenet_v2_imagenet.pth" in capsys.readouterr().err
