"""Damaged files of data: every loader refuses them in a line that names the file, or reads what was there.

A file with checksums inside (gzip, xz, zip) that is read as something else is a silent fault; one without can only be another
valid file. Damage is a few flipped bits, a cut, bytes too many, a block of zeros, a number made large.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import pickle
import random
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from fuzzing import Verdict
from PIL import Image
from pyarrow import feather, parquet

from tempplug.errors import TempplugError


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes:
        write: puts whole files into a folder.
        load: reads them.
        checked: whether the files have checksums of their own.
    """

    write: Callable[[Path], object]
    load: Callable[[Path], Any]
    checked: bool


def _tar(folder: Path, name: str, texts: dict[str, str], mode: Any) -> None:
    folder.mkdir(parents=True)
    with tarfile.open(folder / name, mode) as archive:
        for inner, text in texts.items():
            entry = tarfile.TarInfo(inner)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def _tu(folder: Path, packed: bool) -> None:
    nodes = [1 + node // 5 for node in range(40)]
    edges = [(node, node + 1) for node in range(1, 40) if nodes[node - 1] == nodes[node]]
    texts = {
        "A": "".join(f"{a}, {b}\n{b}, {a}\n" for a, b in edges),
        "graph_indicator": "".join(f"{each}\n" for each in nodes),
        "graph_labels": "".join(f"{each % 2}\n" for each in range(8)),
        "node_labels": "".join(f"{each % 3}\n" for each in range(40)),
    }
    named, place = {f"TOY/raw/TOY_{part}.txt": text for part, text in texts.items()}, folder / "graph" / "tu"
    if packed:
        return _tar(place, "TOY.tar.xz", named, "w:xz")
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "TOY.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in named.items():
            archive.writestr(name, text)
    return None


def write_npz(file: Path) -> None:
    """A graph in the format of CitationFull, Coauthor and Amazon."""
    from scipy.sparse import csr_matrix

    chance = np.random.default_rng(0)
    parts = {
        "attr": csr_matrix(chance.random((30, 8)) < 0.4, dtype=np.float32),
        "adj": csr_matrix(chance.random((30, 30)) < 0.1),
    }
    arrays = {
        f"{of}_{part}": np.asarray(getattr(matrix, part)).astype(np.float32 if part == "data" else np.int64)
        for of, matrix in parts.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    file.parent.mkdir(parents=True)
    np.savez_compressed(file, labels=chance.integers(4, size=30), **arrays)


def _pixels(folder: Path) -> None:
    images = np.random.default_rng(0).integers(256, size=(6, 4, 4, 3)).astype(np.uint8)
    np.savez_compressed(folder / "a.npz", images=images, labels=np.arange(6) % 2, classes=np.array(["cat", "dog"]))


def _jpegs(folder: Path) -> None:
    stream, offsets = io.BytesIO(), [0]
    for shade in range(4):
        Image.new("RGB", (8, 8), (60 * shade, 0, 0)).save(stream, "JPEG")
        offsets.append(stream.tell())
    content = np.frombuffer(stream.getvalue(), np.uint8)
    np.savez(
        folder / "a.npz", jpeg=content, offsets=np.array(offsets), labels=np.arange(4) % 2, classes=np.array(["cat", "dog"])
    )


def _cifar(folder: Path, binary: bool) -> None:
    place = folder / ("cifar-10-batches-bin" if binary else "cifar-10-batches-py")
    place.mkdir()
    pixels = np.random.default_rng(0).integers(256, size=(2, 3072)).astype(np.uint8)
    if binary:
        (place / "batches.meta.txt").write_text("cat\ndog\n")
        (place / "test_batch.bin").write_bytes(b"\x00" + pixels[0].tobytes() + b"\x01" + pixels[1].tobytes())
    else:
        (place / "batches.meta").write_bytes(pickle.dumps({"label_names": ["cat", "dog"]}, protocol=2))
        (place / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": [0, 1]}, protocol=2))


def _stl10(folder: Path) -> None:
    place = folder / "stl10_binary"
    place.mkdir()
    (place / "class_names.txt").write_text("cat\ndog\n")
    (place / "test_X.bin").write_bytes(np.random.default_rng(0).integers(256, size=(2, 27648)).astype(np.uint8).tobytes())
    (place / "test_y.bin").write_bytes(bytes([1, 2]))


def _sentences(folder: Path, name: str) -> None:
    rows = [f"a man plays {number}{'' if name.startswith('s.txt') else chr(9) + 'someone plays'}" for number in range(12)]
    text = "\n".join(["query\tanswer", *rows]) if ".tsv" in name else "\n".join(rows)
    if ".jsonl" in name:
        text = "\n".join(f'{{"query": "a {number}", "answer": "b"}}' for number in range(12))
    if ".csv" in name:
        text = "query,answer\n" + "\n".join(f'"a, {number}",b' for number in range(12))
    if name.endswith((".parquet", ".arrow")):
        table = pyarrow.table({"query": [f"a {number}" for number in range(12)], "pos": [["b", "c"]] * 12})
        (parquet.write_table if name.endswith(".parquet") else feather.write_feather)(table, folder / name)
        return
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def _sts(folder: Path) -> None:
    (folder / "SICKR").mkdir()
    (folder / "SICKR" / "test.tsv").write_text("score\tsentence1\tsentence2\n" + "3.5\ta man\ta dog\n" * 8)


def _molecules(folder: Path) -> None:
    rows = "".join(f"{'C' * (1 + row)},{row % 2},{(row + 1) % 2}\n" for row in range(12))
    _tar(folder / "graph" / "moleculenet", "clintox.tar.xz", {"clintox/raw/clintox.csv": "smiles,a,b\n" + rows}, "w:xz")


def _own_molecules(folder: Path) -> None:
    (folder / "a.csv").write_text("smiles,a\n" + "".join(f"{'C' * (1 + row)},{row % 2}\n" for row in range(12)))


def _saved_graph(folder: Path) -> None:
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(0)
    graph = Data(x=torch.rand(9, 3, generator=generator), edge_index=torch.randint(9, (2, 12), generator=generator))
    torch.save(graph, folder / "a.pt")


@cache
def formats() -> dict[str, Format]:
    """The formats by name; what reads them is loaded now."""
    from tempplug_adapters.data_files.text_rows import open_texts
    from tempplug_adapters.graph.graph_files import load_tu
    from tempplug_adapters.graph.molecule_data import read_labelled, read_smiles
    from tempplug_adapters.graph.node_data import load_graph
    from tempplug_adapters.images.image_archives import read_cifar, read_npz, read_stl10
    from tempplug_adapters.sentence_evaluation.sts_data import load_sts

    def tu(folder: Path) -> Any:
        return load_tu("TOY", folder / "cache", folder)

    def npz(folder: Path) -> Any:
        return read_npz(folder / "a.npz", "train", "a")

    found = {
        "dblp": Format(
            lambda folder: write_npz(folder / "graph/citation_full/dblp/raw/dblp.npz"),
            lambda folder: load_graph("DBLP", folder, folder, normalize=False),
            True,
        ),
        "saved graph": Format(_saved_graph, lambda folder: load_graph(str(folder / "a.pt"), None, folder), True),
        "tu, xz": Format(lambda folder: _tu(folder, True), tu, True),
        "tu, zip": Format(lambda folder: _tu(folder, False), tu, True),
        "molecules": Format(_molecules, lambda folder: read_labelled("ClinTox", folder, folder), True),
        "own molecules": Format(_own_molecules, lambda folder: read_labelled(str(folder / "a.csv"), None, folder), False),
        "smiles": Format(lambda folder: _sentences(folder, "s.txt.gz"), lambda folder: read_smiles(folder / "s.txt.gz"), True),
        "pixels": Format(_pixels, npz, True),
        "jpegs": Format(_jpegs, npz, True),
        "cifar": Format(
            lambda folder: _cifar(folder, False), lambda folder: read_cifar(folder / "cifar-10-batches-py", "test", "a"), False
        ),
        "cifar, binary": Format(
            lambda folder: _cifar(folder, True), lambda folder: read_cifar(folder / "cifar-10-batches-bin", "test", "a"), False
        ),
        "stl10": Format(_stl10, lambda folder: read_stl10(folder / "stl10_binary", "test", "a"), False),
        "sts": Format(_sts, lambda folder: load_sts("SICKR", folder), False),
    }
    for name in ("s.txt", "s.tsv", "s.csv", "s.jsonl", "s.tsv.gz", "s.jsonl.gz", "s.parquet", "s.arrow"):
        found[f"sentences, {name}"] = Format(
            lambda folder, name=name: _sentences(folder, name),
            lambda folder, name=name: list(open_texts(folder / name)),
            name.endswith("gz"),
        )
    return found


def _digest(value: Any) -> str:
    """Two values have the same digest where they are the same, number by number."""
    total = hashlib.sha256()

    def add(each: Any) -> None:
        if isinstance(each, torch.Tensor):
            total.update(f"{each.dtype}{tuple(each.shape)}".encode() + each.contiguous().numpy().tobytes())
        elif hasattr(each, "to_dict"):
            add(each.to_dict())
        elif isinstance(each, dict):
            for key in sorted(each):
                add((key, each[key]))
        elif isinstance(each, list | tuple):
            for inner in each:
                add(inner)
        elif hasattr(each, "__dict__"):
            add({name: inner for name, inner in vars(each).items() if not name.startswith("__")})
        elif hasattr(each, "__slots__"):
            add([getattr(each, name) for name in each.__slots__])
        else:
            total.update(repr(each).encode())

    add(value)
    return total.hexdigest()


def _damaged(chance: random.Random, content: bytes) -> tuple[bytes, str]:
    turn, place = chance.randrange(7), chance.randrange(max(1, len(content)))
    changed = bytearray(content)
    if turn == 0:
        return content[:place], f"cut at {place}"
    if turn == 1:
        changed[place:place] = chance.randbytes(chance.choice([1, 3, 40]))
        return bytes(changed), f"more at {place}"
    if turn == 2:
        changed[place : place + chance.choice([4, 64])] = bytes(min(64, len(changed) - place))
        return bytes(changed), f"zeros at {place}"
    numbers = [found.span() for found in re.finditer(rb"\d+", content[:100_000])]
    if turn == 3 and numbers:
        start, end = chance.choice(numbers)
        changed[start:end] = chance.choice([b"9" * 5000, b"-1", b"4000000000", b"1e999", b"nan", b"9" * 19])
        return bytes(changed), f"another number at {start}"
    flips = [(chance.randrange(len(changed)), chance.randrange(8)) for _ in range(chance.choice([1, 1, 2, 8]))]
    for where, bit in flips:
        changed[where] ^= 1 << bit
    return bytes(changed), f"bits {flips}"


def case(number: int) -> Verdict:
    chance = random.Random(number)
    names = list(formats())
    name = names[number % len(names)]
    kind = formats()[name]
    with tempfile.TemporaryDirectory(prefix="tempplug-fuzz-") as place:
        folder = Path(place)
        kind.write(folder)
        whole = _digest(kind.load(folder))
        file = chance.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
        content, how = _damaged(chance, file.read_bytes())
        file.write_bytes(content)
        told = f"{name}, {file.relative_to(folder)}: {how}"[:300]
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                found = _digest(kind.load(folder))
        except TempplugError as error:
            # In one line that names a file or its folder; of control characters the commands' shell takes care.
            clear = str(folder) in str(error) and "\n" not in str(error) and len(str(error)) < 1000
            return Verdict("refused" if clear else "obscure", told, repr(error)[:400])
        except Exception as error:
            return Verdict("obscure", told, f"{type(error).__name__}: {str(error)[:300]}")
    if found != whole and kind.checked:
        return Verdict("silent", told, "other data were read")
    return Verdict("right", told)
