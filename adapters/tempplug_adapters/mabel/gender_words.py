"""Pairs of words for men and women, and counterfactual sentences in which each word is replaced by its counterpart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tempplug.errors import DataError
from tempplug_adapters.data_files.roles import TEXT, Role, assign
from tempplug_adapters.data_files.tables import open_table

ROLES: Final = (Role("male", (TEXT,), ("male",)), Role("female", (TEXT,), ("female",)))
_WORD = re.compile(r"[^\W\d_]+")


class GenderWords:
    """A word list as a mapping in both directions, which turns sentences into counterfactuals.

    If a word has several counterparts, the first pair in the list is used: `him` and `his` both become `her`, and `her` becomes
    the first of the two in the list, regardless of grammar. `ambiguous` counts such words in a text.

    Args:
        pairs: (word for men, word for women), in the order of the list; letters only, in any case.

    Raises:
        DataError: there is no pair, a word contains other characters, or a word is on both sides.

    >>> words = GenderWords([("he", "she"), ("him", "her"), ("his", "her"), ("man", "woman")])
    >>> words.swapped("The MAN said his woman saw her.")
    'The WOMAN said her man saw him.'
    >>> words.ambiguous(["She gave her his book."])
    Counter({'her': 1})
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        lowered = [(male.lower(), female.lower()) for male, female in pairs]
        if not lowered:
            raise DataError("a list of gender words must hold at least one pair.")
        for word in (word for pair in lowered for word in pair):
            if not _WORD.fullmatch(word):
                raise DataError(f"gender word {word!r} must be one word of letters only.")
        males, females = ({pair[side] for pair in lowered} for side in (0, 1))
        both = sorted(males & females)
        if both:
            raise DataError(f"gender word '{both[0]}' is among the words for men and among those for women.")
        self.counterparts: dict[str, tuple[str, ...]] = {}
        for male, female in dict.fromkeys(lowered):
            for word, other in ((male, female), (female, male)):
                self.counterparts[word] = (*self.counterparts.get(word, ()), other)

    @classmethod
    def read(cls, path: Path) -> GenderWords:
        """Reads a table with the columns ``male`` and ``female``.

        Raises:
            ConfigError: it lacks a column.
            DataError: the file is missing or damaged, or its words are invalid for `GenderWords`.
        """
        if not path.is_file():
            raise DataError(f"gender_words='{path}' is not a file; wanted a table with the columns male and female.")
        assigned = assign(open_table(path), ROLES)
        columns = [assigned.table.values(assigned.column(side)) for side in ("male", "female")]
        try:
            return cls([((male or "").strip(), (female or "").strip()) for male, female in zip(*columns, strict=True)])
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def swapped(self, sentence: str) -> str:
        """Returns the sentence with every gender word replaced by its counterpart in the same case (lower, Title or UPPER)."""
        return _WORD.sub(lambda found: self._counterpart(found[0]), sentence)

    def has_any(self, sentence: str) -> bool:
        """Returns whether the sentence contains a gender word."""
        return any(word in self.counterparts for word in _words(sentence))

    def ambiguous(self, sentences: Iterable[str]) -> Counter[str]:
        """Returns the number of occurrences of each word with several counterparts."""
        found = Counter(word for sentence in sentences for word in _words(sentence))
        return Counter({word: number for word, number in found.items() if len(self.counterparts.get(word, ())) > 1})

    def _counterpart(self, word: str) -> str:
        others = self.counterparts.get(word.lower())
        if others is None:
            return word
        if word.isupper() and len(word) > 1:
            return others[0].upper()
        return others[0].capitalize() if word[0].isupper() else others[0]


def _words(sentence: str) -> Iterable[str]:
    return (found[0].lower() for found in _WORD.finditer(sentence))
