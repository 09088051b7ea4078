"""Reads webdatasets. Members of a tar with the same name form a sample: ``000001.jpg`` with
``000001.txt``, ``000001.json`` or ``000001.cls``.

`datasets` reads them, too, but copies all images, and stops where one is a PNG and the next a JPEG. Here the tars stay as they
are, and an image is read from its place in one. This module must not depend on data sets or pixels.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tempplug.errors import DataError, quoted
from tempplug_adapters.images.class_folders import SUFFIXES
from tempplug_adapters.images.image_set import EncodedSet

_SPLIT: Final = re.compile(r"(?:^|[^a-z])(train|test|valid(?:ation)?|val|dev)(?:[^a-z]|$)")
_MOST_BYTES: Final = 2**20
"""Largest text of a sample."""
Sample = dict[str, bytes]
"""The texts of a sample, by ending."""


@dataclass(frozen=True)
class Members:
    """Images in tars: of each the tar, the name, the first byte and the number of bytes."""

    places: tuple[tuple[str, str, int, int], ...]

    def __len__(self) -> int:
        return len(self.places)

    def read(self, position: int) -> bytes:
        """Returns the bytes of an image; raises `DataError` if the tar cannot be read."""
        tar, _, start, size = self.places[position]
        try:
            with Path(tar).open("rb") as stream:
                stream.seek(start)
                return stream.read(size)
        except OSError as error:
            raise DataError(f"{tar} cannot be read: {error.strerror}.") from error

    def file_name(self, position: int) -> str:
        """Returns the name of an image in its tar."""
        tar, name, *_ = self.places[position]
        return f"{name} of {tar}"


def shards_of(path: Path, split: str) -> list[Path]:
    """Returns the tars of ``train`` or ``test``, sorted: by a split in their names or folders, else all are for training."""
    tars = [path] if path.suffix == ".tar" and path.is_file() else sorted(path.rglob("*.tar")) if path.is_dir() else []
    words = [_SPLIT.findall(str(each.relative_to(path) if each != path else each.name).lower()) for each in tars]
    training = [not found or found[-1] == "train" or tars == [path] for found in words]
    return [tar for tar, trains in zip(tars, training, strict=True) if trains == (split == "train")]


def read_shards(tars: Sequence[Path], name: str, known: Sequence[str] = ()) -> tuple[EncodedSet, list[Sample]]:
    """Returns the images of tars, with the classes that ``cls`` numbers, and beside each the texts of ``known`` endings.

    Raises:
        DataError: a tar cannot be read, or a sample has no image, or a class is no number or missing for some.
    """
    images: list[tuple[str, str, int, int]] = []
    samples: list[Sample] = []
    for tar in tars:
        found: dict[str, tuple[Sample, list[tuple[str, str, int, int]]]] = {}
        try:
            with tarfile.open(tar, "r:") as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    folder, _, file = member.name.rpartition("/")
                    key, _, ending = file.partition(".")
                    texts, own = found.setdefault(f"{folder}/{key}".lstrip("/"), ({}, []))
                    if f".{ending}".lower() in SUFFIXES:
                        own.append((str(tar), member.name, member.offset_data, member.size))
                    else:
                        stream = archive.extractfile(member) if ending in (*known, "cls") else None
                        texts[ending] = b"" if stream is None else stream.read(_MOST_BYTES)
        except (tarfile.TarError, OSError) as error:
            raise DataError(
                f"{tar} cannot be read as a tar: {error}. Unpack a compressed one, and load a cut one again."
            ) from error
        if wrong := next((key for key, (_, own) in found.items() if len(own) != 1), None):
            raise DataError(
                f"{tar}: sample {quoted(wrong)} has {len(found[wrong][1])} images; wanted one, such as {wrong}.jpg, beside "
                f"{wrong}.txt: leave other samples out."
            )
        images += [own[0] for _, own in found.values()]
        samples += [texts for texts, _ in found.values()]
    if not images:
        raise DataError(f"{', '.join(map(str, tars))}: no samples, images such as 000001.jpg with 000001.txt.")
    source = Members(tuple(images))
    return EncodedSet(source, *_classes(source, samples), name), samples


def _classes(source: Members, samples: Sequence[Sample]) -> tuple[torch.Tensor | None, tuple[str, ...]]:
    words = [texts.get("cls", b"").decode(errors="replace").strip() for texts in samples]
    if not any(words):
        return None, ()
    if wrong := [place for place, word in enumerate(words) if not (word.isascii() and word.isdigit())]:
        raise DataError(
            f"{source.file_name(wrong[0])}: its cls is {quoted(words[wrong[0]])}; wanted the number of its class, from 0."
        )
    labels = torch.tensor([int(word) for word in words])
    return labels, tuple(map(str, range(int(labels.max()) + 1)))


def caption_of(source: Members, position: int, texts: Sample, known: Sequence[str]) -> str:
    """Returns the caption of a sample: the text with one of the endings ``known``, else this key of its ``json``.

    Raises:
        DataError: it has none.
    """
    try:
        of_json: Any = json.loads(texts.get("json", b"{}"))
        keys = of_json if isinstance(of_json, dict) else {}
        found = next((texts[each].decode() for each in known if each in texts), None)
        found = next((keys[each] for each in known if each in keys), None) if found is None else found
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source.file_name(position)}: the text beside it cannot be read: {error}.") from error
    if not isinstance(found, str) or not found.strip():
        raise DataError(
            f"{source.file_name(position)} has no caption: wanted a text beside it with the ending {' or '.join(known)}, or "
            f"this key in its json; it has {', '.join([*texts, *(f'{key} in json' for key in keys)]) or 'none'}. Name one with "
            "--caption-column."
        )
    return found
