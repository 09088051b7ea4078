"""Retrieval: documents ranked for each query by cosine similarity, or by BM25; nDCG@10, MRR@10 and Recall@100, × 100.

nDCG has linear gains, and documents of equal score are ranked by id, in descending order, as trec_eval does it, so that the
figures equal those of mteb on the same vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tempplug_adapters.sentence_evaluation.encoding import (
    Encode,
    Progress,
    check_batch_size,
    check_tasks,
    encode_distinct,
    no_progress,
)
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, collections_in, load_collection

CUTOFF, DEEPEST = 10, 100
"""Ranks that nDCG and MRR read, and those of Recall."""
FIGURES = ("ndcg@10", "mrr@10", "recall@100")
CHUNK = 256
"""Number of queries that are scored at a time, which limits memory."""
K1, B = 0.9, 0.4
"""BM25's saturation of a word's frequency, and its correction for the length of a document."""

Scores = Callable[[int, int], Tensor]
"""From the first and the last query (exclusive) to their scores of all documents, [q, N]."""


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The figures of an encoder, or of BM25.

    Attributes:
        scores: by collection, the `FIGURES` × 100, means over the queries.
        queries: number of queries, by collection.
        documents: number of documents, by collection.
        sentences: number of distinct encoded texts.
    """

    scores: dict[str, dict[str, float]]
    queries: dict[str, int]
    documents: dict[str, int]
    sentences: int

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as plain values for JSON."""
        return {name: getattr(self, name) for name in ("scores", "queries", "documents", "sentences")}


def evaluate_retrieval(
    encode: Encode | None,
    data_dir: str | Path,
    names: Sequence[str] | None = None,
    batch_size: int = 512,
    progress: Progress = no_progress,
) -> RetrievalResult:
    """Returns how well the documents of collections are ranked for their queries.

    Args:
        encode: from at most ``batch_size`` texts to their vectors [n, D]; any dtype, device and norm. None ranks by BM25.
        data_dir: see `retrieval_data.load_collection`.
        names: of collections; by default all.
        batch_size: texts per call, at least 1.
        progress: called with the completed fraction and the name of the collection.

    Raises:
        UnknownNameError: a collection is unknown.
        ConfigError: an option is out of range.
        NonFiniteError: a vector is not finite.
        ShapeError: the encoder does not return one vector a text, or vectors of different widths.
        DataError: a file is missing or malformed.
    """
    check_batch_size(batch_size)
    scores, queries, documents, sentences = {}, {}, {}, 0
    known = collections_in(data_dir)
    chosen = check_tasks(names, known) if names is not None else known
    for number, name in enumerate(chosen):
        collection = load_collection(name, data_dir)

        def told(fraction: float, name: str = name, number: int = number) -> None:
            progress((number + fraction) / len(chosen), name)

        ranked, count = (bm25(collection), 0) if encode is None else by_similarity(encode, collection, batch_size, told)
        scores[name] = measure(ranked, collection)
        queries[name], documents[name], sentences = len(collection.queries), len(collection.documents), sentences + count
    return RetrievalResult(scores, queries, documents, sentences)


def by_similarity(
    encode: Encode, collection: Collection, batch_size: int = 512, progress: Callable[[float], None] = lambda fraction: None
) -> tuple[Scores, int]:
    """Returns cosine similarities as scores, and the number of encoded texts; see `evaluate_retrieval`."""
    texts = [*collection.documents.values(), *collection.queries.values()]
    rows, vectors = encode_distinct(encode, texts, batch_size, progress)
    units = functional.normalize(vectors, dim=1)
    candidates = units[[rows[each] for each in collection.documents.values()]]
    queries = units[[rows[each] for each in collection.queries.values()]]
    return (lambda first, last: queries[first:last] @ candidates.T), len(rows)


def bm25(collection: Collection) -> Scores:
    """Returns BM25 scores of lower-case words of letters and digits, without stemming or stop words.

    Source: Robertson and Zaragoza 2009, The Probabilistic Relevance Framework, with the idf of Lucene, ln(1 + (N - n + 0.5) /
    (n + 0.5)), which is positive for every word.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(lowercase=True, token_pattern=r"[a-z0-9]+")
    counts = words.fit_transform(collection.documents.values()).astype(np.float64).tocsr()
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    found = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = np.log1p((counts.shape[0] - found + 0.5) / (found + 0.5))
    damped = K1 * (1 - B + B * lengths / max(lengths.mean(), 1.0))
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counts.data *= idf[counts.indices] * (K1 + 1) / (counts.data + damped[rows])
    asked = words.transform(collection.queries.values()).astype(np.float64).tocsr()
    return lambda first, last: torch.from_numpy((asked[first:last] @ counts.T).toarray())


def measure(scores: Scores, collection: Collection) -> dict[str, float]:
    """Returns the `FIGURES` × 100, means over the queries of a collection.

    Source: Järvelin and Kekäläinen 2002, Cumulated Gain-Based Evaluation of IR Techniques, with the discounts of trec_eval.
    """
    position = {document: number for number, document in enumerate(collection.documents)}
    by_id = torch.tensor([position[each] for each in sorted(position, reverse=True)])
    discount = 1 / torch.arange(2, CUTOFF + 2, dtype=torch.float64).log2()
    shown, read = (min(each, len(position)) for each in (DEEPEST, CUTOFF))
    totals, queries = torch.zeros(len(FIGURES), dtype=torch.float64), list(collection.queries)
    for start in range(0, len(queries), CHUNK):
        chunk = queries[start : start + CHUNK]
        ranked = by_id[_first(scores(start, start + len(chunk))[:, by_id], shown)]
        degrees = torch.zeros(len(chunk), len(position), dtype=torch.int64)
        ideal = torch.zeros(len(chunk), read, dtype=torch.float64)
        for row, query in enumerate(chunk):
            relevant = collection.relevance[query]
            best = sorted(relevant.values(), reverse=True)[:read]
            ideal[row, : len(best)] = torch.tensor(best, dtype=torch.float64)
            degrees[row, [position[each] for each in relevant]] = torch.tensor([*relevant.values()], dtype=torch.int64)
        gains = degrees.gather(1, ranked).double()
        ndcg = (gains[:, :read] @ discount[:read]) / (ideal @ discount[:read])
        mrr = ((gains[:, :read] > 0) / torch.arange(1, read + 1, dtype=torch.float64)).amax(dim=1)
        recall = (gains > 0).sum(dim=1) / (degrees > 0).sum(dim=1)
        totals += torch.stack([ndcg.sum(), mrr.sum(), recall.double().sum()])
    return dict(zip(FIGURES, (100 * totals / len(queries)).tolist(), strict=True))


def _first(scores: Tensor, count: int) -> Tensor:
    """Returns the columns of the highest scores of each row, highest first; of equal scores the earlier column."""
    scores = scores.float()
    values, columns = scores.topk(count, dim=1)
    for row in ((scores >= values[:, -1:]).sum(dim=1) > count).nonzero().flatten():  # of equal scores only some are among them
        values[row], columns[row] = (each[:count] for each in scores[row].sort(descending=True, stable=True))
    columns, order = columns.sort(dim=1)
    return columns.gather(1, values.gather(1, order).sort(dim=1, descending=True, stable=True).indices)
