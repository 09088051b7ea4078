"""Files as other tools write them: pandas, networkx, PyTorch Geometric, RecBole, open_clip, webdataset, a camera.

The formats of RecBole and webdataset, which need not be installed, are written as their documentation says.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx
import pandas
import pytest
import torch
import torch_geometric.transforms as T
from image_toys import encoded, reds
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from tempplug.errors import TempplugError
from tempplug_adapters.clip.captions import load_pairs
from tempplug_adapters.graph.graph_files import read_graphs
from tempplug_adapters.graph.node_data import load_graph
from tempplug_adapters.graph.node_tables import read_tables
from tempplug_adapters.images.image_data import load_images

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _summer_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone whose clocks skip 02:30 on a day of the dates below."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NAMES = ["anne", "bob", "cid", "fan"]
FEATURES = pandas.DataFrame({"age": [1.0, 2, 3, 4], "height": [4.0, 3, 2, 1]}, index=pandas.Index(NAMES, name="person"))
EDGES = pandas.DataFrame({"source": ["anne", "bob", "fan"], "target": ["bob", "cid", "anne"], "weight": [0.5, 1, 2]})
CLASSES = pandas.DataFrame({"node": ["fan", "anne", "bob"], "class": ["y", "x", None]})
NUMBERS = {name: number for number, name in enumerate(NAMES)}
GRAPH = ([[0, 1, 3], [1, 2, 0]], [0.5, 1, 2], [[1, 4], [2, 3], [3, 2], [4, 1]])
LABELS = [[0], [-1], [-1], [1]]


def tables(edges: Any, features: Any, labels: Any = None, ending: str = ".csv") -> Callable[[Path], Any]:
    """Reads a graph of tables that functions write: edges and weights, features, labels."""

    def read(folder: Path) -> Any:
        files = {"e": edges, "x": features, "y": labels}
        paths = {name: folder / f"{name}{ending}" for name, write in files.items() if write is not None}
        for name, path in paths.items():
            files[name](path)
        graph = read_tables(paths["e"], paths["x"], paths.get("y")).graph
        found = (
            graph.edge_index.tolist(),
            None if graph.get("edge_weight") is None else graph.edge_weight.tolist(),
            graph.x.tolist(),
        )
        return found if graph.y is None else (*found, graph.y.nan_to_num(-1).tolist())

    return read


def to_csv(table: Any, **options: Any) -> Callable[[Path], Any]:
    return lambda path: table.to_csv(path, **options)


def edgelist(path: Path) -> None:
    graph = networkx.from_pandas_edgelist(EDGES, edge_attr="weight", create_using=networkx.DiGraph)
    networkx.to_pandas_edgelist(graph).to_csv(path, index=False)


def saved(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Reads a file of PyTorch Geometric: edges, weights and features of its first graph, and the number of its graphs."""

    def read(folder: Path) -> Any:
        content = make(folder)
        file = content if isinstance(content, Path) else folder / "graph.pt"
        if file is not content:
            torch.save(content, file)
        graph, *more = read_graphs(file)
        load_graph(str(file), None, folder)
        weight = graph.get("edge_weight")
        return graph.edge_index.tolist(), None if weight is None else weight.tolist(), graph.x.shape[0], 1 + len(more)

    return read


def data(**more: Any) -> Data:
    return Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 3], [1, 2, 0]]), y=torch.tensor([0, 1, 0, 1]), **more)


