"""Retrieval encoders as a method: SimCSE's encoder and loss on pairs of query and document, measured by nDCG@10."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pandas import factorize  # type: ignore[import-untyped]
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import TextRows
from tempplug_adapters.huggingface import TemperatureArguments
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


@dataclass(frozen=True, eq=False)
class Split:
    """What is held out, by positions, since millions of texts need more memory than their table.

    Attributes:
        samples: all samples.
        trained: [m] positions of the samples to train on.
        excluded: the held-out documents, if they are hard negatives or positives of these samples; which are not to have them.
        searched: [2, c] sample and number of each document that the held-out queries search.
        pairs: [2, p] sample and position in ``searched`` of each held-out pair.
        note: how many are held out, and what is left out.
    """

    samples: TextRows
    trained: np.ndarray
    excluded: frozenset[str]
    searched: np.ndarray
    pairs: np.ndarray
    note: str

    @cached_property
    def collection(self) -> Collection:
        """The held-out queries, and the documents that they search; a text is its own id."""
        documents, relevance = _positives(self.samples, *self.searched), dict[str, dict[str, int]]()
        for sample, document in zip(self.samples.taken(self.pairs[0]), self.pairs[1].tolist(), strict=True):
            relevance.setdefault(sample.anchor, {})[documents[document]] = 1
        return Collection({text: text for text in documents}, {text: text for text in relevance}, relevance)


class RetrievalPairs(Sentences):
    """The training data, and the `Split` with the held-out pairs."""

    def __init__(self, rows: TextRows, recipe: RetrievalRecipe, data_dir: Path | None) -> None:
        split = hold_out(rows, recipe.held_out)
        self.split = split
        notes = (*rows.notes, split.note)
        if recipe.teacher_temperature is not None:
            said = "each query's positive and hard negatives share its probability; documents are no anchors"
            notes += (f"a teacher's scores, divided by {recipe.teacher_temperature:g}: {said}",)
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

    def create_loss(  # type: ignore[override]
        self, recipe: RetrievalRecipe, data: Sentences, temperature: TemperatureArguments, *, gather: bool = False
    ) -> Any:
        """Creates the loss. With a teacher, queries alone are anchors, because it scores the documents of each query."""
        if recipe.teacher_temperature is not None:
            recipe = replace(recipe, loss=replace(recipe.loss, symmetric=False))
        return super().create_loss(recipe, data, temperature, gather=gather)

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
        held_out = data.split.collection
        found = {CHOSEN_BY: measure(by_similarity(encoder, held_out)[0], held_out)["ndcg@10"]}
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
    owner, query, document, hashes = _pairs(samples)
    order = np.arange(len(hashes), dtype=np.int32)
    first = np.searchsorted(np.maximum.accumulate(document), order)
    random.Random(0).shuffle(memoryview(order))  # type: ignore[arg-type]  # numbers of Python are faster than numpy's
    chosen = _chosen_documents(query, document, order, round(share * len(first) if share < 1 else share))
    # a query is held out if all of its documents are
    hidden, trained_query = chosen[document], np.zeros(query.max(initial=-1) + 1, bool)
    trained_query[query[~hidden]] = True
    held, is_trained = np.flatnonzero(hidden & ~trained_query[query]), np.zeros(len(samples), bool)
    is_trained[owner[~hidden]] = True
    trained = np.flatnonzero(is_trained)
    if len(trained) < 2:
        raise DataError(f"held_out={share:g} leaves {len(trained)} of {len(samples)} samples; training needs at least 2.")
    if not len(held):
        raise DataError(f"held_out={share:g} of {len(first)} documents holds out none with its query: give a larger share.")
    count = int(chosen.sum())
    numbers = np.append(order[chosen[order]], order[~chosen[order]][: max(0, CANDIDATES - count)])
    places = first[numbers]
    searched = np.stack([owner[places], places - np.searchsorted(owner, owner[places])])
    first[numbers] = np.arange(len(numbers))  # from here on of a document that is searched its position there
    hard = 0
    if samples.most_negatives:
        negative, hashes_of_negatives = text_hashes(samples, samples.roles[2])
        hard = int((np.isin(hashes_of_negatives, hashes[chosen]) & is_trained[negative]).sum())
    lost = int((hidden & trained_query[query]).sum())
    note = f"held out: {len(np.unique(query[held])):,} queries and {count:,} of {len(hashes):,} documents"
    note += f"; left out: {lost:,} pairs of these documents with other queries" * bool(lost)
    note += f"; left out: {hard:,} hard negatives that are such documents" * bool(hard)
    met = bool(hard) or (hidden & is_trained[owner]).any()
    excluded = frozenset(_positives(samples, *searched[:, :count]) if met else ())
    return Split(samples, trained, excluded, searched, np.stack([owner[held], first[document[held]]]), note)


def _positives(samples: TextRows, positions: np.ndarray, numbers: np.ndarray) -> list[str]:
    """Returns a positive of each of some samples, by its number."""
    texts, order = [""] * len(positions), positions.argsort(kind="stable")
    for place, sample in zip(order.tolist(), samples.taken(positions[order]), strict=True):
        texts[place] = sample.positives[numbers[place]]
    return texts


def _pairs(samples: TextRows) -> tuple[np.ndarray, ...]:
    """Returns the sample, the number of the anchor and the number of the positive of each pair, [m] int32 each.

    The numbers are equal for equal texts, and count these in the order in which they first occur. The last array has the hashes
    of the positives, [n] uint64.
    """
    anchor, positive, _ = samples.roles
    owner, documents = text_hashes(samples, positive)
    document, hashes = factorize(documents)
    query = factorize(text_hashes(samples, anchor)[1][owner])[0]
    return owner, query.astype(np.int32), document.astype(np.int32), hashes


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
