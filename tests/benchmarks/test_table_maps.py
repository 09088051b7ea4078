"""Every cell of the papers' tables is measured by a run of its table's plan, or there is a reason why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from suite_checks import bench as main

from tempplug.arguments import parse_spec
from tempplug_benchmarks.profile import PROFILES
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import read_result
from tempplug_benchmarks.run.table_plan import PAPERS, Answer, paper_map, plan_tables, runs_of

TABLES = [(key, table) for key in PAPERS for table in paper_map(key).tables]
# What the transcription calls tables that are no tables.
NUMBERS = {"1(text)": "1", "6(text)": "6", "Fig3": "figure-3", "official-repo": "released"}


@pytest.fixture(scope="module")
def cells(data_dir: Path) -> list[dict[str, Any]]:
    """The papers' figures as they were transcribed beside the data, apart from the product."""
    found: list[dict[str, Any]] = json.loads((data_dir.parent / "papers" / "paper_tables.json").read_text())["records"]
    return found


def place(cell: Mapping[str, Any]) -> tuple[str, str]:
    """Paper and number of the table, as the maps name them."""
    return cell["paper"].partition("_")[2].replace("_", "-"), NUMBERS.get(cell["table"], cell["table"])


def named(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    return cell["dataset"], cell["metric"], cell["method"]


def answers(cell: Mapping[str, Any]) -> list[Answer]:
    key, number = place(cell)
    dataset, metric, method = named(cell)
    settings = (cell["settings"] or {}).items()
    return [
        each
        for each in paper_map(key).table(number).answers
        if dataset == each.dataset and metric in each.metrics and method in each.arms and each.settings.items() <= settings
    ]


def gaps(cell: Mapping[str, Any]) -> list[str]:
    """The reasons why a cell is not measured; names that a gap leaves out are all."""
    key, number = place(cell)
    found = [(gap.why, (gap.datasets, gap.metrics, gap.methods)) for gap in paper_map(key).table(number).gaps]
    return [why for why, lists in found if all(not of or name in of for name, of in zip(named(cell), lists, strict=True))]


@pytest.fixture(scope="module")
def measured(cells: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Answer, Run]]:
    """The cells that are measured, with the run of the paper's profile that does it."""
    planned: dict[int, dict[str, list[Run]]] = {}
    found = []
    for cell in cells:
        for answer in answers(cell):
            if id(answer) not in planned:
                planned[id(answer)] = runs_of(answer, "paper", [0])
            found.append((cell, answer, planned[id(answer)][cell["method"]][0]))
    return found


def test_every_cell_is_measured_or_there_is_a_reason(
    cells: list[dict[str, Any]], measured: list[tuple[dict[str, Any], Answer, Run]]
) -> None:
    for cell in cells:
        key, number = place(cell)
        found = answers(cell)
        reasons = gaps(cell)
        assert len(found) + bool(reasons) == 1, f"{key}/{number}: {named(cell)} {cell['settings']} has {found or reasons}"
        assert all(reasons)
    for cell, answer, run in measured:
        metric = answer.metrics[cell["metric"]]
        assert metric in [each.name for each in run.sizes.metrics], f"{place(cell)}: {named(cell)} wants {metric}"
    assert (len(cells), len(measured)) == (1082, 971)


# The transcription has one line of settings for a table; these say otherwise of some of its cells.
EXCEPTIONS = {
    # the rows' names say their ranges, where the settings are those of table 1
    ("dystress", "6"): {"tau_min", "tau_max"},
    # ResNet-50 for 800 epochs, an imbalance of 213
    ("temperature-schedules", "3"): {"epochs", "imbalance", "backbone"},
    ("temperature-schedules", "9"): {"epochs", "imbalance", "backbone"},
    # balanced images; and the schedule is that of table 5, whose figures it repeats
    ("temperature-schedules", "10"): {"imbalance", "tau_plus"},
}


def test_trainings_are_as_the_cells_say(measured: list[tuple[dict[str, Any], Answer, Run]]) -> None:
    """Lengths, batches, queues and options were transcribed apart from the recipes."""
    compared = 0
    for cell, _, run in measured:
        recipe = {**run.sizes.recipe.values(), **run.arm.changes}
        name, options = parse_spec(run.specs.strategy) if run.specs.strategy else ("", {})
        ours = {
            "epochs": recipe["num_train_epochs"],
            "batch": recipe["per_device_train_batch_size"],
            "queue": recipe.get("queue_size"),
            "imbalance": recipe.get("imbalance_ratio"),
            "backbone": str(recipe.get("backbone")).replace("resnet", "ResNet-"),
        }
        of_strategy = {
            "macl": {"tau0": "base_temperature", "alpha": "alpha", "A0": "threshold"},
            "dystress": {"tau_min": "temperature_min", "tau_max": "temperature_max", "delta_s": "shift", "k": "width"},
            "schedule": {"tau_minus": "temperature_min", "tau_plus": "temperature_max", "T": "period"},
        }.get(name, {})
        ours |= {printed: options[option] for printed, option in of_strategy.items() if option in options}
        for setting in ours.keys() & (cell["settings"] or {}).keys() - EXCEPTIONS.get(place(cell), set()):
            printed, mine = str(cell["settings"][setting]).removesuffix(" CIFAR"), ours[setting]
            if setting != "backbone" and not printed.replace(".", "", 1).lstrip("-").isdigit():  # words
                continue
            assert printed == mine or float(printed) == mine, f"{place(cell)} {named(cell)}: {setting}"
            compared += 1
    assert compared > 2000


