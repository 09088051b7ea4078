"""What the methods share: a backbone, one projection head or several, and what weight decay must spare.

A method is a module that takes two views and returns a loss, so that a training loop or DistributedDataParallel needs to know
nothing else. This module must not know any method, augmentation or optimizer.
"""

from __future__ import annotations

from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError
from tempplug.strategies.uncertainty import Uncertainty
from tempplug_adapters.measurements import numbers_of


class StepModule(nn.Module):
    """Base of SimCLR, MoCo, NNCLR, SimSiam and Barlow Twins.

    Args:
        backbone: images to representations [B, F]; its attribute ``dimension`` is F.
        projection_head: representations to embeddings [B, D]; an `nn.ModuleList` of several, as AMCL has, gives one loss a
            head, and their sum.

    Attributes:
        backbone: as given; its representations are what training is for.
        projection_head: as given.
        dimension: F.
        loss_fn: the loss, None where the method has no softmax.

    Raises:
        ConfigError: the backbone does not say its dimension.
    """

    loss_fn: ContrastiveLoss | None

    def __init__(self, backbone: nn.Module, projection_head: nn.Module) -> None:
        super().__init__()
        dimension = getattr(backbone, "dimension", None)
        if not isinstance(dimension, int):
            raise ConfigError(
                f"backbone of type {type(backbone).__name__} has dimension={dimension!r}; wanted the length of its "
                "representations, an integer: wrap it in tempplug_adapters.images.backbones.Backbone, or set the attribute."
            )
        self.backbone = backbone
        self.projection_head = projection_head
        self.dimension = dimension

    def embed(self, images: Tensor) -> list[Tensor]:
        """Returns the embeddings [B, D] of each projection head.

        Args:
            images: [B, 3, H, W], or whatever the backbone takes.
        """
        return project(self.projection_head, self.backbone(images))

    def measure(self) -> dict[str, float]:
        """Returns the numbers of the last call, as a training logs them; waits for the device.

        Raises:
            ConfigError: there was no call yet.
        """
        return {} if self.loss_fn is None else numbers_of(self.loss_fn.record)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare: those that a part of this module names (timm)."""
        spared = {
            f"{prefix}.{name}"
            for prefix, module in self.named_modules()
            if prefix and callable(names := getattr(module, "no_weight_decay", None))
            for name in names()
        }
        return spared & {name for name, _ in self.named_parameters()}


def heads_of(head: nn.Module) -> list[nn.Module]:
    """Returns the heads of an `nn.ModuleList`, or the one head."""
    return list(head) if isinstance(head, nn.ModuleList) else [head]


def project(projection_head: nn.Module, representations: Tensor) -> list[Tensor]:
    """Returns the embeddings [B, D] of each head.

    Args:
        projection_head: one, or an `nn.ModuleList` of several.
        representations: [B, F].
    """
    return [head(representations) for head in heads_of(projection_head)]


def predict(prediction_head: nn.Module, embeddings: list[Tensor]) -> list[Tensor]:
    """Returns the predictions [B, D] of each prediction head from the embeddings of its projection head.

    Args:
        prediction_head: as many as there are projection heads.
        embeddings: [B, D] of each projection head.
    """
    return [head(each) for head, each in zip(heads_of(prediction_head), embeddings, strict=True)]


def check_heads(projection_head: nn.Module, prediction_head: nn.Module) -> None:
    """Raises unless there are as many prediction heads as projection heads.

    Raises:
        ConfigError: it says how many there are.
    """
    projections, predictions = len(heads_of(projection_head)), len(heads_of(prediction_head))
    if projections != predictions:
        raise ConfigError(f"prediction_head has {predictions} heads where projection_head has {projections}: give as many.")


def without_uncertainty(method: str, loss_fn: ContrastiveLoss) -> ContrastiveLoss:
    """Returns the loss, unless its strategy wants a scalar that only SimCLR has a head for.

    Raises:
        ConfigError: strategy ``uncertainty``.
    """
    if isinstance(loss_fn.strategy, Uncertainty):
        raise ConfigError(f"strategy 'uncertainty' needs a head for its scalars, which {method} has not: use it with SimCLR.")
    return loss_fn
