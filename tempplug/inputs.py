"""What each argument of a call of the loss must be, and the errors for all else; must not depend on layouts or strategies.

All arguments are dense tensors on one device, view_a's. Integers of any width become int64; embeddings of different
floating-point types become the type that `torch.promote_types` gives (float16 beside bfloat16: float32), and everything after
these checks is computed in at least float32. Lists and NumPy arrays are refused, because a list of tensors means several heads.
What makes a tensor of them is said in `tempplug.remedies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError, TensorError, nearest
from tempplug.precision import at_least_float32
from tempplug.remedies import of_shape, of_value, type_name
from tempplug.transforms import valueless

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_INTEGERS = frozenset({*_SIGNED, torch.uint8, torch.uint16, torch.uint32, torch.uint64})


@dataclass(frozen=True, slots=True)
class Numbers:
    """A kind of numbers.

    Attributes:
        words: its name in messages.
        conversion: the method that converts a tensor of other numbers.
        creation: the dtype to write where a tensor is made of a list or an array.
    """

    dtypes: frozenset[torch.dtype]
    words: str
    conversion: str
    creation: str


FLOATS = Numbers(_FLOATS, "floating point (float16, bfloat16, float32 or float64)", "float()", "torch.float32")
INTEGERS = Numbers(_INTEGERS, "integers", "long()", "torch.int64")
BOOLEANS = Numbers(frozenset({torch.bool}), "boolean", "bool()", "torch.bool")


@dataclass(frozen=True, slots=True)
class Argument:
    """One row of the table; shape, readers and the meaning of a mask's two dimensions are for messages."""

    numbers: Numbers
    shape: str
    readers: str = ""
    meaning: str = "rows of view_a by rows of view_b"


ARGUMENTS: dict[str, Argument] = {
    "view_a": Argument(FLOATS, "[B, D]"),
    "view_b": Argument(FLOATS, "[B, D]"),
    "scores": Argument(FLOATS, "[N, M]", "`from_scores` does"),
    "queue": Argument(FLOATS, "[K, D]", "layouts 'queue' and 'cross-view' do"),
    "hard_negatives": Argument(FLOATS, "[H, D] or [B, k, D]", "every layout but 'masks' does"),
    "labels": Argument(INTEGERS, "[B]", "layout 'labels' (supervised contrastive learning) and strategy 'head-tail' do"),
    "index": Argument(INTEGERS, "[B]", "strategy 'individual' and objective 'sogclr' do"),
    "uncertainty": Argument(FLOATS, "[B]", "strategy 'uncertainty' does"),
    "positive_mask": Argument(BOOLEANS, "[B, M]", "layout 'masks' does"),
    "negative_mask": Argument(BOOLEANS, "[B, M]", "layout 'masks' does"),
    "targets": Argument(FLOATS, "[B, M]", "layout 'cross-view' does"),
    "hard_negative_mask": Argument(BOOLEANS, "[B, k]", "every layout but 'masks' does", "one value a hard negative"),
}


