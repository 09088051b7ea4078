"""Graph encoders and augmentations of the user: constructed, and called with the arguments they take."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.modes import evaluating
from tempplug_adapters.own_modules import create_module, find
from tempplug_adapters.storage.files import one_line

Augmentation = Callable[[Any], Any]
"""From a ``Data`` to a ``Data``, or from a ``Batch`` to one where its argument is annotated so."""

_CONTRACT = "forward(x [N, F], edge_index [2, E]) or forward(data) to [N, W], or to [graphs, W] for whole graphs"
_OPTIONAL = ("edge_weight", "edge_attr", "batch")


def create_encoder(given: Any, features: int, hidden: int, layers: int) -> nn.Module:
    """Returns an encoder: a copy of a module, or the result of a class or function.

    Args:
        given: a module; or a class or function, which is called with those of ``in_channels`` (or its first required
            argument), ``hidden_channels`` or ``hidden``, and ``num_layers`` or ``layers`` that it takes, and with
            ``out_channels`` if it must have it.
        features: number of node features.
        hidden: width.
        layers: number of layers.

    Raises:
        ConfigError: it is none of these, needs other arguments, or raises.
    """
    known = {"in_channels": features, "hidden_channels": hidden, "hidden": hidden, "num_layers": layers, "layers": layers}
    return create_module(given, "encoder", known, first="in_channels", needed={"out_channels": hidden})


class UserEncoder(nn.Module):
    """Calls a module that has ``forward(x, edge_index)`` or ``forward(batch)`` with graphs.

    The first kind also receives ``edge_weight``, ``edge_attr`` and ``batch`` if it takes them and the graphs have them. Modules
    with an argument ``num_sampled_nodes_per_hop``, such as PyTorch Geometric's, compute only the needed part of a sample.

    Args:
        module: any.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        wanted = inspect.signature(module.forward).parameters
        many = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in wanted.values())
        needed = [each for each in wanted.values() if each.default is each.empty]
        self.takes_graphs = not many and "edge_index" not in wanted and len(needed) == 1
        self.takes = [name for name in _OPTIONAL if name in wanted and getattr(module, f"supports_{name}", True)]
        self.trims = "num_sampled_nodes_per_hop" in wanted

    def forward(self, graphs: Data) -> Tensor:
        """Returns the representations of a ``Data`` or ``Batch``, [N, W] or [B, W]; raises `ShapeError` for other shapes."""
        if self.takes_graphs:
            found = self.module(graphs)
        else:
            options = {name: graphs[name] for name in self.takes if graphs.get(name) is not None}
            steps = graphs.get("num_sampled_edges")
            if self.trims and steps is not None and len(steps) == getattr(self.module, "num_layers", None):
                options |= {"num_sampled_nodes_per_hop": graphs.num_sampled_nodes, "num_sampled_edges_per_hop": steps}
            found = self.module(graphs.x, graphs.edge_index, **options)
        if not isinstance(found, Tensor) or found.ndim != 2:
            shape = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise ShapeError(
                f"encoder {type(self.module).__name__} must return a matrix of representations, not {shape}: {_CONTRACT}."
            )
        return found

    @torch.no_grad()
    def probe(self, graphs: Data) -> Tensor:
        """Returns the output in evaluation mode; lazy layers get their sizes by this call.

        Raises:
            ConfigError: the module cannot run.
            ShapeError: as of a call.
        """
        try:
            with evaluating(self):
                found: Tensor = self(graphs)
        except ShapeError:
            raise
        except Exception as error:  # the user's own code can raise anything
            raise ConfigError(
                f"encoder {type(self.module).__name__} cannot run ({one_line(error)}); wanted is {_CONTRACT}."
            ) from error
        return found

    def warn_of_unused(self, graph: Data) -> None:
        """Warns of weights and attributes of edges that the module does not take."""
        if not self.takes_graphs:
            warn_of_unused(graph, self.takes, type(self.module).__name__)


def warn_of_unused(graph: Data, accepted: Sequence[str], encoder: str) -> None:
    """Warns of weights and attributes of edges that a graph has and an encoder does not take."""
    for name in ("edge_weight", "edge_attr"):
        if name not in accepted and graph.get(name) is not None and len(graph[name]):
            hint = "; call it edge_weight if it weighs edges" if name == "edge_attr" else ""
            warnings.warn(f"{name} of the data is not used: the encoder {encoder} does not take it{hint}.", stacklevel=2)