@pytest.mark.parametrize("profile", PROFILES)
def test_plans_are_the_tables_and_no_more(profile: str) -> None:
    lacking: set[str] = set()
    for key, table in TABLES:
        plan = plan_tables([table], profile, [0, 1])
        lacking |= {line for line in plan.left_out if "has no profile" in line}
        if not table.answers:
            assert not plan.runs
            assert table.gaps or table.command
            continue
        expected = {
            json.dumps([run.task.method.name, run.sizes.source, run.identity()])
            for answer in table.answers
            for runs in runs_of(answer, profile, [0]).values()
            for run in runs
        }
        assert len(plan.runs) == 2 * len(expected), f"{key}/{table.number}"
        assert len({run.path(Path()) for run in plan.runs}) == len(plan.runs)
        assert {run.suite for run in plan.runs} <= {suite.name for suite in plan.suites}
    # what the suites have at one size alone
    kinds = {line.removeprefix("task '").partition("/")[0] for line in lacking}
    assert kinds == {"paper": set(), "small": {"anomaly", "molecule"}, "quick": {"anomaly"}}[profile]


def test_one_experiment_runs_once_and_what_tables_vary_varies_in_every_profile() -> None:
    def runs(key: str, number: str, profile: str = "quick") -> tuple[Run, ...]:
        return plan_tables([paper_map(key).table(number)], profile, [0]).runs

    # four methods with and without AMCL on four data sets, of which the smaller profiles have one
    assert [len(runs("amcl", "3", profile)) for profile in ("paper", "quick")] == [32, 16]
    left_out = plan_tables([paper_map("amcl").table("3")], "quick", [0]).left_out
    assert "what task 'vision/cifar100-amcl' shares with 'vision/cifar10-amcl' in profile 'quick'." in left_out
    for profile in PROFILES:
        batches = [run.sizes.recipe.values()["per_device_train_batch_size"] for run in runs("macl", "9", profile)]
        sizes = list(dict.fromkeys(batches))
        assert [size / sizes[0] for size in sizes] == [1, 2, 4, 8, 16]
        assert profile != "paper" or sizes == [64, 128, 256, 512, 1024]
    lengths = [run.sizes.recipe.num_train_epochs for run in runs("macl", "1")[::2]]
    assert [length / lengths[0] for length in lengths] == [1, 2, 4]
    assert [run.sizes.recipe.values()["queue_size"] for run in runs("macl", "B.1")[::2]] == [256, 512, 4096, 65_536]
    shares = [
        parse_spec(str(run.specs.strategy))[1].get("period", 0) / run.sizes.recipe.num_train_epochs
        for run in runs("temperature-schedules", "6")
    ]
    assert shares == pytest.approx([0, 0.1, 0.2, 0.5, 1, 2])


def test_all_tables_and_figures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--papers"]) == 0
    shown = capsys.readouterr().out
    for key, table in TABLES:
        assert f"\n  {table.number}: {table.title}\n" in shown
        command = f"tempplug bench run --table {key}/{table.number} --profile paper --output DIR\n"
        assert (command in shown) == bool(table.answers)
        for gap in table.gaps:
            assert gap.why in shown
    assert "      2 trainings a seed; --data-dir must have recsys/ml-20m/ratings.csv\n" in shown
    assert "      25 trainings a seed; cifar10: from --data-dir or the Hugging Face hub\n" in shown
    counted = {key: sum(each == key for each, _ in TABLES) for key in PAPERS}
    # as many as the texts have captions, AMCL's and MACL's appendices and three kinds of figures in the text included
    assert counted == {"dystress": 24, "temperature-free": 11, "temperature-schedules": 16, "macl": 18, "amcl": 18}


@pytest.mark.slow
def test_a_table_runs_in_the_quick_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A method without a softmax beside one with it, an arm with settings of its own, and what is varied."""
    words = ["run", "--table", "dystress/16", "--seeds", "0", "--output", str(tmp_path)]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "vision / imagenet-100-simsiam (on digits) / quick" in captured.out
    assert "vision / imagenet-100-barlow-twins (on digits) / quick" in captured.out
    files = sorted(tmp_path.rglob("seed-0.json"))
    found = {path.parts[-3].partition("@")[0]: read_result(path) for path in files}
    assert found.keys() == {"imagenet-100-dystress", "imagenet-100-simsiam", "imagenet-100-barlow-twins"}
    assert found["imagenet-100-dystress"].recipe["embedding_dimension"] == 2048
    assert found["imagenet-100-simsiam"].changes == {"heads": 1}
    assert all(result.metrics["kNN top-5"] > result.metrics["kNN"] > 10 for result in found.values())
