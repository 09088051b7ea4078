"""Image data sets by name: the real ones pixel by pixel, draws, a user's own folder, and what is said where one lacks."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from image_toys import BROKEN, encoded, labels_of, noise, reds, write_image
from PIL import Image
from sklearn.datasets import load_digits

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.image_data import DATASETS, load_images
from tempplug_adapters.images.image_set import ImageArray, ImageFiles


def array(*arguments: object, **options: object) -> ImageArray:
    images = load_images(*arguments, **options)  # type: ignore[arg-type]
    assert isinstance(images, ImageArray)
    return images


def by_hand(path: Path, rows: list[int]) -> np.ndarray:
    """Rows of an archive of JPEG files, decoded as its makers say."""
    with np.load(path) as archive:
        block, offsets = archive["jpeg"].tobytes(), archive["offsets"]
    return np.stack([np.asarray(Image.open(io.BytesIO(block[offsets[row] : offsets[row + 1]])).convert("RGB")) for row in rows])


def test_cifar10_is_that_of_the_archive_and_a_smaller_count_is_the_beginning_of_a_larger(data_dir: Path) -> None:
    path, before = data_dir / "vision" / "cifar10_train_jpeg.npz", torch.get_rng_state()
    images = array("cifar10", "train", data_dir, count=200, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    drawn = torch.randperm(50_000, generator=torch.Generator().manual_seed(3))[:200]
    assert np.array_equal(images.images.permute(0, 2, 3, 1).numpy(), by_hand(path, drawn.tolist()))
    assert images.labels.tolist() == (drawn // 5000).tolist()  # the archive is sorted by class, 5,000 each
    assert images.classes == ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    assert images.name == "cifar10 train"
    small = array("cifar10", "train", data_dir, count=20, seed=3)
    assert torch.equal(images.images[:20], small.images)
    assert torch.equal(images.labels[:20], small.labels)


def test_other_archives(data_dir: Path) -> None:
    for dataset, split, total, side, classes in [
        ("imagenette", "test", 1000, 224, 10),
        ("tiny-imagenet", "train", 15_000, 64, 100),
        ("tiny-imagenet", "test", 2500, 64, 100),
        ("cifar10-lossless4k", "train", 3200, 32, 10),
        ("cifar10-lossless4k", "test", 800, 32, 10),
    ]:
        with pytest.raises(ConfigError, match=f"count={total + 1} must be a whole number from 1 to {total}"):
            array(dataset, split, data_dir, count=total + 1)
        images = array(dataset, split, data_dir, count=9)
        assert (images.images.shape, len(images.classes)) == ((9, 3, side, side), classes)


def test_digits_are_those_of_scikit_learn() -> None:
    digits, (train, test) = load_digits(), (array("digits", split, None) for split in ("train", "test"))
    assert (len(train), len(test)) == (1437, 360)
    joined, labels = torch.cat([train.images, test.images]), torch.cat([train.labels, test.labels])
    assert bool((joined == joined[:, :1]).all())
    ours = torch.cat([joined[:, 0].flatten(1), labels[:, None]], 1).tolist()
    levels = np.array([round(level * 255 / 16) for level in range(17)])
    theirs = np.concatenate([levels[digits.data.astype(int)], digits.target[:, None]], 1).tolist()
    assert sorted(ours) == sorted(theirs)
    assert train.classes == tuple("0123456789")
    assert min(test.labels.bincount().tolist()) >= 25
    assert torch.equal(array("digits", "train", None).images, train.images)
    first, other = (array("digits", "test", None, size=20, count=5, seed=seed).images for seed in (0, 1))
    assert first.shape == (5, 3, 20, 20)
    assert not torch.equal(first, other)


def test_a_folder_of_ones_own_stays_on_disk(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "train/ant/2.png", "test/dog/3.png"):
        write_image(tmp_path / name, int(name[-5]), (30, 20))
    images = load_images(str(tmp_path), "train", None)
    assert isinstance(images, ImageFiles)
    assert images.batch(torch.tensor([0])).shape == (1, 3, 224, 224)
    assert images.name == f"{tmp_path} train"
    small = load_images(str(tmp_path), "test", None, size=8)
    assert reds(small.batch(torch.tensor([0]))) == [3]
    assert labels_of(small) == [1]
    drawn = load_images(str(tmp_path), "train", None, size=8, count=1)
    assert len(drawn) == 1


def test_an_original_comes_before_a_copy(tmp_path: Path) -> None:
    write_archive(tmp_path, images=np.full((3, 4, 4, 3), 5, np.uint8))
    assert reds(array("cifar10", "train", tmp_path).images) == [5, 5, 5]
    pixels = noise(3, 5, 4)
    write_archive(tmp_path, images=pixels.permute(0, 2, 3, 1).numpy())
    assert torch.equal(array("cifar10", "train", tmp_path).images, pixels)
    write_image(tmp_path / "cifar10" / "train" / "cat" / "1.png", 9)
    assert reds(array("cifar10", "train", tmp_path).images) == [9]


def test_folders_of_data_sets(tmp_path: Path) -> None:
    for dataset, below in (("imagenet", ""), ("imagenet-100", "vision"), ("imagenette2-160", ""), ("cifar10", "vision")):
        for name in ("train/n01/1.JPEG", "train/n02/2.JPEG", "val/n02/3.JPEG"):
            write_image(tmp_path / below / dataset / name, int(name[-6]), (12, 12))
        test = load_images("imagenette" if "nette" in dataset else dataset, "test", tmp_path, size=8)
        assert isinstance(test, ImageArray if dataset == "cifar10" else ImageFiles)
        assert (reds(test.batch(torch.tensor([0]))), labels_of(test)) == ([3], [1])


def test_a_broken_image_of_an_archive_is_named(tmp_path: Path) -> None:
    contents = [encoded((1, 0, 0), form="PNG"), BROKEN, encoded((3, 0, 0), form="PNG")]
    write_archive(tmp_path, jpeg=np.frombuffer(b"".join(contents), np.uint8), offsets=np.cumsum([0, *map(len, contents)]))
    with pytest.warns(UserWarning, match=r"1 of 3 images of 'cifar10 train' .*cifar10_train_jpeg\.npz, row 2") as told:
        images = array("cifar10", "train", tmp_path)
    assert told[0].filename == __file__
    assert reds(images.images) == [1, 3]
    assert images.labels.tolist() == [0, 1]


def write_archive(folder: Path, **arrays: np.ndarray) -> None:
    held = {"labels": np.array([0, 1, 1]), "classes": np.array(["cat", "dog"]), **arrays}
    np.savez(folder / "cifar10_train_jpeg.npz", **held)


def test_a_data_set_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    for dataset in (name for name in DATASETS if name != "digits"):
        with pytest.raises(DataError) as raised:
            load_images(dataset, "test", tmp_path)
        message = str(raised.value)
        assert f"{dataset} (test) was looked for in {tmp_path} and {tmp_path / 'vision'} as " in message
        on_hub = dataset in ("cifar10", "cifar100", "tiny-imagenet", "imagenet")
        assert ("give no data folder to load it from the Hugging Face hub" in message) is on_hub
    with pytest.raises(DataError, match=r"cifar-10-batches-bin or cifar-10-batches-py or cifar10 or cifar10_train_jpeg\.npz"):
        load_images("cifar10", "train", tmp_path)
    with pytest.raises(DataError, match=r"data_dir is not given, and stl10 is not .* holds stl10_binary .*TEMPPLUG_DATA"):
        load_images("stl10", "train", None)


def test_wrong_options_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for dataset, given, error, message in [
        ("cifar-10", {}, UnknownNameError, r"no data set 'cifar-10'\. Did you mean 'cifar10'\? Known: cifar10, .*digits"),
        (str(tmp_path / "file"), {}, DataError, "file is no folder and no table of images: "),
        ("digits", {"split": "val"}, ConfigError, "split='val' must be 'train' or 'test'"),
        ("digits", {"size": 0}, ConfigError, "size=0 must be"),
        *(("digits", {"count": count}, ConfigError, f"count={count} must be a whole") for count in (0, -1, 361, 2.0, True)),
        *(
            (path, {}, DataError, f"the folder {re.escape(path)} does not exist: .* holds train and test or val")
            for path in ("nowhere/at/all", "./nowhere", "../nowhere", "nowhere/", "~/no/where", "~nobody-here")
        ),
    ]:
        with pytest.raises(error, match=message):
            load_images(dataset, **{"split": "test", "data_dir": None, **given})
