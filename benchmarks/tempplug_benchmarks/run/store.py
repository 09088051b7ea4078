"""Stores results: one JSON file for each finished run, written atomically; `task_file` has those of a whole task in one file.

A result file always belongs to a finished run. It contains the specs, the recipe and the data of the run, so that results with
other settings are detected and never reused silently.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from tempplug.errors import DataError
from tempplug.options import format_value
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.arm import Specs
from tempplug_benchmarks.run.fields import check_fields, read_object
from tempplug_benchmarks.run.plan import Run, slug

PACKAGES = ("tempplug", "torch", "transformers", "sentence-transformers")
PRODUCT = ("tempplug", "adapters", "benchmarks/tempplug_benchmarks")
"""Folders of a checkout that affect results."""


def versions(also: Sequence[str] = ()) -> dict[str, str]:
    """Returns the versions of Python, of `PACKAGES` and of the distributions ``also``, and the ``commit`` in a Git checkout."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *also):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


def hardware() -> dict[str, str | int]:
    """Returns the result of `tempplug.processor.describe_machine`; the call imports torch."""
    from tempplug.processor import describe_machine

    return describe_machine()


def describe_environment(hardware: Mapping[str, str | int], versions: Mapping[str, str]) -> str:
    """Returns the machine and the versions (see `hardware` and `versions`) as one line.

    >>> describe_environment({"cpu": "Abacus", "cores": 2, "threads": 1}, {"python": "3.11.0"})
    'Abacus, 2 cores, 1 threads; python 3.11.0'
    """
    return f"{describe_machine(hardware)}; " + ", ".join(f"{name} {number}" for name, number in versions.items())


def describe_machine(hardware: Mapping[str, str | int]) -> str:
    """Returns the machine (see `hardware`) as text."""
    machine = str(hardware["cpu"])
    if "vendor" in hardware:
        machine += f" ({hardware['vendor']} family {hardware.get('family')} model {hardware.get('model')})"
    machine += f", {hardware['instructions']}" if "instructions" in hardware else ""
    machine += f", products by {hardware['products']}" if "products" in hardware else ""
    machine += f", {hardware['cores']} cores, {hardware['threads']} threads"
    if "gpu" in hardware:
        machine += f", {hardware['gpu']}"
    return machine


@cache
def _commit() -> str:
    """Returns the commit of this checkout, with ``+changes`` appended if code was modified; "" outside a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    given: Any = {"capture_output": True, "text": True, "check": True, "timeout": 60}
    commands = (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", *PRODUCT))
    try:
        commit, changes = (subprocess.run(["git", "-C", root, *each], **given).stdout.strip() for each in commands)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+changes" if changes else commit


FORMAT = 2
FAILED = ".failed.json"
LIBRARIES = ("lightly", "pytorch-metric-learning")
"""Distributions whose versions matter where implementations are compared."""
# A list of numbers as json lays it out, a line for each; texts hold no line breaks. Joined to one line for readability.
_NUMBERS = re.compile(r"\[\n\s+([^\[\]{}\"]*?)\n\s+\]")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The run that a file belongs to: names of suite, profile and task, label of the arm, and the seed."""

    suite: str
    profile: str
    task: str
    arm: str
    seed: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """The value of `Run.key` for this run."""
        return self.suite, self.profile, self.task, self.arm, self.seed


@dataclass(frozen=True, kw_only=True)
class Result(Entry):
    """One finished run, as stored in its file.

    Attributes:
        metrics: measured values.
        strategy: resolved spec of the strategy; None without a contrastive loss.
        objective: resolved spec of the objective; None without a contrastive loss.
        negatives: resolved spec of the terms on negatives; None without terms, and then not in the file.
        changes: recipe settings that only this arm changes.
        dataset: description of the training and evaluation data.
        recipe: settings of the training.
        seconds: wall time.
        versions: of Python and the packages.
        hardware: processor, cores, threads, GPU.
        date: when the run finished, UTC, ISO 8601.
        temperature: ``first``, ``last``, ``min`` and ``max`` during training; empty if not recorded.
        course: training statistics at a few dozen steps: lists of equal length, among them ``step`` and ``temperature``; empty
            if not recorded.
        resampled: metrics on resampled test data, the same resamples in every run; empty if the method has none.
        launch: number of ``processes`` and the ``effective_batch_size``: items of all processes in one optimizer step; empty in
            older results.
        implementations: measurements of each implementation: numbers by name, and a ``note``; empty if there is only one.
    """

    metrics: Mapping[str, float]
    strategy: str | None
    objective: str | None
    changes: Mapping[str, Any]
    dataset: str
    recipe: Mapping[str, Any]
    seconds: float
    versions: Mapping[str, str]
    hardware: Mapping[str, str | int]
    date: str
    temperature: Mapping[str, float] = field(default_factory=dict)
    course: Mapping[str, Sequence[float]] = field(default_factory=dict)
    resampled: Mapping[str, Sequence[float]] = field(default_factory=dict)
    launch: Mapping[str, float] = field(default_factory=dict)
    implementations: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    negatives: str | None = None

    def identity(self) -> dict[str, Any]:
        """Returns the value of `Run.identity` for the run that produced this result."""
        specs = Specs(self.strategy, self.objective, self.negatives).given()
        return {**specs, **{name: getattr(self, name) for name in ("changes", "dataset", "recipe")}}


