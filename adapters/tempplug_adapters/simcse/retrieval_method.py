"""Retrieval encoders as a method: SimCSE's encoder and loss on pairs of query and document, measured by nDCG@10."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.sentence_evaluation import retrieval_data
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.sentence_evaluation.encoding import shared
from tempplug_adapters.sentence_evaluation.retrieval import by_similarity, evaluate_retrieval, measure
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, load_collection
from tempplug_adapters.simcse.data import Sentences, read_samples
from tempplug_adapters.simcse.method import SimCSEMethod
from tempplug_adapters.simcse.retrieval_recipe import CHOSEN_BY, RetrievalRecipe
from tempplug_adapters.training.method import Card, Run, Source

CANDIDATES = 2000
"""Documents that held-out queries search at most, unless more are held out."""


class RetrievalPairs(Sentences):
    """The training data, and a `Collection` of the held-out pairs."""

    def __init__(self, samples: Sequence[tuple[str, ...]], recipe: RetrievalRecipe, data_dir: Path | None) -> None:
        trained, self.held_out = hold_out(samples, recipe.held_out)
        super().__init__(trained, recipe, data_dir, recipe.dropout)


class RetrievalMethod(SimCSEMethod):
    """Queries are anchors of documents and documents of queries; texts of other pairs and hard negatives are negatives."""

    def load(self, recipe: RetrievalRecipe, source: Source) -> RetrievalPairs:  # type: ignore[override]
        """Returns the pairs of a file without those held out; checks that the collections exist."""
        samples = list(islice(read_samples(source.dataset, recipe.columns, recipe.where), recipe.max_train_samples))
        if len(samples[0]) < 2:
            raise DataError(f"{source.dataset} contains single texts; retrieval needs pairs of a query and a document.")
        if source.evaluated and recipe.tasks:
            if source.data_dir is None:
                raise ConfigError(f"task {recipe.tasks[0]} needs the folder with the collections: --data-dir or TEMPPLUG_DATA.")
            for name in recipe.tasks:
                load_collection(name, source.data_dir)
        return RetrievalPairs(samples, recipe, source.data_dir)

    def files(  # type: ignore[override]
        self, recipe: RetrievalRecipe, source: Source, data: RetrievalPairs
    ) -> dict[str, Path | str]:
        """Returns the file of the pairs, and those of the recipe's collections."""
        folder, names = source.data_dir, recipe.tasks if source.evaluated else ()
        searched = {} if folder is None else {name: retrieval_data.files_of(name, folder) for name in names}
        collections = {f"{name}/{path.name}": path for name, paths in searched.items() for path in paths}
        return {"dataset": Path(source.dataset), **collections}

    def evaluate(  # type: ignore[override]
        self, recipe: RetrievalRecipe, module: Any, data: RetrievalPairs, run: Run
    ) -> dict[str, float]:
        """Returns nDCG@10 × 100 on the held-out pairs; after the training also the figures of the recipe's collections."""
        encoder = shared(SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling, recipe.max_length))
        found = {CHOSEN_BY: measure(by_similarity(encoder, data.held_out)[0], data.held_out)["ndcg@10"]}
        if run.final and recipe.tasks:
            result = evaluate_retrieval(
                encoder, data.data_dir or "", recipe.tasks, progress=lambda fraction, doing: run.progress(fraction)
            )
            found |= {f"{name}_{figure}": value for name, own in result.scores.items() for figure, value in own.items()}
        return found

    def longest(self, model: Any, data: Sentences) -> int:
        """Returns the tokens that evaluation and use read, as many as the training."""
        return data.views.max_length

    def card(self, recipe: Any, module: Any, data: Sentences, results: Mapping[str, Any]) -> Card:
        """Returns the text on retrieval encoders."""
        card = super().card(recipe, module, data, {"evaluation": {}})
        about = "A retrieval encoder: a query and the documents that answer it have vectors of a high cosine similarity."
        example = '["how do plants make sugar", "Photosynthesis turns light into sugar."]'
        return replace(card, about=about, example=example, scores={"nDCG, MRR, Recall × 100": results["evaluation"]})


def hold_out(samples: Sequence[tuple[str, ...]], share: float) -> tuple[Sequence[tuple[str, ...]], Collection]:
    """Returns the samples to train on, and a collection of those held out: all with a document out of a share of them.

    The choice does not depend on the seed of a training. Queries that also occur in other samples are not held out.

    Args:
        samples: query and document, and perhaps a hard negative.
        share: of the distinct documents, in (0, 1).

    Raises:
        DataError: no sample is held out, or fewer than two are left to train on.
    """
    documents = list(dict.fromkeys(sample[1] for sample in samples))
    random.Random(0).shuffle(documents)
    chosen = set(documents[: round(share * len(documents))])
    trained = [sample for sample in samples if sample[1] not in chosen]
    if len(trained) < 2:
        raise DataError(f"held_out={share} leaves {len(trained)} of {len(samples)} samples; training needs at least 2.")
    known = {sample[0] for sample in trained}
    pairs = [sample[:2] for sample in samples if sample[1] in chosen and sample[0] not in known]
    if not pairs:
        raise DataError(
            f"held_out={share} of {len(documents)} documents holds out none with a query of its own: give a larger share."
        )
    searched = {document: document for document in documents[: max(CANDIDATES, len(chosen))]}
    relevance: dict[str, dict[str, int]] = {}
    for query, document in pairs:
        relevance.setdefault(query, {})[document] = 1
    return trained, Collection(searched, {query: query for query in relevance}, relevance)
