"""The interface of PyGCL's losses, so that its contrast models train with any temperature strategy.

PyGCL (the package ``GCL``) calls a loss with ``anchor [N, D], sample [M, D], pos_mask [N, M], neg_mask [N, M]``. This module
does not import ``GCL``, whose published wheel cannot be imported with current versions of its dependencies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss, NegativeTerm, Objective, Strategy, create_strategy
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError, ShapeError
from tempplug.options import format_value
from tempplug.types import EngineName, ObjectiveName
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.contexts import in_context
from tempplug_adapters.training.recipe import around

_INSTEAD = {
    "tau_plus": "negatives='debiased:prior=...' has the estimate of Chuang et al.; pairs known to be positives belong out of "
    "extra_neg_mask",
    "beta": "negatives='hardness:strength=...' weighs hard negatives more, and so does a smaller temperature",
}
"""What to use in place of the options of PyGCL's DebiasedInfoNCE and HardnessInfoNCE."""


class PyGCLLoss(nn.Module):
    """A loss for PyGCL's `DualBranchContrast` and `SingleBranchContrast`, in all modes: L2L, G2G and G2L.

    As a module it becomes part of the contrast model: a learnable temperature is in ``contrast_model.parameters()``, its state
    in ``contrast_model.state_dict()``. A pair in both masks is positive; a pair in neither is left out. Anchors without a
    positive are left out of the mean.

    Args:
        strategy: spec string or instance.
        objective: spec string or instance; G2L has several positives an anchor, which some objectives do not support.
        tau: PyGCL's name of the temperature of ``fixed``; other strategies get their options relative to it (``learnable``
            starts there, ``schedule`` goes from half to twice). None: the strategy's defaults, 0.1 for ``fixed``.
        negatives: terms on negatives, as in `tempplug.ContrastiveLoss`.
        engine: as in `tempplug.ContrastiveLoss`.
        **debiased: ``tau_plus`` and ``beta`` of PyGCL's debiased losses, which are rejected with an alternative.

    Attributes:
        contrastive_loss: the loss; its ``record`` is of the last direction, and its ``set_progress`` advances schedules.

    Raises:
        UnknownNameError: no such strategy, objective or option.
        ConfigError: an option is not allowed, or ``tau`` has no meaning for the strategy.

    Where PyGCL is imported, this is one of its losses: ``isinstance(loss, GCL.losses.Loss)``.

    Source: PyGCL 0.1.2, ``GCL.losses.Loss``. With ``fixed`` the value is that of its ``InfoNCE``, but for
    ``intraview_negs=True``: PyGCL's contrast model marks each anchor as its own negative, as GRACE's paper does not, and here
    that pair is left out.

    >>> loss = PyGCLLoss(tau=0.5)  # contrast_model = DualBranchContrast(loss, mode="L2L")
    >>> view_a, view_b = torch.eye(4), torch.eye(4).roll(1, 0)
    >>> same = torch.eye(4)
    >>> round(loss(anchor=view_a, sample=view_b, pos_mask=same, neg_mask=1 - same).item(), 4)
    2.3408
    """

    def __init__(
        self,
        strategy: str | Strategy = "fixed",
        objective: ObjectiveName | Objective = "infonce",
        *,
        tau: float | None = None,
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        engine: EngineName = "auto",
        **debiased: Any,
    ) -> None:
        super().__init__()
        for name, value in debiased.items():
            if name not in _INSTEAD:
                raise TypeError(f"PyGCLLoss() got an unexpected keyword argument '{name}'")
            raise ConfigError(f"{name}={value} of PyGCL's debiased losses is no option here: {_INSTEAD[name]}.")
        if tau is not None:
            strategy = _around(strategy, tau)
        self.contrastive_loss = ContrastiveLoss(strategy, objective, "masks", negatives=negatives, engine=engine)
        _register()

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """Returns `compute` of the same arguments: PyGCL's models call a loss like a function."""
        _register()
        return self.compute(*given, **named)

    def compute(
        self, anchor: Tensor, sample: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None, **given: Any
    ) -> Tensor:
        """Returns the mean loss over the anchors, in nats.

        Args:
            anchor: [N, D] raw embeddings.
            sample: [M, D] raw embeddings of the candidates; with intra-view negatives, the anchors stand behind the others.
            pos_mask: [N, M] zeros and ones of any dtype; by default row i is the positive of row i.
            neg_mask: [N, M] likewise; by default all pairs that are not positive.
            given: ``labels``, ``index`` or ``uncertainty`` [N], if the strategy needs them, and what terms on negatives read,
                such as ``keys={"view_a": [N], "view_b": [M]}``. A contrast model passes on the
                keywords of its constructor.

        Raises:
            ShapeError: shapes do not fit.
            ConfigError: a mask holds other values than zeros and ones, or the objective does not support these masks.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU).
        """
        if self.training and torch.is_grad_enabled():
            announce_once(self.contrastive_loss)
        anchors, candidates = anchor.shape[0], sample.shape[0]
        if pos_mask is None:
            pos_mask = torch.eye(anchors, candidates, dtype=torch.bool, device=anchor.device)
        positive, negative = _truths_of_both(pos_mask, neg_mask, anchors, candidates)
        # Appended anchors are recognised by their values: M = 2N alone may also be two nodes a graph.
        if candidates == 2 * anchors and torch.equal(sample[anchors:], anchor):
            negative[:, anchors:].fill_diagonal_(False)
        loss: Tensor = self.contrastive_loss(anchor, sample, positive_mask=positive, negative_mask=negative, **given)
        return loss


