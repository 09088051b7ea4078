"""Images in the tars of a webdataset, where files with the same name form a sample: ``000.jpg`` with ``000.txt`` or ``.json``.

An image is read from its place in the tar; `datasets` copies all of them, and stops where one is a PNG and the next a JPEG.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from tempplug.errors import DataError, quoted
from tempplug_adapters.data_files.tables import Table, numbered
from tempplug_adapters.images.decoding import SUFFIXES
from tempplug_adapters.storage.files import one_line

SHARDS: Final = (".tar", ".tgz")
KEY: Final = "__key__"
"""Name of the column of the samples' names, as webdataset calls it."""
_MOST_BYTES: Final = 2**20
"""Largest text of a sample."""
Place = tuple[str, str, int, int]
"""Of an image: the tar, the name, the first byte and the number of bytes."""


@dataclass(frozen=True)
class Members:
    """Images in tars."""

    places: tuple[Place, ...]

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

    def files(self, positions: Iterable[int]) -> dict[str, Path]:
        """Returns the tars of some images by name."""
        return {Path(tar).name: Path(tar) for tar in sorted({self.places[position][0] for position in positions})}

    def file_name(self, position: int) -> str:
        """Returns the name of an image in its tar."""
        tar, name, *_ = self.places[position]
        return f"{name} of {tar}"


def read_shards(tars: Sequence[Path], endings: Collection[str]) -> tuple[Members, Table]:
    """Returns the images of tars, and a table with a row for each: `KEY`, the texts by their endings, and the keys of ``json``.

    Args:
        tars: the files.
        endings: of the texts to read, beside ``json``.

    Raises:
        DataError: a tar or a text cannot be read, or a sample has no image, or two.
    """
    places: list[Place] = []
    rows: list[dict[str, Any]] = []
    for tar in tars:
        samples: dict[str, tuple[list[Place], dict[str, Any]]] = {}
        try:
            with tarfile.open(tar, "r:") as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    path = PurePosixPath(member.name)
                    name, _, ending = path.name.partition(".")
                    if not name:  # hidden files, such as those that macOS adds
                        continue
                    images, texts = samples.setdefault(str(path.with_name(name)), ([], {}))
                    if f".{ending}".lower() in SUFFIXES:
                        images.append((str(tar), member.name, member.offset_data, member.size))
                    elif ending.lower() in (*endings, "json") and (stream := archive.extractfile(member)) is not None:
                        texts |= _texts(stream.read(_MOST_BYTES), ending.lower(), f"{member.name} of {tar}")
        except (tarfile.TarError, OSError) as error:
            remedy = "Unpack a compressed one, and load a cut one again"
            raise DataError(f"{tar} cannot be read as a tar: {error}. {remedy}.") from error
        for key, (images, texts) in samples.items():
            if len(images) != 1:
                wanted = f"wanted one, such as {key}.jpg, beside {key}.txt: leave other samples out"
                raise DataError(f"{tar}: sample {quoted(key)} has {len(images)} images; {wanted}.")
            places += images
            rows.append({**texts, KEY: key})
    if not places:
        raise DataError(f"{', '.join(map(str, tars))}: no samples, images such as 000001.jpg with 000001.txt.")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    return Members(tuple(places)), Table(str(tars[0] if len(tars) == 1 else tars[0].parent), numbered(pa.table(columns)))


def _texts(content: bytes, ending: str, where: str) -> dict[str, Any]:
    """Returns a text by its ending, or the texts and lists of texts of a JSON object, whose other values become texts."""
    try:
        if ending != "json":
            return {ending: content.decode().strip()}
        keys = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} cannot be read: {one_line(error)}.") from error
    if not isinstance(keys, dict):
        return {}
    return {name: list(map(str, value)) if isinstance(value, list) else value for name, value in keys.items()}


def _column(values: list[Any]) -> Any:
    """Returns an Arrow column of texts, or of lists of texts if one is a list."""
    if any(isinstance(value, list) for value in values):
        return pa.array([value if value is None or isinstance(value, list) else [str(value)] for value in values])
    return pa.array([None if value is None else str(value) for value in values], pa.string())
