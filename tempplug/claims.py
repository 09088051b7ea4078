"""What a class says of its methods, and whether a subclass has made it untrue by writing one of them anew."""

from __future__ import annotations

from functools import cache


@cache
def holds(kind: type, claim: str, *methods: str) -> bool:
    """Returns whether ``claim`` was written with, or after, the methods that it speaks of.

    Args:
        kind: a class that has all of these names.
        claim: name of an attribute or a method.
        methods: that it speaks of.
    """

    def depth(name: str) -> int:
        return [name in each.__dict__ for each in kind.__mro__].index(True)

    return depth(claim) <= min(map(depth, methods))
