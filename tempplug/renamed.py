"""Methods that have another name now: what was written for the former name still works, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any


def follow(cls: type, names: Mapping[str, str]) -> None:
    """Lets a class answer to former names of methods, and gives what it defines under these their new ones.

    Args:
        cls: a base or, from its ``__init_subclass__``, a class of a third party.
        names: the new name of each method by its former one.
    """
    for former, name in names.items():
        if name in cls.__dict__:
            setattr(cls, former, _former(cls.__dict__[name], former, name))
        elif former in cls.__dict__:
            warnings.warn(
                f"{cls.__module__}.{cls.__qualname__} defines {former}(), whose name is {name}() now: rename it.",
                DeprecationWarning,
                stacklevel=4,
            )
            setattr(cls, name, cls.__dict__[former])


def _former(method: Callable[..., Any], former: str, name: str) -> Callable[..., Any]:
    """Returns a method that warns and does what another one does."""

    @wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        warnings.warn(f"{former}() is called {name}() now.", DeprecationWarning, stacklevel=2)
        return method(*arguments, **options)

    return called
