"""All papers' maps by name, what of them a command means, and how they are listed. It must not know any paper's tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module

from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug_benchmarks.kind import load_suite
from tempplug_benchmarks.plan import Run, check_seeds, choose_arms
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.table_maps.record import Answer, PaperMap, TableMap
from tempplug_benchmarks.task import Task

PAPERS = ("dystress", "temperature-free", "temperature-schedules", "macl", "amcl")
_EPOCHS = re.compile(r"\{(\d+)\}")


def paper_map(key: str) -> PaperMap:
    """Returns the map of a paper.

    Raises:
        UnknownNameError: there is none; the nearest and all are in the message.
    """
    if key not in PAPERS:
        raise UnknownNameError(f"no paper '{key}'.{nearest(key, PAPERS)} Known: {', '.join(PAPERS)}.")
    found: PaperMap = import_module(f"tempplug_benchmarks.table_maps.{key.replace('-', '_')}").PAPER
    return found


def tables_of(names: Sequence[str], paper: str | None) -> list[TableMap]:
    """Returns the tables that a command names: ``PAPER/NUMBER`` each, or all that a paper has runs for.

    Raises:
        UnknownNameError: no such paper or table.
        ConfigError: a name is no ``PAPER/NUMBER``, or a table has no runs; the message says why not.
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


def arms_of(answer: Answer, task: Task, profile: str) -> dict[str, str]:
    """Returns the arms of an answer in a profile, by the printed heading: epochs in braces become as many of its own."""
    sizes = task.profile(profile)
    whole = task.profile("paper").recipe.num_train_epochs
    share = sizes.recipe.num_train_epochs / whole
    return {method: _EPOCHS.sub(lambda found: f"{float(found[1]) * share:g}", arm) for method, arm in answer.arms.items()}


def plan_tables(tables: Sequence[TableMap], profile: str, seeds: Sequence[int]) -> tuple[list[Suite], list[Run], list[str]]:
    """Returns the runs of tables, each once, with their suites, and the tasks that have no such profile.

    Args:
        tables: with answers.
        profile: name of the profile.
        seeds: at least one, see `Recipe.seed`.

    Raises:
        ConfigError: a seed is out of range or given twice.
    """
    check_seeds(seeds)
    suites: dict[str, Suite] = {}
    wanted: dict[tuple[str, str], dict[str, None]] = {}
    tasks: dict[tuple[str, str], Task] = {}
    without: dict[str, None] = {}
    for answer in (answer for table in tables for answer in table.answers):
        name, _, of = answer.task.partition("/")
        suite = suites.setdefault(name, load_suite(name))
        task = tasks.setdefault((name, of), suite.task(of))
        if profile not in task.profiles:
            without.setdefault(answer.task)
            continue
        wanted.setdefault((name, of), {}).update(dict.fromkeys(arms_of(answer, task, profile).values()))
    runs: list[Run] = []
    for (name, of), labels in wanted.items():
        task = tasks[name, of]
        arms = choose_arms(task, profile, list(labels), baseline=False).values()
        runs += [Run(name, profile, task, arm, specs, seed) for seed in seeds for arm, specs in arms]
    return list(suites.values()), runs, list(without)


def listing() -> Iterator[str]:
    """Returns lines about every table and figure: the command, or why there is none."""
    for key in PAPERS:
        paper = paper_map(key)
        yield f"{key}: {paper.citation}"
        for table in paper.tables:
            yield f"  {table.number}: {table.title}"
            if table.answers:
                needs = dict.fromkeys(name for answer in table.answers for name in _task(answer).profile("paper").needs)
                yield f"    tempplug bench run --table {key}/{table.number} --profile paper --output DIR"
                if needs:
                    yield f"      with --data-dir, which has {', '.join(needs)}"
            if table.command:
                yield f"    {table.command}"
            for gap in table.gaps:
                of = ", ".join((*gap.datasets, *gap.metrics, *gap.methods))
                yield f"    not{f' {of}' if of and table.answers else ''}: {gap.why}"
        yield ""
    yield "`tempplug bench run --paper PAPER` runs all tables of a paper; smaller profiles are in its --help."


def _task(answer: Answer) -> Task:
    name, _, of = answer.task.partition("/")
    suite = load_suite(name)
    assert isinstance(suite, Suite)
    return suite.task(of)
