"""A small graph in Planetoid's eight files."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix


def write_planetoid(raw: Path, name: str = "cora", holes: tuple[int, ...] = ()) -> Path:
    """600 described nodes and 40 numbers of test nodes, of which the holes are described nowhere; 12 features, 3 classes."""
    chance = np.random.default_rng(0)
    test = np.array([node for node in range(600, 640) if node not in holes])
    chance.shuffle(test)
    x = (chance.random((600, 12)) < 0.3).astype(np.float32)
    tx = (chance.random((len(test), 12)) < 0.3).astype(np.float32)
    y, ty = (np.eye(3, dtype=np.int32)[chance.integers(3, size=size)] for size in (600, len(test)))
    graph: Any = defaultdict(list, {node: [] for node in range(640)})
    for first, second in chance.integers(640, size=(900, 2)).tolist():
        graph[first].append(second)
        graph[second].append(first)
    matrices = {"x": csr_matrix(x[:60]), "allx": csr_matrix(x), "tx": csr_matrix(tx)}
    parts = {**matrices, "y": y[:60], "ally": y, "ty": ty, "graph": graph}
    raw.mkdir(parents=True, exist_ok=True)
    for part, content in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(pickle.dumps(content, protocol=2))
    (raw / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test))
    return raw
