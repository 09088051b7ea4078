"""What a speed case, task and suite are, and under which setting they are measured. It must not know how anything is measured.

A case is one loss at one size. All its implementations are measured alternately in one process, so a case, not an
implementation, is what runs, fails and resumes as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug_benchmarks.speed.targets import Target
from tempplug_benchmarks.suite import TaskList

Quantity = Literal["time", "memory", "accuracy"]
Status = Literal["measured", "not installed", "failed"]
OURS = "tempplug"
# Up to this many pairs a training meets the cold time; beyond it, the network's step before a call changes little.
SMALL_ROWS = 512
# The number that each quantity is about; smaller is better in all of them.
MAIN_NUMBER: dict[Quantity, str] = {"time": "milliseconds", "memory": "mebibytes", "accuracy": "gradient_error"}


def told_time(rows: int, numbers: Mapping[str, float]) -> str:
    """Returns the name of the time that a training meets: the cold one of a small batch, where it was measured.

    >>> told_time(64, {"milliseconds": 1.0, "milliseconds_cold": 2.0})
    'milliseconds_cold'
    """
    return "milliseconds_cold" if rows <= SMALL_ROWS and "milliseconds_cold" in numbers else "milliseconds"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One loss at one size.

    Attributes:
        name: unique within a suite and usable as a file name, e.g. ``nt-xent-2048x128``.
        quantity: what is measured of one forward and backward pass.
        loss: name of the loss (`tempplug_benchmarks.speed.losses`).
        rows: N, pairs of embeddings.
        dimension: D of an embedding.
        implementations: what is measured alternately, ``tempplug`` first.
        temperature: of losses that have a single one.
        environment: variables for the process that measures.
        device: the only device that the case is for; empty where it is for every one.
    """

    name: str
    quantity: Quantity
    loss: str
    rows: int
    dimension: int
    implementations: tuple[str, ...]
    temperature: float = 0.1
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = ""

    def __post_init__(self) -> None:
        if self.implementations[:1] != (OURS,):
            raise ConfigError(f"implementations={self.implementations} of case '{self.name}' must start with '{OURS}'.")

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Case:
        """Returns the case that `to_dict` made."""
        return cls(**{**content, "implementations": tuple(content["implementations"])})

    def to_dict(self) -> dict[str, Any]:
        """Returns the case as JSON holds it."""
        return {**asdict(self), "implementations": list(self.implementations)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How cases are measured.

    Attributes:
        device: ``cpu`` or ``cuda``.
        threads: that torch uses, at least 1.
        busy: whether two processes that never rest run beside the measurement.
        precision: of the embeddings, ``float32`` or ``bfloat16``; with the latter everything runs under autocast.
        budget: seconds of wall time for the rounds of one case, more than 0; three rounds are always made.
        seed: of the embeddings.
        cold: cases of up to this many pairs are timed a second way, after a network's step between two calls; 0 for none.
    """

    device: str = "cpu"
    threads: int = 1
    busy: bool = False
    precision: str = "float32"
    budget: float = 10.0
    seed: int = 0
    cold: int = 0

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ConfigError(f"threads={self.threads} must be at least 1.")
        if not self.budget > 0:
            raise ConfigError(f"budget={self.budget:g} must be more than 0 seconds.")

    @property
    def clock(self) -> str:
        """What tells the time: ``cpu`` time of the process, ``wall`` time, or ``cuda`` events.

        One thread is measured in CPU time, which busy neighbours cannot distort. CPU time of several threads would hide
        how badly they wait for each other.
        """
        if self.device == "cuda":
            return "cuda"
        return "cpu" if self.threads == 1 and not self.busy else "wall"

    @property
    def slug(self) -> str:
        """A name for folders, e.g. ``cpu-1-thread``."""
        if self.device != "cpu":
            words = [self.device]
        else:
            words = [self.device, str(self.threads), "thread" if self.threads == 1 else "threads"]
        words += [self.precision] * (self.precision != "float32") + ["busy"] * self.busy
        return "-".join(words)


@dataclass(frozen=True)
class Outcome:
    """What came of one implementation.

    Attributes:
        status: whether it was measured.
        numbers: what was measured, by name, with the unit in it.
        note: the engine that tempplug ran, or why nothing was measured.
    """

    status: Status
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SpeedTask:
    """Cases that answer one question and share a table.

    Attributes:
        name: short name, unique within its suite.
        summary: one line for listings and reports.
        quantity: of all its cases.
        profiles: the cases of each profile.
    """

    name: str
    summary: str
    quantity: Quantity
    profiles: Mapping[str, tuple[Case, ...]]

    def __post_init__(self) -> None:
        for case in (case for cases in self.profiles.values() for case in cases):
            if case.quantity != self.quantity:
                raise ConfigError(f"case '{case.name}' of task '{self.name}' must measure {self.quantity}.")


@dataclass(frozen=True)
class SpeedSuite(TaskList[SpeedTask]):
    """Tasks that measure speed.

    Attributes:
        targets: what must be reached at least.
    """

    targets: tuple[Target, ...] = ()

    def choose(self, profile: str, device: str, wanted: Sequence[str] | None = None) -> tuple[Case, ...]:
        """Returns the cases to measure, in the order of the tasks.

        Args:
            profile: name of the profile.
            device: cases for another one are left out.
            wanted: names of tasks or of single cases, None for all.

        Raises:
            UnknownNameError: a name is neither a task nor a case of the profile.
            ConfigError: nothing is left.
        """
        cases = {case.name: (task.name, case) for task in self.tasks for case in task.profiles.get(profile, ())}
        known = [*(task.name for task in self.tasks), *cases]
        for name in wanted or ():
            if name not in known:
                raise UnknownNameError(
                    f"suite '{self.name}' has no task or case '{name}' in profile '{profile}'.{nearest(name, known)} "
                    f"Its tasks are: {', '.join(task.name for task in self.tasks)}."
                )
        chosen = tuple(
            case
            for task, case in cases.values()
            if case.device in ("", device) and (not wanted or task in wanted or case.name in wanted)
        )
        if not chosen:
            raise ConfigError(f"profile '{profile}' of suite '{self.name}' has none of these cases for device '{device}'.")
        return chosen
