"""Validates result files: the fields of the JSON object must match those of its dataclass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

from tempplug.cli import printable
from tempplug.errors import DataError

_LARGEST = 1e30


def read_object(path: Path, version: int, what: str) -> dict[str, Any]:
    """Returns the JSON object of a file without its ``format``.

    Args:
        path: the file.
        version: the required value of ``format``.
        what: description of the file, for messages.

    Raises:
        DataError: the file cannot be read, is not JSON, or has another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}): it was truncated or changed by hand.") from error
    if not isinstance(content, dict) or content.pop("format", None) != version:
        raise DataError(f"{path} is not a {what} of format {version}.")
    return content


def check_fields(kind: type[Any], content: object, where: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns a JSON object after checking that its fields have the names and types of a dataclass.

    A field with a default may be missing.

    Args:
        kind: the dataclass; its module must use postponed annotations.
        content: the object.
        where: prefix of error messages.
        more: type declarations that add to or replace those of the dataclass.

    Raises:
        DataError: a field is missing, unknown or of another type; the message names it.
    """
    declared = {each.name: str(each.type) for each in fields(kind)} | dict(more or {})
    optional = {each.name for each in fields(kind) if (each.default, each.default_factory) != (MISSING, MISSING)}
    found = content.keys() if isinstance(content, dict) else set()
    wrong = sorted((declared.keys() ^ found) - (optional - found))
    if not isinstance(content, dict) or wrong:
        raise DataError(f"{where}: its fields must be those of {kind.__name__}; {', '.join(wrong)} are missing or unexpected.")
    for name, declaration in declared.items():
        if name in content and not _CHECKS[declaration](content[name]):
            raise DataError(f"{where}: '{name}' must be {declaration}, finite and printable; it is {_short(content[name])}.")
    return content


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"it holds {word}")


def _short(value: object) -> str:
    # the text of nested lists could be arbitrarily long
    return repr(value)[:80] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_simple(value: object) -> bool:
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


def _is_setting(value: object) -> bool:
    return _is_simple(value) or (isinstance(value, list) and all(map(_is_simple, value)))


def _mapping(inside: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(_is_text(key) and inside(each) for key, each in value.items())


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "str": _is_text,
    "lines": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or _is_text(value),
    "bool": lambda value: isinstance(value, bool),
    "int": _is_whole,
    "float": _is_number,
    "tuple[str, ...]": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "Mapping[str, float]": _mapping(_is_number),
    "Mapping[str, Sequence[float]]": _mapping(lambda value: isinstance(value, list) and all(map(_is_number, value))),
    "Mapping[str, Mapping[str, float | str]]": _mapping(_mapping(lambda value: _is_text(value) or _is_number(value))),
    "Mapping[str, str]": _mapping(_is_text),
    "Mapping[str, str | int]": _mapping(lambda value: _is_text(value) or _is_whole(value)),
    "Mapping[str, Any]": _mapping(_is_setting),
}


def plain(text: str) -> str:
    """Returns text as one line without terminal control characters, since messages may quote libraries and file names."""
    return printable(" ".join(text.split()))
