"""The base of every temperature strategy: it chooses a logit map for each batch, and that is all it does."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from tempplug.errors import ConfigError, ShapeError, TensorError
from tempplug.part import Part
from tempplug.strategies.maps import LogitMap
from tempplug.types import Batch, RowStatistics


class Strategy(Part):
    """Chooses the map from similarity to logit for each batch.

    A subclass declares its options as a `tempplug.part.Part` does, and implements `prepare`. It may take ``labels``, ``index``,
    ``uncertainty`` and ``groups``. A strategy whose temperature has a floor counts in a buffer ``floor_hits`` how often it
    was hit.

    Attributes:
        cosines_only: whether it needs the rows, or cosines in [-1, 1]; `tempplug.ContrastiveLoss.from_scores` then refuses it.
            False means that logits rise with any number in place of a similarity.
        needs_negative_similarity: whether `observe` reads ``negative_similarity`` of the statistics, which costs more.
        remedy: what to do where nearly all temperatures lie on one of the `bounds`, as the end of a warning.
        warned_of_bounds: whether that warning was given.
    """

    kind: ClassVar[str] = "strategy"
    cosines_only: bool = True
    needs_negative_similarity: ClassVar[bool] = False
    remedy: ClassVar[str] = "choose other bounds"
    warned_of_bounds: bool = False

    def prepare(self, batch: Batch) -> LogitMap:
        """Returns the logit map of this batch; called once per batch and direction, does O(N) work.

        Raises:
            ConfigError: the batch lacks an input that this strategy needs; the message names both.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement prepare(batch) -> LogitMap.")

    def observe(self, batch: Batch, statistics: RowStatistics) -> None:
        """Receives the statistics of the batch, in training mode only, after the engine and before the objective."""

    @property
    def observes(self) -> bool:
        """Whether `observe` does anything."""
        return type(self).observe is not Strategy.observe or "observe" in self.__dict__

    def bounds(self) -> dict[str, float]:
        """Returns the temperatures that this strategy never passes, by the options that set them; none unless overridden.

        A temperature that lies on one no longer adapts: the record shows how many do, and warns where nearly all do.
        """
        return {}

    def check_range(self, temperature_min: float, temperature_max: float) -> None:
        """Raises `ConfigError` where the two options are in the wrong order."""
        if temperature_max < temperature_min:
            raise ConfigError(f"{self.where('temperature_max', temperature_max)} must be at least {temperature_min=:g}.")

    def check_start(self, temperature_init: float, temperature_min: float, temperature_max: float) -> None:
        """Raises `ConfigError` where the first option does not lie between the two others."""
        if not temperature_min <= temperature_init <= temperature_max:
            raise ConfigError(
                f"{self.where('temperature_init', temperature_init)} must lie between {temperature_min=:g} and "
                f"{temperature_max=:g}."
            )

    def missing(self, field: str, argument: str) -> ConfigError:
        """Returns the error for an input that the call did not give."""
        return ConfigError(f"strategy '{self.name}' needs {field}: pass {argument}= to the loss.")

    def layer_for(self, rows: Tensor, layer: nn.Linear, name: str) -> tuple[Tensor, Tensor]:
        """Returns weight and bias of a layer for embeddings [N, D], in their type; raises for another D or device."""
        if rows.shape[-1] != layer.in_features:
            raise ShapeError(
                f"{self.where('dimension', layer.in_features)} must be {rows.shape[-1]}, the dimension of the embeddings."
            )
        if rows.device != layer.weight.device:
            raise TensorError(
                f"{name} of strategy '{self.name}' is on {layer.weight.device} where the embeddings are on {rows.device}: move "
                "the loss, loss_fn.to(view_a.device)."
            )
        return layer.weight.to(rows.dtype), layer.bias.to(rows.dtype)
