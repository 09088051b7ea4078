"""An extension of griffe: doctests of docstrings become fenced code, as Markdown takes ``>>>`` for a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences every run of lines that begins with ``>>>`` and ends with an empty line."""

    def on_instance(self, *, node: Any, obj: griffe.Object, agent: Any, **kwargs: Any) -> None:
        """Rewrites the docstring of whatever was read."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", obj.docstring.value)
