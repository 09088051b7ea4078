"""GraphCL's settings and ``tempplug train graphcl``, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tempplug.options import Number, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around, integer

AUGMENTATIONS = ("drop-nodes", "drop-edges", "mask-attributes", "subgraph", "neighbourhood")
_MOLECULES = ("drop-nodes", "neighbourhood")
_SOCIAL = (*_MOLECULES, "drop-edges")
_PROTEINS = (*_SOCIAL, "mask-attributes")
# The pools of the authors' code (random2, random3, random4), chosen by the findings of their section 4.2: edges are left
# alone in molecules, attributes are masked only where there are some.
POOLS = {
    **dict.fromkeys(("MUTAG", "NCI1"), _MOLECULES),
    **dict.fromkeys(("PROTEINS", "DD"), _PROTEINS),
    **dict.fromkeys(("IMDB-BINARY", "REDDIT-BINARY"), _SOCIAL),
}
# GraphCL's code leaves the positive out of the denominator. That loss has no minimum over a learned temperature, so a learned
# temperature keeps the positive in.
_LOSS = LossRecipe(layout="cross-view", temperatures=around(0.2), objective="dcl", objectives={"learnable": "infonce"})


@dataclass(frozen=True, kw_only=True)
class GraphCLRecipe(Recipe):
    """The settings of GraphCL. The defaults are those of its code for the TU data sets (You et al. 2020).

    Huang et al. 2023 (MACL), appendix B.5, use the same settings, with temperatures around 0.2.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the graphs")] = 20
    hidden: Annotated[int, integer("width of a layer of the encoder")] = 32
    layers: Annotated[int, integer("of the encoder")] = 3
    augmentations: Annotated[
        tuple[str, ...], Words(help=f"drawn from for each graph: {', '.join(AUGMENTATIONS)}, MODULE:NAME; none: GraphCL's pool")
    ] = ()
    encoder: Annotated[
        str | None,
        Text(optional=True, help="MODULE:NAME[:key=value,...] of a module, class or function, such as torch_geometric.nn:GCN"),
    ] = None
    folds: Annotated[int, integer("of the cross-validation that measures the encoder", 2)] = 10

    # two checkpoints a training: ten would take a fifth of a training of half a second
    running: ClassVar[Mapping[str, Any]] = {"save_steps": 0.5}

    def pool(self, dataset: str) -> tuple[str, ...]:
        """Returns the augmentations for a data set; unknown data sets are treated like social networks."""
        return self.augmentations or POOLS.get(dataset, _SOCIAL)


METHOD = MethodInfo(
    name="graphcl",
    summary="Train a graph encoder with GraphCL and any temperature strategy, and classify graphs by their representations.",
    target="tempplug_adapters.graph.graphcl_method:GraphCLMethod",
    recipes={"graphcl": GraphCLRecipe()},
    datasets="data set of the TU collection (MUTAG) or of OGB (ogbg-molhiv), or a .pt file with graphs of PyTorch Geometric: a "
    "list of Data, or the (data, slices) of a data set",
)
