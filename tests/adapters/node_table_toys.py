"""Tables of a small graph, as functions that write them, and their reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import torch
from table_files import Write, of_csv, of_lines

from tempplug_adapters.graph.node_tables import read_tables

IDS = ["anne", "bob", "cid", "fan"]
NUMBERS = np.array([[0.5, 1, 9], [2, 3, 8], [4, 5, 7], [6, 7, 6]])
LINKS = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
NAMED = [[IDS[node] for node in link] for link in LINKS]
CLASSES, WORDS = [2, 0, 2, 0], ["dog", "ant", "dog", "ant"]
FRAME = pandas.DataFrame(NUMBERS, columns=["age", "height", "score"])
PEOPLE = FRAME.set_axis(pandas.Index(IDS, name="person"))
FAR = [30, 10, 20, 40]
"""Ids of nodes that are no row numbers."""
LISTS = {"id": FAR, "feat": NUMBERS.tolist(), "label": WORDS}
COLUMNS = {"id": FAR, **{name: FRAME[name].tolist() for name in FRAME}}
FAR_LINKS = {"src": [FAR[a] for a, _ in LINKS], "dst": [FAR[b] for _, b in LINKS]}


def of_numpy(array: Any, **options: Any) -> Write:
    """Writes by `numpy.savetxt`, or by `numpy.save` if the name ends so."""
    return lambda path: np.save(path, array) if path.suffix == ".npy" else np.savetxt(path, array, **options)


def of_torch(content: Any) -> Write:
    """Writes by `torch.save`."""
    return lambda path: torch.save(content, path)


def of_networkx(method: str, **options: Any) -> Write:
    """Writes the directed graph of the links, with weights from 0.5 on, by a function of networkx."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from([(*link, 0.5 + place) for place, link in enumerate(LINKS.tolist())])
    return lambda path: getattr(networkx, method)(graph, path, **options)


def of_frame(frame: Any, **options: Any) -> Write:
    """Writes a DataFrame or a Series by its ``to_csv``, or ``to_parquet`` if the name ends so."""
    return lambda path: frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, **options)


E = of_csv([["source", "target"], *LINKS.tolist()])
NAMED_E = of_csv([["source", "target"], *NAMED])
X = of_frame(FRAME, index=False)
Y = of_frame(pandas.Series(CLASSES, name="label"), index=False)
CONTENT = of_lines(
    *("\t".join(map(str, [*map(str, row), word])) for row, word in zip([[n, 1, 0] for n in FAR], WORDS, strict=True))
)
CITES = of_lines(*(f"{a}\t{b}" for a, b in zip(*FAR_LINKS.values(), strict=True)))


def read(folder: Path, files: dict[str, Write], columns: str = "") -> Any:
    """Returns the graph of files that are written first: those whose names begin with e, x and y."""
    for name, write in files.items():
        write(folder / name)
    paths: dict[str, Any] = {name[0]: folder / name for name in files}
    return read_tables(paths["e"], paths.get("x"), paths.get("y"), columns.split())
