"""The argument parser of all commands, and text that fits a terminal.

It must not know any command and imports no framework, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tempplug.errors import ConfigError

NARROWEST = 32
"""Fewest letters of the second of two columns; if there is less room, the text stands below the name."""


def columns(rows: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    r"""Returns lines of two columns that fit the terminal, or 80 letters where there is none.

    >>> print("\n".join(columns([("fixed", "one temperature"), ("mm-ts", "a schedule")])))
      fixed  one temperature
      mm-ts  a schedule
    """
    pairs = list(rows)
    margin = len(indent) + max((len(name) for name, _ in pairs), default=0) + 2
    below = shutil.get_terminal_size().columns - margin < NARROWEST
    lines = []
    for name, text in pairs:
        if below:
            lines += [f"{indent}{name}", *wrapped(text, f"{indent}    ")]
        else:
            first, *others = wrapped(text, " " * margin) or [""]
            lines += [f"{indent}{name}".ljust(margin) + first.strip(), *others]
    return [line.rstrip() for line in lines]


def wrapped(text: str, indent: str = "", width: int | None = None) -> list[str]:
    """Returns a text as indented lines of at most ``width`` letters, by default those of the terminal; words stay whole."""
    width = shutil.get_terminal_size().columns if width is None else width
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, **options)


class Help(argparse.HelpFormatter):
    """Formats help with one spelling of each flag; lines of descriptions are kept, and wrapped only where they are too long."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": shutil.get_terminal_size().columns, **options})

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            return action.option_strings[0].replace("--", "--[no-]", 1)
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        values = self._format_args(action, self._get_default_metavar_for_optional(action))
        shown = [spelling for spelling in action.option_strings if "_" not in spelling]
        return f"{', '.join(shown or action.option_strings)} {values}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        lines: list[str] = []
        for line in text.splitlines():
            start = line[: len(line) - len(line.lstrip())]
            lines += [indent + line] if len(line) <= width else wrapped(line.lstrip(), indent + start, width)
        return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """An argument parser with errors of one line and help that fits the terminal. It reads ``_`` in a flag as ``-``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **options})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Returns the namespace and the words that are left, flags among them with hyphens."""
        return super().parse_known_args(list(map(_hyphenated, sys.argv[1:] if args is None else args)), namespace)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError: the message, and the command that lists the flags."""
        raise ConfigError(f"{message} (`{self.prog} -h` lists the flags)")


def _hyphenated(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word
