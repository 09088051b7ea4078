"""Tables of nodes, edges and labels as other tools write them are read by content."""

from __future__ import annotations

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
from table_files import Write, of_arrow, of_csv, of_datasets, of_lines, of_pandas, of_polars

from tempplug_adapters.graph.node_data import labels_of

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
