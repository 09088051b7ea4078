"""The contrastive term beside masked image modelling (CAN, LGP), as a loss that the trainer of such a model calls.

What is masked, and how images become embeddings, is the trainer's. This module must not know any model.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from tempplug import ContrastiveLoss, Objective, Strategy, create_strategy
from tempplug.errors import ConfigError

WEIGHTS = {"can": 0.03, "lgp": 1.0}
"""The weight of the term by form: CAN adds 0.97 times its noise and reconstruction losses, LGP nothing."""


class MaskedImageContrastiveLoss(nn.Module):
    """CAN's NT-Xent between two masked views, or LGP's loss between predictions and momentum keys (that of MoCo v3).

    LGP's (``lgp``) is 2τ·(l(view_a → keys_b) + l(view_b → keys_a)), each view's predictions against the keys of the other view.
    Its factor only rescales the loss, so it is frozen at twice ``base_temperature``: with a factor that followed a dynamic
    temperature, the learning rate would follow as well.

    Args:
        strategy: spec string or instance; AMCL with several heads takes lists of embeddings. None is a fixed temperature: 0.1
            in ``can``, ``base_temperature`` in ``lgp``.
        objective: spec string or instance.
        form: ``can`` or ``lgp``.
        weight: factor of the term; None for the paper's, see `WEIGHTS`.
        base_temperature: of the factor of ``lgp``, greater than 0; unused in ``can``.
        gather: candidates of all processes.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        contrastive_loss: the loss itself, without factors: its ``record`` speaks of the last direction.

    Raises:
        ConfigError: the form is not known, or an option is not allowed.
        UnknownNameError: no such strategy, objective or option.

    Source: Mishra et al. 2022 (CAN); Jiang et al. 2023 (LGP) and Chen et al. 2021 (MoCo v3), algorithm 1.
    """

    def __init__(
        self,
        strategy: str | Strategy | None = None,
        objective: str | Objective = "infonce",
        *,
        form: str = "can",
        weight: float | None = None,
        base_temperature: float = 0.2,
        gather: bool = False,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        if form not in WEIGHTS:
            raise ConfigError(f"form='{form}' must be one of {', '.join(WEIGHTS)}.")
        if not base_temperature > 0:
            raise ConfigError(f"base_temperature={base_temperature} must be greater than 0.")
        layout = "two-view" if form == "can" else "cross-view"
        if strategy is None:
            strategy = create_strategy("fixed", temperature=0.1 if form == "can" else base_temperature)
        self.contrastive_loss = ContrastiveLoss(strategy, objective, layout, gather=gather, engine=engine)
        self.form = form
        self.factor = WEIGHTS[form] if weight is None else weight
        if form == "lgp":
            self.factor *= 2 * base_temperature

    def forward(
        self,
        view_a: Tensor | Sequence[Tensor],
        view_b: Tensor | Sequence[Tensor],
        keys_a: Tensor | Sequence[Tensor] | None = None,
        keys_b: Tensor | Sequence[Tensor] | None = None,
        *,
        index: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Returns the weighted loss, [].

        Args:
            view_a: [B, D] raw embeddings (``can``) or predictions (``lgp``), or a list of them, one a head.
            view_b: likewise, of the other view.
            keys_a: of ``lgp``: [B, D] embeddings of view_a from the momentum encoder; they receive no gradient.
            keys_b: likewise, of view_b.
            index: [B] positions in the data set, for strategies that want them.
            labels: [B] classes, likewise.

        Raises:
            ConfigError: keys are missing in ``lgp``, or given in ``can``.
        """
        given = {"index": index, "labels": labels}
        if self.form == "can":
            if keys_a is not None or keys_b is not None:
                raise ConfigError("form 'can' has no use for keys_a= and keys_b=: its candidates are both views.")
            loss: Tensor = self.contrastive_loss(view_a, view_b, **given)
        else:
            if keys_a is None or keys_b is None:
                raise ConfigError("form 'lgp' needs keys_a= and keys_b=, the momentum encoder's embeddings of both views.")
            keys_a, keys_b = _detached(keys_a), _detached(keys_b)
            loss = self.contrastive_loss(view_a, keys_b, **given) + self.contrastive_loss(view_b, keys_a, **given)
        return self.factor * loss

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare."""
        return {f"contrastive_loss.{name}" for name in self.contrastive_loss.no_weight_decay()}


def _detached(keys: Tensor | Sequence[Tensor]) -> Tensor | list[Tensor]:
    return keys.detach() if isinstance(keys, Tensor) else [each.detach() for each in keys]


__all__ = ["WEIGHTS", "MaskedImageContrastiveLoss"]
