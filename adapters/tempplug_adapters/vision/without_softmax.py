"""SimSiam and Barlow Twins have no softmax, so no temperature but AMCL's, which has a form for each of them.

AMCL's regulariser Ω(τ) = (D/2)·ln τ + 1/τ is lowest at 2/D, a thousandth where D is 2048. A softmax compares the Ω of positives
with that of negatives; here it stands by itself and, as the paper has it, takes all temperatures along. Both methods therefore
count temperatures in units of 2/D and Ω in units of D/2, where it is ln u + 1/u: `SimSiam` and `BarlowTwins` say what follows.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from tempplug import create_strategy
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug.record import describe_temperatures
from tempplug.strategies.amcl import AMCL
from tempplug_adapters.vision.step_module import StepModule


class WithoutSoftmax(StepModule):
    """Base of both: AMCL or no strategy, and what the temperatures of the last call were.

    Args:
        backbone: images to representations [B, F], with attribute ``dimension``.
        projection_head: representations to embeddings [B, D], or an `nn.ModuleList` of several.
        strategy: ``amcl:dimension=…`` or an instance of it; None for the method as it is.

    Attributes:
        title: of the method, for messages.
        strategy: AMCL, or None.
        loss_fn: None: there is no contrastive loss.

    Raises:
        ConfigError: any other strategy; the backbone does not say its dimension.
    """

    title: ClassVar[str]

    def __init__(self, backbone: nn.Module, projection_head: nn.Module, strategy: object) -> None:
        super().__init__(backbone, projection_head)
        self.strategy = amcl_or_none(self.title, strategy)
        self.loss_fn = None
        self._temperatures: list[Tensor] = []

    def measure(self) -> dict[str, float]:
        """Returns ``temperature``, ``temperature_min``, ``temperature_max`` and ``temperature_at_bound`` of the last call.

        Empty without AMCL, and before the first call. Warns, once, where nearly all temperatures lie on AMCL's bounds.
        """
        if self.strategy is None or not self._temperatures:
            return {}
        found = describe_temperatures(self.strategy, torch.cat(self._temperatures))
        return {name.removesuffix("_mean"): float(value) for name, value in found.items()}


def amcl_or_none(method: str, strategy: object) -> AMCL | None:
    """Returns the strategy of a method without a softmax, None where none was given.

    Args:
        method: for the message.
        strategy: spec string, instance or None.

    Raises:
        ConfigError: it is something else than ``amcl``, or an option of that is not allowed.
    """
    if strategy is None or isinstance(strategy, AMCL):
        return strategy
    name = parse_spec(strategy)[0] if isinstance(strategy, str) else getattr(strategy, "name", type(strategy).__name__)
    if name == "amcl" and isinstance(strategy, str):
        created = create_strategy(strategy)
        if isinstance(created, AMCL):
            return created
    raise ConfigError(
        f"strategy '{name}' does not apply: {method} has no softmax to put a temperature in. Only 'amcl' has a form for it: "
        "pass strategy='amcl:dimension=…', or leave the strategy out."
    )
