"""Tables of nodes, edges and labels that can be read in two ways, or in none, are refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pandas
import pytest
from node_table_toys import COLUMNS, FAR, FRAME, IDS, LINKS, NAMED, NAMED_E, NUMBERS, PEOPLE, E, X, Y, of_frame, of_numpy, read
from table_files import Write, of_bytes, of_csv, of_lines, of_pandas

from tempplug.errors import TempplugError

BLANK = of_lines("label", "ant", "", "dog", "ant")
MISSING = of_frame(FRAME.assign(age=[1, None, 2, 3]), index=False)
REFUSED: dict[str, tuple[dict[str, Write], str, str]] = {
    "pandas: two columns without names": (
        {"e.csv": E, "x.csv": of_frame(pandas.DataFrame(NUMBERS[:, :2]), index=False)},
        "",
        r"x\.csv: its first line, '0,1', can be numbers of columns, .*, or the features of a node: write names above",
    ),
    "pandas: some columns without names": (
        {"e.csv": E, "x.csv": of_frame(pandas.DataFrame(NUMBERS)[[1, 2]], index=False)},
        "",
        r"x\.csv: its first line, '1,2', can be numbers of columns",
    ),
    "pandas: edges without names": (
        {"e.parquet": lambda path: pandas.DataFrame(LINKS).rename(columns=str).to_parquet(path), "x.csv": X},
        "",
        r"e\.parquet: no column is clearly the source\. Name it: --columns source=0",
    ),
    "pandas: edges without names, of named nodes": (
        {"e.csv": of_frame(pandas.DataFrame(NAMED), index=False), "x.csv": of_frame(PEOPLE)},
        "",
        r"e\.csv, line 1: node '0' has no row in .*x\.csv: add its features, or leave the edge out",
    ),
    "pandas: a missing feature": (
        {"e.csv": E, "x.csv": MISSING},
        "",
        r"x\.csv, line 3: column 'age' is empty; it must be a number, such as the column's mean",
    ),
    "pandas: a feature of words": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(job=["a", "b", "a", "b"]), index=False)},
        "",
        r"x\.csv, line 2: column 'job' is 'a'; it must be a number\. Words become .* pandas\.get_dummies",
    ),
    "pandas: two columns of words": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(job=list("abcd"), town=list("efgh")), index=False)},
        "",
        r"x\.csv: 'job' and 'town' could be the node\. Name it: --columns node=job\. It has: 'age' \(number",
    ),
    "pandas: decimal commas": (
        {"e.csv": E, "x.csv": of_frame(FRAME, index=False, sep=";", decimal=",")},
        "",
        r"x\.csv, line 2: column 'age' is '0,5'; it must be a number, without commas\. .* decimal commas points",
    ),
    "pandas: row numbers with a name": (
        {"e.csv": E, "x.csv": of_frame(FRAME, index_label="row")},
        "",
        r"x\.csv: column .row. counts the rows\. If it is the id of a node, name it: --columns node=row; else name all",
    ),
    "numpy: row numbers": (
        {"e.csv": E, "x.txt": of_numpy(np.column_stack([range(1, 5), NUMBERS]))},
        "",
        r"x\.txt: column '1' counts the rows\. If it is the id of a node, name it: --columns node=1",
    ),
    "pandas: ids twice": (
        {"e.csv": E, "x.csv": of_frame(pandas.concat([FRAME, FRAME[:1]]), index_label="id")},
        "",
        r"x\.csv, line 6: node '0' has two rows: leave one",
    ),
    "pandas: a missing id": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(id=["a", None, "b", "c"]), index=False)},
        "",
        r"x\.csv, line 3: column 'id' is empty; it must be the id of a node",
    ),
    "pandas: two columns of ids": (
        {"e.csv": E, "x.csv": of_frame(FRAME.assign(id=FAR, name=IDS), index=False)},
        "",
        r"x\.csv: 'id' and 'name' could be the node\. Name it: --columns node=id",
    ),
    "pandas: ids of another kind": (
        {"e.csv": NAMED_E, "x.csv": X},
        "",
        r"e\.csv, line 2: node 'anne' has no row in .*, whose 4 rows are counted from 0: give them a column id",
    ),
    "R: nodes from 1": (
        {"e.csv": of_csv([["from", "to"], [1, 2], [2, 3]]), "x.csv": X},
        "",
        r"e\.csv has edges of nodes 1 to 3 and none of node 0, and the rows of .*x\.csv are counted from 0: give them a col",
    ),
    "R: nodes from 1 to the last": (
        {"e.csv": of_csv([["from", "to"], [1, 2], [2, 4]]), "x.csv": X},
        "",
        r"e\.csv, line 3: node '4' has no row in .*x\.csv, whose 4 rows are counted from 0: give them a column id",
    ),
    "an edge without a target": (
        {"e.csv": of_lines("source,target", "0,1", "2,"), "x.csv": X},
        "",
        r"e\.csv, line 3: column 'target' is empty; it must be the id of a node",
    ),
    "an edge without a weight": (
        {"e.csv": of_lines("source,target,weight", "0,1,", "2,1,1"), "x.csv": X},
        "",
        r"e\.csv, line 2: column 'weight' is empty; it must be a number",
    ),
    "networkx: write_edgelist with data": (
        {"e.edgelist": lambda path: networkx.write_edgelist(networkx.DiGraph(LINKS.tolist()), path), "x.csv": X},
        "",
        r"'3' is a text, such as '\{\}', but weight must be a number",
    ),
    "SNAP: comments": (
        {"e.txt": of_lines("# Directed graph: toy.txt", "# FromNodeId\tToNodeId", "0\t1"), "x.csv": X},
        "",
        r"e\.txt begins with a comment; leave such lines out: grep -v",
    ),
    "DGL: features in one cell": (
        {"e.csv": E, "x.csv": of_csv([["node_id", "feat"], *([node, "0.5, 1"] for node in range(4))])},
        "",
        r"x\.csv, line 2: column 'feat' is '0\.5, 1'; it must be a number",
    ),
    "lists of several lengths": (
        {"e.csv": E, "x.jsonl": of_lines({"feat": [1, 2]}, {"feat": [3]}, {"feat": [4, 5]}, {"feat": [6, 7]})},
        "",
        r"x\.jsonl: column 'feat' must hold lists of numbers of one length",
    ),
    "Excel: a workbook": ({"e.csv": E, "x.xlsx": of_bytes(b"PK\x03\x04...")}, "", "a workbook of Excel: .* 'CSV UTF-8'"),
    "pandas: a pickle": ({"e.csv": E, "x.pkl": of_pandas(COLUMNS, "to_pickle")}, "", "a pickle, which could run code"),
    "labels: a blank line": (
        {"e.csv": E, "x.csv": X, "y.csv": BLANK},
        "",
        r"y\.csv, line 3 is blank, and rows are counted as nodes: take it out, or write what is missing as",
    ),
    "labels: a blank line, and a row for each node": (
        {"e.csv": E, "x.csv": X, "y.txt": of_lines("ant", "dog", "", "ant", "dog")},
        "",
        r"y\.txt, line 3 is blank, and rows are counted as nodes: take it out, or write what is missing as",
    ),
    "labels: a header, and a node too few": (
        {"e.csv": E, "x.csv": X, "y.csv": of_lines("team", "ant", "dog", "ant")},
        "",
        r"y\.csv has labels of 3 nodes, but .* features of 4",
    ),
    "labels: too many": (
        {"e.csv": E, "x.csv": X, "y.csv": of_frame(pandas.Series([3, 1, 2, 0, 1]), index=False, header=False)},
        "",
        r"y\.csv has labels of 5 nodes",
    ),
    "labels: a node twice": (
        {"e.csv": E, "x.csv": X, "y.csv": of_csv([["id", "y"], [3, 1], [0, 0], [3, 0]])},
        "",
        r"y\.csv, line 4: node '3' has two rows: leave one",
    ),
    "labels: an unknown node": (
        {"e.csv": NAMED_E, "x.csv": of_frame(PEOPLE), "y.csv": of_csv([["id", "y"], ["zed", 1], ["bob", 0]])},
        "",
        r"y\.csv, line 2: node 'zed' has no row in .*x\.csv: leave it out",
    ),
    "labels: the word nan": (
        {"e.csv": E, "x.csv": X, "y.txt": of_numpy(["ant", "nan", "dog", "ant"], fmt="%s")},
        "",
        r"y\.txt: 'nan' can be a class or a missing label: leave missing labels empty, or rename the class",
    ),
    "labels: two columns": (
        {
            "e.csv": E,
            "x.csv": X,
            "y.csv": of_csv([["id", "field", "year"], *([node, node % 2, 1990 + node] for node in range(4))]),
        },
        "",
        r"y\.csv: 'field' and 'year' could each be the label, .* Choose one: --columns label=field",
    ),
    "Gephi: the label is the name": (
        {"e.csv": E, "x.csv": of_csv([["Id", "Label", "age"], *([node, IDS[node], node % 2] for node in range(4))])},
        "",
        r"x\.csv: each of 4 labels is another word; such names are no classes: rename or drop their column",
    ),
    "OSMnx: coordinates": (
        {"e.csv": E, "x.csv": of_pandas({"id": range(4), "y": [48, 48, 49, 49], "x": [11, 12, 11, 12]}, "to_csv")},
        "",
        r"x\.csv: 'x' and 'y' can be coordinates, or 'y' the label: name all features, --columns feature=x,y, or --col",
    ),
    "no features": ({"e.csv": E}, "", r"a table of edges such as .*e\.csv needs --node-features"),
    "a role that there is not": ({"e.csv": E, "x.csv": X}, "nodes=age", "'nodes=age' must be ROLE=COLUMN, ROLE one of source,"),
    "a column that there is not": (
        {"e.csv": E, "x.csv": X, "y.csv": Y},
        "node=name",
        r"y\.csv has no column 'name'\. .*It has",
    ),
}
"""By what is wrong: the files, words of --columns, and the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_is_refused_with_a_remedy(tmp_path: Path, case: str) -> None:
    files, columns, message = REFUSED[case]
    with pytest.raises(TempplugError, match=message) as raised:
        read(tmp_path, files, columns)
    assert "\n" not in str(raised.value)


def test_an_edge_that_may_be_a_header_is_named(tmp_path: Path) -> None:
    files = {"e.csv": of_frame(pandas.DataFrame(LINKS), index=False), "x.csv": X}
    with pytest.warns(
        UserWarning, match=r"e\.csv: its first line, 0,1, is read as an edge; if it is the header that pandas writes"
    ):
        assert read(tmp_path, files).graph.edge_index.shape == (2, 5)
