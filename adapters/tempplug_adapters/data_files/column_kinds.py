"""What an Arrow column holds: its kind, which of its values are missing, and its numbers."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from tempplug_adapters.data_files.roles import (
    CATEGORY,
    IMAGE,
    INTEGER,
    LISTED,
    MISSING,
    NUMBER,
    OTHER,
    TEXT,
    TEXTS,
    TIME,
    VECTOR,
)

MISSING_NUMBERS: Final = ("", "nan", "na", "n/a", "<na>", "null", "none", "nat")
"""Words, in lower case, that stand for a missing number or time."""
_SAMPLE = 1000
_TRUTH = r"^(?i:true|false)$"
_INTEGER = r"^-?\d+$"
_LIST = r"""^\[(\s*['"](?s:.*)['"]\s*|[\s\d.,eE+-]*)\]$"""
_TIME = r"^\d{4}-\d\d?-\d\d?([T ]\d\d?:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?(\d\d)?))?)?$"


def kind_of_column(column: Any) -> str:
    """Returns the kind of all values of a column; texts that are all numbers, ISO times, true and false, or lists are so."""
    kind = column.type
    if pa.types.is_null(kind):
        return MISSING
    if is_text(kind):
        return _kind_of_texts(column)
    if _is_list(kind):
        if is_text(kind.value_type) or pa.types.is_null(kind.value_type):
            return TEXTS
        return VECTOR if pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type) else OTHER
    if pa.types.is_struct(kind):
        return IMAGE if {kind.field(place).name for place in range(kind.num_fields)} == {"bytes", "path"} else OTHER
    simple = {
        CATEGORY: pa.types.is_boolean(kind),
        INTEGER: pa.types.is_integer(kind),
        NUMBER: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        TIME: pa.types.is_timestamp(kind) or pa.types.is_date(kind),
        IMAGE: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    }
    return next((name for name, holds in simple.items() if holds), OTHER)


def _kind_of_texts(column: Any) -> str:
    for kind, pattern in ((INTEGER, _INTEGER), (NUMBER, None), (TIME, _TIME), (CATEGORY, _TRUTH), (LISTED, _LIST)):
        seen = False
        for chunk in column.chunks:
            # most columns of texts are no numbers in their first rows
            if not _all_are(chunk.slice(0, _SAMPLE), pattern) or not _all_are(chunk, pattern):
                break
            seen = seen or has_values(chunk.slice(0, _SAMPLE)) or has_values(chunk)
        else:
            if seen:
                return kind
            return MISSING if not any(has_text(chunk) for chunk in column.chunks) else TEXT
    return TEXT


def _all_are(chunk: Any, pattern: str | None) -> bool:
    """Returns whether the texts that are not missing match a pattern, or are numbers."""
    if pattern is not None:
        return bool(pc.all(pc.match_substring_regex(without_missing(chunk), pattern), min_count=0).as_py())
    with suppress(pa.ArrowInvalid):
        _cast(chunk, pa.float64())
        return True
    return False


def _cast(words: Any, kind: Any) -> Any:
    """Returns texts as numbers, null or NaN for a missing one; raises `ArrowInvalid` where a text is no number."""
    with suppress(pa.ArrowInvalid):  # most have no word for a missing number, which takes long to look for
        return words.cast(kind)
    return without_missing(words).cast(kind)


def has_values(chunk: Any) -> bool:
    """Returns whether a text is neither blank nor a word for a missing number."""
    return bool(len(chunk) > without_missing(chunk).null_count)


def has_text(chunk: Any) -> bool:
    """Returns whether a text is not blank."""
    return bool(pc.any(pc.not_equal(pc.utf8_trim_whitespace(chunk), "")).as_py())


def without_missing(chunk: Any) -> Any:
    """Returns texts without blanks around them, with null for those that stand for missing numbers."""
    words = pc.utf8_trim_whitespace(chunk)
    missing = pc.is_in(pc.utf8_lower(words), pa.array(MISSING_NUMBERS, words.type))
    return pc.if_else(missing, pa.scalar(None, words.type), words)


def missing_mask(chunk: Any, kind: str) -> Any:
    """Returns which values are missing: nulls, blank texts, empty lists; of numbers also NaN and `MISSING_NUMBERS`."""
    if is_text(chunk.type):
        if kind in (INTEGER, NUMBER, TIME, CATEGORY):
            return pc.is_null(without_missing(chunk))
        return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(chunk), ""), True)
    if _is_list(chunk.type):
        return pc.fill_null(pc.equal(pc.list_value_length(chunk), 0), True)
    return pc.is_null(chunk, nan_is_null=True)


def as_numbers(chunk: Any, kind: str) -> Any:
    """Returns a chunk of numbers, texts of numbers or truth values as int64 or float64; a missing one is null."""
    if is_text(chunk.type):
        chunk = _cast(chunk, {INTEGER: pa.int64(), CATEGORY: pa.bool_()}.get(kind, pa.float64()))
    if pa.types.is_floating(chunk.type):
        chunk = pc.if_else(pc.is_nan(chunk), pa.scalar(None, chunk.type), chunk)
    return chunk.cast(pa.int64() if kind == INTEGER else pa.float64())


def as_times(column: Any, dated: bool | None = None) -> Any:
    """Returns numbers or ISO times as a type that sorts without rounding where it can; None if a value is neither.

    Args:
        column: a `pyarrow.ChunkedArray` without missing values.
        dated: whether texts are ISO times; None: as the first one is.
    """
    if not is_text(column.type):
        return column
    words = pc.utf8_trim_whitespace(column)
    kinds = [pa.int64(), pa.decimal128(38, 9), pa.float64()]
    if is_dated(words[0].as_py()) if dated is None else dated:
        kinds = [pa.timestamp("ns", "UTC")]
        words = pc.replace_substring_regex(words, r"^(.{10})$", r"\1T00:00")
        words = pc.replace_substring_regex(words, r"^(.{10}.[\d:.]+)( ?(Z|UTC))?$", r"\1Z")
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return words.cast(kind)
    return None


def is_dated(word: str) -> bool:
    """Returns whether a text begins like an ISO time."""
    return re.match(r"\d{4}-\d\d-", word) is not None


def is_text(kind: Any) -> bool:
    """Returns whether an Arrow type is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
