"""Pairs of texts for `studies.train_cells`, encoded by means of word vectors or a small BERT; its figure is nDCG@10 × 100."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel, PreTrainedTokenizerFast

from studies.text_settings import BERT, GLOVE, TextSettings
from tempplug.errors import DataError
from tempplug.targets import of_keys, soft_targets
from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.huggingface.loading import load_pretrained, load_tokenizer
from tempplug_adapters.modes import evaluating
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.retrieval import measure
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, load_collection
from tempplug_adapters.simcse.retrieval_method import hold_out
from tempplug_adapters.token_vectors import subtract_mean_vector
from tempplug_benchmarks.data.static_encoder import static_words

LONGEST = 64
"""Most words of a text that are read."""
LONGEST_BERT = 32
"""Most tokens of a text that BERT reads."""
HARD = 10
"""A hard negative is the document at this rank for its query by the guide, its own left out."""
KEPT = 0.5
"""Share of the words that the copy of a pair keeps; the copy is a false negative of the pair."""
TEACHER_TEMPERATURE = 0.05
"""That of a teacher's similarities: the one that all-MiniLM-L6-v2 was trained at."""
AT_ONCE = 128
DEFAULTS = TextSettings()


def device() -> torch.device:
    """Returns where networks train: a GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts as numbers of words, one after the other: ``words`` [sum of lengths], ``lengths`` [n]."""

    words: Tensor
    lengths: Tensor

    def of(self, rows: Tensor) -> Texts:
        """Returns the texts of some rows, [m] of integers, in their order."""
        lengths = self.lengths[rows]
        first = self.lengths.cumsum(0)[rows] - lengths
        within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return Texts(self.words[first.repeat_interleave(lengths) + within], lengths)

    def halved(self, which: Tensor, generator: torch.Generator) -> Texts:
        """Returns all texts, those of ``which``, [n] of bool, with the first and a random half of their other words."""
        owner = torch.arange(len(self.lengths)).repeat_interleave(self.lengths)
        first = torch.zeros(len(self.words), dtype=torch.bool)
        first[self.lengths.cumsum(0) - self.lengths] = True
        kept = ~which[owner] | first | (torch.rand(len(self.words), generator=generator) < KEPT)
        return Texts(self.words[kept], torch.zeros_like(self.lengths).index_add_(0, owner[kept], torch.ones_like(owner[kept])))

    def vectors(self, weight: Tensor) -> Tensor:
        """Returns the means of their words' vectors, [n, D]."""
        return functional.embedding_bag(self.words, weight, self.lengths.cumsum(0) - self.lengths, mode="mean")

    def padded(self) -> tuple[Tensor, Tensor]:
        """Returns the words of each text behind each other and 0 after them, and where there are words, both [n, longest]."""
        mask = torch.arange(int(self.lengths.max())) < self.lengths[:, None]
        return torch.zeros(mask.shape, dtype=torch.long).masked_scatter_(mask, self.words), mask


class Words(nn.Module):
    """The mean of word vectors, which are learned."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, texts: Texts) -> Tensor:
        """Returns [n, D]."""
        return texts.vectors(self.weight)


class Bert(nn.Module):
    """The mean of BERT's last hidden states."""

    def __init__(self, network: BertModel, bf16: bool) -> None:
        super().__init__()
        self.network = network
        self.bf16 = bf16

    def forward(self, texts: Texts) -> Tensor:
        """Returns [n, D]."""
        words, mask = (each.to(self.network.device) for each in texts.padded())
        with torch.autocast(words.device.type, torch.bfloat16, enabled=self.bf16):
            hidden: Tensor = self.network(words, mask).last_hidden_state.float()
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts with what is measured; see `train_cells.Data`.

    Attributes:
        queries: those of the n training pairs.
        documents: those of the n training pairs.
        keys: [n] the numbers of their documents.
        query_keys: [n] the numbers of their queries.
        hard: [n] the pair whose document is the hard negative of each query.
        measured: ``held_out`` and ``test``: a collection, its queries and its documents.
        guide: [n, D] of the queries and of the documents by the encoder that a plan names; those of a copy are its pair's.
    """

    queries: Texts
    documents: Texts
    keys: Tensor
    query_keys: Tensor
    hard: Tensor
    measured: Mapping[str, tuple[Collection, Texts, Texts]]
    guide: tuple[Tensor, Tensor] | None

    def __len__(self) -> int:
        return len(self.keys)

    def inputs(self, rows: Tensor, copied: Tensor, hard: bool, generator: torch.Generator) -> dict[str, Texts]:
        """Returns the texts of a batch; those that are ``copied`` have half of their words."""
        texts = {"view_a": self.queries.of(rows), "view_b": self.documents.of(rows)}
        if copied.any():
            texts = {name: each.halved(copied, generator) for name, each in texts.items()}
        if hard:
            texts["hard_negatives"] = self.documents.of(self.hard[rows])
        return texts

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the keys of a batch."""
        return {"keys": self.keys[rows]}

    def targets(self, kind: str, rows: Tensor) -> dict[str, Tensor]:
        """Returns the targets of a batch, [B, B]; see `Cell`. Raises `DataError` for a teacher without a guide."""
        if kind == "same-query":
            return {"targets": of_keys(self.query_keys[rows])}
        if not kind:
            return {}
        if self.guide is None:
            raise DataError(f"targets={kind!r} of a cell need the guide of a plan.")
        queries, documents = (functional.normalize(each[rows], dim=1) for each in self.guide)
        taught = soft_targets(queries @ documents.T, TEACHER_TEMPERATURE)
        return {"targets": taught if kind == "teacher" else (taught + torch.eye(len(rows))) / 2}

    def figures(self, model: nn.Module) -> dict[str, float]:
        """Returns nDCG@10 × 100 on held-out pairs and on the test collection."""
        return {name: _ndcg(model, *measured) for name, measured in self.measured.items()}


