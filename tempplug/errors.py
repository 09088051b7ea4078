"""The errors that tempplug raises at its public doors.

Every message names the argument, what it was and what was wanted. Each class also derives from the built-in that a caller
would guess, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TempplugError(Exception):
    """Base of every error of this library."""


class TensorError(TempplugError, TypeError):
    """An argument is no tensor, or one of another dtype, memory layout or device than the call can take."""


class ShapeError(TempplugError, ValueError):
    """A tensor, or a pair of them, has shapes that do not fit the call."""


class ConfigError(TempplugError, ValueError):
    """An option, or a combination of options, is outside what is allowed."""


class NonFiniteError(TempplugError, ValueError):
    """A tensor holds NaN or infinite values."""


class ProcessError(TempplugError, RuntimeError):
    """Another process of the group could not do its part, or made another call."""


class DataError(TempplugError, ValueError):
    """A data file is missing, empty or malformed; the message names the file and, where there is one, the line."""


class UnknownNameError(TempplugError, LookupError):
    """A strategy, objective, option, suite or command of that name does not exist."""


class DuplicateNameError(TempplugError, ValueError):
    """Two plugins offer the same name, and that name was used."""


class MissingDependencyError(TempplugError, ImportError):
    """An optional framework that this part needs is not installed."""


def quoted(text: str) -> str:
    r"""Returns what a user wrote as a message shows it: in quotes, on one line, its middle left out where it is long.

    >>> print(quoted("ma\ncl"), quoted("9" * 400))
    'ma\ncl' '9999999999999999999999999999999999999999...9999999999999999999999999999999999999999'
    """
    short = text if len(text) <= 100 else f"{text[:40]}...{text[-40:]}"
    return "'" + "".join(symbol if symbol.isprintable() else symbol.encode("unicode_escape").decode() for symbol in short) + "'"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `` Did you mean 'x'?`` for the closest of ``known``, or the empty string when nothing is close."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{match[0]}'?" if match else ""


def listed(names: Iterable[str], room: int = 120) -> str:
    """Returns names for a message of one line: as many as fit into ``room`` letters, and how many others there are.

    >>> listed(["macl", "fixed"]), listed([]), listed(["macl", "fixed", "learnable"], room=12)
    ('macl, fixed', 'none', 'macl, fixed and 1 more')
    """
    known = list(names)
    count = len(known)
    while len(", ".join(known[:count])) > room:
        count -= 1
    return (", ".join(known[:count]) or "none") + (f" and {len(known) - count} more" if count < len(known) else "")


def unknown(what: str, name: str, known: Iterable[str], *, of: str = "", faults: Iterable[str] = ()) -> UnknownNameError:
    """Returns the error for a name that is not known: the nearest one, all known ones, and faults that may be the cause."""
    names = list(known)
    message = f"unknown {what} {quoted(name)}{of}.{nearest(name, names)} Known: {listed(names)}."
    return UnknownNameError("\n".join([message, *faults]))


def install_command(extra: str, distribution: str = "tempplug") -> str:
    """Returns the command that installs an extra; of this library that for its own folder, because no index has it.

    >>> install_command("graph")
    "pip install -c constraints.txt -e '.[graph]' in the folder of tempplug"
    """
    if distribution == "tempplug":
        return f"pip install -c constraints.txt -e '.[{extra}]' in the folder of tempplug"
    return f"pip install '{distribution}[{extra}]'"
