"""DySTreSS: the temperature of each pair is a function of its own similarity."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar, get_args

import torch

from tempplug.errors import ConfigError
from tempplug.options import Choice, Flag, Number, Temperature, options_of
from tempplug.strategies.base import Strategy
from tempplug.strategies.maps import LogitMap, Profile, ProfileMap
from tempplug.types import Batch

_SHIFTED, _EXPONENTIAL = ("profile", "shifted"), ("profile", "exponential")


@dataclass(eq=False, repr=False)
class DySTreSS(Strategy):
    """Divides each similarity by τ(s), positives included.

    Args:
        temperature_min: from 1e-9 to 1e9.
        temperature_max: at least ``temperature_min``; equal means ``fixed``.
        profile: ``cosine`` (lowest at s = 0), ``linear``, ``exponential``, ``monotonic`` or ``shifted``.
        shift: of ``shifted``, in [-1, 1]; the flat part of the curve begins at s = -shift.
        width: of ``shifted``, at least 0.001; by default (1 + abs(shift))/2, which puts τ(±1) at temperature_max.
        rate: of ``exponential``, from 0.001 to 1e6.
        detach: whether τ is a constant for the gradient, as in the paper's Algorithm 3.

    Raises:
        ConfigError: an option is out of range, or belongs to another profile than the chosen one.

    Source: Manna et al., DySTreSS, Algorithms 1-3, Tables 7, 11 and 13. The paper prints no formula for ``linear``,
    ``exponential`` and ``monotonic``; see `tempplug.strategies.maps.ProfileMap`.

    >>> DySTreSS(profile="shifted", shift=-0.4).width
    0.7
    """

    name: ClassVar[str] = "dystress"
    formula: ClassVar[str] = "l = s / τ(s), cosine: τ(s) = τmin + (τmax - τmin)·(1 + cos(π(1 + s)))/2"
    source: ClassVar[str] = "Manna et al., DySTreSS: Dynamically Scaled Temperature in Self-Supervised Contrastive Learning"

    temperature_min: Annotated[float, Temperature(search=(0.01, 0.15), help="lowest τ")] = 0.1
    temperature_max: Annotated[float, Temperature(search=(0.15, 1), help="highest τ, at least temperature_min")] = 0.2
    profile: Annotated[Profile, Choice(get_args(Profile), help="shape of τ(s)")] = "cosine"
    shift: Annotated[
        float,
        Number(
            at_least=-1, at_most=1, search=(-1, 1), only_with=_SHIFTED, help="profile shifted: the plateau begins at -shift"
        ),
    ] = 0.0
    width: Annotated[
        float | None,
        Number(
            at_least=1e-3, optional=True, only_with=_SHIFTED, help="profile shifted: half a period; by default (1+|shift|)/2"
        ),
    ] = None
    rate: Annotated[
        float,
        Number(
            at_least=1e-3, at_most=1e6, search=(1, 10), only_with=_EXPONENTIAL, help="profile exponential: how fast τ saturates"
        ),
    ] = 3.5
    detach: Annotated[bool, Flag(help="treat τ as a constant in the gradient")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range(self.temperature_min, self.temperature_max)
        for option in options_of(DySTreSS):
            value = getattr(self, option.name)
            if isinstance(option.kind, Number) and option.kind.only_with and value != option.default:
                _, profile_of_option = option.kind.only_with
                if self.profile != profile_of_option:
                    raise ConfigError(
                        f"{self.where(option.name, value)} is ignored by profile={self.profile}: "
                        f"leave it out, or choose profile={profile_of_option}."
                    )
        if self.profile == "shifted":
            full = (1 + abs(self.shift)) / 2
            if self.width is None:
                self.width = full
            else:
                end = 1.0 if self.shift > 0 else -1.0
                reached = float(self._map().temperature(torch.tensor(end, dtype=torch.float64, device="cpu")))
                if not math.isclose(reached, self.temperature_max):
                    warnings.warn(
                        f"{self.where('width', self.width)}: the temperature at s = {end:g} is {reached:.4g}, not "
                        f"temperature_max={self.temperature_max:g}, which width={full:g} gives.",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns s/τ(s), the same map for every batch."""
        return self._map()

    def _map(self) -> ProfileMap:
        return ProfileMap(
            self.profile,
            self.temperature_min,
            self.temperature_max,
            shift=self.shift,
            width=self.width or 0.5,
            rate=self.rate,
            detach=self.detach,
        )
