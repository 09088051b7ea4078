"""Evaluation of masked language models: what stereotypes they prefer, on StereoSet and CrowS-Pairs; and where the data are."""

from __future__ import annotations

from pathlib import Path

from tempplug.errors import DataError

PLACES = ("", "text/bias", "bias")


def find_bias_file(data_dir: str | Path | None, name: str, purpose: str) -> Path:
    """Returns a file of the data folder, of its ``text/bias`` or of its ``bias``; raises `DataError` where there is none."""
    if data_dir is None:
        raise DataError(f"{purpose} needs {name}: name the folder that holds it by --data-dir, or set TEMPPLUG_DATA.")
    found = _found(data_dir, name)
    if found is None:
        raise DataError(f"{purpose} needs {name}, which is not in {data_dir}, its text/bias or its bias.")
    return found


def has_bias_file(data_dir: str | Path | None, name: str) -> bool:
    """Returns whether `find_bias_file` would find a file."""
    return data_dir is not None and _found(data_dir, name) is not None


def _found(data_dir: str | Path, name: str) -> Path | None:
    return next((file for place in PLACES if (file := Path(data_dir) / place / name).is_file()), None)
