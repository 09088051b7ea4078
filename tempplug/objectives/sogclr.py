"""SogCLR: a global contrastive loss, whose denominators are moving averages over the training, one for each example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from tempplug.averages import EMPTY, PerView, Relative, Size, entries, log_means, moved, of_all_processes, places
from tempplug.errors import ConfigError
from tempplug.inputs import check_within
from tempplug.objectives.base import Objective
from tempplug.options import MOMENT, Number
from tempplug.types import Auxiliary, Batch, RowStatistics


@dataclass(eq=False, repr=False)
class SogCLR(Objective):
    """τ·ln u_i, with u_i a moving average of g_i, the mean of exp((s_ij - s⁺_i)/τ) over the negatives of example i.

    The gradient is that of τ·g_i/sg(ε + u_i): as the averages converge, it is that of the mean of τ·ln(ε + g_i) with g_i over
    the whole data set, whatever the size of the batch; InfoNCE's is not. After each training step u_i ← (1-γ)·u_i + γ·g_i, and
    g_i in the first batch with the example; ln u_i is a buffer, so that nothing overflows.

    τ is the temperature of the row, of strategies that divide each row by one; for others it is 1. Where it is learned, the
    loss is τ·(ln(ε + u_i) + ρ) and ρ must be greater than 0, because without it the loss only falls as τ rises. An evaluation
    reads no averages: u_i is then g_i of the batch, and ``index`` is not needed.

    FastCLIP is ``eps=1e-14,decay=0.5`` with a γ of 0.2 to 0.9, its third version with ``learnable`` and ``rho=6.5`` beside.

    Args:
        size: examples of the data set, from 1 to 1e10; the call passes ``index=`` [B], which example each row is.
        gamma: γ, from 1e-6 to 1; 1 is the gradient of ``dcl`` times τ.
        eps: ε, from 0 to 1: examples with u_i far below it get almost no gradient.
        rho: ρ, from 0 to 1e6.
        decay: share of the training, from 0 to 1, in which γ falls from 1 to ``gamma``, along half a cosine; needs `set_length`
            and `set_progress`.
        per_view: whether the anchors of view_b, such as texts, have averages of their own, at ``size`` and behind; else the two
            views of an example share one, which the two directions of ``cross-view`` move one after the other.
        relative: whether g_i is relative to the positive; false is SogCLR's first form, -s⁺ + τ·ln u_i with g_i the mean of
            exp(s_ij/τ), where only the negatives are weighted by g_i/u_i.

    Source: Yuan et al. 2022, algorithm 1 (``relative=false,per_view=false``); Qiu et al. 2023, algorithm 1; Wei et al. 2024
    (FastCLIP).
    """

    name: ClassVar[str] = "sogclr"
    formula: ClassVar[str] = "τ·ln(ε + u_i), gradient of τ·g_i/sg(ε + u_i), g_i = mean⁻ exp(l_ij - l⁺), u_i its moving average"
    source: ClassVar[str] = "Yuan et al. 2022, Provable Stochastic Optimization for Global Contrastive Learning (SogCLR)"
    several_positives: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"index"})

    size: Size
    gamma: Annotated[float, Number(at_least=1e-6, at_most=1, search=(0.1, 1), help="γ, weight of the newest batch")] = 0.9
    eps: Annotated[float, Number(at_least=0, at_most=1, help="ε, added to averages")] = 0.0
    rho: Annotated[float, Number(at_least=0, at_most=1e6, help="ρ, higher gives higher learned temperatures")] = 0.0
    decay: Annotated[float, Number(at_least=0, at_most=1, help="share of the training in which γ falls from 1")] = 0.0
    per_view: PerView = True
    relative: Relative = True
    log_averages: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("log_averages", torch.full((self.size * (1 + self.per_view),), EMPTY))
        self._log_eps = math.log(self.eps) if self.eps else EMPTY
        self.epoch: float | None = None
        self.epochs: float | None = None

    def set_length(self, epochs: float) -> None:
        """Sets the length of the training in epochs, of which ``decay`` is a share; raises `ConfigError` below 0."""
        self.epochs = MOMENT.check(f"epochs={epochs} of set_length", epochs)

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Sets the epoch; idempotent; raises `ConfigError` below 0."""
        self.epoch = MOMENT.check(f"epoch={epoch} of set_progress", epoch)

    def current_gamma(self) -> float:
        """Returns γ at the current epoch.

        Raises:
            ConfigError: ``decay`` is set, and neither length nor progress of the training was given.
        """
        if not self.decay:
            return self.gamma
        if self.epoch is None or self.epochs is None:
            raise ConfigError(
                f"{self.where('decay', self.decay)} needs the length of the training and its progress: call set_length(epochs) "
                "once and set_progress(epoch=...) before every step on the loss (our adapters do)."
            )
        share = min(1.0, self.epoch / (self.decay * self.epochs)) if self.epochs else 1.0
        return self.gamma + (1 - self.gamma) * (1 + math.cos(math.pi * share)) / 2

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises where the index leaves the data set, or progress is needed and was not told."""
        if self.training and "index" in given:
            check_within(self, "index", given["index"], self.log_averages, f"size={self.size}", self.size)
            self.current_gamma()

    @torch.no_grad()
    def observe(self, batch: Batch, statistics: RowStatistics) -> Tensor:
        """Moves the averages of this batch's examples, on every process those of all; returns ln u of each row, [N]."""
        rows, log_g = entries(self, batch, self.log_averages), self._log_g(statistics)
        log_u = moved(self.log_averages[rows].to(log_g.dtype), log_g, self.current_gamma())
        # Without a negative or a positive, there is nothing to learn from.
        seen = log_g.isfinite() & (statistics.positive_count > 0)
        all_rows, values = of_all_processes(rows, log_u.masked_fill(~seen, EMPTY))
        means = log_means(values, places(all_rows))[0].to(self.log_averages.dtype)
        self.log_averages[all_rows] = means.where(means > EMPTY, self.log_averages[all_rows])
        return log_u

    def row_loss(self, statistics: RowStatistics, auxiliary: Auxiliary | None = None) -> Tensor:
        """Returns τ·(ln(ε + u) + ρ), [N], with the gradient of τ·g/sg(ε + u), and of the value along a learned τ."""
        log_g = self._log_g(statistics)
        level = log_g.detach()
        if auxiliary is not None and auxiliary.observed is not None:
            # u holds γ·g, but for rows without a negative, which are dropped: their weight must not overflow, either.
            least = level + math.log(self.current_gamma())
            level = torch.where(auxiliary.observed.isfinite(), torch.maximum(auxiliary.observed, least), level)
        level = torch.logaddexp(level, level.new_full((), self._log_eps))
        weight = torch.exp(log_g.detach() - level)
        value, source = level + self.rho, weight * log_g
        if not self.relative:
            value, source = value - statistics.positive_logit.detach(), source - statistics.positive_logit
        logit_map = None if auxiliary is None else auxiliary.logit_map
        if logit_map is None or not logit_map.linear:
            return value + (source - source.detach())
        scale: Tensor = logit_map.scale  # type: ignore[attr-defined]
        temperature = scale.to(value).reciprocal()
        return temperature * value + temperature.detach() * (source - source.detach())

    def _log_g(self, statistics: RowStatistics) -> Tensor:
        """Returns ln g of each row, [N]."""
        lse, logit = statistics.negative_lse, statistics.positive_logit
        log_g = lse - statistics.negative_count.clamp(min=1).to(lse.dtype).log()
        return log_g - logit if self.relative else log_g

    def get_extra_state(self) -> dict[str, Any]:
        """Returns epoch and length of the training, as part of ``state_dict``."""
        return {"epoch": self.epoch, "epochs": self.epochs}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores them."""
        self.epoch, self.epochs = state["epoch"], state["epochs"]
