"""Reads pickles of public data sets: only arrays, lists, dictionaries, words and numbers.

A pickle is a program that may import and call anything. This reader rejects names outside `_NAMES` and instructions outside
`_ALLOWED`, and checks type and shape of an array before creating it.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any, Final

import numpy as np

from tempplug.errors import DataError

_KINDS: Final = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}
_TUPLES: Final = {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_INSTRUCTIONS: Final = (
    "PROTO FRAME STOP INT BININT BININT1 BININT2 LONG1 BINFLOAT NONE NEWTRUE NEWFALSE BINSTRING SHORT_BINSTRING BINUNICODE "
    "SHORT_BINUNICODE BINBYTES SHORT_BINBYTES BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET MARK EMPTY_LIST APPEND APPENDS "
    "EMPTY_DICT SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD"
)
_ALLOWED: Final = _TUPLES.union(_INSTRUCTIONS.split())
_MOST_TUPLES: Final = 1000


def load_pickled(content: bytes) -> Any:
    """Returns the content of a pickle: an array, a list, or a dictionary with words or numbers as keys.

    Args:
        content: content of the file; words of Python 2 are decoded as Latin-1.

    Raises:
        DataError: it is damaged, or contains anything else; the message only gives the reason, to which the caller adds the
            file.
    """
    try:
        _check_instructions(content)
        found = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except DataError:
        raise
    except Exception as error:  # damaged pickles raise exceptions of many classes
        raise DataError(f"it is damaged: {type(error).__name__}.") from error
    if not isinstance(found, np.ndarray | list | dict):
        raise DataError(f"it holds a {type(found).__name__}, not arrays, a list or a dictionary.")
    if isinstance(found, dict) and not all(isinstance(key, str | bytes | int) for key in found):
        raise DataError("it holds a dictionary with other keys than words and numbers.")
    return found


def _check_instructions(content: bytes) -> None:
    """Rejects instructions that data do not need, or that take memory or time out of proportion to the file."""
    tuples, before, tuple_places, stored = 0, "", set(), 0
    argument: Any
    for instruction, argument, _ in pickletools.genops(content):
        name = instruction.name
        if name not in _ALLOWED:
            raise DataError(f"it has the instruction {name}, which data do not need and which is not allowed.")
        tuples += name in _TUPLES
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = stored if name == "MEMOIZE" else argument
            stored += 1
            if place > len(content):  # Python would allocate as many places
                raise DataError("it is damaged: it reserves more places than it has bytes.")
            if before in _TUPLES:
                tuple_places.add(place)
        # The hash of deeply nested or shared tuples could take forever.
        if tuples > _MOST_TUPLES or (name in ("BINGET", "LONG_BINGET") and argument in tuple_places):
            raise DataError("it has more tuples than data need.")
        before = name


class _Kind:
    """The checked type of an array."""

    def __init__(self, code: str, *flags: Any) -> None:
        if code not in _KINDS:
            raise DataError("it holds an array of other things than numbers.")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        version, order, *parts = state
        if version not in (3, 4) or order not in ("<", ">", "|", "=") or parts[:3] != [None, None, None]:
            raise DataError("it holds an array of other things than numbers.")
        self.kind = np.dtype(order.replace("|", "=") + self.code)


class _Array(np.ndarray):
    """An array that checks the content that a pickle assigns to it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        block = raw.encode("latin-1") if isinstance(raw, str) else raw
        if not isinstance(kind, _Kind) or not isinstance(block, bytes) or not all(type(size) is int for size in shape):
            raise DataError("it holds an array of other things than numbers.")
        if len(shape) > 4 or any(size < 0 for size in shape) or math.prod(shape) * kind.kind.itemsize != len(block):
            raise DataError(f"it holds an array whose shape does not fit its {len(block)} bytes.")
        super().__setstate__((1, shape, kind.kind, bool(by_columns), block))  # type: ignore[arg-type]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise DataError(f"it asks for {f'{module}.{name}'!r:.80}, which is not allowed.")
        return _NAMES[module, name]


# Allowed names, with the module names of Python 2 and 3 and of old and new NumPy.
_NAMES: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Kind,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(0),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Array(0),
    ("_codecs", "encode"): lambda text, _: text.encode("latin-1"),  # bytes that Python 3 writes in an old protocol
    ("__builtin__", "bytes"): lambda: b"",  # the same for empty bytes
}
