"""Encoded images: in memory what cannot be decoded is left out, on disk another takes its place; folders of class folders."""

from __future__ import annotations

import errno
import os
import pickle
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from image_toys import BROKEN, Files, encoded, labels_of, reds, write_image

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.class_folders import list_folder, list_split
from tempplug_adapters.images.image_set import EncodedSet, ImageFiles, decode_all


def toy(contents: list[bytes], labels: list[int] | None = None) -> EncodedSet:
    return EncodedSet(Files(contents), None if labels is None else torch.tensor(labels), ("cat", "dog"), "toy")


def folder(path: Path) -> ImageFiles:
    return ImageFiles(list_folder(path, "toy"), 4)


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
    assert images.labels.tolist() == [0, 1, 0]
    assert (images.classes, images.name) == (("cat", "dog"), "toy")
    with pytest.warns(UserWarning, match=r"30 of 31 images .* file-0\.png .* file-9\.png .* And 20 more\.$") as told:
        decode_all(toy([BROKEN] * 30 + [good(1)]))
    assert "file-10.png" not in str(told[0].message), "many faults are counted, not listed"


def test_faults_of_sets_are_named() -> None:
    files = toy([good(0), encoded((1, 0, 0), (9, 4))])
    nothing = r"no image of 'toy' can be decoded\. file-0\.png cannot be decoded as an image"
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: decode_all(files), DataError, r"file-1\.png is 9x4 pixels large, but images before it are 6x6: pass a size"),
        (lambda: decode_all(toy([BROKEN, b""])), DataError, nothing),
        (lambda: ImageFiles(toy([BROKEN, b""]), 4).batch(torch.tensor([0])), DataError, nothing),
        (lambda: decode_all(toy([])), DataError, r"no image of 'toy' can be decoded\. It is empty"),
        (lambda: toy([good(0), good(1)], [0]), ShapeError, r"labels \[1\] torch.int64 of the set 'toy' must be \[2\]"),
        (lambda: ImageFiles(files, 0), ConfigError, "size=0 must be"),
        (lambda: ImageFiles(files, 4).batch(torch.tensor([2])), ConfigError, "index from 2 to 2"),
    ]
    for call, error, message in calls:
        with pytest.raises(error, match=message):
            call()
    assert decode_all(files, 4).images.shape == (2, 3, 4, 4)


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


def test_a_class_without_a_readable_image_takes_none_of_another() -> None:
    images = ImageFiles(toy([good(0), good(1), b"", BROKEN], [0, 0, 1, 1]), 4)
    for _ in range(2):
        with pytest.raises(DataError, match=r"^no image of class 'dog' of 'toy' can be decoded\. file-3\.png cannot be .*\.$"):
            images.batch(torch.tensor([0, 3]))
    assert reds(images.batch(torch.tensor([0, 1]))) == [0, 1]


def test_every_file_that_cannot_be_decoded_is_tried_once() -> None:
    files = toy([BROKEN] * 60 + [good(7)] + [BROKEN] * 40 + [good(9)], [0] * 100 + [1, 1])
    with pytest.warns(UserWarning, match="is used in its place") as told:
        assert reds(ImageFiles(files, 4).batch(torch.arange(102))) == [7] * 100 + [9, 9]
    assert len({str(each.message).split()[0] for each in told}) == len(told) == 100
    asked = files.source.asked  # type: ignore[attr-defined]
    assert [asked.count(place) for place in range(102)] == [1] * 60 + [100] + [1] * 40 + [2]


