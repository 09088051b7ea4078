"""Validates result files: the fields of the JSON object must match those of its dataclass."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from tempplug.cli import printable
from tempplug.errors import DataError

_LARGEST = 1e30


def read_object(path: Path, version: int, what: str) -> dict[str, Any]:
    """Returns the JSON object of a file; see `parse_object`.

    Raises:
        DataError: the file cannot be read, is not JSON, or has another format.
    """
    return parse_object(read_text(path), str(path), version, what)


def read_text(path: Path, what: str = "") -> str:
    """Returns the text of a file; raises `DataError`, which begins with ``what``, if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{what} {path} cannot be read: {error.strerror or error}.".lstrip()) from error
    except ValueError as error:
        raise DataError(f"{what} {path} is not text in UTF-8 ({error}): it was damaged.".lstrip()) from error


def parse_object(text: str, where: str, version: int | None = None, what: str = "") -> dict[str, Any]:
    """Returns a JSON object without its ``format``.

    Args:
        text: the JSON.
        where: prefix of error messages.
        version: the required value of ``format``; None if it has none.
        what: description of the object, for messages.

    Raises:
        DataError: the text is not JSON, or no object of this format.
    """
    try:
        content = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}): it was truncated or changed by hand.") from error
    if not isinstance(content, dict):
        raise DataError(f"{where} is not a JSON object.")
    if content.pop("format", None) != version:
        raise DataError(f"{where} is not a {what} of format {version}.")
    return content


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def check_fields(kind: type[Any], content: object, where: str, unprintable: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a JSON object after checking that its fields have the names and types of a dataclass.

    A field with a default may be missing.

    Args:
        kind: the dataclass; its module must import the types of its fields and use postponed annotations.
        content: the object.
        where: prefix of error messages.
        unprintable: names of texts that may contain any characters.

    Raises:
        DataError: a field is missing, unknown or of another type; the message names it.
    """
    declared, hints = {each.name: str(each.type) for each in fields(kind)}, _hints(kind)  # type: ignore[arg-type]
    optional = {each.name for each in fields(kind) if (each.default, each.default_factory) != (MISSING, MISSING)}
    found = content.keys() if isinstance(content, dict) else set()
    wrong = sorted((declared.keys() ^ found) - (optional - found))
    if not isinstance(content, dict) or wrong:
        raise DataError(f"{where}: its fields must be those of {kind.__name__}; {', '.join(wrong)} are missing or unexpected.")
    for name, declaration in declared.items():
        fits = isinstance(content.get(name), str) if name in unprintable else _fits(content.get(name), hints[name])
        if name in content and not fits:
            raise DataError(f"{where}: '{name}' must be {declaration}, finite and printable; it is {_short(content[name])}.")
    return content


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"it holds {word}")


def _short(value: object) -> str:
    # the text of nested lists could be arbitrarily long
    return repr(value)[:80] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _fits(value: object, kind: Any) -> bool:
    """Returns whether a value read from JSON is of a declared type, and finite and printable; Any is a setting of a recipe."""
    if kind is str:
        return isinstance(value, str) and value.isprintable()
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
    if kind is bool or kind is NoneType:
        return isinstance(value, kind)
    if kind is Any:
        items = value if isinstance(value, list) else [value]
        return all(each is None or isinstance(each, bool) or _fits(each, str) or _fits(each, float) for each in items)
    inside = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, each) for each in inside)
    if get_origin(kind) is Mapping:
        return isinstance(value, dict) and all(_fits(key, str) and _fits(each, inside[1]) for key, each in value.items())
    return isinstance(value, list) and all(_fits(each, inside[0]) for each in value)


def plain(text: str) -> str:
    """Returns text as one line without terminal control characters, since messages may quote libraries and file names."""
    return printable(" ".join(text.split()))
