"""Settings of sequential recommendation and ``tempplug train sasrec``, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from tempplug.errors import ConfigError
from tempplug.options import Number, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import Recipe, integer

DATASETS: Final = ("reddit", "beauty", "sports")
"""Of the DCRec authors, in their own split."""
RANKINGS: Final = ("full", "sampled")
CHOSEN_BY: Final = "validation ndcg@10"
"""The metric, by the first of the rankings, that selects the saved model."""
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
    columns: Annotated[tuple[str, ...], Words(minimum_length=3, help="of a table: user, item, time; or as RecBole")] = (
        "user",
        "item",
        "time",
    )

    running: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": CHOSEN_BY,
            "greater_is_better": True,
            "early_stopping_patience": 20,
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise ConfigError(f"hidden={self.hidden} must be a multiple of heads={self.heads}.")
        if len(self.columns) != 3:
            raise ConfigError(f"columns={' '.join(self.columns)} must be three names: user, item, time.")


METHOD = MethodInfo(
    name="sasrec",
    summary="Train a transformer over histories to recommend the next item, without a contrastive loss.",
    target="tempplug_adapters.recommendation.method:SequenceMethod",
    recipes={"dcrec": SequenceRecipe()},
    datasets=f"{', '.join(DATASETS)} of the data folder; a folder NAME with NAME.train.inter and NAME.test.inter, as DCRec has "
    "them; or a table of user, item and time (.csv, .tsv, also .gz; .parquet; .inter of RecBole, or its folder)",
)
