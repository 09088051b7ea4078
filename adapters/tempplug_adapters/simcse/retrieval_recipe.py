"""The settings of retrieval encoders and ``tempplug train retrieval``, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from tempplug.errors import ConfigError
from tempplug.options import Choice, Number, Words
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.simcse.recipe import BATCH_SAMPLERS, SimCSERecipe
from tempplug_adapters.training.method_info import MethodInfo

CHOSEN_BY: Final = "held_out_ndcg@10"
"""The metric of the best encoder, which is saved."""


@dataclass(frozen=True, kw_only=True)
class RetrievalRecipe(SimCSERecipe):
    """The settings of a retrieval encoder: queries find their documents and documents their queries.

    The defaults are those of common fine-tuning recipes for encoders of the BERT family (sentence-transformers): batches of 64
    without repeated texts, learning rate 2e-5 with a warm-up of 10 %, mean pooling. The best encoder by nDCG@10 on held-out
    pairs is saved.
    """

    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 2e-5
    warmup_steps: Annotated[
        float, Number(at_least=0, help="steps over which the learning rate rises; below 1: a fraction of the training")
    ] = 0.1
    pooling: Annotated[str, Choice(POOLINGS, help="of the encoder's tokens")] = "avg"
    max_length: Annotated[int, Number(at_least=3, integer=True, help="tokens of a text; the rest is cut")] = 128
    batch_sampler: Annotated[
        str, Choice(BATCH_SAMPLERS, help="no_duplicates: no text twice in a batch, where it would be its own negative")
    ] = "no_duplicates"
    held_out: Annotated[
        float,
        Number(above=0, help="share of the documents that are held out with their queries, to choose by; from 1 on: how many"),
    ] = 0.1
    teacher_temperature: Annotated[
        float | None,
        Number(
            above=0,
            optional=True,
            help="that divides a teacher's scores, columns pos_scores and neg_scores; none: they are not read",
        ),
    ] = None
    tasks: Annotated[tuple[str, ...], Words(help="collections of the data folder to measure at the end of the training")] = ()

    running: ClassVar[Mapping[str, Any]] = MappingProxyType({**SimCSERecipe.running, "metric_for_best_model": CHOSEN_BY})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out >= 1 and self.held_out % 1:
            raise ConfigError(f"held_out={self.held_out:g} must be a share below 1 or a whole number of documents.")

    def known_tasks(self) -> tuple[str, ...]:
        """Returns the collections, each once; the data folder decides which there are."""
        return tuple(dict.fromkeys(self.tasks))


_BERT = RetrievalRecipe(loss=replace(SimCSERecipe().loss, symmetric=True))

METHOD = MethodInfo(
    name="retrieval",
    summary="Train a retrieval encoder on pairs of query and document, and measure it on held-out pairs and on collections.",
    target="tempplug_adapters.simcse.retrieval_method:RetrievalMethod",
    recipes={"bert": _BERT},
    datasets=(
        "table of pairs, or of queries with several positives and hard negatives (.csv, .tsv, .jsonl, .json, .parquet, .arrow, "
        "a folder of datasets, OWNER/NAME on the hub); text also as .gz"
    ),
)
