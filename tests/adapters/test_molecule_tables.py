"""Tables of molecules as other tools write them: read by content, or refused with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rdkit import Chem
from table_files import Write, of_csv, of_pandas, of_polars

from tempplug.errors import TempplugError
from tempplug_adapters.graph.molecule_data import MoleculeSet, read_labelled, read_smiles
from tempplug_adapters.graph.recipes import MOLECULE
from tempplug_adapters.training.method import Source

IDS = ["anne", "bob", "cid", "fan"]


def of_rdkit(path: Path) -> None:
    """Writes lines of SMILES and names, below a header."""
    writer = Chem.SmilesWriter(str(path))
    for name, text in zip(IDS, SMILES, strict=True):
        molecule = Chem.MolFromSmiles(text)
        molecule.SetProp("_Name", name)
        writer.write(molecule)
    writer.close()


SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CN"]
MOLECULES = {"smiles": SMILES, "toxic": [1, 0, None, 1]}
TOXIC = [[1], [0], [9], [1]]
LABELLED: dict[str, tuple[str, Write, str, list[list[float]], list[str] | None]] = {
    "pandas: csv": ("m.csv", of_pandas(MOLECULES, "to_csv"), "", TOXIC, None),
    "pandas: Excel": ("m.csv", of_pandas(MOLECULES, "to_csv", index=False, sep=";", encoding="utf-8-sig"), "", TOXIC, None),
    "pandas: ids, names and InChI": (
        "m.csv",
        of_pandas({"mol_id": [11, 12, 13, 14], "Name": IDS, **MOLECULES, "InChIKey": list("abcd")}, "to_csv", index=False),
        "",
        TOXIC,
        ["11", "12", "13", "14"],
    ),
    "pandas: truth values": (
        "m.csv",
        of_pandas({"SMILES": SMILES, "toxic": [True, False, True, True]}, "to_csv", index=False),
        "",
        [[1], [0], [1], [1]],
        None,
    ),
    "pandas: lines of JSON": (
        "m.jsonl",
        of_pandas(
            {"canonical_smiles": SMILES, "b": [0, 1, 0, 1], "a": [1, 1, None, 0]}, "to_json", orient="records", lines=True
        ),
        "",
        [[0, 1], [1, 1], [0, 9], [1, 0]],
        None,
    ),
    "pandas: a label beside a weight": (
        "m.parquet",
        of_pandas({"mol": SMILES, "Class": [0, 1, 1, 0], "MW": [46.1, 78.1, 60.1, 31.1]}, "to_parquet"),
        "label=Class",
        [[0], [1], [1], [0]],
        None,
    ),
    "polars: other names": (
        "m.csv",
        of_polars({"structure_1": SMILES, "pIC50": [1.5, 2, 3, 4], "hit": [0, 1, 1, 0], "seen": [1, 1, 1, 0]}, "write_csv"),
        "smiles=structure_1 label=seen,hit",
        [[1, 0], [1, 1], [1, 1], [0, 0]],
        None,
    ),
    "TDC: tabs": (
        "m.tab",
        of_pandas({"Drug_ID": IDS, "Drug": SMILES, "Y": [0.0, 1.0, 1.0, 0.0]}, "to_csv", sep="\t", index=False),
        "",
        [[0], [1], [1], [0]],
        IDS,
    ),
}
"""By the tool and what it wrote: the file, words of --columns, the labels, where 9 is missing, and the ids."""


@pytest.mark.parametrize("case", LABELLED)
def test_labelled_molecules_are_read_by_content(tmp_path: Path, case: str) -> None:
    name, write, columns, labels, ids = LABELLED[case]
    write(tmp_path / name)
    found = read_labelled(str(tmp_path / name), None, tmp_path, columns.split())
    assert found.smiles == SMILES
    assert found.labels.nan_to_num(9).tolist() == labels  # type: ignore[union-attr]
    table: Any = found.assigned
    assert (list(map(str, table.table.values(table.column("id")))) if "id" in table else None) == ids
    given = [word for word in columns.split() if word.startswith("smiles")]
    assert read_smiles(tmp_path / name, 2, given).smiles == SMILES[:2]


def test_a_header_of_rdkit_is_left_out_and_counted(tmp_path: Path) -> None:
    of_rdkit(tmp_path / "m.smi")
    found = MoleculeSet(read_smiles(tmp_path / "m.smi").smiles)
    assert (list(found.smiles), found.unreadable, found.rows.tolist()) == (SMILES_OF_RDKIT, 1, [1, 2, 3, 4])


SMILES_OF_RDKIT = [Chem.MolToSmiles(Chem.MolFromSmiles(text)) for text in SMILES]
BAD_MOLECULES: dict[str, tuple[Write, str, str]] = {
    "another number": (
        of_pandas({**MOLECULES, "MW": [46.1, 78.1, 60.1, 31.1]}, "to_csv", index=False),
        "",
        r"line 2: column 'MW' is 46\.1; a label must be 0, 1 or nothing\. Name the columns of labels: --columns label=A,B",
    ),
    "-1 and 1": (of_pandas({"smiles": SMILES, "label": [1, -1, 1, 1]}, "to_csv"), "", r"line 3: column 'label' is -1; a label"),
    "two columns of SMILES": (
        of_pandas({"mol": SMILES, "canonical_smiles": SMILES, "y": [0, 1, 1, 0]}, "to_csv"),
        "",
        "'mol' and 'canonical_smiles' could each be the smiles. Choose one: --columns smiles=mol",
    ),
    "no header": (
        of_csv([[text, 1] for text in SMILES]),
        "",
        r"no column is clearly the smiles\. .*'CCO' \(text, such as .* If its first line is no header, write one",
    ),
    "a header of labels alone": (
        of_csv([["CCO", "toxic"], *([text, 1] for text in SMILES)]),
        "",
        "its first line, 'CCO' …, is a molecule: write a header above it",
    ),
    "no labels": (of_pandas({"smiles": SMILES, "name": IDS}, "to_csv"), "", "no column is clearly a label, of 0, 1 or nothing"),
    "words": (of_pandas({"smiles": SMILES, "toxic": [1, 0, "often", 1]}, "to_csv"), "", "line 4: column 'toxic' is 'often'"),
    "a column that there is not": (of_pandas(MOLECULES, "to_csv"), "label=toxid", "no column 'toxid'. Did you mean 'toxic'"),
}
"""By what is wrong: the file, words of --columns, and the message."""


@pytest.mark.parametrize("case", BAD_MOLECULES)
def test_labelled_molecules_are_refused_with_a_remedy(tmp_path: Path, case: str) -> None:
    write, columns, message = BAD_MOLECULES[case]
    write(tmp_path / "m.csv")
    with pytest.raises(TempplugError, match=message) as raised:
        read_labelled(str(tmp_path / "m.csv"), None, tmp_path, columns.split())
    assert str(tmp_path / "m.csv") in str(raised.value)


def test_vectors_keep_the_ids_of_molecules_that_can_be_read(tmp_path: Path) -> None:
    of_pandas({"mol_id": [*IDS, "zed"], "smiles": ["no molecule", *SMILES]}, "to_csv")(tmp_path / "m.csv")
    inputs = MOLECULE.load().read(MOLECULE.recipe(), Source(str(tmp_path / "m.csv"), None, tmp_path), "test")
    assert inputs.names == tuple(SMILES)
    assert inputs.columns == {"id": ["bob", "cid", "fan", "zed"]}
    assert inputs.notes == ["1 SMILES cannot be read and are left out; a .parquet names the others"]