def hetero() -> HeteroData:
    graph = HeteroData()
    graph["paper"].x, graph["author"].x = torch.ones(3, 2), torch.ones(2, 2)
    graph["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [2, 0]])
    return graph


class Toys(InMemoryDataset):
    """A data set of PyTorch Geometric, which writes its ``processed`` file."""

    processed_file_names = "data.pt"

    def process(self) -> None:
        self.save([data(), data()], self.processed_paths[0])


def text(content: str) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return write


def tar(path: Path, members: dict[str, bytes]) -> None:
    """Writes a shard as webdataset does: the parts of a sample one after the other, each with the name of the sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def shards(parts: Callable[[int], dict[str, bytes]], cut: int | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for number, (split, places) in enumerate({"train-000000": (0, 1), "train-000001": (2,), "test-000000": (3,)}.items()):
            tar(folder / f"{split}.tar", {f"{place:06d}.{end}": part for place in places for end, part in parts(place).items()})
            if cut is not None and number == 1:
                (folder / f"{split}.tar").write_bytes((folder / f"{split}.tar").read_bytes()[:cut])

    return write


def image(place: int) -> bytes:
    return encoded((10 * place, 0, 0), (9, 7))


def photos(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for place, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(image(place))

    return write


def pairs(write: Callable[[Path], Any], dataset: str = "", split: Any = "train", **more: Any) -> Callable[[Path], Any]:
    """Reads images with captions: the red and the captions of each."""

    def read(folder: Path) -> Any:
        write(folder)
        found = load_pairs(str(folder / dataset), split, None, size=8, templates=(), **more)
        if found is None:
            return None
        words = [[found.texts[place] for place in each] for each in found.captions]
        return list(zip(reds(found.images.batch(torch.arange(len(found)))), words, strict=True))

    return read


def images(write: Callable[[Path], Any], dataset: str = "", split: Any = "train") -> Callable[[Path], Any]:
    """Reads images: the reds and the labels."""

    def read(folder: Path) -> Any:
        write(folder)
        found = load_images(str(folder / dataset), split, None, size=8)
        return reds(found.batch(torch.arange(len(found)))), None if found.labels is None else found.labels.tolist()

    return read


def open_clip(separator: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        photos("shots/a.png", "shots/b.png")(folder)
        rows = {"filepath": ["shots/a.png", "shots/b.png", "shots/a.png"], "title": ["a,\u2028red", 'say "b"\nloud', "again"]}
        pandas.DataFrame(rows).to_csv(folder / "pairs.csv", sep=separator, index=False, quoting=csv.QUOTE_MINIMAL)

    return write


WITH_TEXT = shards(lambda place: {"png": image(place), "txt": f"no. {place}".encode(), "json": b'{"caption": "other"}'})
WITH_JSON = shards(
    lambda place: {"jpg" if place else "png": image(place), "json": json.dumps({"caption": f"no. {place}"}).encode()}
)
WITH_CLASS = shards(lambda place: {"png": image(place), "cls": str(place % 2).encode()})
PAIRS = [(0, ["no. 0"]), (10, ["no. 1"]), (20, ["no. 2"])]

E, X, Y = to_csv(EDGES, index=False), to_csv(FEATURES), to_csv(CLASSES, index=False)
NUMBERED, UNNAMED = to_csv(EDGES.replace(NUMBERS)), FEATURES.reset_index(drop=True)
BACKWARDS = UNNAMED.rename_axis("node").reset_index()[::-1]
DUMMIES = pandas.get_dummies(pandas.Series(list("abba"), index=NAMES))
WEIGHTED, SPLIT = data(edge_weight=torch.tensor([2.0, 3, 4])), T.RandomNodeSplit(num_val=1, num_test=1)
TWO = [(0, ["a,\u2028red", "again"]), (10, ['say "b"\nloud'])]

READ: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "pandas: names, classes": (tables(E, X, Y), (*GRAPH, LABELS)),
    "pandas: edges with row numbers": (tables(to_csv(EDGES), X), GRAPH),
    "pandas: no headers": (tables(to_csv(EDGES, index=False, header=False), to_csv(FEATURES, header=False)), GRAPH),
    "pandas: columns in another order": (tables(to_csv(EDGES[["weight", "target", "source"]], index=False), X), GRAPH),
    "pandas: edges with another column": (tables(to_csv(EDGES.assign(since=1), index=False), X), GRAPH),
    "pandas: tabs": (tables(to_csv(EDGES, sep="\t"), to_csv(FEATURES, sep="\t"), ending=".tsv"), GRAPH),
    "pandas: numbers of nodes": (tables(NUMBERED, to_csv(UNNAMED), to_csv(CLASSES.replace(NUMBERS))), (*GRAPH, LABELS)),
    "pandas: backwards": (tables(NUMBERED, to_csv(BACKWARDS)), ([[3, 2, 0], [2, 1, 3]], GRAPH[1], GRAPH[2][::-1])),
    "pandas: get_dummies": (tables(E, to_csv(DUMMIES)), (*GRAPH[:2], [[1, 0], [0, 1], [0, 1], [1, 0]])),
    "networkx: to_pandas_edgelist": (tables(edgelist, X), GRAPH),
    "PyG: ToSparseTensor": (saved(lambda _: T.ToSparseTensor()(data())), ([[3, 0, 1], [0, 1, 2]], None, 4, 1)),
    "PyG: weights": (saved(lambda _: T.ToSparseTensor("edge_weight")(WEIGHTED)), ([[3, 0, 1], [0, 1, 2]], [4, 2, 3], 4, 1)),
    "PyG: ToUndirected": (
        saved(lambda _: T.Compose([T.ToUndirected(), SPLIT])(data())),
        ([[0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0]], None, 4, 1),
    ),
    "PyG: to_homogeneous": (saved(lambda _: hetero().to_homogeneous()), ([[3, 4], [2, 0]], None, 5, 1)),
    "PyG: data set": (saved(lambda folder: Path(Toys(str(folder)).processed_paths[0])), ([[0, 1, 3], [1, 2, 0]], None, 4, 2)),
    "open_clip: tabs": (pairs(open_clip("\t"), "pairs.csv"), TWO),
    "open_clip: commas": (pairs(open_clip(","), "pairs.csv"), TWO),
    "open_clip: no test set": (pairs(open_clip(","), "pairs.csv", "test"), None),
    "webdataset: txt before json": (pairs(WITH_TEXT), PAIRS),
    "webdataset: the test shards": (pairs(WITH_TEXT, split="test"), [(30, ["no. 3"])]),
    "webdataset: one shard": (pairs(WITH_TEXT, "test-000000.tar"), [(30, ["no. 3"])]),
    "webdataset: json, images of two kinds": (pairs(WITH_JSON), PAIRS),
    "webdataset: images with classes": (images(WITH_CLASS), ([0, 10, 20], [0, 1, 0])),
    "webdataset: images without classes": (images(WITH_TEXT), ([0, 10, 20], None)),
    "a camera: one folder": (images(photos("IMG_1.PNG", "IMG_2.png")), ([0, 10], None)),
    "a camera: folders of days": (images(photos("2026/01/a.png", "2026/02/b.png", "c.png")), ([0, 10, 20], None)),
}
"""By the tool and what it wrote: how it is read, and what is in it."""


def open_clip_of(content: str) -> Callable[[Path], Any]:
    return pairs(lambda folder: text(content)(folder / "pairs.csv"), "pairs.csv")


STRANGER, TWICE = (
    to_csv(EDGES.replace("cid", "zed"), index=False),
    to_csv(pandas.concat([FEATURES, FEATURES[:1]]), index_label="name"),
)
CUT = shards(lambda place: {"png": image(place), "txt": b"a"}, cut=700)
BARE = shards(lambda place: {"txt": b"a"} | ({"png": image(place)} if place != 1 else {}))
REFUSED: dict[str, Callable[[Path], Any]] = {
    r"x\.csv: 'person' and 'job' could be the node\. Name it: --columns node=person\. It has: 'person' \(text": tables(
        E, to_csv(FEATURES.assign(job=list("abcd")))
    ),
    r"e\.csv, line 3: node 'zed' has no row in .*x\.csv: add its features, or leave the edge out": tables(STRANGER, X),
    r"e\.csv, line 2: node 'anne' has no row in .*, whose 4 rows are counted from 0: give them a column id": tables(
        E, to_csv(UNNAMED * 2, index=False)
    ),
    r"x\.csv, line 6: node 'anne' has two rows: leave one": tables(to_csv(EDGES), TWICE),
    r"y\.csv, line 2: node 'zed' has no row in .*x\.csv: leave it out": tables(
        to_csv(EDGES), X, to_csv(CLASSES.replace("fan", "zed"), index=False)
    ),
    r"y\.csv has labels of \d nodes, but .* features of 4: give a row for each, or a column id with the ids": tables(
        to_csv(EDGES), X, to_csv(CLASSES["class"][:2], index=False)
    ),
    r"graph\.pt holds a HeteroData, .*: save data\.to_homogeneous\(\)": saved(lambda _: hetero()),
    r"graph\.pt.*torch_geometric\.utils\.dense_to_sparse makes it from adj": saved(lambda _: T.ToDense()(data())),
    r"pairs\.csv, line 2: the image 'none/a\.png' does not exist, neither in": open_clip_of("filepath,title\nnone/a.png,a\n"),
    r"pairs\.csv: no column is clearly the caption\. Name it: --caption-column .* It has: 'filepath' .*, 'label'": open_clip_of(
        "filepath,label\na.png,a\n"
    ),
    r"pairs\.csv, line 3: column 'title' is empty": pairs(
        lambda folder: (photos("a.png")(folder), text("filepath,title\na.png,b\na.png,\n")(folder / "pairs.csv")), "pairs.csv"
    ),
    r"test-000000\.tar: no column is clearly the caption\. .*It has: 'cls' \(integer, such as '1'\)": pairs(WITH_CLASS),
    r"train-000001\.tar cannot be read as a tar: .*load a cut one again": pairs(CUT),
    r"train-000000\.tar: sample '000001' has 0 images; wanted one, such as 000001\.jpg, beside 000001\.txt": pairs(BARE),
    "must hold a folder test or val that has a folder of images for each class": images(photos("a.png"), split="test"),
}
"""Readers of what is wrong, by what the error says."""


@pytest.mark.parametrize("fixture", READ)
def test_it_is_read(tmp_path: Path, fixture: str) -> None:
    read, expected = READ[fixture]
    assert read(tmp_path) == expected


@pytest.mark.parametrize("message", REFUSED)
def test_it_is_refused_with_a_remedy(tmp_path: Path, message: str) -> None:
    with pytest.raises(TempplugError, match=message) as raised:
        REFUSED[message](tmp_path)
    assert str(tmp_path) in str(raised.value), "which names the file"
