"""Generated entailment pairs about men and women, and matching bias benchmarks in the layout of the real ones.

The pairs contain a stereotype: men buy, find or clean things of one half in two thirds of the pairs, and women those of the
other half. Pairs together with their counterfactuals contain none, so a model trained on both cannot learn it. The benchmarks
test for the stereotype with separate templates.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path

from tempplug.errors import ConfigError
from tempplug_benchmarks.data import sentences
from tempplug_benchmarks.data.sentences import EVALUATION_TEMPLATES, SLOTS, TRAINING_TEMPLATES, WORDS

VERSION = 1
"""Any change of the generated data must increment it; it is part of every result's identity."""

PEOPLE = tuple(zip(*(WORDS["people"][sex].split() for sex in ("male", "female")), strict=True))
"""The words for men and for women."""
VERBS, THINGS, PLACES = ([words[0] for words in slot] for slot in SLOTS[1:])
STEREOTYPED = 2 / 3
"""Share of the pairs in which a thing is of the person's half."""


def entailment_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Returns ``count`` (at least 1) pairs of premise and hypothesis.

    >>> entailment_pairs(1, seed=0)
    [('a hat was sold by the duke near a river .', 'the duke sold the hat .')]
    """
    if count < 1 or seed < 0:
        raise ConfigError(f"count={count} of generated pairs must be at least 1, and seed={seed} at least 0.")
    generator = random.Random(f"gendered pairs {seed}")
    pairs = []
    for _ in range(count):
        person, thing = _person_and_thing(generator, generator.random() < STEREOTYPED)
        verb, place = generator.choice(VERBS), generator.choice(PLACES)
        premise = generator.choice(TRAINING_TEMPLATES).format(person, verb, thing, place)
        pairs.append((premise, f"the {person} {verb} the {thing} ."))
    return pairs


def vocabulary() -> list[str]:
    """Returns all words and punctuation marks of the sentences, sorted."""
    return sentences.vocabulary([*itertools.chain(*PEOPLE), *VERBS, *THINGS, *PLACES])


def write_gendered(folder: Path, pairs: int, seed: int, tested: int = 120) -> None:
    """Writes ``pairs.tsv`` for a seed, and ``gender_words.tsv``, StereoSet and CrowS-Pairs, which do not depend on the seed.

    Args:
        folder: created if missing.
        pairs: number of training pairs, at least 1.
        seed: of the training data, at least 0.
        tested: rows of each benchmark and of StereoSet's development set, at least 1.
    """
    sentences.write_rows(folder / "pairs.tsv", ("premise", "hypothesis"), *entailment_pairs(pairs, seed))
    sentences.write_rows(folder / "gender_words.tsv", ("male", "female"), *PEOPLE)
    generator = random.Random("gendered benchmarks")
    rows, lines = [], ["sent_more,sent_less,stereo_antistereo,bias_type"]
    for _ in range(2 * tested):
        person, thing = _person_and_thing(generator, True)
        _, other = _person_and_thing(generator, False, person)
        template, verb, place = generator.choice(EVALUATION_TEMPLATES), generator.choice(VERBS), generator.choice(PLACES)
        words = {"context": "BLANK", "stereotype": thing, "anti-stereotype": other, "unrelated": generator.choice(PLACES)}
        rows.append({"target": person, **{key: template.format(person, verb, word, place) for key, word in words.items()}})
        counterpart = next(b if a == person else a for a, b in PEOPLE if person in (a, b))
        direction, said = ("stereo", thing) if generator.random() < 0.6 else ("antistereo", other)
        both = (template.format(each, verb, said, place) for each in (person, counterpart))
        lines.append(",".join((*both, direction, "gender")))
    (folder / "crows_pairs_anonymized.csv").write_text("\n".join(lines[: 1 + tested]) + "\n", encoding="utf-8")
    for name, chosen in (("test_gender", rows[:tested]), ("dev", rows[tested:])):
        stereoset = "".join(json.dumps(row) + "\n" for row in chosen)
        (folder / f"stereoset_{name}_intrasentence.jsonl.gz").write_bytes(gzip.compress(stereoset.encode(), mtime=0))


def _person_and_thing(generator: random.Random, stereotyped: bool, person: str | None = None) -> tuple[str, str]:
    """Returns a person and a thing, according to the stereotype or against it."""
    side = generator.randrange(2) if person is None else int(person in [female for _, female in PEOPLE])
    chosen = person or generator.choice(PEOPLE)[side]
    half = len(THINGS) // 2
    first = side == 0 if stereotyped else side == 1
    return chosen, generator.choice(THINGS[:half] if first else THINGS[half:])
