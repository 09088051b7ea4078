"""The runs behind tables of papers, for ``tempplug bench run --table`` and ``--paper`` and their listing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tempplug.errors import ConfigError
from tempplug_benchmarks.papers.maps import Answer, TableMap, paper_map
from tempplug_benchmarks.run.plan import Run, check_seeds, choose_arms
from tempplug_benchmarks.suite import Suite, load_suite
from tempplug_benchmarks.task import Task

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

    Args:
        answer: the answer, see `tempplug_benchmarks.papers.maps`.
        profile: name of the profile.
        seeds: see `Recipe.seed`.
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
    """The runs of a command that names tables.

    Attributes:
        suites: the suites of the runs.
        runs: each training once, ordered by seed within a task.
        left_out: tasks that are not run, with the reason.
    """

    suites: tuple[Suite, ...]
    runs: tuple[Run, ...]
    left_out: tuple[str, ...]


def plan_tables(tables: Sequence[TableMap], profile: str, seeds: Sequence[int]) -> TablesPlan:
    """Returns the runs of tables.

    Rows that resolve to the same training share one run. So do tasks that differ only in the paper profile: if a smaller
    profile has one data set for three of the paper, it is trained on once.

    Args:
        tables: tables with answers.
        profile: name of the profile.
        seeds: at least one, see `Recipe.seed`.

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
