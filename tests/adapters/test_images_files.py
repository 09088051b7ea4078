"""Encoded images: in memory what cannot be decoded is left out, on disk another takes its place; folders of class folders."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from image_toys import BROKEN, Files, encoded, reds, write_image
from PIL import Image

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.class_folders import list_folder, list_split
from tempplug_adapters.images.encoded_set import EncodedSet, decode_all
from tempplug_adapters.images.image_files import ImageFiles, ImageFolder


def toy(contents: list[bytes], labels: list[int] | None = None) -> EncodedSet:
    return EncodedSet(Files(contents), None if labels is None else torch.tensor(labels), ("cat", "dog"), "toy")


def good(red: int) -> bytes:
    return encoded((red, 0, 0))


def test_what_cannot_be_decoded_is_left_out_and_named() -> None:
    files = toy([good(0), BROKEN, good(2), b"", good(4)], [0, 1, 1, 0, 0])
    with pytest.warns(UserWarning, match="2 of 5 images of 'toy' are left out") as told:
        images = decode_all(files)
    assert len(told) == 1
    assert "file-1.png cannot be decoded" in str(told[0].message)
    assert "file-3.png cannot be decoded" in str(told[0].message)
    assert reds(images.images) == [0, 2, 4]
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 0]
    assert (images.classes, images.name) == (("cat", "dog"), "toy")


def test_many_faults_are_counted_not_listed() -> None:
    with pytest.warns(UserWarning, match=r"30 of 31 images .* file-0\.png .* file-9\.png .* And 20 more\.$") as told:
        decode_all(toy([BROKEN] * 30 + [good(1)]))
    assert "file-10.png" not in str(told[0].message)


def test_sizes_that_differ_need_a_size() -> None:
    files = toy([good(0), encoded((1, 0, 0), (9, 4))])
    message = r"file-1\.png is 9x4 pixels large, but images before it are 6x6: pass a size to which all images of 'toy'"
    with pytest.raises(DataError, match=message):
        decode_all(files)
    assert decode_all(files, 4).images.shape == (2, 3, 4, 4)


def test_a_set_without_a_readable_image_raises() -> None:
    message = r"no image of 'toy' can be decoded\. file-0\.png cannot be decoded as an image"
    with pytest.raises(DataError, match=message):
        decode_all(toy([BROKEN, b""]))
    with pytest.raises(DataError, match=message):
        ImageFiles(toy([BROKEN, b""]), 4).batch(torch.tensor([0]))
    with pytest.raises(DataError, match=r"no image of 'toy' can be decoded\. It is empty"):
        decode_all(toy([]))


def test_images_on_disk_are_decoded_when_asked_for() -> None:
    files = toy([good(red) for red in range(4)], [0, 1, 0, 1])
    images = ImageFiles(files, 5)
    assert files.source.asked == []  # type: ignore[attr-defined]
    batch = images.batch(torch.tensor([3, 0, 3]))
    assert batch.dtype == torch.uint8
    assert batch.shape == (3, 3, 5, 5)
    assert reds(batch) == [3, 0, 3]
    assert files.source.asked == [3, 0, 3]  # type: ignore[attr-defined]
    assert reds(images.batch(torch.tensor([False, True, True, False]))) == [1, 2]


def test_another_image_of_the_class_takes_the_place_and_is_told_once() -> None:
    images = ImageFiles(toy([good(0), BROKEN, good(2), good(3), BROKEN], [0, 1, 0, 1, 1]), 4)
    with pytest.warns(UserWarning, match=r"file-1\.png cannot be decoded .*\. file-3\.png is used in its place\.") as told:
        assert reds(images.batch(torch.arange(3))) == [0, 3, 2]
    assert len(told) == 1
    with pytest.warns(UserWarning, match=r"file-4\.png cannot be decoded .*\. file-3\.png is used in its place\."):
        assert reds(images.batch(torch.arange(5))) == [0, 3, 2, 3, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reds(images.batch(torch.tensor([4, 1]))) == [3, 3]


def test_without_labels_or_a_readable_one_of_the_class_it_is_the_next() -> None:
    with pytest.warns(UserWarning, match=r"file-1\.png .* file-2\.png is used"):
        assert reds(ImageFiles(toy([good(0), BROKEN, good(2)]), 4).batch(torch.tensor([1]))) == [2]
    with pytest.warns(UserWarning, match=r"file-2\.png .* file-0\.png is used"):
        assert reds(ImageFiles(toy([good(0), good(1), BROKEN], [0, 0, 1]), 4).batch(torch.tensor([2]))) == [0]


def test_a_replacement_comes_from_the_subset() -> None:
    images = ImageFiles(toy([BROKEN, good(1), good(2), good(3)], [0, 0, 0, 1]), 4).subset(torch.tensor([3, 0, 2]))
    assert images.labels is not None
    assert images.labels.tolist() == [1, 0, 0]
    assert images.classes == ("cat", "dog")
    with pytest.warns(UserWarning, match=r"file-0\.png .* file-2\.png is used"):
        assert reds(images.batch(torch.arange(3))) == [3, 2, 2]
    assert reds(images.subset(torch.tensor([2])).batch(torch.tensor([0]))) == [2]


def test_a_bomb_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    files = toy([good(0), encoded((1, 0, 0), (40, 40))])
    for read in (lambda: decode_all(files, 4), lambda: ImageFiles(files, 4).batch(torch.tensor([1]))):
        with pytest.raises(DataError, match=r"file-1\.png is too large"):
            read()


def test_faults_of_a_set_are_named() -> None:
    with pytest.raises(ShapeError, match=r"labels \[1\] torch.int64 of the set 'toy' must be \[2\]"):
        toy([good(0), good(1)], [0])
    with pytest.raises(ConfigError, match="size=0 must be"):
        ImageFiles(toy([good(0)]), 0)
    with pytest.raises(ConfigError, match="index from 1 to 1"):
        ImageFiles(toy([good(0)]), 4).batch(torch.tensor([1]))


def test_class_folders_are_read_in_order(tmp_path: Path) -> None:
    for place, name in enumerate(["dog/b.png", "dog/a/z.PNG", "cat/2.png", "cat/10.png", ".hidden/x.png", "cat/.x.png"]):
        write_image(tmp_path / name, place)
    (tmp_path / "cat" / "notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "loose.png").write_bytes(good(9))
    (tmp_path / "emu").mkdir()
    images = ImageFolder(tmp_path, 4)
    assert images.classes == ("cat", "dog", "emu")
    assert reds(images.batch(torch.arange(4))) == [3, 2, 1, 0]
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert images.name == str(tmp_path)
    assert ImageFolder(tmp_path, 4, "pets").name == "pets"


def test_a_folder_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    for place in range(3):
        write_image(tmp_path / "cat" / f"{place}.png", place)
    images = pickle.loads(pickle.dumps(ImageFolder(tmp_path, 4).subset(torch.tensor([2, 1]))))
    assert reds(images.batch(torch.tensor([1, 0]))) == [1, 2]


def test_a_file_that_went_is_named(tmp_path: Path) -> None:
    for place in range(2):
        write_image(tmp_path / "cat" / f"{place}.png", place)
    images = ImageFolder(tmp_path, 4)
    (tmp_path / "cat" / "1.png").unlink()
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'cat' / '1.png'} cannot be read")):
        images.batch(torch.tensor([1]))


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist or is not a folder"):
        list_folder(tmp_path / "nowhere", "toy")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match=re.escape(f"{tmp_path} must hold a folder for each class with images in it")):
        ImageFolder(tmp_path, 4)


def test_splits_share_their_classes(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "train/ant/2.png", "val/dog/3.png", "val/emu/4.png"):
        write_image(tmp_path / name, int(name[-5]))
    train, test = (ImageFiles(list_split(tmp_path, split, "toy"), 4) for split in ("train", "test"))
    assert train.classes == test.classes == ("ant", "dog", "emu")
    assert train.labels is not None
    assert test.labels is not None
    assert (train.labels.tolist(), reds(train.batch(torch.arange(2)))) == ([0, 1], [2, 1])
    assert (test.labels.tolist(), reds(test.batch(torch.arange(2)))) == ([1, 2], [3, 4])


def test_a_test_folder_without_classes_is_passed_over(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "test/2.png", "val/dog/3.png"):
        write_image(tmp_path / name, int(name[-5]))
    assert reds(ImageFiles(list_split(tmp_path, "test", "toy"), 4).batch(torch.arange(1))) == [3]
    with pytest.raises(DataError, match="must hold a folder train that has a folder of images for each class"):
        list_split(tmp_path / "val", "train", "toy")