def test_without_labels_the_next_of_the_set_takes_the_place_and_in_a_subset_one_of_it() -> None:
    middle, last = toy([good(0), BROKEN, good(2)]), toy([good(0), good(1), BROKEN])
    part = toy([BROKEN, good(1), good(2), good(3)], [0, 0, 0, 1]).subset(torch.tensor([3, 0, 2]))
    assert part.labels.tolist() == [1, 0, 0]
    assert part.classes == ("cat", "dog")
    for files, fault, other, found in ((middle, 1, 2, [0, 2, 2]), (last, 2, 0, [0, 1, 0]), (part, 0, 2, [3, 2, 2])):
        images = ImageFiles(files, 4)
        with pytest.warns(UserWarning, match=rf"file-{fault}\.png .* file-{other}\.png is used"):
            assert reds(images.batch(torch.arange(3))) == found
    assert reds(images.subset(torch.tensor([2])).batch(torch.tensor([0]))) == [2]


def test_class_folders_are_read_in_order_without_what_is_hidden_or_no_image(tmp_path: Path) -> None:
    names = ("dog/b.png", "dog/a/z.PNG", "cat/2.png", "cat/10.png", ".hidden/x.png", "cat/.x.png", "cat/.cache/deep/3.png")
    for place, name in enumerate(names):
        write_image(tmp_path / name, place)
    (tmp_path / "cat" / "notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "loose.png").write_bytes(good(9))
    (tmp_path / "emu").mkdir()
    images = folder(tmp_path)
    assert (images.classes, images.name) == (("cat", "dog", "emu"), "toy")
    assert (reds(images.batch(torch.arange(4))), labels_of(images)) == ([3, 2, 1, 0], [0, 0, 1, 1])
    sent = pickle.loads(pickle.dumps(images.subset(torch.tensor([2, 1]))))  # to a worker
    assert reds(sent.batch(torch.tensor([1, 0]))) == [2, 1]


def failing(monkeypatch: pytest.MonkeyPatch, path: Path, error: OSError) -> None:
    """Makes a file fail as it would for a user who is not root, or on a disk that is broken."""
    read = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if self == path:
            raise error
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


def test_a_file_that_is_missing_or_locked_is_replaced_and_a_failing_disk_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(4):
        write_image(tmp_path / "cat" / f"{place}.png", place)
    gone, locked = (tmp_path / "cat" / f"{place}.png" for place in (1, 2))
    files = list_folder(tmp_path, "toy")
    gone.unlink()
    failing(monkeypatch, locked, PermissionError(errno.EACCES, "Permission denied", str(locked)))
    faults = [f"{gone} cannot be read: No such file or directory.", f"{locked} cannot be read: Permission denied."]
    with pytest.warns(UserWarning, match="is used in its place") as told:
        assert reds(ImageFiles(files, 4).batch(torch.arange(4))) == [0, 3, 3, 3]
    assert [str(each.message) for each in told] == [
        f"{each} {tmp_path / 'cat' / '3.png'} is used in its place." for each in faults
    ]
    with pytest.warns(UserWarning, match=re.escape(f"2 of 4 images of 'toy' are left out. {' '.join(faults)}")):
        assert reds(decode_all(files, 4).images) == [0, 3]
    failing(monkeypatch, locked, OSError(errno.EIO, "Input/output error", str(locked)))
    for read in (lambda: decode_all(files), lambda: ImageFiles(files, 4).batch(torch.tensor([2]))):
        with pytest.raises(DataError, match=re.escape(f"{locked} cannot be read: ") + ".*Input/output error"):
            read()


def test_a_folder_that_is_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train/cat/inner/1.png", "train/dog/2.png"):
        write_image(tmp_path / name, 1)
    scandir, listdir, secret = os.scandir, os.listdir, tmp_path

    def locked(read: Callable[[object], object], path: object) -> object:
        if str(path) == str(secret):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(os, "scandir", partial(locked, scandir))
    monkeypatch.setattr(os, "listdir", partial(locked, listdir))
    for place in ("train", "train/cat", "train/cat/inner"):
        secret = tmp_path / place
        with pytest.raises(DataError, match=f"^{re.escape(str(secret))} cannot be read: Permission denied"):
            list_split(tmp_path, "train", "toy")


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    for name in ("data/cat/1.png", "data/cat/b/2.png", "data/dog/3.png", "elsewhere/4.png"):
        write_image(tmp_path / name, int(name[-5]))
    cat, emu = tmp_path / "data" / "cat", tmp_path / "data" / "emu"
    for link, target in (("all", tmp_path), ("again", cat), ("c", cat / "b"), ("more", tmp_path / "elsewhere")):
        (cat / link).symlink_to(target)
    (tmp_path / "elsewhere" / "back").symlink_to(cat)
    emu.symlink_to(tmp_path / "elsewhere")
    images = folder(tmp_path / "data")
    assert images.classes == ("cat", "dog", "emu")
    found = list(zip(labels_of(images), reds(images.batch(torch.arange(7))), strict=True))
    assert found == [(0, 1), (0, 2), (0, 4), (1, 3), (2, 4), (2, 1), (2, 2)]


def test_splits_share_their_classes(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "train/ant/2.png", "val/dog/3.png", "val/emu/4.png"):
        write_image(tmp_path / name, int(name[-5]))
    train = ImageFiles(list_split(tmp_path, "train", "toy"), 4)
    with pytest.warns(UserWarning, match=re.escape(f"'toy' has images of 'emu', of which {tmp_path / 'train'} has none.")):
        test = ImageFiles(list_split(tmp_path, "test", "toy"), 4)
    assert train.classes == test.classes == ("ant", "dog", "emu")
    assert (labels_of(train), reds(train.batch(torch.arange(2)))) == ([0, 1], [2, 1])
    assert (labels_of(test), reds(test.batch(torch.arange(2)))) == ([1, 2], [3, 4])
    (tmp_path / "train" / "emu").mkdir()
    assert len(list_split(tmp_path, "test", "toy")) == 2, "without a warning"
    (tmp_path / "train").rename(tmp_path / ".train")
    assert len(list_split(tmp_path, "test", "toy")) == 2


def test_a_test_folder_without_classes_is_passed_over(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "test/2.png", "val/dog/3.png"):
        write_image(tmp_path / name, int(name[-5]))
    assert reds(ImageFiles(list_split(tmp_path, "test", "toy"), 4).batch(torch.arange(1))) == [3]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("b.png", "a/c/1.png", "a/2.png", ".trash/3.png"), [2, 1, 9]),
        (("train/2.png", "train/1.png", "test/good/3.png"), [1, 2]),
        (("train/cat/1.png", "train/2.png"), [1]),
    ],
)
def test_images_without_classes_train(tmp_path: Path, files: tuple[str, ...], found: list[int]) -> None:
    for name in files:
        write_image(tmp_path / name, int(name[-5]) if name[-5].isdigit() else 9)
    train = ImageFiles(list_split(tmp_path, "train", "toy"), 4)
    assert reds(train.batch(torch.arange(len(train)))) == found
    assert (train.labels is None) is ("train/cat/1.png" not in files)


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        ((), "train", "must hold a folder train .* each class, or images alone, to train without classes"),
        (("test/cat/1.png",), "train", "must hold a folder train .* each class, or images alone, to train without classes"),
        (("train/notes.txt", "test/cat/1.png"), "train", "must hold a folder train .* each class, or images alone, to train"),
        (("1.png", "dog/2.png"), "test", r"must hold a folder test or val that has a folder of images for each class\.$"),
    ],
)
def test_a_split_that_is_missing_is_named(tmp_path: Path, files: tuple[str, ...], split: str, message: str) -> None:
    for name in files:
        write_image(tmp_path / name, 1)
    with pytest.raises(DataError, match=message):
        list_split(tmp_path, split, "toy")
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    for place, told in (("nowhere", "does not exist or is not a folder"), ("empty", "must hold a folder for each class with")):
        with pytest.raises(DataError, match=f"{place} {told}"):
            folder(tmp_path / place)
