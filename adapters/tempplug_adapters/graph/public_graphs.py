"""Public graphs by name, from the folders that PyTorch Geometric's classes leave: Planetoid, CitationFull, Coauthor, Amazon."""

from __future__ import annotations

from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.io import parse_npz

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.archives import read_arrays
from tempplug_adapters.data_files.downloads import download
from tempplug_adapters.data_files.pickled_arrays import SparseRows
from tempplug_adapters.data_files.sparse_rows import checked_rows
from tempplug_adapters.graph.ogb_files import load_ogb, place_of
from tempplug_adapters.graph.planetoid import load_planetoid

# Folder, file and address by class and name.
_GITHUB = "https://raw.githubusercontent.com"
_FULL = _GITHUB + "/abojchevski/graph2gauss/240248289d38c22ba28ea8e56b7d6873e291499b/data/{}"
_SHCHUR = _GITHUB + "/shchur/gnn-benchmark/master/data/npz/{}"
_ARCHIVES = {
    **{
        f"CitationFull/{name}": (name.lower(), f"{name.lower()}.npz")
        for name in ("Cora", "Cora_ML", "CiteSeer", "DBLP", "PubMed")
    },
    "Coauthor/CS": ("CS", "ms_academic_cs.npz"),
    "Coauthor/Physics": ("Physics", "ms_academic_phy.npz"),
    "Amazon/Computers": ("Computers", "amazon_electronics_computers.npz"),
    "Amazon/Photo": ("Photo", "amazon_electronics_photo.npz"),
}
_FOLDERS = {"Planetoid": "planetoid", "CitationFull": "citation_full", "Coauthor": "coauthor", "Amazon": "amazon"}
_SUMS = {"dblp.npz": "git:3e179a9ebf2968d9ad67544c8978bf4759e489d8"}
_NAMES = (*(f"Planetoid/{name}" for name in ("Cora", "CiteSeer", "PubMed")), *_ARCHIVES)
_ARRAYS = tuple(f"{of}_{part}" for of in ("attr", "adj") for part in ("data", "indices", "indptr", "shape"))
_MOST_BYTES = 2**31


def load_public(dataset: str, data_dir: Path | None, cache_dir: Path) -> Data:
    """Returns a public graph.

    Args:
        dataset: its name, with its class in front where two have it: ``Cora`` is ``Planetoid/Cora``; or one of OGB's,
            ``ogbn-arxiv``.
        data_dir: folder that holds ``graph/planetoid/Cora/raw`` and the like, ``planetoid/Cora/raw``, or ``Cora/raw``, as the
            class leaves it; read and never written to. None downloads.
        cache_dir: where to.

    Raises:
        UnknownNameError: no data set of that name.
        DataError: files are missing or damaged.
    """
    if dataset.lower().startswith("ogbn-"):
        return load_ogb(dataset, data_dir)[0]
    # of two classes with the name, the first
    known = {short.lower(): name for name in reversed(_NAMES) for short in (name, name.partition("/")[2])}
    if dataset.lower() not in known:
        short = list(dict.fromkeys(name.partition("/")[2] for name in _NAMES))
        raise UnknownNameError(
            f"no data set '{dataset}'.{nearest(dataset, [*short, *_NAMES])} Known: {', '.join(_NAMES)}, OGB's such as "
            "ogbn-arxiv, files that end in .pt, and tables of edges."
        )
    kind, _, name = known[dataset.lower()].partition("/")
    if kind == "Planetoid":
        return load_planetoid(name, place_of(data_dir, _FOLDERS[kind], name, "raw"), cache_dir)
    folder, file = _ARCHIVES[f"{kind}/{name}"]
    place = place_of(data_dir, _FOLDERS[kind], folder, "raw")
    if place is None:
        address = (_FULL if kind == "CitationFull" else _SHCHUR).format(file)
        return read_archive(download(address, cache_dir / _FOLDERS[kind] / file, _SUMS.get(file)))
    if not (place / file).is_file():
        raise DataError(f"{kind}/{name} needs {file}, not found in {place}.")
    return read_archive(place / file)


def read_archive(file: Path) -> Data:
    """Returns a graph as PyTorch Geometric's ``read_npz`` has it: words as 0 or 1, edges in both directions.

    Raises:
        DataError: the file is damaged, or its arrays do not fit one another.
    """
    arrays = read_arrays(file, (*_ARRAYS, "labels"))
    missing = {*_ARRAYS, "labels"} - arrays.keys()
    if missing:
        raise DataError(f"{file} lacks {', '.join(sorted(missing))}.")
    labels = arrays["labels"]
    words, links = (SparseRows(*(arrays[name] for name in names)) for names in (_ARRAYS[:4], _ARRAYS[4:]))
    try:
        nodes, _ = checked_rows(words, _MOST_BYTES).shape
        shape = checked_rows(links).shape
    except DataError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    if shape != (nodes, nodes) or labels.shape != (nodes,) or labels.dtype.kind not in "iu":
        raise DataError(f"{file} must have links between its {nodes} nodes, and a class, an integer, of each.")
    return parse_npz(arrays)