class Reader(Protocol):
    """A layout or a strategy, as far as this module reads it."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]


def check_tensor(name: str, value: object, device: torch.device, shown: str = "") -> Tensor:
    """Returns the value if it is a dense tensor of the right numbers on view_a's device; ``shown`` is its name in messages.

    Raises:
        TensorError: it is not; the message says what to write instead.
    """
    argument, shown = ARGUMENTS[name], shown or name
    value = _dense(shown, value, argument.shape, argument.numbers)
    if value.dtype not in argument.numbers.dtypes:
        raise TensorError(
            f"{shown} of dtype {value.dtype} must be {argument.numbers.words}: "
            f"write {shown}.{argument.numbers.conversion} if that is what it means."
        )
    _check_device(shown, value, device)
    return value


def check_embeddings(name: str, value: object, device: torch.device, dimension: int | None = None) -> Tensor:
    """Returns the value if it holds embeddings [B, D], floating point and not empty; D is ``dimension`` where given.

    Raises `TensorError` as `check_tensor`, and `ShapeError` for other shapes.
    """
    embeddings = check_tensor(name, value, device)
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ShapeError(
            f"{name} of shape {list(embeddings.shape)} must be {ARGUMENTS[name].shape}, embeddings one a row, neither number "
            f"0{of_shape(name, embeddings, ())}."
        )
    if dimension is not None and embeddings.shape[1] != dimension:
        raise ShapeError(
            f"{name} has {embeddings.shape[1]} dimensions where view_a has {dimension}"
            f"{of_shape(name, embeddings, (embeddings.shape[1], dimension))}."
        )
    return embeddings


def check_hard_negatives(value: object, device: torch.device, size: int, dimension: int) -> Tensor | None:
    """Returns hard negatives [H, D] or [B, k, D] as [H, D] or [B·k, D]; raises as `check_embeddings`."""
    if value is None:
        return None
    tensor = check_tensor("hard_negatives", value, device)
    if tensor.ndim == 3:
        if tensor.shape[0] != size:
            instead = of_shape("hard_negatives", tensor, (size, tensor.shape[0], tensor.shape[2]))
            raise ShapeError(f"hard_negatives of shape {list(tensor.shape)} must be [H, D] or [{size}, k, D]{instead}.")
        tensor = tensor.flatten(0, 1)
    return check_embeddings("hard_negatives", tensor, device, dimension)


def check_integers(name: str, value: object, device: torch.device, size: int) -> Tensor | None:
    """Returns integers [B] as int64, None where none were given; also raises for other shapes and numbers beyond int64."""
    if value is None:
        return None
    # Of one-hot labels, which are often floating point, the shape is what is wrong.
    _one_a_row(name, _dense(name, value, ARGUMENTS[name].shape, INTEGERS), size)
    return _int64(name, check_tensor(name, value, device))


def check_uncertainty(value: object, device: torch.device, size: int) -> Tensor | tuple[Tensor, Tensor] | None:
    """Returns the uncertainty of each anchor, [B] or a pair of such, None where none was given; NaN raises `NonFiniteError`."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not any(isinstance(item, Tensor) for item in value):
        return _scalars("uncertainty", value, device, size)
    if len(value) != 2:
        raise ShapeError(f"uncertainty holds {len(value)} tensors; wanted one, or a pair (of view_a, of view_b).")
    return _scalars("uncertainty[0]", value[0], device, size), _scalars("uncertainty[1]", value[1], device, size)


def check_mask(name: str, value: object, device: torch.device, wanted: tuple[int, int]) -> Tensor | None:
    """Returns a boolean mask [B, M], None where none was given; raises as `check_tensor`, and `ShapeError` for other shapes."""
    if value is None:
        return None
    mask = check_tensor(name, value, device)
    if tuple(mask.shape) != wanted:
        instead = of_shape(name, mask, wanted)
        raise ShapeError(
            f"{name} of shape {list(mask.shape)} must be of shape {list(wanted)}, {ARGUMENTS[name].meaning}{instead}."
        )
    return mask


def refuse_overlap(positive_mask: Tensor, negative_mask: Tensor) -> None:
    """Raises `ConfigError` where a pair is in both masks."""
    # Their bytes, because a maximum of bytes is many times faster than `any` of booleans.
    if bool((positive_mask.view(torch.uint8) & negative_mask.view(torch.uint8)).max()):
        raise ConfigError("positive_mask and negative_mask overlap: a pair cannot be both.")


def check_read(
    arguments: Mapping[str, object], strategy: Reader, layout: Reader | None = None, others: Set[str] = frozenset()
) -> None:
    """Raises `ConfigError` where an argument was given that neither strategy, layout nor ``others`` read; names what would."""
    for name, value in arguments.items():
        if value is None or name in strategy.takes or name in others:
            continue
        if name not in ARGUMENTS:
            known = sorted({*ARGUMENTS, *others})
            raise ConfigError(
                f"{name}= is no argument of this loss, and negatives= names no term that reads it.{nearest(name, known)}"
            )
        if layout is None or name not in layout.takes:
            unread = f"not read by strategy '{strategy.name}'"
            if layout is not None:
                unread = f"read neither by layout '{layout.name}' nor by strategy '{strategy.name}'"
            raise ConfigError(f"{name}= is {unread}: {ARGUMENTS[name].readers}. Leave it out, or choose one of them.")


