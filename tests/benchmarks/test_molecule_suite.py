from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rdkit import Chem

from tempplug_adapters.graph.molecule_recipe import OBJECTIVE, OBJECTIVES, OPTIONS, MoleculeSettings
from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import PaperRow, load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES, RunContext
from tempplug_benchmarks.tasks.molecule import BASELINE, SUITE
from tempplug_benchmarks.tasks.molecule_generated import generate, labels
from tempplug_benchmarks.tasks.molecule_runs import SCRATCH, train_molecules

TASKS = [task.name for task in SUITE.tasks]


def test_importing_the_suite_loads_no_framework() -> None:
    code = "import sys, tempplug_benchmarks.tasks.molecule; print(sorted({'torch', 'rdkit', 'sklearn'} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert set(task.profiles) <= set(PROFILES)
    assert {"quick", "paper"} <= set(task.profiles)
    for profile_name, profile in task.profiles.items():
        resolved = [resolve(arm) for arm in profile.arms]
        assert len({(arm.strategy, arm.objective) for arm in resolved}) == len(profile.arms), "two arms are the same"
        assert len({slug(arm.label) for arm in profile.arms}) == len(profile.arms)
        assert profile.arm(SCRATCH) is not None
        assert len(profile.needs) == (0 if profile_name == "quick" else 2)
        schedule = profile.arm("schedule")
        assert schedule is not None
        assert f"period={float(profile.recipe['pretrain_epochs'] or 0) / 5:g}" in schedule.strategy
        json.dumps(dict(profile.recipe), allow_nan=False)


def test_the_sets_that_are_done_in_minutes_have_a_small_profile() -> None:
    assert [task.name for task in SUITE.tasks if "small" in task.profiles] == ["bbbp", "bace", "clintox", "sider"]


def test_the_papers_profile_is_the_recipe_of_the_command() -> None:
    defaults = vars(MoleculeSettings())
    recipe = SUITE.task("bbbp").profile("paper").recipe
    assert {name: value for name, value in recipe.items() if name in defaults} == {
        name: value for name, value in defaults.items() if name != "seed"
    }


def test_arms_are_the_recipes_of_their_strategies() -> None:
    for label, name in [(BASELINE, "fixed"), ("macl", "macl"), ("dystress", "dystress"), ("learnable", "learnable")]:
        arm = SUITE.task("bace").profile("paper").arm(label)
        assert arm is not None
        options = ",".join(f"{key}={value:g}" for key, value in OPTIONS[name].items())
        assert arm.strategy == f"{name}:{options}"
        assert arm.objective == OBJECTIVES.get(name, OBJECTIVE)


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
    task = SUITE.task(dataset.lower())
    assert [arm.label for arm in task.profile("paper").arms if row in arm.reported] == [
        "macl" if method == "w/ MACL" else BASELINE
    ]
    assert not any(arm.reported for arm in task.profile("quick").arms), "the paper says nothing of generated molecules"


def test_settings_of_the_paper_are_options_of_its_strategy() -> None:
    assert len(load("molecule").cells) == 8
    for cell in load("molecule").cells:
        options = {key: value for key, value in cell.settings.items() if key not in ("strategy", "seeds")}
        assert options == OPTIONS[str(cell.settings["strategy"])]


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


def test_the_quick_profile_trains_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", SUITE.name, "--tasks", "sider", "--seeds", "0", "--strategies", SCRATCH, "macl", "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "molecule / sider / quick" in captured.out
    assert len(captured.err.splitlines()) == 3
    found = {
        label: json.loads((tmp_path / "molecule/quick/sider" / label / "seed-0.json").read_text())["metrics"]
        for label in (SCRATCH, BASELINE, "macl")
    }
    assert all(70 < metrics["ROC-AUC"] < 100 for metrics in found.values())
    assert len({metrics["ROC-AUC"] for metrics in found.values()}) == 3
    assert not list(tmp_path.rglob("*.work")), "checkpoints are deleted after the run"


def test_the_arm_from_scratch_is_not_pre_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempplug_adapters.graph.molecule_train as training

    profile = SUITE.task("bbbp").profile("quick")
    told: list[tuple[float, str]] = []

    def run(label: str, folder: str) -> dict[str, float]:
        arm = profile.arm(label)
        assert arm is not None
        (tmp_path / folder).mkdir()
        return train_molecules(
            RunContext(
                arm=arm,
                seed=0,
                profile="quick",
                recipe=profile.recipe,
                data_dir=None,
                work_dir=tmp_path / folder,
                progress=lambda fraction, text: told.append((fraction, text)),
            )
        )

    run(BASELINE, "trained")
    stages = [text.partition(",")[0] for _, text in told]
    assert stages == sorted(stages, reverse=True)
    assert set(stages) == {"pre-training", "fine-tuning"}
    assert [fraction for fraction, _ in told] == sorted(fraction for fraction, _ in told)
    assert told[-1][0] == pytest.approx(1)
    told.clear()
    monkeypatch.setattr(training, "pretrain", None)
    run(SCRATCH, "scratch")
    assert {text.partition(",")[0] for _, text in told} == {"fine-tuning"}


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "molecule", "--tasks", "bbbp", "--profile", "paper", "--output", str(tmp_path / "out")]
    assert main([*words, "--data-dir", str(tmp_path)]) == 2
    assert "needs graph/moleculenet/bbbp.tar.xz, graph/smiles/zinc15_2m.smi.gz under the data folder" in capsys.readouterr().err


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        tasks = [task for task in SUITE.tasks if profile in task.profiles]
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in tasks) > 0
