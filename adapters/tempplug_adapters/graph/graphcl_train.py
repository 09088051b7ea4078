"""`train_graphcl`: from a set of graphs to a trained model and its representations, resumable after every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug_adapters.graph.augmentation import augment, check_pool
from tempplug_adapters.graph.graph_data import GraphBatch, GraphSet, check_size
from tempplug_adapters.graph.graphcl import GraphCL
from tempplug_adapters.graph.graphcl_recipe import GraphCLSettings
from tempplug_adapters.training.checkpoint import Settings, load_checkpoint, save_checkpoint

LAYOUT = "cross-view"
"""The graph as it is against its view, one way: a graph's negatives are the views of the others."""


class Batches:
    """A fixed division of a data set, made once: the authors' code shuffles before the first epoch only.

    Keeping the batches saves cutting them, and turning their edges into sparse patterns, again in every epoch.

    Args:
        graphs: the data set.
        size: graphs a batch; a last batch of a single graph, which would have no negative, joins the one before it.
        order: [G] positions in the data set.
    """

    def __init__(self, graphs: GraphSet, size: int, order: Tensor) -> None:
        parts = list(torch.split(order, size))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        self._batches = [(part, graphs.batch(part)) for part in parts]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, GraphBatch]]:
        """Goes through the batches: the positions of their graphs, and the graphs."""
        return iter(self._batches)


def train_graphcl(
    graphs: GraphSet,
    loss: ContrastiveLoss,
    settings: GraphCLSettings,
    *,
    checkpoint: Path | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int, float], None] = lambda epoch, mean: None,
) -> tuple[GraphCL, list[float]]:
    """Trains, and goes on with a checkpoint where there is one.

    Args:
        graphs: what is trained on; labels are not looked at.
        loss: of layout ``cross-view``: from the graphs to their views.
        settings: how.
        checkpoint: file that is written after every epoch and continued where it exists; None writes none.
        device: where the model is trained.
        progress: called after every epoch with the epochs done and the mean loss.

    Returns:
        The model, and the mean loss of each epoch done in this call.

    Raises:
        ConfigError: there is one graph only, or the checkpoint was trained with other settings.
        UnknownNameError: there is no such augmentation.
        DataError: the checkpoint is damaged.
    """
    check_size(graphs)
    check_pool(settings.augmentations)
    device = torch.device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = GraphCL(graphs.x.shape[1], settings.hidden, settings.layers).to(device)
    loss = loss.to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    batches = Batches(graphs, settings.batch_size, torch.randperm(len(graphs), generator=generator))
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=settings.learning_rate)
    state = {
        "settings": Settings({**settings.values(), **specs(loss), "graphs": len(graphs)}),
        "model": model,
        "loss": loss,
        "optimizer": optimizer,
        "generator": generator,
    }
    done = 0 if checkpoint is None else load_checkpoint(checkpoint, **state)
    history = []
    for epoch in range(done, settings.epochs):
        model.train()
        loss.train()
        total = torch.zeros((), device=device)
        for position, (index, batch) in enumerate(batches):
            view = augment(batch, settings.augmentations, generator)
            loss.set_progress(epoch + position / len(batches), epoch * len(batches) + position)
            value = loss(model(batch.to(device)), model(view.to(device)), index=index.to(device))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.detach() * batch.num_graphs
        history.append(total.item() / len(graphs))
        if checkpoint is not None:
            save_checkpoint(checkpoint, epoch + 1, **state)
        progress(epoch + 1, history[-1])
    return model, history


@torch.no_grad()
def represent(model: GraphCL, graphs: GraphSet, batch_size: int = 128) -> Tensor:
    """Returns the representations of all graphs, without the projection head, [G, layers · hidden].

    Args:
        model: trained; it is left in evaluation mode.
        graphs: in the order of the result.
        batch_size: graphs at once.
    """
    model.eval()
    device = next(model.parameters()).device
    parts = torch.split(torch.arange(len(graphs)), batch_size)
    return torch.cat([model.encoder(graphs.batch(part).to(device)).cpu() for part in parts])


def specs(loss: ContrastiveLoss) -> dict[str, str]:
    """Returns the resolved specs of a loss: ``strategy`` and ``objective``."""
    return {"strategy": loss.strategy.spec(), "objective": loss.objective.spec()}
