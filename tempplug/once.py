"""What an object finds out about itself on first use, and then keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """What `functools.cached_property` does, without the lock that it takes before Python 3.12 and that small batches feel.

    Args:
        function: of the object alone; two threads that ask at the same time may both call it.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self._name = function, function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> once[T] | T:
        """Returns the value; where it is kept already, Python finds it without coming here."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value
