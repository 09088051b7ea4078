from __future__ import annotations

import math
from pathlib import Path

import pytest
from rdkit import Chem
from suite_checks import bench as main
from suite_checks import read

from tempplug_benchmarks.papers import PaperRow, load
from tempplug_benchmarks.tasks.molecule import SUITE
from tempplug_benchmarks.tasks.molecule_generated import LABELLED, generate, labels


def test_the_sets_that_are_done_in_minutes_have_a_small_profile() -> None:
    assert [task.name for task in SUITE.tasks if "small" in task.profiles] == ["bbbp", "bace", "clintox", "sider"]


@pytest.mark.parametrize(
    ("dataset", "method", "printed", "deviation"),
    [
        ("Tox21", "GraphCL", 73.87, 0.66),
        ("Tox21", "w/ MACL", 74.39, 0.29),
        ("BBBP", "GraphCL", 69.68, 0.67),
        ("BBBP", "w/ MACL", 67.98, 0.97),
        ("ToxCast", "GraphCL", 62.40, 0.57),
        ("ToxCast", "w/ MACL", 62.96, 0.28),
        ("SIDER", "GraphCL", 60.53, 0.88),
        ("SIDER", "w/ MACL", 61.46, 0.39),
    ],
)
def test_cells_stand_as_printed(dataset: str, method: str, printed: float, deviation: float) -> None:
    row = PaperRow("macl", "5", method, dataset)
    cell = load("molecule").row(row)["ROC-AUC"]
    assert (cell.value, cell.std) == (printed, deviation)


def test_generated_molecules_are_valid_and_their_labels_are_theirs() -> None:
    smiles = generate(500, seed=0)
    assert smiles == generate(500, seed=0) != generate(500, seed=1)
    assert len(set(smiles)) > 400
    halogen_or_nitrile = Chem.MolFromSmarts("[F,Cl,$(C#N)]")
    for text, row in zip(smiles, labels(smiles, 1, seed=0), strict=True):
        molecule = Chem.MolFromSmiles(text)
        assert molecule is not None, text
        assert molecule.HasSubstructMatch(halogen_or_nitrile) == bool(row[0]), text
    three = labels(smiles, 3, seed=0)
    missing = sum(math.isnan(label) for row in three for label in row) / 1500
    assert 0.15 < missing < 0.25
    for task in range(3):
        share = [row[task] for row in three if not math.isnan(row[task])]
        assert 0.1 < sum(share) / len(share) < 0.9


def test_the_quick_profile_has_as_many_molecules_as_its_recipe_says(tmp_path: Path) -> None:
    profile = SUITE.task("sider").profile("quick")
    _, data = read(profile, None, tmp_path)
    assert len(data) == profile.recipe.values()["max_pretrain_molecules"] == 512
    assert (len(data.labelled["SIDER"].molecules), data.labelled["SIDER"].labels.shape[1]) == (LABELLED, 3)
    _, untrained = read(profile, None, tmp_path, num_train_epochs=0)
    assert untrained.unlabelled is None


def test_the_file_to_pre_train_on_is_that_of_the_data_folder(data_dir: Path, tmp_path: Path) -> None:
    recipe, data = read(SUITE.task("bbbp").profile("small"), data_dir, tmp_path, max_pretrain_molecules=50)
    assert recipe.pretrain_file == str(data_dir / "graph/smiles/zinc_druglike_100k.smi.gz")
    assert len(data) == 50
    assert list(data.labelled) == ["BBBP"]


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "molecule", "--tasks", "bbbp", "--profile", "paper", "--output", str(tmp_path / "out")]
    assert main([*words, "--data-dir", str(tmp_path)]) == 2
    assert "needs graph/moleculenet/bbbp.tar.xz, graph/smiles/zinc15_2m.smi.gz under the data folder" in capsys.readouterr().err
