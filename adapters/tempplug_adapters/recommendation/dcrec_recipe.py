"""DCRec's settings and ``tempplug train dcrec``, as data: importing this loads no framework."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tempplug.options import Choice, Flag, Number
from tempplug_adapters.recommendation.recipe import METHOD as SASREC, SequenceRecipe
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, around, integer

SIMILARITY_GRAPHS = ("fixed", "faithful")
_LOSS = LossRecipe(layout="cross-view", temperatures=around(0.8))


@dataclass(frozen=True, kw_only=True)
class DCRecRecipe(SequenceRecipe):
    """Settings of DCRec. The defaults are those of Kim & Kim 2025 (temperature-free) for MovieLens-20M, and of its code."""

    loss: LossRecipe = _LOSS

    edge_dropout: Annotated[float, Number(at_least=0, below=1, help="share of edges drawn with replacement and dropped")] = 0.5
    edge_dropout_at_evaluation: Annotated[bool, Flag(help="drop edges at evaluation, too, as the authors' code does")] = False
    graph_layers: Annotated[int, integer("of propagation on the graphs")] = 2
    similar_items: Annotated[int, integer("neighbours of an item in the similarity graph")] = 4
    similarity_graph: Annotated[str, Choice(SIMILARITY_GRAPHS, help="faithful: with the fault of the authors' code")] = "fixed"
    contrastive_weight: Annotated[float, Number(at_least=0, help="of the contrastive terms")] = 0.1
    divergence_weight: Annotated[float, Number(at_least=0, help="of the divergence of the conformity weights")] = 0.01
    conformity_mean: Annotated[float, Number(above=0, below=1, help="of the conformity weights")] = 0.4
    conformity_deviation: Annotated[float, Number(above=0, help="of the conformity weights that are expected")] = 0.1


def _recipes() -> dict[str, DCRecRecipe]:
    """Returns the settings of Kim & Kim 2025 (appendix), and those of the authors' run_DCRec.py, by name."""
    first = DCRecRecipe()
    own = replace(first, loss=replace(_LOSS, temperatures=around(1.0)), conformity_mean=0.5)
    return {
        "temperature-free": first,
        "reddit": own.changed(
            **dict.fromkeys(("dropout", "attention_dropout", "edge_dropout"), 0.3),
            **{"per_device_train_batch_size": 128, "contrastive_weight": 1.0, "divergence_weight": 1.0},
        ),
        "beauty": own.changed(per_device_train_batch_size=2048, attention_dropout=0.1),
        "sports": own.changed(attention_dropout=0.3),
    }


METHOD = MethodInfo(
    name="dcrec",
    summary="Train a recommender of the next item with DCRec and any temperature strategy, and measure its rankings.",
    target="tempplug_adapters.recommendation.dcrec_method:DCRecMethod",
    recipes=_recipes(),
    datasets=SASREC.datasets,
)
