"""The roles of texts and the usual names of their columns, as data sets of sentences and of retrieval have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tempplug_adapters.data_files.roles import ANY, TEXT, TEXTS as LIST_OF_TEXTS, VECTOR, Role


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


ANCHOR: Final = Role(
    "anchor",
    (TEXT,),
    _names(
        "anchor query question sentence1 premise sentence text title question1 text1 sent0 sentence_a text_a view_a claim "
        "headline"
    ),
)
POSITIVE: Final = Role(
    "positive",
    (TEXT, LIST_OF_TEXTS),
    _names(
        "positive pos document answer passage context sentence2 hypothesis positives doc question2 text2 sent1 sentence_b "
        "text_b view_b body abstract summary response paraphrase positive_passage positive_passages positive_document "
        "positive_ctxs"
    ),
    required=False,
)
NEGATIVE: Final = Role(
    "negative",
    (TEXT, LIST_OF_TEXTS),
    _names(
        "negative neg negatives hard_negative hard_negatives hard_neg negative_passage negative_passages negative_ctxs "
        "hard_negative_ctxs contradiction"
    ),
    many=True,
    required=False,
)
ID: Final = Role(
    "id",
    ANY,
    _names(
        "id _id idx index qid query_id question_id pid passage_id docid doc_id document_id corpus_id pair_id uid uuid guid "
        "row row_id"
    ),
    required=False,
)
SCORE: Final = Role(
    "score",
    ANY,
    _names(
        "score similarity similarity_score cosine_similarity relatedness_score relevance grade rating sim scores gold_score "
        "quality"
    ),
    many=True,
    required=False,
)
LABEL: Final = Role(
    "label",
    ANY,
    _names(
        "label labels gold_label is_duplicate duplicate entailment_judgment entailment_label entailment is_paraphrase "
        "is_match match is_relevant relevant is_positive"
    ),
    many=True,
    required=False,
)
GROUP: Final = Role(
    "group",
    ANY,
    _names("group group_id cluster topic category class genre source domain split fold lang language url date year author"),
    many=True,
    required=False,
)
"""Columns of topics, languages, dates and the like. No command reads them; the role keeps them from being taken for texts."""
TEXTS: Final = (ANCHOR, POSITIVE, NEGATIVE, ID, SCORE, LABEL, GROUP)
"""Single texts, or pairs, or pairs with hard negatives."""
TEACHER: Final = (
    Role("positive_scores", (VECTOR,), _names("positive_scores pos_scores"), required=False),
    Role("negative_scores", (VECTOR,), _names("negative_scores neg_scores"), required=False),
)
"""Lists of a teacher's scores, of each positive and each hard negative of a row."""
PAIRS: Final = (ANCHOR, replace(POSITIVE, required=True), *TEXTS[2:], *TEACHER)
"""Pairs, perhaps with hard negatives and a teacher's scores."""
LINES: Final = (replace(ANCHOR, kinds=(*ANY, "missing")),)
"""Lines of a file, which are texts whatever they look like."""
GRADES: Final = ("score", "label")
"""Roles of what a pair is worth."""


def texts_of(value: Any) -> Iterator[str]:
    """Yields the texts of a cell that are not blank: of a text itself, of a list its items."""
    yield from (text for text in ([value] if isinstance(value, str) else value or ()) if text and text.strip())
