"""What strategies share that oscillate over the epochs: the epoch, the period, and what of them is saved."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor

from tempplug.errors import ConfigError
from tempplug.options import Number
from tempplug.strategies.base import Strategy

PERIODS = 5
"""Periods of a training of known length: 2,000 epochs have periods of 400 (Kukleva et al. 2023, section 4)."""
LONGEST = 400.0
"""Epochs of a period of a training whose length is not given."""
Period = Annotated[
    float | None,
    Number(above=0, optional=True, help="T, epochs; none: a fifth of the training, or 400 if its length is unknown"),
]


class Periodic(Strategy):
    """A strategy with a number that depends on the epoch given to `set_progress`; the epoch is saved with the state.

    A subclass has the option ``period`` and implements `_value`.

    Args:
        **options: as of `tempplug.Strategy`.
    """

    period: float | None

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.epoch: float | None = None
        # A tensor, so that a graph follows it.
        self._now: Tensor | None = None
        self._follows_length = self.period is None

    def set_length(self, epochs: float) -> None:
        """Makes the period a fifth of the training where none was given; 0 epochs change nothing.

        Args:
            epochs: of the whole training, at least 0; fractions allowed.

        Raises:
            ConfigError: it is negative or not finite.
        """
        if not math.isfinite(epochs) or epochs < 0:
            raise ConfigError(f"epochs={epochs} of set_length must be a finite number of at least 0.")
        if self._follows_length and epochs:
            self.configure(**{**self.options, "period": float(f"{epochs / PERIODS:.6g}")})
            self._follow()

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Sets the epoch; idempotent.

        Args:
            epoch: epochs done, at least 0; fractions allowed.
            step: not used.

        Raises:
            ConfigError: the epoch is negative or not finite.
        """
        if not math.isfinite(epoch) or epoch < 0:
            raise ConfigError(f"epoch={epoch} of set_progress must be a finite number of at least 0.")
        self.epoch = float(epoch)
        self._follow()

    def now(self) -> Tensor:
        """Returns the number at the current epoch, [] in float64.

        Raises:
            ConfigError: `set_progress` was never called.
        """
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
