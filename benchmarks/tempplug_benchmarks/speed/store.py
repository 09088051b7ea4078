"""Speed results on disk: one JSON file a finished case, written whole or not at all.

It must not know how cases are measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.fields import check_fields, read_object
from tempplug_benchmarks.speed.case import Case, Outcome, Setting
from tempplug_benchmarks.store import FAILED, LOOKS, result_files

FORMAT = 1
_OF_RESULT = {"run": "object", "outcomes": "objects", "error": "lines"}
PATTERN = "*/*/*/*.json"


@dataclass(frozen=True)
class SpeedRun:
    """One case under one setting.

    Attributes:
        suite: name of the suite.
        profile: name of the profile.
        case: what is measured.
        setting: how.
        installed: the optional packages of the case that are there; with others it would be another comparison.
    """

    suite: str
    profile: str
    case: Case
    setting: Setting
    installed: tuple[str, ...] = ()

    def path(self, output: Path) -> Path:
        """Returns the file of the result."""
        return output / self.suite / self.profile / self.setting.slug / f"{self.case.name}.json"

    def failure_path(self, output: Path) -> Path:
        """Returns the file that notes a failure."""
        return self.path(output).with_suffix(FAILED)

    def identity(self) -> dict[str, Any]:
        """Returns what must be equal for two results to be of the same experiment, as JSON holds it."""
        identity = {"case": self.case.to_dict(), "setting": asdict(self.setting), "installed": list(self.installed)}
        return dict(json.loads(json.dumps(identity)))

    def describe(self) -> str:
        """Returns the case in words, for progress and messages."""
        return f"{self.case.name} · {self.setting.slug}"


@dataclass(frozen=True, kw_only=True)
class SpeedResult:
    """One finished or failed case, as its file tells it.

    Attributes:
        run: what was measured.
        outcomes: by implementation: ``status``, ``numbers`` and ``note``; empty where the case failed.
        error: why the case failed, empty where it did not.
        seconds: wall time of the whole case.
        versions: of Python and the packages.
        hardware: processor, cores, threads, GPU.
        date: when it finished, UTC, ISO 8601.
    """

    run: SpeedRun
    outcomes: Mapping[str, Mapping[str, Any]]
    seconds: float
    versions: Mapping[str, str]
    hardware: Mapping[str, str | int]
    date: str
    error: str = ""

    def number(self, implementation: str, name: str) -> float | None:
        """Returns a number of an implementation, None where it was not measured."""
        value = self.outcomes.get(implementation, {}).get("numbers", {}).get(name)
        return None if value is None else float(value)


def write_speed_result(run: SpeedRun, output: Path, answer: Mapping[str, Any], seconds: float) -> SpeedResult:
    """Writes the file of a finished case, removes the note of an earlier failure, and returns what it wrote.

    Args:
        run: what was measured.
        output: folder of results.
        answer: ``outcomes``, ``versions`` and ``hardware``, or ``error`` alone.
        seconds: wall time of the whole case.
    """
    content = {
        "format": FORMAT,
        "suite": run.suite,
        "profile": run.profile,
        **run.identity(),
        "outcomes": answer.get("outcomes", {}),
        "error": answer.get("error", ""),
        "seconds": round(seconds, 3),
        "versions": answer.get("versions", {}),
        "hardware": answer.get("hardware", {}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = run.failure_path(output) if content["error"] else run.path(output)
    write_text(path, json.dumps(content, indent=2) + "\n")
    if not content["error"]:
        run.failure_path(output).unlink(missing_ok=True)
    return read_speed_result(path)


def read_speed_result(path: Path) -> SpeedResult:
    """Returns what a file holds.

    Raises:
        DataError: the file is no speed result of this format, for instance because it is truncated; the message names it.
    """
    content = read_object(path, FORMAT, "speed result", finite=False)
    run = {name: content.pop(name, None) for name in ("suite", "profile", "case", "setting", "installed")}
    where = str(path)
    content = check_fields(SpeedResult, {"run": None, **content}, where, _OF_RESULT)
    check_fields(SpeedRun, run, where, {"case": "object", "setting": "object"})
    case, setting = check_fields(Case, run["case"], where), check_fields(Setting, run["setting"], where)
    try:
        place = SpeedRun(run["suite"], run["profile"], Case.read(case), Setting(**setting), tuple(run["installed"]))
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    outcomes = content["outcomes"]
    for name, outcome in outcomes.items():
        check_fields(Outcome, outcome, f"{path}, {name}", {"status": "Status", "numbers": "numbers", "note": "lines"})
    if not content["error"] and not {*case["implementations"]} <= outcomes.keys():
        raise DataError(f"{path} lacks outcomes of implementations.")
    if content["hardware"] and not {"cpu", "cores", "threads"} <= content["hardware"].keys():
        raise DataError(f"{path}: 'hardware' must have cpu, cores and threads.")
    if place.case.name != path.name.removesuffix(".json").removesuffix(".failed"):
        raise DataError(f"{path} says that it is of case '{place.case.name}', which is not where it lies.")
    return SpeedResult(**{**content, "run": place})


def difference(run: SpeedRun, path: Path) -> str:
    """Returns in words how the experiment of a stored result differs from that of a run; empty where it does not.

    Raises:
        DataError: see `read_speed_result`.
    """
    now, then = run.identity(), read_speed_result(path).run.identity()
    changes = []
    for part in ("case", "setting"):
        changes += [
            f"{key} was {then[part].get(key)!r} and is now {now[part].get(key)!r}"
            for key in now[part]
            if then[part].get(key) != now[part].get(key)
        ]
    if then["installed"] != now["installed"]:
        was, are = (", ".join(each["installed"]) or "none" for each in (then, now))
        changes.append(f"optional packages were {was} and are now {are}")
    return "; ".join(changes)


def speed_files(folder: Path) -> list[Path]:
    """Returns the files of speed results in a folder, sorted.

    Args:
        folder: the ``--output`` of ``tempplug bench run``, or any folder in it.
    """
    # suites that train have files in such places, too, seen from inside the output: results, looks, those of unfinished runs
    found = (path for path in result_files(folder, PATTERN) if path.name != LOOKS)
    return [path for path in found if not path.name.startswith("seed-") and not path.parent.name.startswith("seed-")]


def load_speed_results(folder: Path) -> tuple[tuple[SpeedResult, ...], tuple[str, ...]]:
    """Returns all results below a folder, and messages about files that cannot be read.

    Args:
        folder: the ``--output`` of ``tempplug bench run``, or a part of it.
    """
    results: list[SpeedResult] = []
    problems: list[str] = []
    for path in speed_files(folder):
        try:
            results.append(read_speed_result(path))
        except DataError as error:
            problems.append(str(error))
    return tuple(results), tuple(problems)
