"""The finished runs of a task in one file of JSON Lines: first what they share, then a line a run.

A run writes a file of its own below the folder of its task (`store`), so that a kill loses no other run and two processes never
write to the same file. ``tempplug bench pack`` moves these files into ``TASK.jsonl`` beside the folder ``TASK``, where results
that are kept take less than half the space and one file instead of hundreds. Both are read together; the file of a run takes
precedence over its line. Every command reads a task in this way, so that packing changes no report and no run is repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from tempplug.errors import DataError
from tempplug_adapters.storage.files import write_text
from tempplug_adapters.storage.manifest import locked
from tempplug_benchmarks.run.fields import check_fields, parse_object, read_object, read_text
from tempplug_benchmarks.run.plan import Run, slug
from tempplug_benchmarks.run.store import FAILED, Failure, Result, checked, fields_of, read_failure, read_result

FORMAT = 1
ENDING = ".jsonl"
LOOKS, PLAN = "looks.json", "plan.toml"
"""Files beside the arms of a task: interim analyses, if seeds were added after one, and the plan of its runs."""
SHARED = ("suite", "profile", "task", "dataset", "recipe", "objective", "changes", "launch", "versions", "hardware")
"""Fields of results that the first line has with their most frequent values; a run's line has those that differ."""

RunName = tuple[str, str]
"""The folder and the name, without its ending, of the file of a run."""


@dataclass(frozen=True)
class Look:
    """One interim analysis of a task, as listed in the file `LOOKS`: ``{"format": 1, "looks": [...]}``.

    Attributes:
        date: when the last run had finished, ISO 8601.
        seeds: description of the seeds added since the previous analysis.
    """

    date: str
    seeds: str


@dataclass(frozen=True)
class TaskFile:
    """The content of a file of a task.

    Attributes:
        results: by the names of their own files.
        problems: messages about lines that cannot be read.
        looks: interim analyses; empty without any.
        plan: the text of the plan that was fixed before the runs; empty without one.
    """

    results: Mapping[RunName, Result] = field(default_factory=dict)
    problems: Sequence[str] = ()
    looks: tuple[Look, ...] = ()
    plan: str = ""


def task_file(folder: Path) -> Path:
    """Returns the path of the file of a task whose runs have files of their own below ``folder``."""
    return folder.parent / f"{folder.name}{ENDING}"


def read_task_file(folder: Path) -> TaskFile:
    """Returns what the file of a task has, nothing if it does not exist; raises `DataError` if its first line is damaged."""
    path = task_file(folder)
    try:
        state = path.stat()
    except FileNotFoundError:
        return TaskFile()
    return _read(path, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=8)
def _read(path: Path, state: tuple[int, int]) -> TaskFile:
    """Reads a file of a task, once for each of its states: every run that a plan has asks for it."""
    first, *lines = read_text(path).rstrip("\n").split("\n")
    head = parse_object(first, f"{path}, line 1", FORMAT, "file of a task")
    common, looks, plan = head.get("common"), head.get("looks", []), head.get("plan", "")
    if not isinstance(common, dict) or not isinstance(plan, str) or head.keys() - {"common", "looks", "plan"}:
        raise DataError(f"{path}, line 1 must have an object 'common', and may have a list 'looks' and a text 'plan'.")
    results: dict[RunName, Result] = {}
    problems = []
    for number, line in enumerate(lines, 2):
        where = f"{path}, line {number}"
        try:
            result = checked(Result, {**common, **parse_object(line, where)}, where)
            name = (slug(result.arm), f"seed-{result.seed}")
            if name in results:
                raise DataError(f"{where}: arm '{result.arm}' with seed {result.seed} is there twice.")
            results[name] = result
        except DataError as error:
            problems.append(str(error))
    return TaskFile(results, problems, check_looks(looks, f"{path}, line 1") if looks else (), plan)


def check_looks(listed: object, where: str) -> tuple[Look, ...]:
    """Returns the interim analyses of a JSON list; raises `DataError` if it is none."""
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{where}: 'looks' must be a list of objects with date and seeds.")
    return tuple(Look(**check_fields(Look, each, f"{where}: a look")) for each in listed)


def read_looks(folder: Path) -> tuple[Look, ...]:
    """Returns the interim analyses of a task: those of the file `LOOKS`, otherwise those of its file."""
    path = folder / LOOKS
    if not path.exists():
        return read_task_file(folder).looks
    return check_looks(read_object(path, 1, "file of looks").get("looks"), str(path))


def read_plan_text(folder: Path) -> str:
    """Returns the text of the plan of a task, empty without one; raises `DataError` if it cannot be read."""
    path = folder / PLAN
    return read_text(path, "plan") if path.exists() else read_task_file(folder).plan