@dataclass(frozen=True, kw_only=True)
class Failure(Entry):
    """One run that raised an exception.

    Attributes:
        error: the message.
        trace: the traceback; empty if the message is sufficient.
    """

    error: str
    trace: str = ""


Record = TypeVar("Record", Result, Failure)


def result_of(run: Run, metrics: Mapping[str, float], seconds: float, **noted: Mapping[str, Any]) -> Result:
    """Returns the result of a run that this process has executed; ``noted`` are further fields of `Result`."""
    more: dict[str, Any] = {name: dict(values) for name, values in noted.items()}
    return Result(
        **_place(run),
        metrics=dict(metrics),
        **run.identity(),
        seconds=round(seconds, 3),
        versions=versions(LIBRARIES if noted.get("implementations") else ()),
        hardware=hardware(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    )


def failure_of(run: Run, error: str, trace: str = "") -> Failure:
    """Returns the record of a failed run."""
    return Failure(**_place(run), error=error, trace=trace)


def write(run: Run, output: Path, record: Result | Failure) -> None:
    """Writes a result, which replaces the record of an earlier failure, or writes a failure."""
    file = run.path(output) if isinstance(record, Result) else failure_path(run, output)
    text = json.dumps({"format": FORMAT, **fields_of(record)}, indent=2, allow_nan=False)
    write_text(file, _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")
    if isinstance(record, Result):
        failure_path(run, output).unlink(missing_ok=True)


def fields_of(record: Result | Failure) -> dict[str, Any]:
    """Returns the fields of a record as they are stored: without those that are empty and need not be there."""
    optional = [each.name for each in fields(record) if each.default is not MISSING or each.default_factory is not MISSING]
    return {name: value for name, value in asdict(record).items() if value or name not in optional}


def _place(run: Run) -> dict[str, Any]:
    return dict(zip(("suite", "profile", "task", "arm", "seed"), run.key, strict=True))


def failure_path(run: Run, output: Path) -> Path:
    """Returns the path of the failure record of a run."""
    return run.path(output).with_suffix(FAILED)


def read_result(path: Path) -> Result:
    """Reads a result; raises `DataError`, which names the file, if it is truncated or has another format."""
    return _read(path, Result)


def read_failure(path: Path) -> Failure:
    """Reads a failure record; raises like `read_result`."""
    return _read(path, Failure)


def _read(path: Path, kind: type[Record]) -> Record:
    record = checked(kind, read_object(path, FORMAT, "benchmark file"), str(path))
    # a mismatch would silently attribute the result to another run
    if (slug(record.arm), f"seed-{record.seed}") != (path.absolute().parent.name, path.name.partition(".")[0]):
        raise DataError(f"{path} is a result of arm '{record.arm}', seed {record.seed}, which does not match its path.")
    return record


def checked(kind: type[Record], content: dict[str, Any], where: str) -> Record:
    """Returns the record that a JSON object has; raises `DataError`, which begins with ``where``, if it has none."""
    texts = ("error", "trace") if kind is Failure else ()
    for part in ("changes", "recipe"):
        if isinstance(content.get(part), dict):
            content[part] = _renamed(content[part])
    record = kind(**check_fields(kind, content, where, texts))
    if isinstance(record, Result):
        _check_parts(record, where)
    return record


def _renamed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings by the names that they have now; older results have others."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "pooler":
            found["pooling"] = value
        elif name == "sts_test":
            found["tasks"] = list(STS_TASKS) if value else []
        elif name == "transfer_test":
            found["tasks"] = [*found.get("tasks", ()), *value]
        else:
            found[name] = value
    return found


def _check_parts(result: Result, where: str) -> None:
    if not {"cpu", "cores", "threads"} <= result.hardware.keys():
        raise DataError(f"{where}: 'hardware' must have cpu, cores and threads.")
    course = result.course
    if course and not ({"step", "temperature"} <= course.keys() and len(set(map(len, course.values()))) == 1):
        raise DataError(f"{where}: 'course' must have step and temperature, and lists of one length.")


def difference_from(run: Run, result: Result) -> str:
    """Describes how the experiment of a stored result differs from that of a run; empty if they are equal.

    A setting that was added later and has the value none counts as absent.
    """
    now, then = run.identity(), result.identity()
    changes = [
        f"{key} was {then.get(key)!r} and is now {now.get(key)!r}"
        for key in ("strategy", "objective", "negatives", "dataset")
        if then.get(key) != now.get(key)
    ]
    for part in ("changes", "recipe"):
        old, new = then[part], now[part]
        for key in sorted({*old, *new}):
            was, now_is = (format_value(settings[key]) or "none" if key in settings else "absent" for settings in (old, new))
            if was != now_is and {was, now_is} != {"absent", "none"}:
                changes.append(f"{key} was {was} and is now {now_is}")
    return "; ".join(changes)
