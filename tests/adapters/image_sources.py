"""Data sets of images as other tools have them: functions from a folder to nothing, made of names, levels and labels."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
from image_toys import encoded, write_image
from table_files import of_lines, of_pandas

from tempplug_adapters.images.image_data import load_images

Make = Callable[[Path], Any]
Rows = list[tuple[int, str | None]]
"""The red of each image, and its class."""


def picture(red: int, form: str = "PNG") -> bytes:
    return encoded((red, 0, 0), (8, 8), form=form)


def photos(*names: str) -> Make:
    """Writes images whose red is the number at the end of the name, before the suffix."""

    def make(folder: Path) -> None:
        for name in names:
            write_image(folder / name, int(Path(name).stem[-1]), (8, 8))

    return make


def beside(write: Make, name: str = "t.csv", *images: str) -> Make:
    """Writes images, and a file."""

    def make(folder: Path) -> None:
        photos(*(images or ("1.png", "2.png", "3.png")))(folder)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name)

    return make


def no_images(*names: str) -> Make:
    return lambda folder: [(folder / name).write_bytes(b"\0\0") for name in names]


def both(*makes: Make) -> Make:
    def make(folder: Path) -> None:
        for each in makes:
            each(folder)

    return make


def hub(name: str, levels: list[int], labels: list[Any], words: list[str] | None = None, column: str = "label") -> Make:
    """Writes parquet by `datasets`, with images; and classes if there are words."""
    kind = (
        datasets.Value("string" if isinstance(labels[0], str) else "int64")
        if words is None
        else datasets.ClassLabel(names=words)
    )
    features = datasets.Features({"image": datasets.Image(), column: kind})
    rows = {"image": [{"bytes": picture(level), "path": None} for level in levels], column: labels}

    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / name)

    return make


def saved(folder: Path) -> None:
    """Writes the folder of a `DatasetDict`."""
    features = datasets.Features({"image": datasets.Image(), "breed": datasets.ClassLabel(names=["pug", "collie"])})
    rows = {"image": [{"bytes": picture(1), "path": None}, {"bytes": picture(2), "path": None}], "breed": [1, 0]}
    data = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": data, "validation": data.select([1])}).save_to_disk(str(folder / "d"))


def shard(name: str, *members: tuple[str, bytes], mode: str = "w") -> Make:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / name, mode) as archive:  # type: ignore[call-overload]
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    return make


def words(level: int) -> bytes:
    return [b"cat", b"dog\n"][level - 1]


def samples(*levels: int, **texts: Callable[[int], bytes]) -> list[tuple[str, bytes]]:
    parts = {"jpg": picture, **texts}
    return [(f"{level:06d}.{end}", part(level)) for level in levels for end, part in parts.items()]


def read(folder: Path, dataset: str, split: Any, columns: tuple[str, ...] = ()) -> Rows:
    images = load_images(str(folder / dataset), split, None, size=8, columns=columns)
    labels = [None] * len(images) if images.labels is None else [images.classes[label] for label in images.labels]
    levels = images.batch(torch.arange(len(images)))[:, 0].double().mean((1, 2))
    rounded = [round(level) if level < 100 else round(level / 10) * 10 for level in levels.tolist()]  # JPEG loses a little
    return list(zip(rounded, labels, strict=True))


PATHS = {"path": ["1.png", "2.png", "3.png"], "label": ["cat", "dog", "cat"]}
THREE: Rows = [(1, "cat"), (2, "dog"), (3, "cat")]
METADATA = beside(of_lines("file_name,label", "1.png,cat", "2.png,dog"), "test/metadata.csv", "test/1.png", "test/2.png")
BOTH = {"file_name": "train/1.png", "label": "cat"}, {"file_name": "test/2.png", "label": "dog"}
FORMS = {"a.jfif": "JPEG", "b.JPE": "JPEG", "c.avif": "AVIF", "d.qoi": "QOI", "e.jp2": "JPEG2000", "f": "PNG", "g.webp": "WEBP"}
FORMS |= {"h.tga": "TGA"}
BARE: Rows = [(1, None), (2, None), (3, None)]
BYTES = [picture(1), picture(2), picture(3)]
SPLIT = photos("train/cat1.png", "train/dog/a2.png", "test/dog/a3.png")
FOLDERS = ("{}/cat/a1.png", "{}/dog/a2.png"), ("{}/dog/a3.png",)
NUMBERS = beside(of_pandas({**PATHS, "label": [3, 10, 3]}, "to_csv", index=False))
NAMES = {"huggingface": '{"info": {"features": {"label": {"names": ["a", "b"], "_type": "ClassLabel"}}}}'}
TWO = both(hub("train-0.parquet", [1, 2, 3], [0, 1, 0], ["cat", "dog"]), hub("test-0.parquet", [2, 1], [0, 1], ["dog", "emu"]))
PARTS = both(hub("data/train-0-of-2.parquet", [1], [0], ["cat"]), hub("data/train-1-of-2.parquet", [2], [0], ["dog"]))


def splits(train: str, test: str) -> Make:
    return photos(*(name.format(train) for name in FOLDERS[0]), *(name.format(test) for name in FOLDERS[1]))


def inner(**columns: Any) -> Make:
    """Writes parquet by pandas with bytes of images."""
    return beside(of_pandas({"image": BYTES, **columns}, "to_parquet"), "t.parquet")


def table_of(**columns: Any) -> Make:
    return beside(of_pandas(columns, "to_csv", index=False))
