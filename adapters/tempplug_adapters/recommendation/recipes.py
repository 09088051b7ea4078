"""Settings of sequential recommendation and of DCRec, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

from tempplug.errors import ConfigError
from tempplug.options import Choice, Flag, Number, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around, integer

DATASETS: Final = ("reddit", "beauty", "sports")
"""Of the DCRec authors, in their own split."""
RANKINGS: Final = ("full", "sampled")
CHOSEN_BY: Final = "validation ndcg@10"
"""The metric, by the first of the rankings, that selects the saved model."""
COLUMNS: Final = ("user", "item", "time")
"""The default of ``columns``, which means the usual names of these roles; it is part of stored results."""
DROPOUT: Final = Number(at_least=0, below=1, help="of hidden states")


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe(Recipe):
    """Settings of a transformer over histories. The defaults are those of DCRec's code, as used by Kim & Kim 2025.

    The authors stop and select on the test set; here validation users are held out for that.

    Raises:
        ConfigError: a setting is out of range, or the width is no multiple of the number of heads.
    """

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the examples, at most")] = 300
    per_device_train_batch_size: Annotated[int | None, integer("histories a step", 2)] = 512
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 1e-3
    hidden: Annotated[int, integer("width of items and histories")] = 64
    inner: Annotated[int, integer("width inside a layer's perceptron")] = 256
    layers: Annotated[int, integer("of the transformer")] = 2
    heads: Annotated[int, integer("of attention")] = 2
    dropout: Annotated[float, DROPOUT] = 0.5
    attention_dropout: Annotated[float, Number(at_least=0, below=1, help="of attention")] = 0.5
    encoder: Annotated[
        str | None,
        Text(optional=True, help="MODULE:NAME[:key=value,...] of a module, class or function, in place of the transformer"),
    ] = None
    max_length: Annotated[int, integer("newest items of a history that count")] = 50
    validation_share: Annotated[float, Number(above=0, below=1, help="of the users whose last training item validates")] = 0.1
    rankings: Annotated[
        tuple[str, ...],
        Words(RANKINGS, 1, help="full: among all items; sampled: among 100 by popularity, as DCRec; the first one chooses"),
    ] = ("full",)
    columns: Annotated[
        tuple[str, ...],
        Words(help="of a table: ROLE=COLUMN, or those of user, item, time in this order; by number if it has no header"),
    ] = COLUMNS

    running: ClassVar[Mapping[str, Any]] = {
        **{"eval_strategy": "epoch", "save_strategy": "epoch", "early_stopping_patience": 20},
        **{"load_best_model_at_end": True, "metric_for_best_model": CHOSEN_BY, "greater_is_better": True},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise ConfigError(f"hidden={self.hidden} must be a multiple of heads={self.heads}.")


SASREC = MethodInfo(
    name="sasrec",
    summary="Train a transformer over histories to recommend the next item, without a contrastive loss.",
    target="tempplug_adapters.recommendation.method:SequenceMethod",
    recipes={"dcrec": SequenceRecipe()},
    datasets=f"{', '.join(DATASETS)} of the data folder; a table of user, item and time (.csv, .jsonl, .parquet, .inter …); a "
    "folder NAME of RecBole with NAME.inter, or with NAME.train.inter, NAME.test.inter and, if wanted, NAME.valid.inter",
)

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
    reddit = dict.fromkeys(("dropout", "attention_dropout", "edge_dropout"), 0.3)
    return {
        "temperature-free": first,
        "reddit": own.changed(**reddit, per_device_train_batch_size=128, contrastive_weight=1.0, divergence_weight=1.0),
        "beauty": own.changed(per_device_train_batch_size=2048, attention_dropout=0.1),
        "sports": own.changed(attention_dropout=0.3),
    }


DCREC = MethodInfo(
    name="dcrec",
    summary="Train a recommender of the next item with DCRec and any temperature strategy, and measure its rankings.",
    target="tempplug_adapters.recommendation.dcrec:DCRecMethod",
    recipes=_recipes(),
    datasets=SASREC.datasets,
)