def stored_result(run: Run, output: Path) -> Result | None:
    """Returns the stored result of a run, of whatever experiment; None without one; raises `DataError` if it is damaged."""
    path = run.path(output)
    # in this order: a file is removed after its line was written
    return read_result(path) if path.exists() else read_task_file(path.parents[1]).results.get((path.parent.name, path.stem))


@dataclass(frozen=True)
class StoredTask:
    """The stored runs of one task.

    Attributes:
        folder: the folder of its arms, which need not exist.
        files: the files of runs below it.
        whole: whether the runs of its `task_file` belong to it, too.
    """

    folder: Path
    files: Sequence[Path]
    whole: bool = True

    def entries(self) -> Iterator[tuple[str, Result | Failure | DataError]]:
        """Yields where each run is stored, and its result, its failure or what is wrong, ordered by the names of the runs."""
        packed = read_task_file(self.folder) if self.whole else TaskFile()
        yield from (("", DataError(problem)) for problem in packed.problems)
        stored: list[tuple[RunName, str, Path | Result]] = [(_name(file), str(file), file) for file in self.files]
        replaced = {name for name, *_ in stored}
        stored += [(name, str(task_file(self.folder)), each) for name, each in packed.results.items() if name not in replaced]
        for _, where, each in sorted(stored, key=itemgetter(0, 1)):
            try:
                yield (
                    where,
                    each if isinstance(each, Result) else (read_failure if where.endswith(FAILED) else read_result)(each),
                )
            except DataError as error:
                yield where, error

    def pack(self) -> int:
        """Moves what `pack` says into the file of the task; returns the number of its runs, 0 if there was nothing to move."""
        finished = [file for file in self.files if not file.name.endswith(FAILED)]
        beside = [self.folder / name for name in (LOOKS, PLAN) if (self.folder / name).exists()]
        if not finished and not beside:
            return 0
        with locked(self.folder, "DIR"):
            before = read_task_file(self.folder)
            if before.problems:
                raise DataError(f"{before.problems[0]} Mend the line or remove it, then pack again.")
            results = {**before.results, **{_name(file): read_result(file) for file in finished}}
            write_text(task_file(self.folder), _text(results, read_looks(self.folder), read_plan_text(self.folder)))
            for file in (*finished, *beside):
                file.unlink()
        for folder in (*{file.parent for file in finished}, self.folder):
            with suppress(OSError):  # the folders of failed and running ones are not empty
                folder.rmdir()
        return len(results)


def stored_tasks(folder: Path) -> list[StoredTask]:
    """Returns the tasks with stored runs in the order of their paths.

    Args:
        folder: the ``--output`` of ``tempplug bench run``, a folder inside it, or the file of a task.
    """
    if folder.name.endswith(ENDING):
        return [StoredTask(folder.with_name(folder.name.removesuffix(ENDING)), ())]
    folder = folder if folder.name else folder.absolute()
    for depth in range(5):
        found: dict[Path, list[Path]] = {}
        if depth < 3:
            whole = folder.glob("/".join(("*", "*", f"*{ENDING}")[depth:]))
            found = {file.with_name(file.name.removesuffix(ENDING)): [] for file in whole}
        for file in sorted(folder.glob("/".join(("*", "*", "*", "*", "seed-*.json")[depth:]))):
            found.setdefault((file if depth < 4 else file.absolute()).parents[1], []).append(file)
        if found:
            return [StoredTask(task, files, whole=depth < 4) for task, files in sorted(found.items())]
    return [StoredTask(folder, ())] if task_file(folder).exists() else []


def pack(folder: Path) -> Iterator[str]:
    """Moves the files of finished runs, `LOOKS` and `PLAN` into the files of their tasks; yields a line about each.

    Records of failed runs and checkpoints stay.

    Args:
        folder: see `stored_tasks`.

    Raises:
        ConfigError: another process is packing the same task.
        DataError: there are no results, or a file or a line cannot be read; nothing of its task was changed.
    """
    tasks = stored_tasks(folder)
    if not tasks:
        raise DataError(f"{folder} has no results: give the --output of tempplug bench run.")
    for task in tasks:
        if runs := task.pack():
            yield f"{task_file(task.folder)}: {runs} runs"


def _name(file: Path) -> RunName:
    return file.absolute().parent.name, file.name.partition(".")[0]


def _text(results: Mapping[RunName, Result], looks: Sequence[Look], plan: str) -> str:
    """Returns the text of a file of a task, its runs ordered by their names."""
    runs = [fields_of(results[name]) for name in sorted(results)]
    common = {}
    for name in SHARED:
        if all(name in run for run in runs):
            texts = Counter(json.dumps(run[name]) for run in runs)
            common[name] = json.loads(texts.most_common(1)[0][0])
    head: dict[str, Any] = {"format": FORMAT, "looks": [vars(look) for look in looks], "plan": plan, "common": common}
    lines = [{name: value for name, value in head.items() if value}]
    lines += [{name: value for name, value in run.items() if name not in common or value != common[name]} for run in runs]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
