"""Image files made for tests: one colour each, so that an image tells which file it came from."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

BROKEN = b"\xff\xd8\xff\xe0 this is no image"


def encoded(colour: tuple[int, ...] | int, size: tuple[int, int] = (6, 6), mode: str = "RGB", form: str = "PNG") -> bytes:
    """An image file of one colour; size is width, height."""
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, form)
    return stream.getvalue()


def write_image(path: Path, red: int, size: tuple[int, int] = (6, 6)) -> None:
    """A file whose red channel is the number given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded((red, 0, 0), size))


def reds(images: Tensor) -> list[int]:
    """The red of each image of one colour."""
    assert bool((images == images[:, :, :1, :1]).all())
    return [int(red) for red in images[:, 0, 0, 0]]


def labels_of(images: Any) -> list[int]:
    found: list[int] = images.labels.tolist()
    return found


class Files:
    """Image files in memory."""

    def __init__(self, contents: list[bytes]) -> None:
        self.contents = contents
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.contents)

    def read(self, position: int) -> bytes:
        self.asked.append(position)
        return self.contents[position]

    def file_name(self, position: int) -> str:
        return f"file-{position}.png"


def noise(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Images [count, 3, height, width] uint8 of random pixels."""
    return torch.randint(256, (count, 3, height, width), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
