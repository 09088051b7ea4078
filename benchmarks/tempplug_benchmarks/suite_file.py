"""Suites written as TOML (`tasks`): what is needed to train is given as functions, everything else is in the file.

A file has ``name``, ``summary``, ``tasks`` and ``shared``, the keys that each task has unless it sets them itself. A task has
keys of `Task`, keys of all its profiles, and a table for each profile with keys of `Profile`, some of them in another form:

- ``recipe`` names a recipe of the method, and ``changes`` are changes to its settings; ``settings_of`` names an earlier task,
  whose profile of the same size gives the settings that all methods of the suite share;
- ``load`` names a function, and ``options`` are further arguments of it, ``method`` being the name of one;
- ``rows`` are rows of paper tables by label (paper, table, method, data set), which the arms have if ``reported`` is true;
- ``like`` names an earlier task, whose profile of the same size gives every key that this task does not set; an empty text
  removes a value of ``shared``.

``profiles`` lists the profiles that a task has, by default all with a table. ``templates`` are declared like tasks, but only
``like`` and ``settings_of`` name them. ``@NAME`` in a list stands for the items of another list: that of the task, or of
``groups``. ``{NAME}`` in a text stands for an entry of ``values``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.arm import UNTRAINED, Arm, arms
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import PROFILES, Metric, Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Resources, Task

_OF_TASK = ("name", "summary", "baseline", "without", "family", "papers")
_OF_PROFILE = ("dataset", "primary", "validation", "source", "stands_in", "training")
_OTHERS = (
    *("by_name", "quickstart", "resources", "train", "method", "profiles", "values", "recipe", "changes", "settings_of"),
    *("load", "options", "rows", "reported", "like", "arms", "metrics", "needs"),
)


def read_file(name: str) -> dict[str, Any]:
    """Returns the contents of ``tasks/NAME.toml``."""
    return tomllib.loads(files("tempplug_benchmarks.tasks").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def make_suite(
    content: Mapping[str, Any], *pieces: MethodInfo | Callable[..., Any], settings: type[Recipe] = Recipe, **values: Any
) -> Suite:
    """Returns the suite of a file's contents.

    Args:
        content: see above and `read_file`.
        *pieces: the methods and functions that the file names; the first method is the default.
        settings: the recipe that has the settings shared by all methods, for ``settings_of``.
        **values: values of all tasks.

    Raises:
        ConfigError: a key is unknown.
        TempplugError: see `Task` and `MethodInfo.recipe`.
    """
    known = {piece.name if isinstance(piece, MethodInfo) else piece.__name__: piece for piece in pieces}
    groups, shared = content.get("groups", {}), {"values": values, "method": next(iter(known)), **content.get("shared", {})}
    shared["values"] = {**values, **shared["values"]}
    entries: dict[str, dict[str, dict[str, Any]]] = {}
    made: dict[str, dict[str, Profile]] = {}
    for own in (*content.get("templates", ()), *content["tasks"]):
        task = _merged(shared, own)
        name, common, mine = task["name"], *({key: each[key] for key in each if key not in PROFILES} for each in (task, own))
        entries[name], made[name] = {}, {}
        for size in (size for size in PROFILES if size in task and size in task.get("profiles", PROFILES)):
            like, of = task[size].get("like"), task[size].get("settings_of")
            inherited = _merged(entries[like][size], mine) if like else common
            entries[name][size] = _merged(inherited, own.get(size, {}) if like else task[size])
            taken = {setting: getattr(made[of][size].recipe, setting) for setting in settings.kinds()} if of else {}
            made[name][size] = _profile(entries[name][size], known, taken, groups)
    tasks = (_task(_merged(shared, own), known, made[own["name"]]) for own in content["tasks"])
    return Suite(content["name"], content["summary"], tuple(tasks))


def _task(declared: Mapping[str, Any], known: Mapping[str, Any], profiles: Mapping[str, Profile]) -> Task:
    return Task(
        method=known[declared["method"]],
        by_name=tuple(declared.get("by_name", ())),
        quickstart=tuple(declared.get("quickstart", ())),
        resources={size: Resources(**each) for size, each in declared.get("resources", {}).items() if size in profiles},
        profiles=profiles,
        **({"train": known[declared["train"]]} if "train" in declared else {}),
        **{key: declared[key].format_map(declared["values"]) for key in _OF_TASK if key in declared},
    )


def _profile(
    declared: Mapping[str, Any], known: Mapping[str, Any], taken: Mapping[str, Any], groups: Mapping[str, Sequence[Any]]
) -> Profile:
    own = {key: value for key, value in declared.items() if key not in _OF_TASK}
    if unknown := [key for key in own if key not in (*_OF_PROFILE, *_OTHERS) and not isinstance(own[key], list)]:
        raise ConfigError(
            f"key '{unknown[0]}' of task '{declared['name']}' must be one of Task or Profile, or a list to insert."
        )
    entry = _written(own, declared["values"], {**groups, **declared})
    rows = {label: tuple(PaperRow(*row) for row in rows) for label, rows in entry.get("rows", {}).items()}
    load = known[entry["load"]] if entry.get("load") else None
    options = {key: known[value] if key == "method" else value for key, value in entry.get("options", {}).items()}
    return Profile(
        recipe=known[entry["method"]].recipe(entry.get("recipe")).changed(**taken).changed(**entry.get("changes", {})),
        arms=tuple(_arm(each, rows if entry.get("reported") else {}) for each in entry["arms"]),
        metrics=tuple(Metric(**each) for each in entry["metrics"]),
        load=partial(load, **options) if load and options else load,
        needs=tuple(entry.get("needs", ())),
        **{key: entry[key] for key in _OF_PROFILE if key in entry},
    )


def _arm(entry: str | Mapping[str, Any], rows: Mapping[str, tuple[PaperRow, ...]]) -> Arm:
    if isinstance(entry, Mapping):
        return Arm(**entry)
    return UNTRAINED if entry == UNTRAINED.label else arms(entry, reported=rows)[0]


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two tables and, recursively, the tables in them; otherwise values of ``own`` replace those of ``base``."""
    both = {key: _merged(base[key], own[key]) for key in base.keys() & own.keys() if isinstance(own[key], Mapping)}
    return {**base, **own, **both}


def _written(entry: Any, values: Mapping[str, Any], groups: Mapping[str, Sequence[Any]]) -> Any:
    """Returns an entry with the items of groups and with the values in its texts."""
    if isinstance(entry, str):
        return entry.format_map(values) if "{" in entry else entry
    if isinstance(entry, Mapping):
        return {key: _written(value, values, groups) for key, value in entry.items()}
    if not isinstance(entry, list):
        return entry
    items: list[Any] = []
    for each in entry:
        named = isinstance(each, str) and each.startswith("@")
        items += _written(groups[each[1:]], values, groups) if named else [_written(each, values, groups)]
    return items
