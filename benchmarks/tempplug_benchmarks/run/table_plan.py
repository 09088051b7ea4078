"""The tables and figures of five papers, ``papers/maps/PAPER.toml``: the runs behind them, or reasons why there are none.

Cells have the names printed in the tables. An answer may refer to a named mapping of arms or metrics defined once in the file,
and may list ``cases``: one answer each, which combine the shared keys and those of the case.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from tempplug.errors import ConfigError, UnknownNameError, listed, nearest
from tempplug_benchmarks.run.plan import Run, check_seeds, choose_arms
from tempplug_benchmarks.suite import Suite, load_suite
from tempplug_benchmarks.task import Task

PAPERS = ("dystress", "temperature-free", "temperature-schedules", "macl", "amcl")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Cells reproduced by one task.

    Attributes:
        task: ``SUITE/TASK``, optionally followed by ``@`` and settings (`Suite.task`).
        dataset: heading of the cells' group of columns; empty for a figure without headings.
        metrics: our metrics in the paper profile, by printed heading.
        arms: our arms by printed row heading. A number in braces is a number of epochs in the paper, which smaller profiles
            scale down: ``schedule:period={200}+infonce``.
        settings: settings that a cell must also match, because rows may differ only in these.
    """

    task: str
    dataset: str = ""
    metrics: Mapping[str, str]
    arms: Mapping[str, str]
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that no run reproduces.

    Attributes:
        why: the reason, one line.
        datasets: headings of the groups of columns; empty for all.
        metrics: column headings; empty for all.
        methods: row headings; empty for all.
    """

    why: str
    datasets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    methods: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TableMap:
    """One table or figure.

    Attributes:
        number: as printed, such as ``B.1``; ``figure-3`` for a figure.
        title: short description.
        answers: the runs.
        gaps: cells without runs.
        command: command that draws a figure, if it is not a run of a suite.
    """

    number: str
    title: str
    answers: tuple[Answer, ...] = ()
    gaps: tuple[Gap, ...] = ()
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperMap:
    """One paper.

    Attributes:
        key: short name, used in cells and by ``--paper``.
        citation: authors, year and title.
        tables: in the order of the paper, followed by the figures.
    """

    key: str
    citation: str
    tables: tuple[TableMap, ...]

    def table(self, number: str) -> TableMap:
        """Returns the table of that number, or raises `UnknownNameError` with the nearest number and all numbers."""
        known = {table.number: table for table in self.tables}
        if number not in known:
            raise UnknownNameError(
                f"paper '{self.key}' has no table '{number}'.{nearest(number, known)} It has: {listed(known)}."
            )
        return known[number]


@cache
def paper_map(key: str) -> PaperMap:
    """Returns the map of a paper, or raises `UnknownNameError` with the nearest name and all names."""
    if key not in PAPERS:
        raise UnknownNameError(f"no paper '{key}'.{nearest(key, PAPERS)} Known: {', '.join(PAPERS)}.")
    content = tomllib.loads(files("tempplug_benchmarks.papers").joinpath(f"maps/{key}.toml").read_text(encoding="utf-8"))
    return PaperMap(key=key, citation=content["citation"], tables=tuple(_table(entry, content) for entry in content["tables"]))


def _table(entry: dict[str, Any], content: Mapping[str, Any]) -> TableMap:
    answers = []
    for shared in entry.pop("answers", ()):
        for case in shared.pop("cases", ({},)):
            found = {**shared, **case}
            named = {kind: content[kind][found[kind]] for kind in ("metrics", "arms") if isinstance(found[kind], str)}
            answers.append(Answer(**{**found, **named}))
    gaps = tuple(Gap(**gap) for gap in entry.pop("gaps", ()))
    return TableMap(**entry, answers=tuple(answers), gaps=gaps)


_EPOCHS = re.compile(r"\{(\d+)\}")


def tables_of(names: Sequence[str], paper: str | None) -> list[TableMap]:
    """Returns the named tables, ``PAPER/NUMBER`` each, or all tables of a paper that have runs.

    Raises:
        UnknownNameError: the paper or table is unknown.
        ConfigError: a name is not ``PAPER/NUMBER``, or a table has no runs; the message gives the reason.
    """
    if paper is not None:
        return [table for table in paper_map(paper).tables if table.answers]
    found = []
    for name in names:
        key, slash, number = name.partition("/")
        if not slash:
            raise ConfigError(f"--table {name} must be PAPER/NUMBER, such as temperature-free/3.")
        table = paper_map(key).table(number)
        if not table.answers:
            instead = f"see {table.command}" if table.command else "; ".join(gap.why for gap in table.gaps)
            raise ConfigError(f"--table {name} has no runs: {instead}.")
        found.append(table)
    return found


def task_of(answer: Answer) -> tuple[Suite, Task]:
    """Returns the suite and the task of an answer."""
    name, _, of = answer.task.partition("/")
    suite = load_suite(name)
    return suite, suite.task(of)


def runs_of(answer: Answer, profile: str, seeds: Sequence[int]) -> dict[str, list[Run]]:
    """Returns the runs of an answer by row heading, one for each seed; empty if the task lacks the profile.

    Epochs in braces are rescaled to the length of the profile. A spec that resolves to an arm of the task selects that arm.
    """
    suite, task = task_of(answer)
    if profile not in task.profiles:
        return {}
    share = task.profile(profile).recipe.num_train_epochs / task.profile("paper").recipe.num_train_epochs
    found = {}
    for method, written in answer.arms.items():
        label = _EPOCHS.sub(lambda epochs: f"{float(epochs[1]) * share:g}", written)
        [(arm, specs)] = choose_arms(task, profile, [label], baseline=False).values()
        found[method] = [Run(suite.name, profile, task, arm, specs, seed) for seed in seeds]
    return found


@dataclass(frozen=True)
class TablesPlan:
    """The runs of a command that names tables, each training once, with their suites; and why other tasks are not run."""

    suites: tuple[Suite, ...]
    runs: tuple[Run, ...]
    left_out: tuple[str, ...]


def plan_tables(tables: Sequence[TableMap], profile: str, seeds: Sequence[int]) -> TablesPlan:
    """Returns the runs of tables.

    Rows that resolve to the same training share one run. So do tasks that differ only in the paper profile: if a smaller
    profile has one data set for three of the paper, it is trained on once.

    Raises:
        ConfigError: a seed is out of range or repeated.
    """
    check_seeds(seeds)
    suites: dict[str, Suite] = {}
    by_task: dict[str, list[list[Run]]] = {}
    first: dict[str, str] = {}
    left_out: dict[str, None] = {}
    for answer in (answer for table in tables for answer in table.answers):
        suite, task = task_of(answer)
        suites.setdefault(suite.name, suite)
        found = runs_of(answer, profile, seeds)
        if not found:
            left_out.setdefault(f"task '{answer.task}' has no profile '{profile}'.")
        for runs in found.values():
            meaning = json.dumps([task.method.name, runs[0].sizes.source, runs[0].identity()], sort_keys=True)
            if meaning not in first:
                first[meaning] = answer.task
                by_task.setdefault(answer.task, []).append(runs)
            elif first[meaning] != answer.task:
                left_out.setdefault(f"what task '{answer.task}' shares with '{first[meaning]}' in profile '{profile}'.")
    runs = [run for arms in by_task.values() for of_seed in zip(*arms, strict=True) for run in of_seed]
    return TablesPlan(tuple(suites.values()), tuple(runs), tuple(left_out))


def size_of(table: TableMap) -> str:
    """Returns the number of trainings of a table and the source of its data."""
    profiles = [task_of(answer)[1].profile("paper") for answer in table.answers]
    needs = dict.fromkeys(name for profile in profiles for name in profile.needs)
    public = dict.fromkeys(profile.source for profile in profiles if not profile.needs)
    count = len(plan_tables([table], "paper", [0]).runs)
    hub = f"; {', '.join(public)}: from --data-dir or the Hugging Face hub" if public else ""
    own = f"; --data-dir must have {', '.join(needs)}" if needs else ""
    return f"{count} training{'s' * (count > 1)} a seed{hub}{own}"
