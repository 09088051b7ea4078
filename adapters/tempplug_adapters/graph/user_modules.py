"""Graph encoders and augmentations of the user: constructed, and called with the arguments they take."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import dropout_edge, mask_feature

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.own_modules import create_module, find, trial
from tempplug_adapters.training.method import Card, Method
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)
D = TypeVar("D")

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
            name = type(self.module).__name__
            raise ShapeError(f"encoder {name} must return a matrix of representations, not {shape}: {_CONTRACT}.")
        return found

    def probe(self, graphs: Data) -> Tensor:
        """Returns the output in evaluation mode; lazy layers get their sizes by this call.

        Raises:
            ConfigError: the module cannot run.
            ShapeError: as of a call.
        """
        found: Tensor = trial(self.module, partial(self, graphs), f"wanted is {_CONTRACT}")
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
            remedy = "Name an object, or give arguments as MODULE:NAME:key=value"
            raise ConfigError(f"augmentation {own.__name__} cannot be made: {error}. {remedy}.") from error
    if not callable(given):
        raise ConfigError(f"augmentation {given!r} must be callable on a Data.")
    augmentation: Augmentation = given
    return augmentation


class UserMethod(Method[R, D]):
    """A method with an encoder and augmentations of the user: objects from Python, else those that a recipe names (see `find`).

    Args:
        info: its declaration.
        encoder: any module with ``forward(x, edge_index, …)`` or ``forward(data)``, or its constructor (see
            `create_encoder`); None: the recipe's.
        augmentations: callables from a ``Data`` to one; empty: the recipe's.

    Attributes:
        builtin: whether a word without a colon is the name of a built-in augmentation.
    """

    builtin: ClassVar[bool] = False

    def __init__(self, info: MethodInfo, encoder: Any = None, augmentations: Sequence[str | Augmentation] = ()) -> None:
        super().__init__(info)
        self._encoder, self._found = encoder, dict[str, Augmentation]()
        self._augmentations = tuple(each if isinstance(each, str) else create_augmentation(each) for each in augmentations)

    def of_user(self, recipe: Any) -> tuple[Any, tuple[Any, ...]]:
        """Returns the encoder or its constructor, and all augmentations; built-in ones by name."""
        named = self._encoder is None and recipe.encoder is not None
        pool = self._augmentations or recipe.augmentations
        for word in pool:
            if isinstance(word, str) and word not in self._found and (":" in word or not self.builtin):
                self._found[word] = create_augmentation(find(word, "augmentations"))
        augmentations = tuple(self._found.get(each, each) if isinstance(each, str) else each for each in pool)
        return find(recipe.encoder, "encoder") if named else self._encoder, augmentations

    def named_module(self, recipe: Any) -> str | None:
        """Returns the first module of the user among encoder and augmentations, which are imported to open a folder, too."""
        words = [*([] if self._augmentations else recipe.augmentations), super().named_module(recipe)]
        return next((word for word in words if isinstance(word, str) and ":" in word), None)

    def origin(self, recipe: R, data: D) -> dict[str, Any]:
        """Returns the names of encoder and augmentations passed from Python."""
        augmentations = [each for each in self._augmentations if not isinstance(each, str)]
        named = {"own_encoder": [] if self._encoder is None else [self._encoder], "own_augmentations": augmentations}
        return {name: [_name(each) for each in every] for name, every in named.items() if every}

    def restored(self, recipe: Any, kept: Mapping[str, Any], folder: Path) -> nn.Module | None:
        """Returns the user's encoder for a trained folder, with random weights; None if the method's own was trained.

        Raises:
            ConfigError: it came from Python, and was not given again.
        """
        given = self.of_user(recipe)[0]
        if "own_encoder" not in kept:
            return None
        if given is None:
            remedy = "pass it again, as in load(folder, GraceMethod(METHOD, encoder))"
            raise ConfigError(f"{folder} has the weights of an encoder that was passed from Python: {remedy}.")
        return create_encoder(given, kept["preprocessing"]["features"], recipe.hidden, recipe.layers)


def pyg_card(about: str, example: str, features: int, weights: str) -> Card:
    """Returns the card of an encoder of graphs.

    Args:
        about: description of the encoder.
        example: argument of ``embed``, ``{}`` for a graph.
        features: of a node.
        weights: what ``encoder.pt`` has the weights of, and what else the folder holds.
    """
    graph = f"Data(x=torch.rand(3, {features}), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))"
    imports, metadata = (
        "import torch\nfrom torch_geometric.data import Data\n",
        {"library_name": "pyg", "pipeline_tag": "graph-ml"},
    )
    use = f"`encoder.pt` has the weights of {weights}."
    return Card(about, example.format(graph), use=use, imports=imports, metadata=metadata)


def _name(each: Any) -> str:
    kind = each if inspect.isclass(each) or inspect.isroutine(each) else type(each)
    return f"{kind.__module__}:{kind.__qualname__}"


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


class UserGraphEncoder(nn.Module):
    """Calls a user's encoder with graphs and sums representations of nodes, as GraphCL's encoder does.

    Integer features are converted to floating point unless the encoder takes them, as embeddings do.

    Args:
        module: see `UserEncoder`.
        like: a graph of the data with two nodes or more, for a trial call; or the ``known`` of an earlier one.

    Attributes:
        width: of the representations.
        known: what the trial call found, as JSON data.

    Raises:
        ShapeError: it returns neither one row for each node nor one for each graph.
    """

    def __init__(self, module: nn.Module, like: Data | Sequence[Any]) -> None:
        super().__init__()
        self.own, self._as_floats = UserEncoder(module), False
        if not isinstance(like, Data):
            self.width, self._as_floats, self._of_nodes = like
            return
        graphs, nodes = Batch.from_data_list([like, like]), int(like.num_nodes or 0)
        try:
            found = self.own.probe(graphs)
        except ConfigError as error:  # by PyTorch's error for a wrong dtype
            self._as_floats = isinstance(error.__cause__, RuntimeError) and not graphs.x.is_floating_point()
            if not self._as_floats:
                raise
            found = self.own.probe(self._ready(graphs))
        if len(found) not in (2, 2 * nodes):
            made = f"{len(found)} representations of 2 graphs with {nodes} nodes each"
            wanted = "it must return one for each graph or one for each node"
            raise ShapeError(f"encoder {type(module).__name__} returned {made}: {wanted}.")
        self.width, self._of_nodes = found.shape[1], len(found) != 2

    @property
    def known(self) -> list[Any]:
        """What the trial call found."""
        return [self.width, self._as_floats, self._of_nodes]

    def forward(self, graphs: Batch) -> Tensor:
        """Returns the representations, [B, width]."""
        found: Tensor = self.own(self._ready(graphs))
        return global_add_pool(found, graphs.batch, graphs.num_graphs) if self._of_nodes else found

    def _ready(self, graphs: Batch) -> Batch:
        if self._as_floats:
            graphs = copy.copy(graphs)
            graphs.x = graphs.x.float()
        return graphs
