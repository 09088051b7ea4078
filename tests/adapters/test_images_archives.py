"""The archives of CIFAR, STL-10 and Tiny-ImageNet, written here byte by byte as their makers describe them."""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_toys import labels_of, noise, reds, write_image

from tempplug.errors import DataError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray

FILES = {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]}
IMAGES = {split: noise(2 * len(files), 32, 32, seed=len(files)) for split, files in FILES.items()}
LABELS = {"train": [3, 1, 0, 2, 3, 0, 1, 2, 0, 1], "test": [2, 1]}
WORDS = ["ant", "bee", "cat", "dog"]


def write_cifar10_binary(folder: Path) -> None:
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("\n".join(WORDS) + "\n\n", encoding="utf-8")
    for split, files in FILES.items():
        for place, file in enumerate(files):
            rows = range(2 * place, 2 * place + 2)
            content = b"".join(bytes([LABELS[split][row]]) + IMAGES[split][row].numpy().tobytes() for row in rows)
            (folder / f"{file}.bin").write_bytes(content)


def python2_pickle(words: dict[str, Any]) -> bytes:
    """A pickle as Python 2 wrote it, protocol 2: words as byte strings, arrays through NumPy's old module name."""

    def dump(value: Any) -> bytes:
        if isinstance(value, str):
            return dump(value.encode())
        if isinstance(value, bytes):
            return b"T" + struct.pack("<i", len(value)) + value
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(dump, value)) + b"e"
        if isinstance(value, dict):
            return b"}(" + b"".join(dump(key) + dump(each) for key, each in value.items()) + b"u"
        kind = (
            b"cnumpy\ndtype\n("
            + dump("u1")
            + b"K\x00K\x01tR(K\x03"
            + dump("|")
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + dump("b") + b"tR"
        shape = b"(" + b"".join(map(dump, value.shape)) + b"t"
        return empty + b"(K\x01" + shape + kind + b"I00\n" + dump(value.tobytes()) + b"tb"

    return b"\x80\x02" + dump(words) + b"."


def write_cifar10_python(folder: Path, dumps: Any) -> None:
    folder.mkdir()
    (folder / "batches.meta").write_bytes(dumps({"label_names": WORDS, "num_vis": 3072}))
    for split, files in FILES.items():
        for place, file in enumerate(files):
            rows = slice(2 * place, 2 * place + 2)
            content = {"data": IMAGES[split][rows].reshape(2, -1).numpy(), "labels": LABELS[split][rows], "batch_label": "part"}
            (folder / file).write_bytes(dumps(content))


@pytest.mark.parametrize("form", ["binary", "python 2", "python 3, protocol 2", "python 3, protocol 4"])
def test_cifar10(tmp_path: Path, form: str) -> None:
    if form == "binary":
        write_cifar10_binary(tmp_path / "cifar-10-batches-bin")
    else:
        dumps = python2_pickle if form == "python 2" else partial(pickle.dumps, protocol=int(form[-1]))
        write_cifar10_python(tmp_path / "cifar-10-batches-py", dumps)
    for split in ("train", "test"):
        images = load_images("cifar10", split, tmp_path)  # type: ignore[arg-type]
        assert isinstance(images, ImageArray)
        assert torch.equal(images.images, IMAGES[split])
        assert (labels_of(images), images.classes) == (LABELS[split], tuple(WORDS))


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_has_the_fine_labels(tmp_path: Path, form: str) -> None:
    pixels, folder = noise(3, 32, 32), tmp_path / "vision" / f"cifar-100-{form}"
    folder.mkdir(parents=True)
    if form == "binary":
        (folder / "fine_label_names.txt").write_text("\n".join(WORDS), encoding="utf-8")
        rows = [bytes([9, label]) + image.numpy().tobytes() for label, image in zip([3, 0, 2], pixels, strict=True)]
        (folder / "test.bin").write_bytes(b"".join(rows))
    else:
        (folder / "meta").write_bytes(python2_pickle({"fine_label_names": WORDS, "coarse_label_names": ["animal"]}))
        content = {"data": pixels.reshape(3, -1).numpy(), "fine_labels": [3, 0, 2], "coarse_labels": [9, 9, 9]}
        (folder / "test").write_bytes(python2_pickle(content))
    images = load_images("cifar100", "test", tmp_path, count=3, seed=4)
    order = torch.randperm(3, generator=torch.Generator().manual_seed(4))
    assert torch.equal(images.batch(torch.arange(3)), pixels[order])
    assert (labels_of(images), images.classes) == (torch.tensor([3, 0, 2])[order].tolist(), tuple(WORDS))


def write_stl10(folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    (folder / "class_names.txt").write_text("\n".join(WORDS), encoding="utf-8")
    images = {split: noise(count, 96, 96, seed=count) for split, count in (("train", 4), ("test", 2), ("unlabeled", 3))}
    for split, pixels in images.items():
        # MATLAB's order: a channel after the other, and in it a column after the other
        columns = [pixels[row, channel].T.contiguous().numpy().tobytes() for row in range(len(pixels)) for channel in range(3)]
        (folder / f"{split}_X.bin").write_bytes(b"".join(columns))
    (folder / "train_y.bin").write_bytes(bytes([4, 1, 2, 2]))
    (folder / "test_y.bin").write_bytes(bytes([3, 1]))
    return images


def test_stl10(tmp_path: Path) -> None:
    images = write_stl10(tmp_path / "stl10_binary")
    train, test = load_images("stl10", "train", tmp_path), load_images("stl10", "test", tmp_path, size=16)
    assert torch.equal(train.batch(torch.tensor([2, 0])), images["train"][[2, 0]])
    assert (labels_of(train), labels_of(test), train.classes) == ([3, 0, 1, 1], [2, 0], tuple(WORDS))
    assert test.batch(torch.arange(2)).shape == (2, 3, 16, 16)
    unlabeled, same = (load_images("stl10-unlabeled", split, tmp_path) for split in ("train", "test"))  # type: ignore[arg-type]
    assert unlabeled.labels is None
    assert torch.equal(unlabeled.batch(torch.arange(3)), images["unlabeled"])
    assert labels_of(same) == [2, 0]
    assert torch.equal(same.batch(torch.arange(2)), images["test"])


def write_npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **{"labels": np.array([0, 1, 1]), "classes": np.array(["cat", "dog"]), **arrays})


def packed(**arrays: Any) -> bytes:
    """A NumPy archive of three images."""
    stream = io.BytesIO()
    write_npz(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def batch(pixels: Any, labels: Any) -> bytes:
    return pickle.dumps({"data": pixels, "labels": labels})


BINARY, PICKLED, STL10, NPZ = "cifar-10-batches-bin", "cifar-10-batches-py", "stl10_binary", "cifar10_train_jpeg.npz"
WRITE: dict[str, Callable[[Path], Any]] = {
    BINARY: write_cifar10_binary,
    PICKLED: partial(write_cifar10_python, dumps=python2_pickle),
    STL10: write_stl10,
    NPZ: write_npz,
}
ONE, TWO, PIXELS, BYTES = (np.zeros(shape, np.uint8) for shape in ((1, 3072), (2, 3072), (3, 4, 4, 3), 9))
OFFSETS = np.array([0, 3, 6, 9])
DAMAGED: list[tuple[str, bytes | None, str]] = [
    (f"{PICKLED}/test_batch", python2_pickle({"data": "x"})[:-9], "is not a readable pickle"),
    (f"{PICKLED}/test_batch", pickle.dumps([1]), "must be the pickle of a dictionary; it is one of list"),
    (f"{PICKLED}/test_batch", batch(ONE.astype(float), [1]), "must hold the array 'data' of 8-bit integers, 3072 an image"),
    (f"{PICKLED}/test_batch", batch(TWO, [1]), "must hold the list 'labels' of 2 whole numbers"),
    (f"{PICKLED}/test_batch", batch(ONE, ["a"]), "must hold the list 'labels'"),
    (f"{PICKLED}/test_batch", batch(ONE, [4]), "has labels from 4 to 4, but there are 4 classes"),
    (f"{PICKLED}/batches.meta", pickle.dumps({}), "must hold the list 'label_names'"),
    (f"{BINARY}/test_batch.bin", b"", "is 0 bytes long, which is not a multiple of the 3073 of an image"),
    (f"{BINARY}/test_batch.bin", b"\x04" + bytes(3072), "has labels from 4 to 4, but there are 4 classes"),
    (f"{BINARY}/test_batch.bin", None, "cannot be read"),
    (f"{BINARY}/batches.meta.txt", b"\xff\xfe", "is not UTF-8"),
    (f"{STL10}/train_X.bin", bytes(27649), "is 27649 bytes long, which is not a multiple of the 27648 of an image"),
    (f"{STL10}/train_X.bin", None, "does not exist"),
    (f"{STL10}/train_y.bin", bytes([1, 2]), "must hold 4 labels from 1 to 4"),
    (f"{STL10}/train_y.bin", bytes([5, 1, 2, 3]), "must hold 4 labels from 1 to 4"),
    (f"{STL10}/class_names.txt", None, "cannot be read"),
    (NPZ, b"no archive", "is not a readable NumPy archive"),
    (NPZ, b"PK\x03\x04 cut", "is not a readable NumPy archive"),
    (NPZ, packed(), "must hold images, too"),
    (NPZ, packed(jpeg=BYTES), "must hold offsets, too"),
    (NPZ, packed(jpeg=BYTES, offsets=np.array([0, 6, 3, 9])), "must have 4 ascending offsets"),
    (NPZ, packed(jpeg=BYTES, offsets=np.array([0, 3, 6, 10])), "must have 4 ascending offsets, one more than labels, into"),
    (NPZ, packed(jpeg=BYTES, offsets=np.array([-1, 3, 6, 9])), "must have 4 ascending offsets"),
    (NPZ, packed(jpeg=BYTES.astype(float), offsets=OFFSETS), "has jpeg (9,) float64: it must be (n,) uint8"),
    (NPZ, packed(images=PIXELS.transpose(0, 3, 1, 2)), "has images (3, 3, 4, 4) uint8: they must be (3, H, W, 3) uint8"),
    (NPZ, packed(images=PIXELS.astype(float)), "has images (3, 4, 4, 3) float64"),
    (NPZ, packed(images=PIXELS, labels=np.array([0, 1, 2])), "has labels from 0 to 2, but there are 2 classes"),
    (NPZ, packed(images=PIXELS, labels=np.array([0, -1, 1])), "has labels from -1 to 1, but there are 2 classes"),
    (NPZ, packed(images=PIXELS, labels=np.array(["a", "b", "c"])), "has labels (3,) <U1"),
    (NPZ, packed(images=PIXELS, classes=np.array("cat")), "has classes (): they must be (classes,)"),
]


@pytest.mark.parametrize(("file", "content", "message"), DAMAGED)
def test_a_damaged_archive_is_named(tmp_path: Path, file: str, content: bytes | None, message: str) -> None:
    folder, path = file.partition("/")[0], tmp_path / file
    WRITE[folder](tmp_path / folder)
    path.unlink() if content is None else path.write_bytes(content)
    split = "test" if folder in (BINARY, PICKLED) else "train"
    with pytest.raises(DataError, match=re.escape(f"{path} {message}")):
        load_images("stl10" if folder == STL10 else "cifar10", split, tmp_path)  # type: ignore[arg-type]


def test_tiny_imagenet(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    for name in ("train/n02/images/n02_0.JPEG", "train/n01/images/n01_0.JPEG", "train/n02/images/n02_1.JPEG"):
        write_image(folder / name, int(name[-6]) + 10 * int(name[8]))
    for red in range(3):
        write_image(folder / "val" / "images" / f"val_{red}.JPEG", red)
    write_image(folder / "test" / "images" / "test_0.JPEG", 0)
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn02\t0\t32\t44\t62\nval_2.JPEG\tn01\t52\t55\t57\t59\n", encoding="utf-8")
    train, test = load_images("tiny-imagenet", "train", tmp_path), load_images("tiny-imagenet", "test", tmp_path)
    assert train.classes == test.classes == ("n01", "n02")
    assert (reds(train.batch(torch.arange(3))), labels_of(train)) == ([10, 20, 21], [0, 1, 1])
    assert (reds(test.batch(torch.arange(2))), labels_of(test)) == ([0, 2], [1, 0])
    annotations.write_text("val_0.JPEG\tn02\t0\nval_2.JPEG\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"val_annotations\.txt, line 2: the class '' has no folder of training images"):
        load_images("tiny-imagenet", "test", tmp_path)
    annotations.unlink()
    (folder / "val" / "images").rename(folder / "val" / "n02")
    sorted_out = load_images("tiny-imagenet", "test", tmp_path)
    assert (reds(sorted_out.batch(torch.arange(3))), labels_of(sorted_out)) == ([0, 1, 2], [1, 1, 1])
