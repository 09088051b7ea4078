"""The watchdog of a training in several processes: names a process that has stopped, and ends the others with their own status.

A thread of each process writes a note into the output folder every two seconds, also during an evaluation: the state of the
process and its last step. A process whose note stays the same is killed (SIGKILL) where that is possible, on the same machine:
gloo has no other way to end a collective that waits for it, and only a dead process releases the lock of the output folder. The
notes are temporary files. The last process to end removes them, or else the next start does.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import distributed
from transformers import TrainerCallback

from tempplug.errors import TempplugError
from tempplug_adapters.storage.files import one_line, temporary_name
from tempplug_adapters.training.termination import ProcessLost, on_termination

BEAT = 2.0
"""Seconds between two notes."""
GRACE = 30.0
"""Seconds in which the main thread may end by itself after another process has failed."""
WATCHED = 8
"""Number of processes, the next ones in order of rank, that a process watches."""
_RUNS, _FAILED, _ENDED = "runs", "failed", "ended"


@dataclass
class Peer:
    """Another process of the training.

    Attributes:
        name: how messages call it.
        note: file of its note.
        handle: descriptor of the process; None on another machine, or where the system has none.
        text: its last note: state, step, and a number that grows; None if the process has finished.
        looks: how many times in a row the note was the same.
    """

    name: str
    note: Path
    handle: int | None
    text: str | None = ""
    looks: int = 0

    def look(self) -> None:
        """Reads the note."""
        try:
            text = self.note.read_text(encoding="utf-8") or self.text  # an empty note is being written
        except FileNotFoundError:
            text = None
        self.looks = self.looks + 1 if text == self.text else 0
        self.text = text

    @property
    def state(self) -> str:
        """The state in the note; empty if the process has finished."""
        return (self.text or "").partition(" ")[0]

    def gone(self) -> bool:
        """Returns whether the process is known to have ended."""
        died = self.handle is not None and bool(select.select([self.handle], [], [], 0)[0])
        return died or self.state == _ENDED

    def describe(self, pause: float) -> str:
        """Returns what happened to the process, in words; ``pause`` are the seconds between two looks."""
        step = (self.text or " 0").split(" ")[1]
        if self.state == _ENDED:
            how = "ended, and its own message says why"
        elif self.gone():
            how = "was killed or has crashed"
        elif self.looks * pause > 2 * BEAT:
            how = f"has shown no sign of life for {self.looks * pause:.0f} s"
        else:
            how = "hangs: the others waited for it until --ddp-timeout"
        return f"{self.name}, last heard of at step {step}, {how}"

    def kill(self) -> None:
        """Kills the process if it is on this machine."""
        if self.handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)


class Watchdog(TrainerCallback):
    """Watches the other processes of a training from `start` to the end of the block.

    A block that ends with an error of a collective raises `ProcessLost` if another process is the cause.

    Args:
        folder: output folder. Processes that have another one, on another machine, are not watched.

    Attributes:
        saved: name of the checkpoint that was written after the failure, for the message.
    """

    saved = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers: list[Peer] = []
        self._note: Path | None = None
        self._state, self._step, self._beats = _RUNS, 0, 0
        self._failing, self._over = threading.Event(), threading.Event()
        self._found: list[str] = []

    def __enter__(self) -> Self:
        return self

    def start(self, rank: int, world: int, timeout: float) -> None:
        """Begins to watch; all processes must call it.

        Args:
            rank: rank of this process.
            world: number of processes; a single one is not watched.
            timeout: seconds without a new note after which a process is given up.
        """
        if world == 1:
            return
        self.timeout, self._note = timeout, temporary_name(self.folder / f"rank{rank}")
        self._write()
        every: list[Any] = [None] * world
        distributed.all_gather_object(every, (self._note.name, socket.gethostname(), _processes(), os.getpid()))
        for other in ((rank + offset) % world for offset in range(1, world)):
            note, host, processes, number = every[other]
            handle = None
            if processes and processes == every[rank][2]:
                with suppress(OSError):  # in a sandbox
                    handle = os.pidfd_open(number)
            if (self.folder / note).exists():
                self.peers.append(Peer(f"rank {other} (process {number} on {host})", self.folder / note, handle))
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")
        self._thread.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stores the step for the note."""
        self._step = state.global_step

    def fail(self) -> None:
        """Notes that this process has failed, and leaves its end to the main thread."""
        self._state = _FAILED
        self._failing.set()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._note is None:
            return
        self.fail()
        # Errors of collectives are plain RuntimeErrors. A launcher sends a signal to all processes when one of them has ended.
        failed = error if isinstance(error, RuntimeError) and not isinstance(error, TempplugError) else None
        with nullcontext() if failed is None else on_termination(lambda number: None):
            try:
                if failed and (found := self._found or self._search("timed out" in str(failed).lower())):
                    raise ProcessLost(found, self.saved, one_line(failed)) from failed
            finally:
                self._over.set()
                self._thread.join(BEAT)
                self._end(finished=error is None)

    def _end(self, *, finished: bool) -> None:
        """Notes the end; removes all notes if no process is left that needs them."""
        assert self._note is not None
        self._state = _ENDED
        with suppress(OSError):
            self._write()
            for each in self.peers:
                each.look()
            done = all(not each.state or each.gone() for each in self.peers)
            for note in [*([self._note] if finished or done else []), *(each.note for each in self.peers if done)]:
                note.unlink(missing_ok=True)
        for each in self.peers:
            handle, each.handle = each.handle, None
            if handle is not None:
                os.close(handle)

    def _write(self) -> None:
        assert self._note is not None
        self._beats += 1
        self._note.write_text(f"{self._state} {self._step} {self._beats}", encoding="utf-8")

    def _watch(self) -> None:
        """Writes and reads notes until the end; ends the process if its main thread cannot."""
        watched = self.peers[:WATCHED]
        while not self._over.wait(BEAT):
            try:
                self._write()
                if self._failing.is_set():
                    continue
                for each in watched:
                    each.look()
            except OSError:  # a fault of the file system, which says nothing about a process
                continue
            # Looks are counted, not seconds: a machine that slept, or a job that was suspended, has not looked either.
            lost = [each for each in watched if each.state and each.looks * BEAT >= (GRACE if each.gone() else self.timeout)]
            if not lost:
                continue
            self._found = [each.describe(BEAT) for each in lost]
            for each in lost:
                each.kill()
            if not self._failing.wait(GRACE):
                print(ProcessLost(self._found), file=sys.stderr, flush=True)
                self._end(finished=False)
                os._exit(ProcessLost.status)

    def _search(self, timed_out: bool) -> list[str]:
        """Returns sentences about the processes that made a collective fail; this may take as long as three notes."""
        pause, found = BEAT / 5, []
        for each in self.peers:
            each.looks = 0
        with suppress(OSError):
            for _ in range(15):
                for each in self.peers:
                    each.look()
                if found := [each for each in self.peers if each.state and each.gone()]:
                    break
                time.sleep(pause)
            silent = [each for each in self.peers if each.state and each.looks >= 14]
            hanging = [each for each in self.peers if each.state == _RUNS and timed_out]
            found = found or silent or hanging
        return [each.describe(pause) for each in found]


def _processes() -> str:
    """Identifies the process numbers that this process sees: machine and namespace; empty where there are no descriptors."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text()}{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
