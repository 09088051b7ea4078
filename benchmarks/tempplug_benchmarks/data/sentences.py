"""Generated English-like sentences: paraphrase pairs, single sentences and pairs with a graded similarity.

A sentence combines four concepts (subject, verb, object, place), each with two or three synonyms, in a template. Sentences with
the same four concepts are paraphrases; otherwise the similarity is the share of common concepts. Training, dev and test have
disjoint combinations of concepts, and evaluation has separate templates. Words are shared between the splits, since otherwise
nothing could be learned.
"""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from tempplug.errors import ConfigError

Split = Literal["train", "dev", "test"]
Concepts = tuple[int, int, int, int]

VERSION = 1
"""Any change of the generated data must increment it; it is part of every result's identity."""

WORDS = tomllib.loads(files(__package__).joinpath("sentences.toml").read_text(encoding="utf-8"))
"""Of ``sentences.toml``."""
SLOTS = tuple(tuple(tuple(concept.split("/")) for concept in slot.split()) for slot in WORDS["slots"].values())
"""By slot (subject, verb, object, place), the concepts with their synonyms."""
TRAINING_TEMPLATES, EVALUATION_TEMPLATES = (tuple(WORDS["templates"][name]) for name in ("training", "evaluation"))
_KINDS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_SHARES = {"train": (0.0, 0.6), "dev": (0.6, 0.8), "test": (0.8, 1.0)}
_ATTEMPTS = 10_000


@dataclass(frozen=True)
class ScoredPair:
    """Two sentences and their similarity.

    Attributes:
        score: 5 × the share of common concepts: 0, 1.25, 2.5, 3.75 or 5.
        sentence_a: the first sentence.
        sentence_b: the second sentence.
    """

    score: float
    sentence_a: str
    sentence_b: str


@cache
def combinations(split: Split) -> frozenset[Concepts]:
    """Returns the combinations of concepts of a split: 60 % train, 20 % dev, 20 % test, disjoint.

    >>> combinations("train") & combinations("test")
    frozenset()
    """
    if split not in _SHARES:
        raise ConfigError(f"split='{split}' must be one of {', '.join(_SHARES)}.")
    everything = [(s, v, o, p) for s, v, o, p in itertools.product(*(range(len(slot)) for slot in SLOTS))]
    random.Random(0).shuffle(everything)
    low, high = _SHARES[split]
    return frozenset(everything[round(low * len(everything)) : round(high * len(everything))])


