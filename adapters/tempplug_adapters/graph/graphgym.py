"""GraphGym: contrastive training with any temperature strategy, from a configuration. Importing this module registers it.

``model.type: contrastive`` trains the GNN of the configuration on two views of each batch: of nodes or of graphs, depending on
its head. Its loss and metrics replace those of a classifier::

    model:
      type: contrastive
    contrastive:
      temperature_strategy: macl
      temperature_args: [alpha=1, threshold=0.2]
      objective: infonce
      negatives: false-negatives:margin=0.1   # terms on negatives; none by default
      dimension: 64             # of the embeddings
      layout: two-view          # or cross-view: one way, as GraphCL has it
      drop_edge: [0.2, 0.4]     # share of the edges that each view lacks
      mask_feature: [0.3, 0.4]  # share of the columns of x that each view lacks

In GraphGym's ``main.py``, replace GraphGym's `create_model` with the one of this module: schedules then receive the progress,
temperatures have their own learning rate and no weight decay, and Lightning logs the record. GraphGym's own `create_model`
trains all strategies except schedules. Training contrasts all nodes, validation and test those of their masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.graphgym import model_builder
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.gnn import GNN
from torch_geometric.graphgym.optim import create_optimizer, create_scheduler
from torch_geometric.graphgym.register import register_config, register_loss, register_metric, register_network

from tempplug.errors import MissingDependencyError, install_command
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.contexts import refuse_missing
from tempplug_adapters.graph.user_modules import corrupted
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.lightning import TemperatureCallback
from tempplug_adapters.parameter_groups import optimizer_groups

NAME = "contrastive"
"""Of the part of a configuration, of ``model.type``, and of the loss."""
METRICS = ("temperature", "positive_similarity", "negative_similarity", "infonce")
"""Names of ``custom_metrics``: means over the batches of a split."""


def add_settings(config: Any) -> None:
    """Adds the settings of `NAME` with their defaults to a configuration.

    Args:
        config: GraphGym's.
    """
    loss = {"temperature_strategy": "fixed", "temperature_args": [], "objective": "infonce", "negatives": ""}
    views = {"layout": "two-view", "dimension": 64, "drop_edge": [0.2, 0.4], "mask_feature": [0.3, 0.4]}
    config.contrastive = type(config)({**loss, **views})


@dataclass(frozen=True)
class Contrasted:
    """The output of the network, used by GraphGym instead of a prediction.

    Attributes:
        loss: [].
        numbers: [N, 4] of `METRICS`, the same for each of N anchors.
        ndim: an attribute that GraphGym reads.
    """

    loss: Tensor
    numbers: Tensor
    ndim: int = 1


class ContrastiveGNN(nn.Module):
    """GraphGym's GNN with a contrastive loss over two views of a batch.

    Args:
        dim_in: features of a node.
        dim_out: ignored, because classes are not used.

    Raises:
        TempplugError: a strategy, an objective or a term on negatives is unknown, an option is out of range, or a term reads
            what batches do not have.
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        own = cfg.contrastive
        self.gnn = GNN(dim_in, own.dimension)
        named: dict[str, Any] = {"contrastive_objective": own.objective, "contrastive_negatives": own.negatives or None}
        temperature = TemperatureArguments(own.temperature_strategy, [str(each) for each in own.temperature_args], **named)
        self.loss_fn = temperature.create_loss(own.layout, dimension=own.dimension)
        refuse_missing(self.loss_fn.terms, {"index"}, "model.type: contrastive")
        self.shares = tuple(zip(own.drop_edge, own.mask_feature, strict=True))
        # without custom metrics, GraphGym computes those of a classifier
        cfg.custom_metrics = cfg.custom_metrics or list(METRICS)

    def __getattr__(self, name: str) -> Any:
        # GraphGym's module reads the parts of its GNN
        if name in ("encoder", "mp", "pre_mp", "post_mp"):
            return getattr(self.gnn, name)
        return super().__getattr__(name)

    def forward(self, batch: Any) -> tuple[Contrasted, Tensor]:
        """Returns the loss of a batch and, as GraphGym's labels, the positions of its anchors, [N].

        Args:
            batch: of PyTorch Geometric, with ``split`` where masks choose nodes.
        """
        (view_a, labels), (view_b, _) = (self.gnn(view(batch, *shares)) for shares in self.shares)
        if self.training:
            announce_once(self.loss_fn)
        known = self.loss_fn.accepted(labels=labels, index=_index(batch, len(view_a)))
        loss = self.loss_fn(view_a, view_b, **known)
        record = self.loss_fn.record
        numbers = torch.stack([getattr(record, {"temperature": "temperature_mean"}.get(name, name)) for name in METRICS])
        places = torch.arange(len(view_a), device=view_a.device)
        return Contrasted(loss, numbers.expand(len(view_a), -1)), places


def view(batch: Any, drop_edge: float, mask_feature: float) -> Any:
    """Returns a copy of a batch with random edges and feature columns removed, given their shares in [0, 1]."""
    changed = corrupted(batch, drop_edge, mask_feature)
    if "split" in changed and changed.split == "train":
        del changed["split"]
    if not batch.x.is_floating_point():
        changed.x = batch.x
    return changed


def _index(batch: Any, anchors: int) -> Tensor | None:
    """Returns the positions of the anchors in the data set, where they are nodes."""
    nodes: Tensor = batch.n_id if "n_id" in batch else torch.arange(batch.num_nodes, device=batch.edge_index.device)
    if "split" in batch and batch.split != "train" and f"{batch.split}_mask" in batch:
        nodes = nodes[batch[f"{batch.split}_mask"]]
    return nodes if len(nodes) == anchors else None


class ContrastiveModule(model_builder.GraphGymModule):  # type: ignore[misc]
    """GraphGym's LightningModule with the callback and the optimizer groups of temperatures."""

    def configure_callbacks(self) -> list[Any]:
        """Returns the callback that sets the progress and logs the record."""
        return [TemperatureCallback()]

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Returns the optimizer and the scheduler of the configuration, temperatures in groups of their own."""
        model, *temperatures = optimizer_groups(self.model)
        optimizer = create_optimizer(iter(model["params"]), self.cfg.optim)
        for group in temperatures:
            optimizer.add_param_group(group)
        return [optimizer], [create_scheduler(optimizer, self.cfg.optim)]


def create_model(dim_in: int | None = None, dim_out: int | None = None) -> Any:
    """Returns the model of the configuration, which Lightning moves to its device; other ``model.type`` are GraphGym's own."""
    if cfg.model.type != NAME:
        return model_builder.create_model(to_device=False, dim_in=dim_in, dim_out=dim_out)
    return ContrastiveModule(cfg.share.dim_in if dim_in is None else dim_in, cfg.contrastive.dimension, cfg)


def _loss(pred: Any, true: Any) -> tuple[Tensor, Tensor] | None:
    return (pred.loss, pred.numbers) if isinstance(pred, Contrasted) else None


def _metric(column: int) -> Any:
    return lambda true, pred, task: round(float(torch.cat(pred)[:, column].mean()), cfg.round)


if cfg is None:
    raise MissingDependencyError(f"GraphGym needs yacs, which is not installed: {install_command('graphgym')}.")
register_config(NAME, add_settings)
add_settings(cfg)  # GraphGym sets its defaults when it is imported
register_network(NAME, ContrastiveGNN)
register_loss(NAME, _loss)
for _column, _name in enumerate(METRICS):
    register_metric(_name, _metric(_column))

__all__ = ["METRICS", "ContrastiveGNN", "ContrastiveModule", "create_model"]