def create_augmentation(given: Any) -> Augmentation:
    """Returns a callable, or an object of a class with the arguments given; raises `ConfigError` for others."""
    if inspect.isclass(own := given.func if isinstance(given, partial) else given):
        try:
            given = given()
        except TypeError as error:
            raise ConfigError(
                f"augmentation {own.__name__} cannot be made: {error}. Name an object, or give arguments as "
                "MODULE:NAME:key=value."
            ) from error
    if not callable(given):
        raise ConfigError(f"augmentation {given!r} must be callable on a Data.")
    augmentation: Augmentation = given
    return augmentation


class UserModules:
    """An encoder and augmentations of the user: objects from Python, else those that a recipe names (see `find`).

    Args:
        encoder: a module, or a class or function that returns one; None: the recipe's.
        augmentations: empty: the recipe's.
        builtin: whether a word without a colon is the name of a built-in augmentation.
    """

    def __init__(self, encoder: Any, augmentations: Sequence[Any], *, builtin: bool = False) -> None:
        self.encoder, self.builtin, self._found = encoder, builtin, dict[str, Augmentation]()
        self.augmentations = tuple(each if isinstance(each, str) else create_augmentation(each) for each in augmentations)

    def of(self, recipe: Any) -> tuple[Any, tuple[Any, ...]]:
        """Returns the encoder or its constructor, and all augmentations; built-in ones by name."""
        named = self.encoder is None and recipe.encoder is not None
        pool = self.augmentations or recipe.augmentations
        for word in pool:
            if isinstance(word, str) and word not in self._found and (":" in word or not self.builtin):
                self._found[word] = create_augmentation(find(word, "augmentations"))
        augmentations = tuple(self._found.get(each, each) if isinstance(each, str) else each for each in pool)
        return find(recipe.encoder, "encoder") if named else self.encoder, augmentations

    def names(self) -> dict[str, Any]:
        """Returns the names of objects passed from Python, for the record of a run."""
        augmentations = [each for each in self.augmentations if not isinstance(each, str)]
        named = {"own_encoder": [] if self.encoder is None else [self.encoder], "own_augmentations": augmentations}
        return {name: [_name(each) for each in every] for name, every in named.items() if every}


def _name(each: Any) -> str:
    kind = each if inspect.isclass(each) or inspect.isroutine(each) else type(each)
    return f"{kind.__module__}:{kind.__qualname__}"


def restored_encoder(given: Any, own: bool, folder: Path) -> Any:
    """Returns the user's encoder or its constructor for a trained folder, None if the method's own was trained.

    Args:
        given: of `UserModules.of`.
        own: whether an encoder of the user's was trained.
        folder: for the message.

    Raises:
        ConfigError: it came from Python, and was not given again.
    """
    if own and given is None:
        raise ConfigError(
            f"{folder} has the weights of an encoder that was passed from Python: pass it again, as in "
            "load(folder, GraceMethod(METHOD, encoder))."
        )
    return given if own else None


def takes_batch(augmentation: Augmentation) -> bool:
    """Returns whether an augmentation takes a whole ``Batch``, by the annotation of its argument."""
    plain = inspect.isroutine(augmentation) or isinstance(augmentation, partial)
    called: Any = augmentation if plain else type(augmentation).__call__
    notes = [each.annotation for each in inspect.signature(called).parameters.values() if each.name != "self"]
    return bool(notes) and (notes[0] is Batch or (isinstance(notes[0], str) and notes[0].split(".")[-1] == "Batch"))


def augmented(graph: Data, augmentation: Augmentation) -> Data:
    """Returns the augmented graph; raises `ConfigError` if the augmentation returns another type."""
    found = augmentation(copy.copy(graph))
    if not isinstance(found, Data):
        raise ConfigError(f"augmentation {augmentation!r} must return a Data, not {type(found).__name__}.")
    return found


def corrupted(graph: Data, edge_removal: float, feature_masking: float) -> Data:
    """Returns the graph of a `corrupt` view with the attributes of its edges, for encoders that take a ``Data``."""
    view = copy.copy(graph)
    view.edge_index, kept = dropout_edge(graph.edge_index, p=edge_removal)
    view.x, _ = mask_feature(graph.x, p=feature_masking, mode="col")
    for name in graph.edge_attrs():
        if name != "edge_index":
            view[name] = graph[name][kept]
    steps = graph.get("num_sampled_edges")
    if steps is not None:
        view.num_sampled_edges = [int(each.sum()) for each in kept.split(steps)]
    return view
