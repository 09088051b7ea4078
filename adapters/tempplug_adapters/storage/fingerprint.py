"""Fingerprints of data: size and checksum of each file that was read, independent of where the files are.

A file has a name for messages, such as ``dataset`` or ``dataset train/cat/1.png``; the part before the first ``/`` is its
group. Names, sizes and checksums are compared, but neither the folder nor, for a single file, its own name.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tempplug_adapters.storage.manifest import checksum

Sources = Mapping[str, Path | str]
"""Files by name; or a text that identifies data without files, such as a commit of the Hugging Face hub."""
ALWAYS_READ = 2**28
"""Largest size in bytes of data that are always read again for a comparison."""
_DIGITS = 16
"""Hexadecimal digits of a checksum, the first ones of SHA-256."""
_UNREADABLE = "unreadable"
_LISTED = 3


def files_below(place: str | Path, suffixes: Collection[str] = ()) -> dict[str, Path]:
    """Returns the files in a folder and below it by relative name, sorted; a file has an empty name.

    Hidden files and folders are left out. Links to folders are followed, to each folder once.

    Args:
        place: a folder or a file.
        suffixes: suffixes of the wanted files in lower case; empty: all.
    """
    root = Path(place)
    if not root.is_dir():
        return {"": root}
    files: dict[str, Path] = {}
    walked: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith(".") and (not suffixes or file.suffix.lower() in suffixes):
                files[file.relative_to(root).as_posix()] = file
    return files


def grouped(group: str, sources: Sources) -> dict[str, Path | str]:
    """Returns sources with the name of a group before their own names."""
    return {f"{group}/{name}" if name else group: source for name, source in sources.items()}


class Fingerprint:
    """The fingerprint of data, computed when it is first needed or in a thread.

    A file that cannot be read has an entry that says so, because some readers of data leave out such files.

    Args:
        list_sources: returns the data; called once, because listing many files takes seconds.
    """

    def __init__(self, list_sources: Callable[[], Sources]) -> None:
        self._list_sources = list_sources
        self._entries: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._read_quietly, daemon=True, name="fingerprint")

    @cached_property
    def sources(self) -> Sources:
        """The data."""
        return self._list_sources()

    def start(self) -> None:
        """Begins to read the files in a thread."""
        self._thread.start()

    @property
    def entries(self) -> dict[str, Any]:
        """Size and checksum of each file, or the text of a source, by name; waits until all files are read."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._entries is None:  # also after an error in the thread, which is raised here once more
            self._read()
        return self._entries or {}

    def _read_quietly(self) -> None:
        with suppress(Exception):
            self._read()

    def _read(self) -> None:
        self._entries = {name: _entry(source) for name, source in self.sources.items()}

    def content(self) -> dict[str, Any]:
        """Returns the fingerprint as JSON data, for `changes`."""
        return {"files": self.entries, "times": self._times()}

    def summary(self) -> dict[str, dict[str, Any]]:
        """Returns the number of files, their bytes and a checksum of the fingerprint by group, for `changed_groups`."""
        groups: dict[str, dict[str, Any]] = {}
        for name, entry in self.entries.items():
            groups.setdefault(_group(name), {})[name] = entry
        return {
            group: {
                "files": len(entries),
                "bytes": sum(entry[0] for entry in entries.values() if isinstance(entry, list)),
                "checksum": _digest(entries),
            }
            for group, entries in groups.items()
        }

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """Returns phrases about what differs from an earlier fingerprint, in groups that both have; empty if nothing does.

        Data of more than `ALWAYS_READ` bytes are not read if the names, sizes and times of modification of all files are the
        earlier ones. Others are compared by checksum.

        Args:
            before: result of an earlier `content`.
        """
        earlier: dict[str, Any] = before["files"]
        size = sum(entry[0] for entry in earlier.values() if isinstance(entry, list))
        if size > ALWAYS_READ and before["times"] == self._times():
            self._entries = earlier
            return []
        now, groups = self.entries, {_group(name) for name in self.sources} & {_group(name) for name in earlier}
        names = [name for name in {**now, **earlier} if _group(name) in groups]
        return [self._change(name, earlier.get(name), now.get(name)) for name in names if earlier.get(name) != now.get(name)]

    def _change(self, name: str, earlier: Any, now: Any) -> str:
        if now is None or earlier is None:
            return f"{name} was {'removed' if now is None else 'added'}"
        return f"{name} ({self.sources[name]}) has {_words(now)}, not {_words(earlier)}"

    def _times(self) -> str:
        """Returns a checksum of the names, sizes and times of modification of the files."""
        states = {}
        for name, source in self.sources.items():
            try:
                status = source.stat() if isinstance(source, Path) else None
                states[name] = source if status is None else [status.st_size, status.st_mtime_ns]
            except OSError:
                states[name] = _UNREADABLE
        return _digest(states)


def changed_groups(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns phrases about the groups of two results of `Fingerprint.summary` that differ, of those that both have."""
    return [
        f"{group} has {_count(now[group])}, not {_count(before[group])}"
        for group in now
        if group in before and now[group] != before[group]
    ]


def listed(phrases: list[str]) -> str:
    """Returns the first phrases of a list and the number of the others, as text."""
    others = f"; and {len(phrases) - _LISTED} more" if len(phrases) > _LISTED else ""
    return "; ".join(phrases[:_LISTED]) + others


def _group(name: str) -> str:
    return name.partition("/")[0]


def _entry(source: Path | str) -> Any:
    if isinstance(source, str):
        return source
    try:
        return [source.stat().st_size, checksum(source)[:_DIGITS]]
    except OSError:
        return _UNREADABLE


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _words(entry: Any) -> str:
    return f"{entry[0]:,} bytes with checksum {entry[1]}" if isinstance(entry, list) else f"'{entry}'"


def _count(group: Mapping[str, Any]) -> str:
    return f"{group['files']} file(s) of {group['bytes']:,} bytes with checksum {group['checksum']}"