def paraphrase_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Returns ``count`` (at least 1) pairs of paraphrases; a combination of concepts recurs only after all have been used.

    >>> paraphrase_pairs(1, seed=0)
    [('at the garden a seaman peddled the car .', 'the sailor sold a vehicle near the yard .')]
    """
    generator = _generator(count, seed, "pairs")
    pairs = []
    for concepts in itertools.islice(_endless("train", generator), count):
        first, second = generator.sample(TRAINING_TEMPLATES, 2)
        pairs.append((_sentence(concepts, first, generator), _sentence(concepts, second, generator)))
    return pairs


def plain_sentences(count: int, seed: int) -> list[str]:
    """Returns single sentences for unsupervised training; arguments as in `paraphrase_pairs`."""
    generator = _generator(count, seed, "plain")
    drawn = itertools.islice(_endless("train", generator), count)
    return [_sentence(concepts, generator.choice(TRAINING_TEMPLATES), generator) for concepts in drawn]


def scored_pairs(split: Split, count: int, seed: int) -> list[ScoredPair]:
    """Returns shuffled pairs with a graded similarity, equally many (± 1) for each score.

    Args:
        split: gives the combinations of concepts; ``train`` uses the training templates, the others those of evaluation.
        count: number of pairs, at least 1.
        seed: at least 0.
    """
    generator = _generator(count, seed, split)
    allowed = combinations(split)
    ordered = sorted(allowed)
    templates = TRAINING_TEMPLATES if split == "train" else EVALUATION_TEMPLATES
    pairs = []
    for position in range(count):
        shared = position % (len(SLOTS) + 1)
        concepts = generator.choice(ordered)
        other = _sharing(concepts, shared, allowed, generator)
        first, second = generator.sample(templates, 2)
        score = 5 * shared / len(SLOTS)
        pairs.append(ScoredPair(score, _sentence(concepts, first, generator), _sentence(other, second, generator)))
    generator.shuffle(pairs)
    return pairs


def vocabulary(words: Iterable[str] = ()) -> list[str]:
    """Returns all words and punctuation marks of sentences with these words in the slots, by default those of `SLOTS`."""
    chosen = list(words) or [word for slot in SLOTS for concept in slot for word in concept]
    others = " ".join((*TRAINING_TEMPLATES, *EVALUATION_TEMPLATES)).split()
    return sorted({*chosen, *(word for word in others if "{" not in word)})


def write_sts(folder: Path, seed: int, train: int = 1000, dev: int = 500, test: int = 1000) -> None:
    """Writes scored pairs in the layout of STS-B: ``STSB/{train,dev,test}.tsv`` with ``score``, ``sentence1``, ``sentence2``.

    Args:
        folder: ``STSB`` is created in it.
        seed: at least 0.
        train: pairs of the train split, at least 1.
        dev: pairs of the dev split, at least 1.
        test: pairs of the test split, at least 1.
    """
    counts: tuple[tuple[Split, int], ...] = (("train", train), ("dev", dev), ("test", test))
    for split, count in counts:
        rows = [(f"{pair.score:.3f}", pair.sentence_a, pair.sentence_b) for pair in scored_pairs(split, count, seed)]
        write_rows(folder / "STSB" / f"{split}.tsv", ("score", "sentence1", "sentence2"), *rows)


def write_transfer(folder: Path, seed: int, train: int = 600, test: int = 300) -> None:
    """Writes sentences with the class of their verb in the layout of TREC: ``TREC.train.tsv`` and ``TREC.test.tsv``.

    Args:
        folder: created if missing.
        seed: at least 0.
        train: training sentences, at least 1; their combinations of concepts are those of the dev split.
        test: test sentences, at least 1.
    """
    sizes: tuple[tuple[str, Split, int], ...] = (("train", "dev", train), ("test", "test", test))
    for name, split, count in sizes:
        generator = _generator(count, seed, f"transfer {name}")
        rows = [
            (_KINDS[concepts[1] // 2], _sentence(concepts, generator.choice(EVALUATION_TEMPLATES), generator))
            for concepts in itertools.islice(_endless(split, generator), count)
        ]
        write_rows(folder / f"TREC.{name}.tsv", ("label", "text"), *rows)


def write_rows(file: Path, *rows: Sequence[str]) -> None:
    """Writes rows of texts with tabs between them; missing folders are created."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def _generator(count: int, seed: int, purpose: str) -> random.Random:
    """Returns a separate random generator for each purpose."""
    if count < 1:
        raise ConfigError(f"count={count} of generated sentences must be at least 1.")
    if seed < 0:
        raise ConfigError(f"seed={seed} of generated sentences must be at least 0.")
    return random.Random(f"{purpose} {seed}")


def _endless(split: Split, generator: random.Random) -> Iterator[Concepts]:
    """Yields all combinations of a split in random order, again and again."""
    ordered = sorted(combinations(split))
    while True:
        generator.shuffle(ordered)
        yield from ordered


def _sharing(concepts: Concepts, shared: int, allowed: frozenset[Concepts], generator: random.Random) -> Concepts:
    """Returns a combination of the split that has exactly ``shared`` concepts in common with ``concepts``."""
    for _ in range(_ATTEMPTS):
        kept = set(generator.sample(range(len(SLOTS)), shared))
        s, v, o, p = (
            concept if slot in kept else (concept + generator.randrange(1, len(SLOTS[slot]))) % len(SLOTS[slot])
            for slot, concept in enumerate(concepts)
        )
        if (s, v, o, p) in allowed:
            return s, v, o, p
    raise RuntimeError(f"no combination shares {shared} concepts with {concepts}.")


def _sentence(concepts: Concepts, template: str, generator: random.Random) -> str:
    words = (generator.choice(SLOTS[slot][concept]) for slot, concept in enumerate(concepts))
    return template.format(*words)
