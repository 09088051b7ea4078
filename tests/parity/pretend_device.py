"""A device that is none: tensors that say they lie on it and compute on the CPU, so that its paths run on every machine.

Operations on it are noted, and those that would make Python wait for a real device, such as reading a number.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretend"
# What needs values or a shape that only they give; `aten::index` by booleans, and copies to the CPU, are told apart below.
WAITING = {
    f"aten::{name}"
    for name in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "bincount", "equal", "is_nonzero")
}
# What launches no kernel.
VIEWS = {
    f"aten::{name}"
    for name in (
        *("alias", "as_strided", "detach", "detach_", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
        *("squeeze", "t", "transpose", "unsqueeze", "view", "_reshape_alias", "_unsafe_view", "_local_scalar_dense"),
        *("empty", "empty_like", "empty_strided", "new_empty"),
    )
}
operations: list[str] = []
waits: list[str] = []
_registered: list[torch.library.Library] = []


class Pretended(Tensor):
    """A tensor of the device, which holds one of the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Pretended:
        pretended: Pretended = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, layout=held.layout, device=f"{NAME}:0"
        )
        pretended.held = held
        return pretended

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})

    def tolist(self) -> Any:
        waits.append(f"tolist {_place()}")
        return self.held.tolist()


def _place() -> str:
    """Returns the file, the function and the line of the package that asked for an operation."""
    frames = [frame for frame in traceback.extract_stack() if "/tempplug/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}:{frames[-1].lineno}" if frames else ""


class _Module(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _on_cpu(value: object) -> object:
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value.held if isinstance(value, Pretended) else value


def _run(operation: Any, args: Any, kwargs: Any) -> Any:
    """Computes an operation on the CPU, and notes it."""
    name, device = operation._schema.name, kwargs.get("device")
    given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Pretended)]
    read = device is not None and torch.device(device).type == "cpu"
    chosen = name in ("aten::index", "aten::index_put_") and any(
        index is not None and index.dtype == torch.bool for index in args[1]
    )
    if name not in VIEWS:
        operations.append(name)
    if name in WAITING or chosen or (read and given):
        waits.append(f"{name} {_place()}")
    outcome = operation(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))
    if read or not (given or device is not None):
        return outcome
    by_held = {id(value.held): value for value in given}  # what an operation writes in place stays the tensor that it was

    def pretend(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        known = by_held.get(id(value))
        return Pretended(value) if known is None else known

    return tree_map(pretend, outcome)


def install() -> None:
    """Makes torch know the device, once; the loss takes its tensors as ordinary ones from then on."""
    if _registered:
        return
    from tempplug.call import read

    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    # Assigning to the data of a parameter would leave `held` as it was.
    # Its own thread, which torch gives a device in a backward pass, may end the process where an error leaves it.
    torch.autograd.set_multithreading_enabled(False)
    torch.__future__.set_swap_module_params_on_conversion(True)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda operation, *args, **kwargs: _run(operation, args, kwargs), "PrivateUse1")
    _registered.append(library)
    read._PLAIN = (*read._PLAIN, Pretended)


def forget() -> None:
    """Empties the notes."""
    operations.clear()
    waits.clear()
