"""Tables of nodes, edges and labels as other tools write them are read by content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import pandas
import pytest
import torch
from node_table_toys import (
    CITES,
    CLASSES,
    COLUMNS,
    CONTENT,
    FAR,
    FAR_LINKS,
    FRAME,
    IDS,
    LINKS,
    LISTS,
    NAMED,
    NAMED_E,
    NUMBERS,
    PEOPLE,
    WORDS,
    E,
    X,
    Y,
    of_frame,
    of_networkx,
    of_numpy,
    of_torch,
    read,
)
from pyarrow import parquet
from table_files import Write, of_arrow, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug.cli import main
from tempplug.errors import DataError
from tempplug_adapters.graph import grace_method
from tempplug_adapters.graph.evaluation import check_evaluation
from tempplug_adapters.graph.node_data import labels_of
from tempplug_adapters.graph.recipes import GRACE
from tempplug_adapters.training.method import Source

Case = tuple[dict[str, Write], str, dict[str, Any]]
"""Files by their names, of which the first letter says what they are: edges, x, y; words of --columns; what is different."""
READ: dict[str, Case] = {
    "pandas: columns without names": (
        {"e.csv": E, "x.csv": of_frame(pandas.DataFrame(NUMBERS), index=False), "y.csv": Y},
        "",
        {},
    ),
    "pandas: nothing has a name": (
        {
            "e.csv": E,
            "x.csv": of_frame(pandas.DataFrame(NUMBERS), index=False),
            "y.csv": of_frame(pandas.Series(CLASSES), index=False),
        },
        "",
        {},
    ),
    "pandas: row numbers": (
        {
            "e.csv": of_frame(pandas.DataFrame(LINKS, columns=["u", "v"])),
            "x.csv": of_frame(FRAME),
            "y.csv": of_frame(pandas.Series(CLASSES)),
        },
        "",
        {"ids": ["0", "1", "2", "3"]},
    ),
    "pandas: an index of names": (
        {"e.csv": NAMED_E, "x.csv": of_frame(PEOPLE), "y.csv": of_frame(pandas.Series(CLASSES, index=IDS)[::-1])},
        "",
        {"ids": IDS},
    ),
    "pandas: an index of numbers, parquet": (
        {
            "e.parquet": of_pandas(FAR_LINKS, "to_parquet"),
            "x.parquet": of_frame(FRAME.set_axis(FAR)),
            "y.parquet": of_frame(pandas.DataFrame({"class": CLASSES}, index=FAR)),
        },
        "",
        {"ids": list(map(str, FAR))},
    ),
    "pandas: ids that became decimal numbers": (
        {"e.csv": of_frame(pandas.DataFrame(FAR_LINKS).astype(float)), "x.csv": of_pandas(COLUMNS, "to_csv"), "y.csv": Y},
        "",
        {"ids": list(map(str, FAR))},
    ),
    "pandas: missing labels": (
        {"e.csv": E, "x.csv": X, "y.csv": of_frame(pandas.Series([1, None, 0, 1], dtype="Int64", name="y"), index=False)},
        "",
        {"labels": [1, -1, 0, 1]},
    ),
    "pandas: missing words": (
        {"e.csv": E, "x.csv": X, "y.csv": of_frame(pandas.Series(["b", None, "a", "b"]), index=False, header=False)},
        "",
        {"labels": [1, -1, 0, 1]},
    ),
    "pandas: missing labels that became decimal numbers": (
        {"e.csv": E, "x.csv": X, "y.csv": of_frame(pandas.DataFrame({"node": [2, 0, 1], "y": [0, 1, None]}), index=False)},
        "",
        {"labels": [1, -1, 0, -1]},
    ),
    "pandas: truth values": (
        {"e.csv": NAMED_E, "x.csv": of_frame(pandas.get_dummies(pandas.Series(list("abba"), index=IDS)))},
        "",
        {"x": [[1, 0], [0, 1], [0, 1], [1, 0]], "ids": IDS, "labels": None},
    ),
    "pandas: labels beside the features": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(label=CLASSES, train_mask=True), index=False)},
        "",
        {},
    ),
    "pandas: labels beside the features and alone": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(label=1), index=False), "y.csv": Y},
        "",
        {},
    ),
    "pandas: several classes a node": (
        {"e.csv": E, "x.csv": X, "y.csv": of_frame(pandas.DataFrame([[1, 0], [0, 1], [1, 1], [0, 0]]), index=False)},
        "",
        {"labels": [[1, 0], [0, 1], [1, 1], [0, 0]]},
    ),
    "pandas: packed lines of JSON": (
        {
            "e.jsonl.gz": of_pandas(FAR_LINKS, "to_json", orient="records", lines=True),
            "x.jsonl": of_pandas(LISTS, "to_json", orient="records", lines=True),
        },
        "",
        {"ids": list(map(str, FAR)), "labels": [1, 0, 1, 0]},
    ),
    "pandas: other names": (
        {
            "e.csv": of_pandas({"citing": FAR_LINKS["src"], "of": FAR_LINKS["dst"], "since": [1, 2, 3, 4]}, "to_csv"),
            "x.csv": of_frame(FRAME.assign(paper=FAR), index=False),
            "y.csv": of_pandas({"paper": FAR, "field": WORDS, "year": [1, 2, 3, 4]}, "to_csv"),
        },
        "target=of node=paper feature=height,age label=field",
        {"ids": list(map(str, FAR)), "labels": [1, 0, 1, 0], "x": NUMBERS[:, 1::-1].tolist()},
    ),
    "polars: csv": (
        {
            "e.csv": of_polars(FAR_LINKS, "write_csv"),
            "x.csv": of_polars(COLUMNS, "write_csv"),
            "y.csv": of_polars({"id": FAR[::-1], "y": WORDS[::-1]}, "write_csv"),
        },
        "",
        {"ids": list(map(str, FAR)), "labels": [1, 0, 1, 0]},
    ),
    "polars: lists in parquet": (
        {"e.parquet": of_polars(FAR_LINKS, "write_parquet"), "x.parquet": of_polars(LISTS, "write_parquet")},
        "",
        {"ids": list(map(str, FAR)), "labels": [1, 0, 1, 0]},
    ),
    "pyarrow: feather": (
        {
            "e.feather": of_arrow({"source": LINKS[:, 0], "target": LINKS[:, 1], "w": [1, 2, 3, 4]}, "feather"),
            "x.feather": of_arrow({"x": NUMBERS.tolist()}, "feather"),
            "y.csv": Y,
        },
        "",
        {"weights": [1, 2, 3, 4]},
    ),
    "datasets: a folder": ({"e.csv": E, "x": of_datasets({"feat": NUMBERS.tolist()}), "y.csv": Y}, "", {}),
    "Excel: semicolons": (
        {
            "e.csv": of_csv([["Source", "Target"], *NAMED], "utf-8-sig", dialect="excel", delimiter=";"),
            "x.csv": of_csv(
                [["Name", *FRAME.columns], *([name, *row] for name, row in zip(IDS, NUMBERS, strict=True))],
                "utf-8-sig",
                delimiter=";",
            ),
            "y.csv": of_csv([["Name", "Class"], *zip(IDS, WORDS, strict=True)], "utf-8-sig", delimiter=";"),
        },
        "",
        {"ids": IDS, "labels": [1, 0, 1, 0]},
    ),
    "Excel: Unicode text": (
        {
            "e.txt": of_csv([["Source", "Target"], *LINKS.tolist()], "utf-16", dialect="excel-tab"),
            "x.txt": of_csv([list(FRAME), *NUMBERS.tolist()], "utf-16", dialect="excel-tab"),
            "y.csv": Y,
        },
        "",
        {},
    ),
    "R: row names from 1": (
        {
            "e.csv": of_lines('"from","to"', "1,2", "2,3", "3,4", "4,1"),
            "x.csv": of_lines('"","age","height","score"', '"1",0.5,1,9', '"2",2,3,8', '"3",4,5,7', '"4",6,7,6'),
            "y.csv": of_lines('"","class"', '"4",0', '"3",2', '"2",0', '"1",2'),
        },
        "",
        {"ids": ["1", "2", "3", "4"]},
    ),
    "networkx: write_edgelist": ({"e.txt": of_networkx("write_edgelist", data=False), "x.csv": X, "y.csv": Y}, "", {}),
    "networkx: write_weighted_edgelist": (
        {"e.edgelist": of_networkx("write_weighted_edgelist"), "x.csv": X, "y.csv": Y},
        "",
        {"weights": [0.5, 1.5, 2.5, 3.5]},
    ),
    "networkx: to_pandas_edgelist": (
        {"e.csv": of_frame(networkx.to_pandas_edgelist(networkx.DiGraph(NAMED))), "x.csv": of_frame(PEOPLE), "y.csv": Y},
        "",
        {"ids": IDS},
    ),
    "numpy: savetxt": ({"e.txt": of_numpy(LINKS), "x.txt": of_numpy(NUMBERS), "y.txt": of_numpy(CLASSES)}, "", {}),
    "numpy: savetxt with commas": (
        {
            "e.csv": of_numpy(LINKS[::-1], fmt="%d", delimiter=","),
            "x.csv": of_numpy(NUMBERS, delimiter=","),
            "y.csv": of_numpy(CLASSES, fmt="%d"),
        },
        "",
        {"edges": LINKS[::-1].T.tolist()},
    ),
    "numpy: words": (
        {"e.txt": of_numpy(LINKS), "x.npy": of_numpy(NUMBERS), "y.txt": of_numpy(WORDS, fmt="%s")},
        "",
        {"labels": [1, 0, 1, 0]},
    ),
    "numpy: save": ({"e.npy": of_numpy(LINKS), "x.npy": of_numpy(NUMBERS), "y.npy": of_numpy(CLASSES)}, "", {}),
    "PyTorch: edge_index, x and y": (
        {"e.npy": of_numpy(LINKS.T), "x.pt": of_torch(torch.tensor(NUMBERS)), "y.pt": of_torch(torch.tensor(CLASSES))},
        "",
        {},
    ),
    "OSMnx: coordinates": (
        {"e.csv": E, "x.csv": of_pandas({"osmid": FAR, "id": range(4), "y": [8, 8, 9, 9], "x": [1, 2, 1, 2]}, "to_csv")},
        "feature=x,y",
        {"x": [[1, 8], [2, 8], [1, 9], [2, 9]], "labels": None, "ids": ["0", "1", "2", "3"]},
    ),
    "Cora: content and cites": (
        {"e.cites": CITES, "x.content": CONTENT},
        "node=1 label=4",
        {"ids": list(map(str, FAR)), "labels": [1, 0, 1, 0], "x": [[1, 0]] * 4},
    ),
}
"""By the tool and what it wrote."""
SAME: dict[str, Any] = {"edges": LINKS.T.tolist(), "weights": None, "x": NUMBERS.tolist(), "labels": CLASSES, "ids": None}
"""What is in the files unless a case says otherwise."""


@pytest.mark.parametrize("case", READ)
def test_a_graph_is_read_by_content(tmp_path: Path, case: str) -> None:
    files, columns, changes = READ[case]
    tables = read(tmp_path, files, columns)
    graph = tables.graph
    labels = labels_of(graph, "toy")
    found = {
        "edges": graph.edge_index.tolist(),
        "weights": None if graph.get("edge_weight") is None else graph.edge_weight.tolist(),
        "x": graph.x.tolist(),
        "labels": None if labels is None else labels.tolist(),
        "ids": tables.ids,
    }
    assert found == {**SAME, **changes}


def test_the_command_says_what_it_read_and_vectors_keep_the_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"p{place}" for place in range(20)][::-1]
    frame = pandas.DataFrame(
        {f"w{place}": [row % (place + 2) for row in range(20)] for place in range(12)}, index=pandas.Index(ids, name="paper")
    )
    frame.to_csv(tmp_path / "x.csv")
    pandas.DataFrame({"citing": ids, "cited": ids[1:] + ids[:1], "year": 2001}).to_csv(tmp_path / "e.csv")
    labels = pandas.DataFrame({"paper": ids, "field": ["bio", "chem"] * 10})[2:]
    labels.to_csv(tmp_path / "y.csv", index=False)
    files = ["--node-features", str(tmp_path / "x.csv"), "--node-labels", str(tmp_path / "y.csv"), "--columns", "label=field"]
    words = ["--dataset", str(tmp_path / "e.csv"), "--num-train-epochs", "1", "--protocols", "10/10/80"]
    with pytest.MonkeyPatch.context() as quick:
        original = grace_method.evaluate_nodes
        quick.setattr(grace_method, "evaluate_nodes", lambda *given, **more: original(*given, **more, steps=2))
        assert main(["train", "grace", *words, *files, "--output-dir", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    for line in (
        "20 nodes, 20 edges, 12 features, 2 classes\n",
        "e.csv, source: column 'citing' (text), 20 values, 0 missing, first 'p19'",
        "e.csv, not read: 'Unnamed: 0', 'year'",
        "x.csv, node: column 'paper' (text), 20 values, 0 missing, first 'p19'",
        "x.csv, feature: 12 columns 'w0' to 'w11' (integer), 240 values, 0 missing, first '0'",
        "y.csv, label: column 'field' (text), 18 values, 0 missing, first 'bio'",
    ):
        assert line in said
    kept = json.loads((tmp_path / "out" / "tempplug.json").read_text())["tables"]
    assert [each["file"] for each in kept] == ["e.csv", "x.csv", "y.csv"]
    assert main(["embed", str(tmp_path / "out"), str(tmp_path / "e.csv"), "--output", str(tmp_path / "v.parquet")]) == 0
    table = parquet.read_table(tmp_path / "v.parquet")
    vectors = torch.load(tmp_path / "out" / "representations.pt", weights_only=True)
    assert table["id"].to_pylist() == ids
    torch.testing.assert_close(torch.tensor(table["vector"].to_pylist()), vectors)


def test_rows_are_said_to_be_counted(tmp_path: Path) -> None:
    for name, write in {"e.csv": E, "x.csv": X}.items():
        write(tmp_path / name)
    recipe = GRACE.recipe().changed(node_features=str(tmp_path / "x.csv"))
    method = GRACE.load()
    nodes = method.load(recipe, Source(str(tmp_path / "e.csv"), None, tmp_path, evaluated=False))
    assert method.describe(nodes) == "4 nodes, 4 edges, 3 features; nodes are the rows of the features, counted from 0"


def test_one_class_cannot_be_measured() -> None:
    labels = torch.tensor([3] * 12 + [-1])
    with pytest.raises(DataError, match="labels hold one class only: at least two are needed; or pass --no-evaluate"):
        check_evaluation(labels, ["10/10/80"], None)
