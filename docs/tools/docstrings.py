"""An extension of griffe that makes our docstrings and options ready for Markdown. It must not depend on any of them."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Fences doctests, which Markdown would read as quotations, and shows the type of an option without its range."""

    def on_instance(self, *, node: Any, obj: griffe.Object, agent: Any, **kwargs: Any) -> None:
        """Encloses doctests, from ``>>>`` to the next empty line, in a code fence."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Replaces ``Annotated[float, Number(...)]`` by ``float``."""
        for parameter in func.parameters:
            kind = parameter.annotation
            if isinstance(kind, griffe.ExprSubscript) and str(kind.left) == "Annotated":
                assert isinstance(kind.slice, griffe.ExprTuple)
                parameter.annotation = kind.slice.elements[0]
