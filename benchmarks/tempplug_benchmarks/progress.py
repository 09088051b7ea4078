"""How far a benchmark is: bars on a terminal, one line a run elsewhere. It must not know how runs are executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tempplug_benchmarks.plan import Run
from tempplug_benchmarks.store import Failure, Result


def outcome_line(run: Run, outcome: Result | Failure) -> str:
    """Returns one line about a run that ended."""
    if isinstance(outcome, Failure):
        return f"{run.describe()}: failed: {outcome.error}"
    metric = run.sizes.primary_metric()
    return f"{run.describe()}: {metric.name} {outcome.metrics[metric.name]:.{metric.decimals}f} ({outcome.seconds:.1f} s)"


class Progress:
    """Shows runs as they start, advance and end; a context manager.

    Args:
        console: where to write; bars on a terminal, plain lines where it is none, such as a log file.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._bar_of: dict[str, TaskID] = {}
        self._total = self._done = 0
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bars = Bars(*columns, console=console, transient=True)
            self._all: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, total: int, finished: int, messages: Sequence[str]) -> None:
        """Tells how many runs there are, how many of them are on disk already, and what is wrong with stored files."""
        self._total, self._done = total, finished
        for message in messages:
            self._say(f"{message} It is run again.")
        if finished:
            self._say(f"{finished} of {total} runs are finished already.")
        if self._bars is not None:
            self._all = self._bars.add_task(self._count(), total=total, completed=finished)

    def start(self, run: Run) -> None:
        """Tells that a run starts."""
        if self._bars is not None:
            self._bar_of[run.describe()] = self._bars.add_task(f"  {escape(run.describe())}", total=1.0)

    def step(self, run: Run) -> Callable[[float, str], None]:
        """Returns the function that tells how far a run is: its fraction in [0, 1] and a few words."""

        def step(fraction: float, text: str) -> None:
            if self._bars is not None and run.describe() in self._bar_of:
                words = f"  {escape(run.describe())} {escape(text)}"
                self._bars.update(self._bar_of[run.describe()], completed=min(max(fraction, 0.0), 1.0), description=words)

        return step

    def finish(self, run: Run, outcome: Result | Failure) -> None:
        """Tells that a run ended."""
        self._done += 1
        self._say(f"{self._count()} {outcome_line(run, outcome)}")
        if self._bars is not None:
            self._bars.remove_task(self._bar_of.pop(run.describe()))
            if self._all is not None:
                self._bars.update(self._all, completed=self._done, description=self._count())

    def _count(self) -> str:
        return f"[{self._done}/{self._total}]"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
