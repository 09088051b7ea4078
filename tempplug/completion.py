"""Completion of ``tempplug`` in a shell, by argcomplete: ``eval "$(register-python-argcomplete tempplug)"`` turns it on.

The shell then starts the command with the typed line in the environment, and each `tempplug.parser.Parser` offers its flags
instead of parsing. Needs argcomplete only while it completes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable

_START = "_ARGCOMPLETE"
"""Set by argcomplete while it completes: how many words of the line come before the first argument."""
_completing = False


def is_completing() -> bool:
    """Returns whether the process was started to complete a line."""
    return _START in os.environ


def typed_words() -> list[str]:
    """Returns the words after ``tempplug`` and before the one that is completed."""
    from argcomplete.lexers import split_line

    *_, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    return list(words[int(os.environ[_START]) :])


def skip(words: int) -> None:
    """Leaves out so many words, those of a command, for the parser that comes next."""
    os.environ[_START] = str(int(os.environ[_START]) + words)


def offer(parser: argparse.ArgumentParser) -> None:
    """Prints what a parser takes at the cursor and ends the process, if it was started to complete a line."""
    global _completing
    if not is_completing() or _completing:  # argcomplete calls the parser itself
        return
    from argcomplete import autocomplete

    _completing = True
    try:
        autocomplete(parser, exit_method=sys.exit)
    finally:
        _completing = False


def offer_words(words: Iterable[str]) -> None:
    """Prints those words that go on at the cursor and ends the process."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("word", choices=sorted(set(words)))
    offer(parser)
