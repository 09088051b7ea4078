"""Retrieval encoders as a method: SimCSE's encoder and loss on pairs of query and document, measured by nDCG@10."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pandas import factorize  # type: ignore[import-untyped]
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import TextRows
from tempplug_adapters.sentence_evaluation import retrieval_data
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.sentence_evaluation.encoding import shared
from tempplug_adapters.sentence_evaluation.retrieval import by_similarity, evaluate_retrieval, measure
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, load_collection
from tempplug_adapters.simcse.data import Sentences, text_hashes
from tempplug_adapters.simcse.method import SimCSEMethod, read_rows
from tempplug_adapters.simcse.retrieval_recipe import CHOSEN_BY, RetrievalRecipe
from tempplug_adapters.simcse.sentence_method import SentenceMethod
from tempplug_adapters.training.method import Card, Run, Source

CANDIDATES = 2000
"""Documents that held-out queries search at most, unless more are held out."""


@dataclass(frozen=True)
class Split:
    """What is held out.

    Attributes:
        trained: [m] positions of the samples to train on.
        excluded: the held-out documents, which are no hard negatives of the training, nor positives.
        collection: the held-out queries, and the documents that they search.
        note: how many are held out, and what is left out.
    """

    trained: np.ndarray
    excluded: frozenset[str]
    collection: Collection
    note: str


class RetrievalPairs(Sentences):
    """The training data, and a `Collection` of the held-out pairs."""

    def __init__(self, rows: TextRows, recipe: RetrievalRecipe, data_dir: Path | None) -> None:
        split = hold_out(rows, recipe.held_out)
        self.held_out = split.collection
        notes = (*rows.notes, split.note)
        super().__init__(rows.taken(split.trained).without(split.excluded, notes), recipe, data_dir, recipe.dropout)


class RetrievalMethod(SimCSEMethod):
    """Queries are anchors of documents and documents of queries; texts of other pairs and hard negatives are negatives."""

    def load(self, recipe: RetrievalRecipe, source: Source) -> RetrievalPairs:  # type: ignore[override]
        """Returns the pairs of a file without those held out; checks that the collections exist."""
        rows = read_rows(recipe, source, PAIRS)
        if source.evaluated and recipe.tasks:
            if source.data_dir is None:
                raise ConfigError(f"task {recipe.tasks[0]} needs the folder with the collections: --data-dir or TEMPPLUG_DATA.")
            for name in recipe.tasks:
                load_collection(name, source.data_dir)
        return RetrievalPairs(rows, recipe, source.data_dir)

    def files(  # type: ignore[override]
        self, recipe: RetrievalRecipe, source: Source, data: RetrievalPairs
    ) -> dict[str, Path | str]:
        """Returns the file of the pairs, and those of the recipe's collections."""
        folder, names = source.data_dir, recipe.tasks if source.evaluated else ()
        searched = {} if folder is None else {name: retrieval_data.files_of(name, folder) for name in names}
        collections = {f"{name}/{path.name}": path for name, paths in searched.items() for path in paths}
        return {**SentenceMethod.files(self, recipe, source, data), **collections}

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


