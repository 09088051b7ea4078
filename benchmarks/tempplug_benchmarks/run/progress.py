"""Progress of benchmark runs: bars on a terminal, otherwise one line for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as Bars, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Progress:
    """Shows when runs start, advance and end; a context manager.

    Args:
        console: the output; bars on a terminal, plain lines otherwise, for example in a log file.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar_of: dict[str, TaskID] = {}
        self._total = self._done = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def begin(self, total: int, finished: int, messages: Sequence[str]) -> None:
        """Shows the number of runs, the number of finished ones and problems with stored files."""
        self._total, self._done = total, finished
        for message in messages:
            self.note(f"{message} It is run again.")
        if finished:
            self.note(f"{finished} of {total} runs are finished already.")
        self._all = self._bars.add_task(self._count(), total=total, completed=finished)

    def start(self, name: str) -> None:
        """Shows that the named run starts."""
        self._bar_of[name] = self._bars.add_task(f"  {escape(name)}", total=1.0)

    def step(self, name: str) -> Callable[[float, str], None]:
        """Returns the callback that receives the progress of a run: a fraction in [0, 1] and a short description."""

        def step(fraction: float, text: str) -> None:
            if name in self._bar_of:
                words = f"  {escape(name)} {escape(text)}"
                self._bars.update(self._bar_of[name], completed=min(max(fraction, 0.0), 1.0), description=words)

        return step

    def finish(self, name: str, line: str) -> None:
        """Shows in one line that a run ended and its outcome."""
        self._done += 1
        self.note(f"{self._count()} {line}")
        self._bars.remove_task(self._bar_of.pop(name))
        self._bars.update(self._all, completed=self._done, description=self._count())

    def _count(self) -> str:
        return f"[{self._done}/{self._total}]"

    def note(self, text: str) -> None:
        """Prints a line while runs continue."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
