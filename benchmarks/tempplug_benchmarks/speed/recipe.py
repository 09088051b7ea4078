"""A speed case and the conditions of its measurement, as settings of a recipe.

A case is one loss at one size, and an arm of its task. All its implementations are measured alternately in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tempplug.options import Choice, Flag, Kind, Number, Text, Words
from tempplug_adapters.training.recipe import Recipe

OURS = "tempplug"
CONDITIONS = ("device", "threads", "busy", "precision", "budget", "cold")
"""Settings that all cases of a task share; the others are those of a case."""
SMALL_ROWS = 512
"""Up to this many pairs the cold time applies in a training; for more, the network's step before a call changes little."""


def told_time(rows: int, numbers: Mapping[str, Any]) -> str:
    """Returns the name of the time that applies in a training: the cold time of a small batch, if measured.

    >>> told_time(64, {"milliseconds": 1.0, "milliseconds_cold": 2.0})
    'milliseconds_cold'
    """
    return "milliseconds_cold" if rows <= SMALL_ROWS and "milliseconds_cold" in numbers else "milliseconds"


@dataclass(frozen=True, kw_only=True)
class SpeedRecipe(Recipe):
    """One case and the conditions of its measurement; of the training settings, only the seed is used."""

    loss_name: Annotated[str, Text(help="of `tempplug_benchmarks.speed.losses`")] = "nt-xent"
    rows: Annotated[int, Number(at_least=1, integer=True, help="N, pairs of embeddings")] = 1
    dimension: Annotated[int, Number(at_least=1, integer=True, help="D of an embedding")] = 1
    implementations: Annotated[tuple[str, ...], Words(help="what is measured alternately, tempplug first")] = (OURS,)
    temperature: Annotated[float, Number(above=0, help="of losses that have a single one")] = 0.1
    environment: Annotated[tuple[str, ...], Words(help="NAME=VALUE for the process that measures")] = ()
    only_on: Annotated[str | None, Text(optional=True, help="the device that the case is for; none: every one")] = None
    packages: Annotated[tuple[str, ...], Words(help="optional packages of the case that are installed")] = ()

    device: Annotated[str, Choice(("cpu", "cuda"), help="that measures")] = "cpu"
    threads: Annotated[int, Number(at_least=1, integer=True, help="of torch")] = 1
    busy: Annotated[bool, Flag(help="whether two processes that never rest run beside")] = False
    precision: Annotated[str, Choice(("float32", "bfloat16"), help="of embeddings; bfloat16 under autocast")] = "float32"
    budget: Annotated[float, Number(above=0, help="seconds for the rounds of one case, at least three")] = 10.0
    cold: Annotated[int, Number(at_least=0, integer=True, help="most pairs also timed after a network's step")] = 2048

    @classmethod
    def kinds(cls) -> dict[str, Kind]:
        """Returns the settings by name, without training settings."""
        of_trainings = Recipe.kinds().keys() - {"seed"}
        return {name: kind for name, kind in super().kinds().items() if name not in of_trainings}

    def values(self) -> dict[str, Any]:
        """Returns the conditions by name; the settings of the case are given by its arm."""
        return {name: value for name, value in super().values().items() if name in CONDITIONS}

    @property
    def clock(self) -> str:
        """The clock: ``cpu`` time for one thread, ``wall`` time for several, ``cuda`` events on a GPU."""
        if self.device == "cuda":
            return "cuda"
        return "cpu" if self.threads == 1 and not self.busy else "wall"

    @property
    def slug(self) -> str:
        """A short name of the conditions, e.g. ``cpu-1-thread``."""
        words = [self.device]
        if self.device == "cpu":
            words += [str(self.threads), "thread" if self.threads == 1 else "threads"]
        words += [self.precision] * (self.precision != "float32") + ["busy"] * self.busy
        return "-".join(words)

    def variables(self) -> dict[str, str]:
        """Returns environment variables that the measuring process needs in addition to the user's."""
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        own = dict(each.split("=", 1) for each in self.environment)
        return {**limits, "TORCHINDUCTOR_COMPILE_THREADS": "1", **own}
