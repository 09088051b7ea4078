from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from image_metrics import measure_pixels
from suite_checks import bench as main
from suite_checks import read
from torch import Tensor, nn

from tempplug.errors import DataError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.training.method import Source
from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_benchmarks.arm import resolve
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.tasks.images import read_images
from tempplug_benchmarks.tasks.vision import SUITE


def test_large_images_have_dystress_with_its_higher_range() -> None:
    for task in SUITE.tasks:
        profile = task.profile("paper")
        found = [arm for arm in profile.arms if arm.label.startswith("dystress")]
        assert bool(found) != (task.method.name in ("simsiam", "barlow-twins"))
        large = profile.recipe.values()["image_size"] > 64
        for arm in found:
            assert f"temperature_min={0.1 if large else 0.07}," in str(resolve(arm, profile.recipe).strategy)


@pytest.mark.parametrize(
    ("paper", "table", "dataset", "method", "metric", "printed", "deviation"),
    [
        ("macl", "9", "CIFAR-10", "NT-Xent", "linear", 84.65, None),
        ("macl", "9", "CIFAR-10", "DCL", "linear", 86.29, None),
        ("macl", "B.3", "CIFAR-10", "MACL", "kNN", 85.32, None),
        ("macl", "B.3", "CIFAR-10", "Dual", "kNN", 83.87, None),
        ("macl", "1", "ImageNet", "w/ MACL", "linear", 64.3, None),
        ("macl", "7", "ImageNet-100", "w/o adaptive", "linear", 77.32, None),
        ("dystress", "1", "ImageNet-100", "DySTreSS*", "linear", 78.82, None),
        ("dystress", "3", "CIFAR-10", "DySTreSS", "kNN", 85.68, None),
        ("dystress", "3", "CIFAR-100", "SimCLR", "kNN", 52.32, None),
        ("temperature-free", "2", "Imagenette", "temperature 1", "kNN", 82.27, 1.42),
        ("temperature-free", "2", "Imagenette", "temperature free", "kNN", 84.65, 0.27),
        ("amcl", "3", "CIFAR-100", "SimCLR + AMCL", "linear", 61.8, None),
        ("amcl", "3", "Tiny-ImageNet", "SimCLR baseline", "linear", 48.1, None),
        ("amcl", "5", "STL-10", "+AMCL", "linear", 83.7, None),
    ],
)
def test_cells_stand_as_printed(
    paper: str, table: str, dataset: str, method: str, metric: str, printed: float, deviation: float | None
) -> None:
    found = [
        (cell.value, cell.std)
        for cell in load("vision").cells
        if (cell.paper, cell.table, cell.dataset, cell.method, cell.metric) == (paper, table, dataset, method, metric)
    ]
    assert found == [(printed, deviation)]


def test_metrics_are_those_of_their_definitions(tmp_path: Path) -> None:
    found, images = measure_pixels(SUITE.task("cifar10").profile("quick"), 0.5, tmp_path, seed=4, count=300)

    def rows(pixels: Tensor) -> Tensor:
        return nn.functional.normalize(pixels[:, 0].flatten(1).double() - 0.5)

    train, test = load_images("digits", "train", None, count=300), load_images("digits", "test", None)
    assert len(images) == 300
    bank, queries = (rows(each.batch(torch.arange(len(each))) / 255) for each in (train, test))
    assert train.labels is not None
    assert test.labels is not None
    nearest = (queries @ bank.T).topk(20)
    votes = torch.zeros(len(queries), 10, dtype=torch.float64)
    votes.scatter_add_(1, train.labels[nearest.indices], (nearest.values / 0.1).exp())
    assert found["kNN"] == pytest.approx(100 * (votes.argmax(1) == test.labels).double().mean().item())
    distance = torch.cdist(queries, queries).square()
    other = ~torch.eye(len(queries), dtype=torch.bool)
    assert found["uniformity"] == pytest.approx((-2 * distance[other]).exp().mean().log().item(), abs=1e-4)
    same = (test.labels[:, None] == test.labels) & other
    assert found["tolerance"] == pytest.approx((queries @ queries.T)[same].mean().item(), abs=1e-4)
    means = torch.stack([queries[test.labels == number].mean(0) for number in range(10)])
    apart = torch.cdist(means, means).square()[~torch.eye(10, dtype=torch.bool)]
    assert found["interclass uniformity"] == pytest.approx((-2 * apart).exp().mean().log().item(), abs=1e-4)
    torch.manual_seed(4)
    augmentation = create_augmentation("crop", 8)
    parts = torch.arange(360).split(256)
    views = [rows(torch.cat([augmentation(test.batch(part) / 255) for part in parts])) for _ in range(2)]
    assert found["alignment"] == pytest.approx((views[0] - views[1]).square().sum(1).mean().item(), abs=1e-4)
    assert 60 < found["linear"] < 100


@pytest.mark.slow
def test_the_same_images_are_drawn_for_every_seed(tmp_path: Path, data_dir: Path) -> None:
    profile = SUITE.task("cifar10").profile("small")
    drawn = [read(profile, data_dir, tmp_path, count=40, seed=seed)[1].train for seed in (0, 1)]
    assert torch.equal(*(each.batch(torch.arange(40)) for each in drawn))
    assert len(drawn[0].labels.unique()) > 5, "drawn from all classes, though the file is sorted by class"


@pytest.mark.slow
@pytest.mark.parametrize(("task", "classes"), [("imagenette", 10), ("tiny-imagenet-moco", 100), ("imagenet-100", 10)])
def test_small_profiles_have_the_data_set_itself_where_there_are_copies(
    task: str, classes: int, tmp_path: Path, data_dir: Path
) -> None:
    profile = SUITE.task(task).profile("small")
    profile.check_data(task, data_dir)
    _, data = read(profile, data_dir, tmp_path, count=300)
    assert (len(data.train.classes), data.train.batch(torch.tensor([0])).shape[-2:]) == (classes, (32, 32))
    assert (profile.source == "cifar10") == ("CIFAR-10" in profile.dataset) == (task == "imagenet-100")


def test_copies_and_parts_are_refused_where_the_whole_is_meant(tmp_path: Path) -> None:
    (tmp_path / "vision").mkdir()
    (tmp_path / "vision" / "cifar10_train_jpeg.npz").touch()
    (tmp_path / "imagenette224_train_jpeg.npz").touch()
    for name, copy in (("cifar10", "vision/cifar10_train_jpeg.npz"), ("imagenette", "imagenette224_train_jpeg.npz")):
        with pytest.raises(DataError, match=f"{copy} holds lossy copies of images, which are no {name}"):
            read(SUITE.task(name).profile("paper"), tmp_path, tmp_path)
    whole = partial(read_images, method=SIMCLR, wanted=50_000)
    with pytest.raises(DataError, match="digits has 1,437 images to train on, but the profile is about 50,000"):
        whole(SIMCLR.recipe(), Source("digits", None, tmp_path))


def test_a_folder_of_the_users_own_is_read_below_the_data_folder(tmp_path: Path) -> None:
    from PIL import Image

    for split in ("train", "val"):
        for word in ("a", "b"):
            (tmp_path / "mine" / split / word).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "mine" / split / word / "1.png")
    _, data = read_images(SIMCLR.recipe(), Source("", tmp_path, tmp_path), method=SIMCLR, wanted=2, folder="mine")
    assert data.train.classes == ("a", "b")


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "vision", "--profile", "small", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main(words) == 2
    assert "needs vision/cifar10_train_jpeg.npz, vision/cifar10_test_jpeg.npz under the data folder" in capsys.readouterr().err
