"""Temperature Schedules: the temperature oscillates over the epochs; and the base of strategies that do."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.options import MOMENT, Choice, Number, Temperature
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, ScaleMap
from tempplug.types import Batch

PERIODS = 5
"""Periods of a training of known length: 2,000 epochs have periods of 400 (Kukleva et al. 2023, section 4)."""
LONGEST = 400.0
"""Epochs of a period of a training whose length is not given."""
Period = Annotated[
    float | None,
    Number(above=0, optional=True, help="T, epochs; none: a fifth of the training, or 400 if its length is unknown"),
]
FEWEST_EPOCHS = 20
"""Of a period that is sampled once an epoch."""
FEWEST_TEMPERATURES = 4
"""That a training takes of a curve: with fewer there is no curve."""
MISSED = 0.1
"""Largest share of the range between lowest and highest temperature that a training leaves out at either end."""
ENOUGH_STEPS = 12
"""Of a period: every shape then takes `FEWEST_TEMPERATURES`, and leaves out less than `MISSED`."""


class Periodic(Strategy):
    """A strategy with a number that depends on the epoch given to `set_progress`; the epoch is saved with the state.

    A subclass is a dataclass with the option ``period``, and implements `_value`.
    """

    period: float | None
    epoch: float | None = None
    _now: Tensor | None = None  # the number as a tensor, so that a graph follows it

    def __post_init__(self) -> None:
        super().__post_init__()
        self._follows_length = self.period is None

    def set_length(self, epochs: float) -> None:
        """Makes the period a fifth of the training where none was given; 0 epochs change nothing, less raises `ConfigError`."""
        if MOMENT.check(f"epochs={epochs} of set_length", epochs) and self._follows_length:
            self.configure(**{**self.options, "period": float(f"{epochs / PERIODS:.6g}")})
            self._follow()

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Sets the epoch, fractions allowed; idempotent; raises `ConfigError` below 0."""
        self.epoch = MOMENT.check(f"epoch={epoch} of set_progress", epoch)
        self._follow()

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises without an epoch."""
        self.now()

    def now(self) -> Tensor:
        """Returns the number at the current epoch, [] in float64; raises `ConfigError` without one."""
        if self._now is None:
            raise self._untold()
        return self._now

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the epoch, as part of ``state_dict``."""
        return {"epoch": self.epoch}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the epoch."""
        self.epoch = state["epoch"]
        self._follow()

    def _value(self, epoch: float) -> float:
        raise NotImplementedError

    def _untold(self) -> ConfigError:
        return ConfigError(
            f"strategy '{self.name}' was never told its progress: call set_progress(epoch=...) on the loss before every epoch "
            "or step (our adapters do)."
        )

    def _follow(self) -> None:
        self._now = None
        if self.epoch is not None:
            with torch.inference_mode(False):
                self._now = torch.tensor(self._value(self.epoch), dtype=torch.float64, device="cpu")


@dataclass(eq=False, repr=False)
class Schedule(Periodic):
    """Divides by τ(t), t the epoch given to `set_progress`; the epoch is saved with the state.

    ``cosine`` and ``triangle`` start at temperature_max and reach temperature_min at half a period; ``step`` starts at
    temperature_min and toggles every half period; ``random`` draws uniformly, once per whole epoch, from (seed, number of
    the epoch) alone, so that all ranks and a resumed run have the same values.

    t changes at every step, which is eq. 5 at any moment of training. ``granularity=epoch`` is the authors' released code (its
    ``t_max`` is half of ``period``): t is the number of the current epoch, from 1. A period of fewer than 20 epochs is sampled
    at every step with both, because so few whole epochs would miss most of the curve.

    Args:
        shape: ``cosine``, ``triangle``, ``step`` or ``random``.
        temperature_min: from 1e-9 to 1e9.
        temperature_max: at least ``temperature_min``.
        period: epochs, greater than 0. None: a fifth of the training where `set_length` is called, as our adapters and commands
            do, else 400; the paper has 400 of 2000.
        seed: of ``random``, at least 0.
        granularity: ``step`` or ``epoch``.

    Source: Kukleva et al. 2023, eq. 5, Algorithm 1 and Table 5 (which prints T ≥ 0; T = 0 divides by zero). It does not say
    whether its epochs t are whole, and whether the first is 0 or 1.

    >>> schedule = Schedule(period=400)
    >>> schedule.set_progress(epoch=100)
    >>> round(schedule.temperature(), 6)
    0.55
    """

    name: ClassVar[str] = "schedule"
    formula: ClassVar[str] = "l = s / τ(t), cosine: τ(t) = τmin + (τmax - τmin)·(1 + cos(2πt/T))/2, t in epochs"
    source: ClassVar[str] = (
        "Kukleva et al. 2023, Temperature Schedules for Self-Supervised Contrastive Methods on Long-Tail Data"
    )
    cosines_only = False

    shape: Annotated[str, Choice(("cosine", "triangle", "step", "random"), help="curve over the epochs")] = "cosine"
    temperature_min: Annotated[float, Temperature(search=(0.01, 0.2), help="lowest τ")] = 0.1
    temperature_max: Annotated[float, Temperature(search=(0.2, 2), help="highest τ, at least temperature_min")] = 1.0
    period: Period = None
    seed: Annotated[int, Number(at_least=0, integer=True, help="of shape random")] = 0
    granularity: Annotated[
        str, Choice(("step", "epoch"), search=False, help="when τ moves; epoch: once an epoch, where a period has 20")
    ] = "step"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range(self.temperature_min, self.temperature_max)

    def temperature(self) -> float:
        """Returns τ at the epoch of the last `set_progress`.

        Raises:
            ConfigError: `set_progress` was never called.
        """
        if self.epoch is None:
            raise self._untold()
        return self._between(self._height(self.epoch))

    def missed(self, epochs: float, steps: int) -> str:
        """Returns what a training of these epochs and optimizer steps misses of the range between the bounds, and the remedy.

        Empty where it samples enough of the range.

        >>> Schedule(period=1).missed(epochs=5, steps=60)
        ''
        """
        if not epochs or not steps or self.temperature_min == self.temperature_max:
            return ""
        drawn = self.shape == "random"
        moments = range(math.ceil(epochs)) if drawn else (epochs * step / steps for step in range(steps))
        enough = 2 if self.shape == "step" else FEWEST_TEMPERATURES
        seen, lowest, highest = set[float](), 1.0, 0.0
        for moment in moments:
            height = self._height(moment)
            seen.add(round(height, 6))
            lowest, highest = min(lowest, height), max(highest, height)
            if len(seen) >= enough and lowest <= MISSED and highest >= 1 - MISSED:
                return ""
        inside = steps * (self.period or LONGEST) / epochs
        why = "it draws once an epoch" if drawn else f"a period has {inside:.4g} steps, the training {steps}"
        if drawn or steps < ENOUGH_STEPS:
            remedy = "more epochs" if drawn else "smaller batches or more epochs"
        elif inside < ENOUGH_STEPS:
            remedy = f"period={ENOUGH_STEPS * epochs / steps:.3g} or longer, smaller batches or more epochs"
        else:
            remedy = f"period={epochs:g} or shorter"
        return (
            f"strategy '{self.name}' will take {len(seen)} different temperature{'s' * (len(seen) > 1)}, from "
            f"{self._between(lowest):.3g} to {self._between(highest):.3g}, where its options say {self.temperature_min:g} to "
            f"{self.temperature_max:g}: {why}. The remedy: {remedy}."
        )

    def _value(self, epoch: float) -> float:
        return 1 / self._between(self._height(epoch))

    def _between(self, height: float) -> float:
        return self.temperature_min + (self.temperature_max - self.temperature_min) * height

    def _height(self, epoch: float) -> float:
        period = self.period or LONGEST
        once = self.granularity == "epoch" and period >= FEWEST_EPOCHS
        phase = ((math.floor(epoch) + 1 if once else epoch) / period) % 1.0
        match self.shape:
            case "cosine":
                return 0.5 * (1 + math.cos(2 * math.pi * phase))
            case "triangle":
                return abs(1 - 2 * phase)
            case "step":
                return float(phase >= 0.5)
            case _:
                return random.Random(f"{self.seed}:{math.floor(epoch)}").random()

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns s/τ(t) for every pair."""
        return ScaleMap(self.now().to(batch.device, batch.dtype))
