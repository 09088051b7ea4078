"""Reads the pickles in which public data sets come, and builds arrays, lists, dictionaries, words and numbers: nothing else.

Python's own unpickler is not used, because a pickle is a program that may import and call anything. Here its instructions
are looked at one by one; what is not among the few that arrays need is refused, and an array is made from its bytes only
after shape and type were checked. It must not know which data sets there are.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tempplug.errors import DataError

_KINDS: Final = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}
# What a pickle may name, by the module names of Python 2 and 3 and of old and new NumPy and SciPy.
_NAMES: Final = {
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "scipy.sparse.csr csr_matrix": "csr",
    "scipy.sparse._csr csr_matrix": "csr",
    "collections defaultdict": "defaultdict",
    "__builtin__ list": "list",
    "builtins list": "list",
    "_codecs encode": "encode",  # how Python 3 writes bytes in an old protocol
    "__builtin__ bytes": "bytes",  # and none
}
_VALUES: Final = {"INT", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_WORDS: Final = {"BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
_CONSTANTS: Final[dict[str, Any]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK: Final = object()


@dataclass(frozen=True)
class SparseRows:
    """A matrix in compressed rows as it was written; nothing about it is checked yet.

    Attributes:
        data: [n] values.
        indices: [n] column of each value.
        indptr: [rows + 1] where each row begins.
        shape: rows and columns.
    """

    data: Any
    indices: Any
    indptr: Any
    shape: Any

    def dense(self, most_bytes: int) -> NDArray[Any]:
        """Returns the matrix [rows, columns] with zeros written out; values at the same place are added, as SciPy does.

        Args:
            most_bytes: that it may take.

        Raises:
            DataError: the parts do not fit together, or it would take more.
        """
        rows, columns = self._checked()
        if rows * columns * self.data.dtype.itemsize > most_bytes:
            raise DataError(f"its matrix of {rows} x {columns} would take more than {most_bytes >> 20} MiB.")
        matrix = np.zeros((rows, columns), self.data.dtype)
        np.add.at(matrix, (self.row_of_each(), self.indices.astype(np.int64)), self.data)
        return matrix

    def row_of_each(self) -> NDArray[Any]:
        """Returns the row of each value [n]; raises like `dense`."""
        rows, _ = self._checked()
        return np.repeat(np.arange(rows), np.diff(self.indptr.astype(np.int64)))

    def _checked(self) -> tuple[int, int]:
        shape = self.shape if isinstance(self.shape, tuple | np.ndarray) else ()
        if len(shape) != 2 or not all(isinstance(size, int | np.integer) and size >= 0 for size in shape):
            raise DataError("its matrix must have two sizes, integers of at least 0.")
        rows, columns = map(int, shape)
        parts = (self.data, self.indices, self.indptr)
        if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in parts):
            raise DataError("its matrix must have data, indices and indptr, arrays of one dimension.")
        if self.data.dtype.kind not in "iuf" or self.indices.dtype.kind not in "iu" or self.indptr.dtype.kind not in "iu":
            raise DataError("its matrix must have numbers as data, and integers as indices and indptr.")
        if len(self.indptr) != rows + 1 or self.indptr[0] != 0 or self.indptr[-1] != len(self.data):
            raise DataError(f"its matrix must have {rows + 1} row starts, from 0 to its number of values {len(self.data)}.")
        if len(self.indices) != len(self.data) or bool((self.indptr[1:] < self.indptr[:-1]).any()):
            raise DataError("its matrix must have as many indices as values, and row starts that never fall.")
        if len(self.indices) and not (int(self.indices.min()) >= 0 and int(self.indices.max()) < columns):
            raise DataError(f"its matrix has {columns} columns, but values in {self.indices.min()} to {self.indices.max()}.")
        return rows, columns


def load_pickled(content: bytes) -> Any:
    """Returns what a pickle holds: `SparseRows`, NumPy arrays, lists, tuples, dictionaries, words and numbers.

    Words of Python 2 are read as Latin-1.

    Args:
        content: of the file.

    Raises:
        DataError: it is cut or damaged, or names anything else; the message is the reason alone, so that the caller says
            which file it is.
    """
    machine = _Machine()
    try:
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name == "STOP":
                return machine.result()
            machine.step(instruction.name, argument)
    except DataError:
        raise
    # what a pickle that was cut or made up raises is whatever its last instruction met
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise DataError(f"it is damaged: {type(error).__name__}.") from error
    raise DataError("it is cut off.")


class _Blank:
    """Something that was named and is filled by a later instruction."""

    def __init__(self, kind: str, code: str = "") -> None:
        self.kind = kind
        self.code = code
        self.value: Any = self

    def fill(self, state: Any) -> None:
        match self.kind:
            case "dtype":
                # version, byte order, and what only types of parts have
                version, order, *rest = state
                if version not in (3, 4) or order not in ("<", ">", "|", "=") or rest[:3] != [None, None, None]:
                    raise DataError("it holds an array of other things than numbers.")
                self.value = np.dtype(order.replace("|", "=") + self.code)
            case "array":
                _, shape, kind, by_columns, raw = state
                self.value = _array(shape, kind, bool(by_columns), raw)
            case "csr":
                self.value = SparseRows(state.get("data"), state.get("indices"), state.get("indptr"), state.get("_shape"))
            case _:
                raise DataError("it is damaged: an instruction does not fit what it is for.")


def _array(shape: Any, kind: Any, by_columns: bool, raw: Any) -> NDArray[Any]:
    block = raw.encode("latin-1") if isinstance(raw, str) else raw
    if not isinstance(kind, np.dtype) or not isinstance(block, bytes) or not all(type(size) is int for size in shape):
        raise DataError("it holds an array of other things than numbers.")
    if len(shape) > 4 or any(size < 0 for size in shape) or math.prod(shape) * kind.itemsize != len(block):
        raise DataError(f"it holds an array whose shape does not fit its {len(block)} bytes.")
    return np.frombuffer(block, kind).reshape(shape, order="F" if by_columns else "C")


class _Machine:
    """The stack and the memory that a pickle's instructions work on."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def result(self) -> Any:
        if len(self.stack) != 1 or isinstance(self.stack[0], _Blank) or self.stack[0] is _MARK:
            raise DataError("it is damaged: it does not end with one thing.")
        return self.stack[0]

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES or name in _WORDS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memory[len(self.memory) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            kept = self.memory[argument]
            stack.append(kept.value if isinstance(kept, _Blank) else kept)
        elif name in _TUPLES:
            count = _TUPLES[name]
            parts = stack[len(stack) - count :]
            if len(parts) != count or any(part is _MARK for part in parts):
                raise DataError("it is damaged: a tuple lacks its parts.")
            stack[len(stack) - count :] = [tuple(parts)]
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._to_mark()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            self._set([stack.pop(-2), stack.pop()] if name == "SETITEM" else self._to_mark())
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._name(argument if name == "GLOBAL" else f"{stack.pop(-2)} {stack.pop()}")
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack.append(_made(stack.pop(), arguments, name))
        elif name == "BUILD":
            state = stack.pop()
            blank: _Blank = self._top(_Blank)
            blank.fill(state)
            stack[-1] = blank.value
        elif name not in ("PROTO", "FRAME"):
            raise DataError(f"it has the instruction {name}, which numbers do not need and which is not allowed.")

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise DataError("it is damaged: an instruction does not fit what it is for.")
        return self.stack[-1]

    def _to_mark(self) -> list[Any]:
        place = next((place for place in range(len(self.stack) - 1, -1, -1) if self.stack[place] is _MARK), None)
        if place is None:
            raise DataError("it is damaged: a list lacks its beginning.")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def _set(self, items: list[Any]) -> None:
        keys, values = items[::2], items[1::2]
        # other keys, such as deep tuples, could be compared without end
        if len(keys) != len(values) or not all(isinstance(key, str | bytes | int) for key in keys):
            raise DataError("it is damaged: a dictionary has other keys than words and numbers.")
        self._top(dict).update(zip(keys, values, strict=True))

    def _name(self, name: str) -> None:
        if name not in _NAMES:
            raise DataError(f"it asks for {name.replace(' ', '.')!r:.80}, which is not allowed.")
        self.stack.append(_Blank(_NAMES[name]))


def _made(what: Any, arguments: Any, instruction: str) -> Any:
    """Returns what calling a name gives; the name is one of `_NAMES`."""
    match (what.kind if isinstance(what, _Blank) else None, arguments):
        case "array", (_Blank(kind="ndarray"), _, _):
            return _Blank("array")
        case "dtype", (str() as code, *_) if code in _KINDS:
            return _Blank("dtype", code)
        case "csr", () if instruction == "NEWOBJ":
            return _Blank("csr")
        case "defaultdict", (_Blank(kind="list"),):
            return {}
        case "encode", (str() as text, "latin1"):
            return text.encode("latin-1")
        case "bytes", ():
            return b""
    raise DataError("it calls something that arrays do not need and that is not allowed.")