def _register() -> None:
    """Makes this one of PyGCL's losses to ``isinstance``, once PyGCL is imported, which is not done here."""
    losses: Any = sys.modules.get("GCL.losses")
    # Each registration clears the caches of all abstract classes.
    if losses is not None and not issubclass(PyGCLLoss, losses.Loss):
        losses.Loss.register(PyGCLLoss)


def _around(strategy: str | Strategy, tau: float) -> Strategy:
    if not isinstance(strategy, str):
        raise ConfigError(f"tau={format_value(tau)} cannot be given beside a {type(strategy).__name__} instance.")
    name, written = parse_spec(strategy)
    options = around(tau).get(name)
    if options is None:
        create_strategy(strategy)  # raises for an unknown name
        raise ConfigError(f"tau={format_value(tau)} has no meaning for strategy '{name}': leave it out, or write its options.")
    if twice := [option for option in written if option in options and "temperature" in option]:
        raise ConfigError(f"the temperature is given twice: tau={format_value(tau)} and {twice[0]} of strategy '{name}'.")
    return in_context(strategy, around(tau))


def _truths_of_both(pos_mask: Tensor, neg_mask: Tensor | None, anchors: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Returns both masks as booleans; a pair in both is only positive."""
    positive = _truths("pos_mask", pos_mask, anchors, candidates)
    # By default, all other pairs are negatives in a contrast model.
    alike = neg_mask is not None and (neg_mask.dtype, neg_mask.shape) == (pos_mask.dtype, pos_mask.shape)
    if neg_mask is None or (alike and pos_mask.is_floating_point() and torch.equal(neg_mask, 1 - pos_mask)):
        return positive, ~positive
    negative = _truths("neg_mask", neg_mask, anchors, candidates)
    return positive, negative.view(torch.uint8) > positive.view(torch.uint8)  # negative and not positive, in one pass


def _truths(name: str, mask: Tensor, anchors: int, candidates: int) -> Tensor:
    """Returns a mask as booleans after checking its shape and its values."""
    if tuple(mask.shape) != (anchors, candidates):
        hint = "PyGCL's intraview_negs=True makes such masks in mode G2L, where it has no meaning"
        raise ShapeError(f"{name} of shape {list(mask.shape)} must be [{anchors}, {candidates}], anchors by samples. {hint}.")
    truths = mask.bool()
    if not torch.equal(truths.to(mask.dtype), mask):
        instead = f"{name} > threshold, and strategy 'dystress', whose temperature follows each pair's own similarity"
        meaning = "a pair is positive, negative or neither"
        raise ConfigError(f"{name} must hold zeros and ones alone: {meaning}. In place of weights, give {instead}.")
    return truths


__all__ = ["PyGCLLoss"]
