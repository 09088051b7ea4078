"""Files of molecules: unlabelled SMILES for pre-training, the data sets of MoleculeNet, and a user's own tables.

PyTorch Geometric's ``MoleculeNet`` has other features than the papers, and caches its results as pickles.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.archives import download, read_archived_texts, read_text
from tempplug_adapters.graph.molecule_recipe import DATASETS


@dataclass(frozen=True)
class _Table:
    """One data set of MoleculeNet: its file, the columns of the SMILES and of the tasks, and the suffix of the download."""

    file: str
    smiles: int
    tasks: slice
    packed: str = ""


_URL = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/{name}"
_TABLES = {
    "BBBP": _Table("BBBP.csv", -1, slice(-2, -1)),
    "BACE": _Table("bace.csv", 0, slice(2, 3)),
    "ClinTox": _Table("clintox.csv", 0, slice(1, 3), ".gz"),
    "SIDER": _Table("sider.csv", 0, slice(1, 28), ".gz"),
    "Tox21": _Table("tox21.csv", -1, slice(0, 12), ".gz"),
    "ToxCast": _Table("toxcast_data.csv", 0, slice(1, 618), ".gz"),
    "MUV": _Table("muv.csv", -1, slice(0, 17), ".gz"),
    "HIV": _Table("HIV.csv", 0, slice(-1, None)),
}


def read_smiles(path: Path, limit: int | None = None) -> list[str]:
    """Returns the first word of each line that is not empty, of the first ``limit``; raises `DataError` without any."""
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file: it must hold one SMILES a line.")
    found: list[str] = []
    for line in read_text(path).splitlines():
        if limit is not None and len(found) >= limit:
            break
        found += line.split(maxsplit=1)[:1]
    if not found:
        raise DataError(f"{path} is empty: it must hold one SMILES a line.")
    return found


def read_labelled(dataset: str, data_dir: Path | None, cache_dir: Path) -> tuple[list[str], Tensor]:
    """Returns the SMILES of a data set and their labels [n, T]: 0, 1, or NaN where a task was not measured.

    Args:
        dataset: one of `DATASETS`, in any case; or a file ``*.csv`` with a column ``smiles`` and a column of 0, 1 or nothing
            for each task.
        data_dir: folder that holds ``graph/moleculenet/bbbp.tar.xz`` and the like; None downloads.
        cache_dir: where to.

    Raises:
        UnknownNameError: no data set of that name.
        DataError: a file is missing or malformed; the message names the line.
    """
    if dataset.endswith(".csv"):
        return _read_own(Path(dataset))
    known = {name.lower(): name for name in _TABLES}
    if dataset.lower() not in known:
        raise UnknownNameError(
            f"no data set '{dataset}'.{nearest(dataset, DATASETS)} Known: {', '.join(DATASETS)}, and files that end in .csv."
        )
    table = _TABLES[known[dataset.lower()]]
    if data_dir is None:
        file = table.file + table.packed
        path = download(_URL.format(name=file), cache_dir / file, None)
        text = read_text(path)
    else:
        path = data_dir / "graph" / "moleculenet" / f"{dataset.lower()}.tar.xz"
        if not path.is_file():
            raise DataError(f"the data folder {data_dir} lacks graph/moleculenet/{path.name}.")
        text = read_archived_texts(path, [table.file])[table.file]
    rows = csv.reader(io.StringIO(text))
    next(rows, None)
    return _labelled(path, ((row[table.smiles], row[table.tasks]) for row in rows if row))


def _read_own(path: Path) -> tuple[list[str], Tensor]:
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file.")
    rows = csv.reader(io.StringIO(read_text(path)))
    header = next(rows, [])
    if "smiles" not in header or len(header) < 2:
        raise DataError(f"{path} must have a column 'smiles' and one for each task; it has {', '.join(header) or 'none'}.")
    column = header.index("smiles")
    return _labelled(path, ((row[column], row[:column] + row[column + 1 :]) for row in rows if row))


def _labelled(where: Path, rows: Iterable[tuple[str, list[str]]]) -> tuple[list[str], Tensor]:
    smiles: list[str] = []
    labels: list[list[float]] = []
    try:
        for molecule, values in rows:
            smiles.append(molecule)
            labels.append([_label(value) for value in values])
            if len(labels[-1]) != len(labels[0]):
                raise ValueError(f"{len(labels[-1])} labels where the first molecule has {len(labels[0])}")
    except (ValueError, IndexError, csv.Error) as error:
        raise DataError(f"{where}, molecule {max(len(smiles), 1)}: {error}.") from error
    if not smiles:
        raise DataError(f"{where} holds no molecule.")
    return smiles, torch.tensor(labels)


def _label(text: str) -> float:
    if text.strip().lower() in ("", "nan"):
        return float("nan")
    value = float(text)
    if value not in (0.0, 1.0):
        raise ValueError(f"label {text[:40]!r} must be 0, 1 or nothing")
    return value