def hold_out(samples: TextRows, share: float) -> Split:
    """Returns the samples to train on, and a share of the documents with their queries to measure on.

    Queries and documents that belong together, directly or by others, are held out together as long as this keeps the share;
    where too many belong together, queries are held out with all of their documents, and the other pairs of these documents are
    left out of the training. The choice depends on the samples alone, not on the seed of a training.

    Args:
        samples: anchors with their positives.
        share: of the distinct documents, in (0, 1); from 1 on: how many.

    Raises:
        DataError: no query is held out, or fewer than two samples are left to train on.
    """
    owner, query, document = _pairs(samples)
    order = np.arange(int(document.max(initial=-1)) + 1)
    first = np.searchsorted(np.maximum.accumulate(document), order)
    random.Random(0).shuffle(memoryview(order))  # type: ignore[arg-type]  # numbers of Python are faster than numpy's
    chosen = _chosen_documents(query, document, order, round(share * len(first) if share < 1 else share))
    # a query is held out if all of its documents are
    trained_query = np.zeros(query.max(initial=-1) + 1, bool)
    trained_query[query[~chosen[document]]] = True
    held, is_trained = chosen[document] & ~trained_query[query], np.zeros(len(samples), bool)
    is_trained[owner[~chosen[document]]] = True
    trained = np.flatnonzero(is_trained)
    if len(trained) < 2:
        raise DataError(f"held_out={share:g} leaves {len(trained)} of {len(samples)} samples; training needs at least 2.")
    if not held.any():
        raise DataError(f"held_out={share:g} of {len(first)} documents holds out none with its query: give a larger share.")

    def text_of(number: int) -> str:
        place = int(first[number])
        return samples[int(owner[place])].positives[place - int(np.searchsorted(owner, owner[place]))]

    excluded = {number: text_of(number) for number in order[chosen[order]].tolist()}
    others = order[~chosen[order]][: max(0, CANDIDATES - len(excluded))]
    searched = [*excluded.values(), *map(text_of, others.tolist())]
    relevance: dict[str, dict[str, int]] = {}
    for place in np.flatnonzero(held).tolist():
        relevance.setdefault(samples[int(owner[place])].anchor, {})[excluded[int(document[place])]] = 1
    collection = Collection({text: text for text in searched}, {text: text for text in relevance}, relevance)
    left_out = frozenset(excluded.values())
    hard = 0
    if samples.most_negatives:
        hard = sum(
            text in left_out for own, sample in zip(is_trained, samples, strict=True) if own for text in sample.negatives
        )
    lost = int((chosen[document] & trained_query[query]).sum())
    note = f"held out: {len(relevance):,} queries and {len(excluded):,} of {len(first):,} documents"
    note += f"; left out: {lost:,} pairs of these documents with other queries" * bool(lost)
    note += f"; left out: {hard:,} hard negatives that are such documents" * bool(hard)
    others_of_trained = chosen[document] & is_trained[owner]
    return Split(trained, left_out if hard or others_of_trained.any() else frozenset(), collection, note)


def _pairs(samples: TextRows) -> tuple[np.ndarray, ...]:
    """Returns the sample, the number of the anchor and the number of the positive of each pair, [m] int64 each.

    The numbers are equal for equal texts, and count these in the order in which they first occur.
    """
    anchor, positive, _ = samples.roles
    owner, documents = text_hashes(samples, positive)
    return owner, factorize(text_hashes(samples, anchor)[1][owner])[0], factorize(documents)[0]


def _chosen_documents(query: np.ndarray, document: np.ndarray, order: np.ndarray, wanted: int) -> np.ndarray:
    """Returns which documents are held out, [n] bool: about ``wanted``, the first in an order that fit.

    Args:
        query: [m] of each pair.
        document: [m] of each pair.
        order: the n documents.
        wanted: how many.
    """
    queries = int(query.max()) + 1
    size = queries + len(order)
    edges = coo_array((np.ones(len(query)), (query, queries + document)), shape=(size, size))
    component = connected_components(edges, directed=False)[1][queries:]
    sizes, taken = np.bincount(component), 0
    fits, seen = np.zeros(len(sizes), bool), np.zeros(len(sizes), bool)
    for number in order.tolist():
        if taken == wanted:
            break
        own = component[number]
        if not seen[own] and taken + sizes[own] <= wanted:
            fits[own] = True
            taken += int(sizes[own])
        seen[own] = True
    if taken < wanted:
        distance = np.where(fits, len(order), np.abs(taken + sizes - wanted))
        nearest = int(distance.argmin())
        if distance[nearest] < wanted - taken:
            fits[nearest] = True
            taken += int(sizes[nearest])
    chosen = fits[component]
    if taken >= 0.9 * wanted:
        return chosen
    # components that are too large are cut, query by query
    by_document, by_query = coo_array((np.ones(len(query)), (document, query))).tocsr(), edges.tocsr()
    for number in order.tolist():
        of_query = by_query[[int(by_document[[number]].indices[0])]].indices - queries
        new = of_query[~chosen[of_query]]
        if taken + len(new) <= wanted or not taken:
            chosen[new] = True
            taken += len(new)
    return chosen