def check_row_argument(name: str, value: object, rows: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Returns the values that a call gives of its rows, for terms on negatives, by the name of the embeddings.

    The value is a tensor [B, ...] for both views, or a dictionary of tensors by that name; ``rows`` are the embeddings.

    Raises:
        TensorError: a value is no dense tensor on view_a's device, or they hold different kinds of numbers.
        ShapeError: it has another number of rows than the embeddings, which may be absent, or rows of two shapes.
        ConfigError: it holds integers beyond int64.
    """
    there = {source: tensor for source, tensor in rows.items() if tensor is not None}
    values = value if isinstance(value, Mapping) else {source: value for source in ("view_a", "view_b") if source in there}
    checked: dict[str, Tensor] = {}
    detached: dict[int, Tensor] = {}  # one of each, so that terms see where two views have the same
    for source, tensor in values.items():
        shown = f"{name}[{source!r}]" if isinstance(value, Mapping) else name
        if source not in there:
            raise ShapeError(f"{shown} has no rows to describe: the call has {', '.join(there)}.")
        device, shape = there["view_a"].device, there[source].shape
        tensor = _dense(shown, tensor, "[B, ...]")
        _check_device(shown, tensor, device)
        if tensor.ndim >= 2 and len(shape) == 3 and tensor.shape[:2] == shape[:2]:
            tensor = tensor.flatten(0, 1)
        count = shape[:-1].numel()
        if tensor.ndim == 0 or tensor.shape[0] != count:
            raise ShapeError(f"{shown} of shape {list(tensor.shape)} must have {count} rows, as {source} has.")
        row_values = detached.setdefault(id(values[source]), tensor.detach())
        checked[source] = _int64(shown, row_values) if row_values.dtype in _INTEGERS else row_values
    kinds = {
        next((kind for kind in (FLOATS, INTEGERS, BOOLEANS) if tensor.dtype in kind.dtypes), None)
        for tensor in checked.values()
    }
    if len(kinds) > 1 or None in kinds:
        told = ", ".join(sorted({str(tensor.dtype) for tensor in checked.values()}))
        raise TensorError(f"{name} holds {told}: all of its rows must be floating point, integers or boolean.")
    shapes = {tensor.shape[1:] for tensor in checked.values()}
    if len(shapes) > 1:
        raise ShapeError(
            f"{name} holds rows of shapes {', '.join(str(list(row_shape)) for row_shape in shapes)}: all must have one."
        )
    return checked


def check_row_integers(name: str, values: Tensor) -> Tensor:
    """Returns what a call gives of some of its rows if it is one integer a row, else raises `ShapeError`."""
    if values.ndim != 1 or values.dtype != torch.int64:
        raise ShapeError(f"{name}= holds {values.dtype} of shape {list(values.shape)}; wanted an integer a row.")
    return values


def check_finite(name: str, values: Tensor) -> None:
    """Raises `NonFiniteError` where rows [B, D] or [B] hold NaN or infinite values; not on CUDA, where it would wait."""
    if unread(values.device):
        return
    finite = torch.isfinite(values.detach())
    if not bool(finite.all()):
        rows = finite if finite.ndim == 1 else finite.all(1)
        bad = (~rows).nonzero().flatten()
        raise NonFiniteError(
            f"{name} holds NaN or infinite values in {bad.numel()} of {rows.numel()} rows (first: row {int(bad[0])}); "
            "the loss needs finite numbers."
        )


def check_padding(zero: Tensor, hard_negatives: Tensor, mask: Tensor | None) -> str:
    """Returns a warning where hard negatives [B, k, D] are rows of zeros and no mask says that these do not exist.

    ``zero`` says which rows of a call are zeros; hard negatives are the last. Not on CUDA, where it would wait.

    Raises:
        ConfigError: the mask is True exactly for rows of zeros.
    """
    if hard_negatives.ndim != 3 or unread(zero.device):
        return ""
    padded = zero[-hard_negatives.shape[:2].numel() :].view(hard_negatives.shape[:2])
    number = int(padded.sum())
    if mask is None and number:
        return (
            f"{number} of {padded.numel()} hard_negatives are rows of zeros, which are negatives of similarity 0: where they "
            "only fill up rows with fewer, say so in hard_negative_mask= [B, k], here and in later batches."
        )
    if mask is not None and number and not padded.all() and torch.equal(padded, mask):
        raise ConfigError(
            "hard_negative_mask is True exactly where hard_negatives are rows of zeros: True means that one is there, so pass "
            "~hard_negative_mask."
        )
    return ""


def unread(device: torch.device) -> bool:
    """Returns whether values are not checked: where Python would wait for the device, or cannot read them."""
    return device.type != "cpu" or valueless()


def check_within(owner: Any, name: str, integers: Tensor, state: Tensor, option: str, count: int | None = None) -> Tensor:
    """Returns integers that choose among a part's numbers; graphs and GPUs check them where they run.

    Args:
        owner: the part of the loss.
        name: of the argument that holds the integers.
        integers: [N].
        state: the numbers.
        option: what their count comes from.
        count: of them; by default the length of ``state``.

    Raises:
        TensorError: they are on another device than the numbers.
        ConfigError: one is below 0, or not below the count.
    """
    if integers.device != state.device:
        raise TensorError(
            f"the state of {owner.kind} '{owner.name}' is on {state.device} where the embeddings are on {integers.device}: "
            "move the loss, loss_fn.to(view_a.device)."
        )
    last = (len(state) if count is None else count) - 1
    if torch.compiler.is_compiling() or integers.device.type not in ("cpu", "mps"):
        torch._assert_async(((integers >= 0) & (integers <= last)).all(), f"{name} must lie between 0 and {last}.")
        return integers
    lowest, highest = int(integers.min()), int(integers.max())
    if lowest < 0 or highest > last:
        wrong = lowest if lowest < 0 else highest
        raise ConfigError(f"{name} holds {wrong}; {option} of {owner.kind} '{owner.name}' allows 0 to {last}.")
    return integers


def common_type(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Returns the tensors in the one floating-point type of all; None stays."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(dtypes) == 1:
        return tensors
    common = reduce(torch.promote_types, dtypes)
    return tuple(None if tensor is None else tensor.to(common) for tensor in tensors)


def _dense(shown: str, value: object, shape: str, numbers: Numbers | None = None) -> Tensor:
    """Returns the value if it is a dense tensor, of any numbers; raises `TensorError`."""
    wanted = shape if numbers is None else f"{shape}, {numbers.words}"
    if not isinstance(value, Tensor):
        instead = of_value(shown, value, "" if numbers is None else numbers.creation)
        raise TensorError(f"{shown} is a {type_name(value)}; wanted a tensor {wanted}{instead}.")
    if value.is_nested:
        raise TensorError(f"{shown} is a tensor of layout nested; wanted a dense one {shape}{of_value(shown, value)}.")
    if value.layout is not torch.strided:
        layout = str(value.layout).removeprefix("torch.").strip("_")
        raise TensorError(f"{shown} is a tensor of layout {layout}; wanted a dense one {shape}: {shown}.to_dense().")
    return value


def _check_device(shown: str, value: Tensor, device: torch.device) -> None:
    if value.device != device:
        raise TensorError(f"{shown} is on {value.device} where view_a is on {device}: write {shown}.to(view_a.device).")
    if device.type == "meta":
        raise TensorError(f"{shown} is on meta, a device without values: the loss needs some.")


def _int64(name: str, tensor: Tensor) -> Tensor:
    integers = tensor.long()
    if tensor.dtype == torch.uint64 and bool((integers < 0).any()):
        raise ConfigError(f"{name} holds numbers beyond int64: the largest is {2**63 - 1}.")
    return integers


def _one_a_row(name: str, values: Tensor, size: int) -> Tensor:
    if tuple(values.shape) != (size,):
        instead = of_shape(name, values, (size,))
        raise ShapeError(f"{name} of shape {list(values.shape)} must have shape [{size}], one value a row of view_a{instead}.")
    return values


def _scalars(shown: str, value: object, device: torch.device, size: int) -> Tensor:
    values = _one_a_row(shown, check_tensor("uncertainty", value, device, shown), size)
    check_finite(shown, values)
    return at_least_float32(values)  # here and once, so that the gradient is rounded once