@dataclass(frozen=True, slots=True)
class StaticPairs(Pairs):
    """For the mean of word vectors.

    Attributes:
        start: [V, D] the pretrained vectors of its words.
    """

    rate: ClassVar = 0.03
    starts: ClassVar = ("vectors", "centred", "shifted", "random")

    start: Tensor

    def model(self, start: str, generator: torch.Generator) -> Words:
        """Returns the word vectors before the training."""
        if start == "random":
            return Words(torch.randn(self.start.shape, generator=generator) * self.start[2:].std())
        weight = self.start.clone()
        if start == "centred":
            subtract_mean_vector(weight, torch.cat([self.queries.words, self.documents.words]))
        elif start == "shifted":
            weight -= torch.cat([self.queries.vectors(weight), self.documents.vectors(weight)]).mean(0)
        return Words(weight)

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the keys of a batch, and the vectors of its texts by the guide if it is wanted."""
        # super() without arguments is not that of a dataclass with slots
        return Pairs.known(self, takes, rows, inputs) | ({"guide": self._guided(rows, inputs)} if "guide" in takes else {})

    def _guided(self, rows: Tensor, texts: Mapping[str, Texts]) -> dict[str, Tensor]:
        if self.guide is None:
            return {name: each.vectors(self.start) for name, each in texts.items()}
        queries, documents = self.guide
        of = {"view_a": queries[rows], "view_b": documents[rows], "hard_negatives": documents[self.hard[rows]]}
        return {name: of[name] for name in texts}


@dataclass(frozen=True, slots=True)
class BertPairs(Pairs):
    """For a BERT; ``network`` is the pretrained one, and ``bf16`` as in `TextSettings`."""

    rate: ClassVar = 3e-4
    starts: ClassVar = ("pretrained", "random")

    network: BertModel
    bf16: bool

    def model(self, start: str, generator: torch.Generator) -> Bert:
        """Returns the encoder before the training."""
        network = copy.deepcopy(self.network) if start == "pretrained" else BertModel(self.network.config, False)
        return Bert(network, self.bf16).to(device())


@cache
def load_static(
    name: str, collection: str, data_dir: Path, most: int, guide: str = "", settings: TextSettings = DEFAULTS
) -> StaticPairs:
    """Returns at most ``most`` training pairs of ``name``, and a test collection; raises `DataError` without files.

    ``guide`` is that of `CellsPlan`; `ConfigError` is raised if it cannot be loaded.
    """
    pairs, searched = _read(name, collection, data_dir, most, settings)
    texts = [text for pair in pairs for text in pair]
    for each in searched.values():
        texts += [*each.documents.values(), *each.queries.values()]
    content, start = static_words(data_dir / (settings.encoder or GLOVE), texts)
    made = Tokenizer.from_str(json.dumps(content))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")  # type: ignore[no-untyped-call]

    def numbers(those: Iterable[str]) -> Texts:
        return _numbers([each[:LONGEST] or [1] for each in tokenizer(list(those), add_special_tokens=False)["input_ids"]])

    queries, documents = (numbers(each) for each in zip(*pairs, strict=True))
    keys, asked = _keys(pairs, 1), _keys(pairs, 0)
    seen = _guided_by(guide, pairs, data_dir)
    hard = hard_rows(*(seen or (queries.vectors(start), documents.vectors(start))), keys)
    parts = {key: (each, numbers(each.queries.values()), numbers(each.documents.values())) for key, each in searched.items()}
    return StaticPairs(queries, documents, keys, asked, hard, parts, seen, start)


@cache
def load_bert(
    name: str, collection: str, data_dir: Path, most: int, guide: str = "", settings: TextSettings = DEFAULTS
) -> BertPairs:
    """Returns the same for a small BERT, which finds the hard negatives before its training unless a plan has a guide."""
    pairs, searched = _read(name, collection, data_dir, most, settings)
    folder = str(data_dir / (settings.encoder or BERT))
    tokenizer = load_tokenizer(folder)
    network = load_pretrained(BertModel, folder, add_pooling_layer=False).to(device())

    def numbers(those: Iterable[str]) -> Texts:
        return _numbers(tokenizer(list(those), truncation=True, max_length=LONGEST_BERT)["input_ids"])

    queries, documents = (numbers(each) for each in zip(*pairs, strict=True))
    keys, asked, model = _keys(pairs, 1), _keys(pairs, 0), Bert(network, settings.bf16)
    seen = _guided_by(guide, pairs, data_dir)
    hard = hard_rows(*(seen or (encode(model, queries), encode(model, documents))), keys)
    parts = {key: (each, numbers(each.queries.values()), numbers(each.documents.values())) for key, each in searched.items()}
    return BertPairs(queries, documents, keys, asked, hard, parts, seen, network, settings.bf16)


def _guided_by(guide: str, pairs: list[tuple[str, ...]], data_dir: Path) -> tuple[Tensor, Tensor] | None:
    if not guide:
        return None
    encoder = load_encoder(data_dir / guide, max_length=LONGEST)
    return encoder([pair[0] for pair in pairs]), encoder([pair[1] for pair in pairs])


def _read(
    name: str, collection: str, data_dir: Path, most: int, settings: TextSettings
) -> tuple[list[tuple[str, ...]], dict[str, Collection]]:
    rows = open_texts(data_dir / "text" / "retrieval" / f"{name}.train.tsv.gz", roles=PAIRS)
    samples = rows.taken(np.array(random.Random(0).sample(range(len(rows)), min(most, len(rows)))))
    split = hold_out(samples, settings.held_out)
    pairs = [samples[position].texts[:2] for position in split.trained.tolist()]
    return pairs, {"held_out": split.collection, "test": part_of(load_collection(collection, data_dir), settings)}


def part_of(whole: Collection, settings: TextSettings) -> Collection:
    """Returns the first queries of a collection, their relevant documents and others drawn at random, in the order of all."""
    queries = dict(islice(whole.queries.items(), settings.queries))
    if not settings.documents:
        return replace(whole, queries=queries)
    kept = {document for query in queries for document in whole.relevance[query]}
    others = [document for document in whole.documents if document not in kept]
    kept.update(random.Random(0).sample(others, min(len(others), max(0, settings.documents - len(kept)))))
    return replace(whole, queries=queries, documents={key: text for key, text in whole.documents.items() if key in kept})


def _numbers(found: list[list[int]]) -> Texts:
    return Texts(torch.tensor([word for each in found for word in each]), torch.tensor([len(each) for each in found]))


def _keys(pairs: list[tuple[str, ...]], place: int) -> Tensor:
    own = {text: number for number, text in enumerate(dict.fromkeys(pair[place] for pair in pairs))}
    return torch.tensor([own[pair[place]] for pair in pairs])


def hard_rows(queries: Tensor, documents: Tensor, document: Tensor) -> Tensor:
    """Returns the row of each query's hard negative, given vectors [n, D] and the number of each pair's document, [n]."""
    units = functional.normalize(documents, dim=1)
    found = []
    for first in range(0, len(document), 1000):
        scores = functional.normalize(queries[first : first + 1000], dim=1) @ units.T
        scores[document[first : first + 1000, None] == document] = -torch.inf
        found.append(scores.topk(HARD, dim=1).indices[:, -1])
    return torch.cat(found)


@torch.no_grad()
def encode(model: nn.Module, texts: Texts) -> Tensor:
    """Returns the vectors of texts in evaluation mode, [n, D] on the CPU."""
    order = texts.lengths.argsort()  # texts of one length have no padding
    with evaluating(model):
        return torch.cat([model(texts.of(rows)).cpu() for rows in torch.split(order, AT_ONCE)])[order.argsort()]


def _ndcg(model: nn.Module, collection: Collection, *texts: Texts) -> float:
    queries, documents = (functional.normalize(encode(model, each), dim=1) for each in texts)
    return measure(lambda first, last: queries[first:last] @ documents.T, collection)["ndcg@10"]
