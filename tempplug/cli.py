"""The shell around all commands of ``tempplug``: however one ends, it ends in one line and with a status that means something.

It must not know any command, and imports them, and all that itself needs at the end only, when it can already answer for what
an import raises.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

FAILED, WRONG, INTERRUPTED, UNREAD = 1, 2, 130, 141
TRACEBACK = "TEMPPLUG_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    0 where it is done, 1 where it failed, 2 where usage or input are at fault, 130 where it was interrupted by Ctrl-C, 141
    where its output is no longer read (``tempplug list | head``). A command ended by SIGTERM leaves 143, by SIGHUP 129.

    Args:
        arguments: the words after ``tempplug``; by default those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> object:
        from tempplug.commands import run

        return run(words)

    return shell(command)


def shell(command: Callable[[], object]) -> int:
    """Returns the exit status of a command, and prints one line where it ended before its end; None as its result means 0."""
    streams: Any = sys  # a stream is None where the process was started with it closed
    if streams.stderr is None:
        streams.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if streams.stdout is None:
        _say("error: standard output is closed: redirect it, to /dev/null for example.")
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        # Formulas have Greek letters, and not every terminal or redirection can encode them.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with _interruptions() as interruptions:
        try:
            status = _status(command())
            sys.stdout.flush()
        except BaseException as error:
            # Libraries make errors of their own out of an interruption of their import.
            status = _answer(KeyboardInterrupt() if interruptions and not isinstance(error, KeyboardInterrupt) else error)
    return _flushed(status)


def printable(text: str) -> str:
    r"""Returns text as one line without control characters, which a terminal would execute.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _status(status: object) -> int:
    if status is None or isinstance(status, int):
        return status or 0
    raise SystemExit(f"the command must return its exit status, a number, not {type(status).__name__}")


def _answer(error: BaseException) -> int:
    """Says in a line why a command ended and returns its status."""
    import traceback

    from tempplug.errors import TempplugError, UnknownNameError, quoted

    if os.environ.get(TRACEBACK) and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    match error:
        case KeyboardInterrupt():
            exec("")  # resets the interruption of an earlier exec, for which Python would end the process by a signal
            _say(": ".join(["interrupted", *map(str, error.args)]))
            return INTERRUPTED
        case SystemExit() if isinstance(error.__context__, BrokenPipeError):
            return UNREAD  # rich has met it, and ends the process in its own way
        case SystemExit(code=None | 0 | 2 as code):
            return code or 0  # argparse has printed its message
        case SystemExit(code=int() as code):
            _say(f"error: the command ended itself with status {code}.")
            return FAILED
        case SystemExit(code=code):
            _say(f"error: {code}")
            return FAILED
        case TempplugError():
            # Names that are not known come with lists of those that are.
            lines = str(error).split("\n") if isinstance(error, UnknownNameError) else [str(error)]
            for line in [f"error: {lines[0]}", *lines[1:]]:
                _say(line)
            return WRONG
        case BrokenPipeError() if _unread(sys.stdout):
            return UNREAD
        case OSError(errno=errno.ENAMETOOLONG):
            _say(f"error: no file can have so long a name: {quoted(str(error.filename))}.")
            return WRONG
        case OSError():
            file = "" if error.filename is None else f": {error.filename}"
            _say(f"error: {error.strerror or error}{file}")
        case _:
            _say(f"error: {type(error).__name__}: {error} ({_place(error)}; {TRACEBACK}=1 shows the way there)")
    return FAILED


def _place(error: BaseException) -> str:
    """Returns where in our own code, or else anywhere, an error came from."""
    import traceback
    from pathlib import Path

    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tempplug" in frame.filename and Path(frame.filename) != Path(__file__)]
    return ", line ".join(map(str, (Path((ours or frames)[-1].filename).name, (ours or frames)[-1].lineno))) if frames else "-"


def _say(line: str) -> None:
    with suppress(OSError):
        print(printable(line), file=sys.stderr)


def _flushed(status: int) -> int:
    """Writes the rest of the output, while an error of that can still be reported, and returns the status."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _close(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return UNREAD
        if status == 0:
            _say(f"error: standard output cannot be written: {error.strerror or error}")
        status = status or FAILED
    try:
        sys.stderr.flush()
    except OSError:
        _close(sys.stderr)
    return status


def _close(stream: TextIO) -> None:
    """Discards what cannot be written; Python would try once more at its end, and print an error."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())


def _unread(stream: TextIO) -> bool:
    """Returns whether the reader at the other end of a stream is gone."""
    import select

    with suppress(OSError, ValueError, AttributeError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return False


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Notes Ctrl-C while the block runs; a second one ends the process at once."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.signal(number, signal.SIG_DFL)
        if _importing(frame) and not _has_children():
            # There is nothing to clean up yet, and libraries written in C++ can abort where an import raises.
            _say("interrupted")
            os._exit(_flushed(INTERRUPTED))
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        if ours and not seen:
            signal.signal(signal.SIGINT, before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _has_children() -> bool:
    processes = sys.modules.get("multiprocessing")
    return processes is not None and bool(processes.active_children())


if __name__ == "__main__":
    sys.exit(main())
