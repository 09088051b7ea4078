"""The manifest of a folder: the length and the SHA-256 checksum of each file.

It is written last. A folder with a manifest is therefore complete, and it is unchanged if all files match the manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tempplug.errors import DataError
from tempplug_adapters.storage.files import explained, to_disk, write_json

MANIFEST = "manifest.json"


def seal(folder: str | Path) -> None:
    """Writes the manifest of all files in a folder and its subfolders, and flushes them to disk.

    Args:
        folder: the complete folder.

    Raises:
        DataError: it cannot be read or written.
    """
    root = Path(folder)
    with explained(root):
        (root / MANIFEST).unlink(missing_ok=True)
        inside = sorted(root.rglob("*"))
        for each in inside:
            to_disk(each)
        files = {
            each.relative_to(root).as_posix(): {"bytes": each.stat().st_size, "sha256": _checksum(each)}
            for each in inside
            if each.is_file()
        }
    write_json(root / MANIFEST, {"files": files, "sha256": _of_listing(files)})


def verify(folder: str | Path, wanted: Collection[str] = (), *, thoroughly: bool = True) -> None:
    """Checks that a folder matches its manifest; files added later are ignored.

    Args:
        folder: a folder sealed by `seal`.
        wanted: names of files that the manifest must list.
        thoroughly: compare checksums; otherwise only lengths.

    Raises:
        DataError: it does not match; the message only gives the reason, to which the caller adds the folder.
    """
    root = Path(folder)
    try:
        content = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        files = content["files"]
        whole = content["sha256"] == _of_listing(files)
    except FileNotFoundError as error:
        raise DataError(f"it is incomplete: it has no {MANIFEST}.") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"its {MANIFEST} is damaged.") from error
    if not whole:
        raise DataError(f"its {MANIFEST} is damaged.")
    for name in dict.fromkeys((*wanted, *files)):
        file = root / name
        try:
            length = file.stat().st_size if file.is_file() and name in files else None
            damaged = thoroughly and length is not None and _checksum(file) != files[name]["sha256"]
        except OSError as error:
            raise DataError(f"its {name} cannot be read: {error.strerror}.") from error
        if length is None:
            raise DataError(f"its {name} is missing.")
        if length != files[name]["bytes"]:
            raise DataError(f"its {name} has {length} bytes instead of {files[name]['bytes']}.")
        if damaged:
            raise DataError(f"its {name} is damaged: it is not as it was written.")


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _of_listing(files: Any) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
