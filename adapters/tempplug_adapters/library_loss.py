"""What replacements of libraries' losses share: the library's ``temperature`` is a number, a spec string or a strategy."""

from __future__ import annotations

from torch import nn

from tempplug import ContrastiveLoss, Strategy, create_strategy
from tempplug.errors import ConfigError
from tempplug.strategies.fixed import Fixed
from tempplug_adapters.contexts import in_context
from tempplug_adapters.training.recipe import around


def strategy_of(temperature: float | str | Strategy, default: float) -> Strategy:
    """Returns the strategy that an argument ``temperature`` names; options that a spec string omits fit ``default``."""
    if isinstance(temperature, str | Strategy):
        return in_context(temperature, around(default))
    return create_strategy("fixed", temperature=temperature)


class LibraryLoss(nn.Module):
    """A replacement of a library's loss, with its ``temperature`` attribute; subclasses set ``contrastive_loss``."""

    contrastive_loss: ContrastiveLoss

    @property
    def temperature(self) -> float | str:
        """The fixed temperature or the spec of the strategy; only a fixed one can be set, else ConfigError."""
        strategy = self.contrastive_loss.strategy
        return float(strategy.temperature) if isinstance(strategy, Fixed) else strategy.spec()

    @temperature.setter
    def temperature(self, value: float) -> None:
        if not isinstance(self.contrastive_loss.strategy, Fixed):
            raise ConfigError(
                f"temperature={value} cannot be set: strategy '{self.contrastive_loss.strategy.spec()}' decides it. Give a "
                "number as temperature= when the loss is made, or drive a schedule by contrastive_loss.set_progress()."
            )
        self.contrastive_loss.strategy = Fixed(temperature=value)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that must not have weight decay."""
        return {f"contrastive_loss.{name}" for name in self.contrastive_loss.no_weight_decay()}
