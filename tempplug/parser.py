"""The argument parser of all commands, and text that fits a terminal.

It must not know any command and imports no framework, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from tempplug.completion import offer
from tempplug.errors import ConfigError

NARROWEST = 32
"""Fewest letters of the second of two columns; if there is less room, the text stands below the name."""
_ABBREVIATED = {"lr": "learning-rate", "wd": "weight-decay"}
_FLAG = re.compile(r"--?[A-Za-z]")


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
    """Formats help with one spelling of each flag; a paragraph is wrapped anew where a line of it is too long."""

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
        for indented, group in itertools.groupby(text.splitlines(), key=lambda line: line[:1] in ("", " ")):
            part = list(group)
            if not indented and any(len(line) > width for line in part):  # a paragraph
                part = [" ".join(part)]
            for line in part:
                start = line[: len(line) - len(line.lstrip())]
                lines += [indent + line] if len(line) <= width else wrapped(line.lstrip(), indent + start, width)
        return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """An argument parser with errors of one line and help that fits the terminal. It reads ``_`` in a flag as ``-``.

    A mistyped flag is named before those that are missing.

    Attributes:
        others: returns the flags that the caller reads from the words that are left.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **options})
        self.others: Callable[[], list[str]] = list

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Returns the namespace; raises ConfigError for words that are left."""
        parsed, left = self.parse_known_args(args, namespace)
        self.refuse(left)
        return parsed

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Returns the namespace and the words that are left, flags among them with hyphens."""
        offer(self)
        required = [action for action in self._actions if action.required and action.dest != argparse.SUPPRESS]
        try:
            for action in required:
                action.required = False  # argparse would name them before it names a mistyped one
            words = map(_hyphenated, sys.argv[1:] if args is None else args)
            parsed, left = super().parse_known_args(list(words), namespace)
        finally:
            for action in required:
                action.required = True
        if missing := [action for action in required if getattr(parsed, action.dest) is None]:
            self.refuse([word for word in left if _FLAG.match(word)])
            names = ", ".join("/".join(action.option_strings) or str(action.metavar or action.dest) for action in missing)
            self.error(f"the following arguments are required: {names}")
        return parsed, left

    def spellings(self) -> list[str]:
        """Returns all flags, with hyphens."""
        own = [spelling for action in self._actions for spelling in action.option_strings if "_" not in spelling]
        return own + self.others()

    def refuse(self, words: Sequence[str]) -> None:
        """Raises ConfigError for words that no flag takes; the message has the nearest flag."""
        known = self.spellings() if words else []
        flags = [word.partition("=")[0] for word in words if _FLAG.match(word)]
        for flag in flags:
            if flag not in known:
                near = nearest_flag(flag, known)
                self.error(f"unknown flag '{flag}'{'.' if near else ''}{near}")
        if words and not flags:
            self.error(f"unrecognized arguments: {' '.join(words)}")

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError: the message, and the command that lists the flags."""
        raise ConfigError(f"{message} (`{self.prog} -h` lists the flags)")


def nearest_flag(flag: str, known: Iterable[str]) -> str:
    """Returns `` Did you mean '--x'?`` for the flag with nearly the same letters, or that contains these words.

    >>> known = ["--help", "--learning-rate", "--num-train-epochs", "--temperature-strategy"]
    >>> [nearest_flag(flag, known)[15:-2] for flag in ("--temprature-strategy", "--lr", "--epochs", "--temperature")]
    ['--temperature-strategy', '--learning-rate', '--num-train-epochs', '--temperature-strategy']
    """
    names = {spelling.lstrip("-"): spelling for spelling in reversed(list(known))}
    name = flag.lstrip("-")
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    short = [other for other in (_ABBREVIATED.get(name),) if other in names]
    longer = [other for other in reversed(names) if other.startswith(f"{name}-")]
    holding = [other for other in reversed(names) if f"-{name}-" in f"-{other}-"]
    near = [*short, *longer, *close, *holding, *difflib.get_close_matches(name, names, n=1, cutoff=0.5)]
    return f" Did you mean '{names[near[0]]}'?" if near else ""


def _hyphenated(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word
