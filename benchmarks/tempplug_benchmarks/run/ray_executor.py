"""Executes runs on a Ray cluster; only this process writes results.

Each run is a Ray task with the resources that its profile declares. It works in a temporary folder of its machine and sends
back its progress and its result. All machines need data and software under the same paths, but no shared results folder.

Source: Moritz et al. 2018, Ray: A Distributed Framework for Emerging AI Applications.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tempplug.cli import INTERRUPTED, shell
from tempplug.errors import ConfigError, MissingDependencyError, ProcessError, install_command
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.training.termination import ProcessLost
from tempplug_benchmarks.run.executor import INTERVAL, Child, Executor, Job, Lost, Message, Outcome, end_with_parent
from tempplug_benchmarks.run.plan import Run
from tempplug_benchmarks.run.store import Failure, failure_of
from tempplug_benchmarks.task import Resources, in_words

GIB = 2**30
MOST = 1000
"""Maximum number of simultaneous runs; each has a thread."""
PATIENCE = 120.0
"""Seconds that a run waits if no machine of the cluster is large enough any more."""
_KEEPER = """
import os, shutil, sys, tempfile, time
if sys.platform != "win32":
    os.setsid()
    if os.fork():
        os._exit(0)
folder = tempfile.mkdtemp(prefix="tempplug-run-")
try:
    os.write(1, os.fsencode(folder))
    os.close(1)
    sys.stdin.read()  # ends when the process at the other end does
finally:
    while os.path.exists(folder):
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.2)
"""
"""Program that makes a folder, and removes it when its standard input ends."""
_PASSED_ON = ("PYTHONPATH", "HF_HUB_OFFLINE")
"""Environment variables that runs on other machines inherit, in addition to those of tempplug."""


class OnRay(Executor):
    """Executes runs on a Ray cluster, as many at once as its resources allow.

    Args:
        data_dir: folder of real data, under the same path on all machines; None if none was given.
        workers: maximum number of simultaneous runs; None for no limit.
        time_limit: seconds that a run may take after it has started; None for no limit.
        address: of the cluster; None uses RAY_ADDRESS, or the cluster that runs on this machine.
    """

    attempts = 3

    def __init__(
        self, data_dir: Path | None, workers: int | None = None, time_limit: float | None = None, address: str | None = None
    ) -> None:
        super().__init__(data_dir)
        self._workers, self._time_limit, self._address = workers, time_limit, address
        self._ended = threading.Event()
        self._nodes: list[Mapping[str, float]] = []
        self._looked = 0.0

    def __enter__(self) -> Self:
        self._ray = _connect(self._address)
        self._pool = ThreadPoolExecutor(MOST)
        return self

    def __exit__(self, *of_error: object) -> None:
        self._ended.set()
        self._pool.shutdown(cancel_futures=True)
        self._ray.shutdown()

    def check(self, runs: Sequence[Run]) -> None:
        """Raises `ConfigError` if no machine of the cluster has the resources for one of the runs."""
        for run in {(run.task.name, run.profile): run for run in runs}.values():
            if lack := self._lack(run):
                raise ConfigError(f"{lack}: add a machine, or leave out --executor ray to use this one as it is.")

    def has_room(self, run: Run, at_work: Sequence[Run]) -> bool:
        """Returns whether the cluster can take another run with these resources."""
        if len(at_work) >= (self._workers or MOST):
            return False
        alike = sum(other.resources == run.resources for other in at_work)
        return alike < max(1, self._room(run.resources))

    def submit(self, job: Job) -> Future[Outcome]:
        """Submits a run to the cluster."""
        job.step(0.0, "waits for a machine")
        return self._pool.submit(lambda: job.follow(self._messages(job.run)))

    def _messages(self, run: Run) -> Iterator[Message]:
        """Yields the messages of a run; fails if the run waits too long for a machine that the cluster has lost."""
        task = self._ray.remote(_execute).options(
            num_cpus=run.resources.cpus,
            num_gpus=run.resources.gpus,
            memory=int(run.resources.memory * GIB),
            num_returns="streaming",
            max_retries=0,  # the runner counts and reports the attempts
            name=run.describe(),
        )
        stream = task.remote(run, self._data_dir, self._time_limit)
        message: Message | None = None
        possible = time.monotonic()
        while not self._ended.is_set():
            ready, _ = self._ray.wait([stream], timeout=INTERVAL)
            if ready:
                yield (message := self._hear(stream, run))
            elif message is not None or not (lack := self._lack(run)):
                possible = time.monotonic()
            elif time.monotonic() - possible >= PATIENCE:
                self._ray.cancel(stream, force=True)
                yield failure_of(run, f"{lack}.")
        self._ray.cancel(stream, force=True)

    def _hear(self, stream: Any, run: Run) -> Message:
        """Returns the next message of a run; Ray's errors are converted to messages, but that of the machine's own part."""
        from ray.exceptions import LocalRayletDiedError, RayError, RayTaskError

        try:
            message: Message = self._ray.get(next(stream))
        except RayTaskError as error:  # for example, an object that the machine's software cannot unpickle
            cause = error.cause or error
            return failure_of(run, f"{type(cause).__name__}: {one_line(cause)}", str(error))
        except LocalRayletDiedError as error:
            raise ProcessError(f"Ray on this machine ended: {one_line(error)}") from error
        except (RayError, StopIteration) as error:
            return Lost(f"its worker was lost ({one_line(error).partition('. ')[0].rstrip('.')})")
        return message

    def _machines(self) -> Sequence[Mapping[str, float]]:
        """Returns the resources of each machine of the cluster, refreshed periodically."""
        now = time.monotonic()
        if not self._nodes or now - self._looked >= INTERVAL:
            self._looked = now
            self._nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return self._nodes

    def _room(self, wanted: Resources) -> int:
        """Returns how many such runs fit on the idle cluster at once."""
        amounts = {"CPU": wanted.cpus, "GPU": wanted.gpus, "memory": wanted.memory * GIB}
        return sum(
            min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in amounts.items() if amount)
            for node in self._machines()
        )

    def _lack(self, run: Run) -> str:
        """Returns a message if no machine has the resources of a run, otherwise an empty string."""
        wanted = run.resources
        if self._room(wanted):
            return ""
        has = {in_words(node.get("CPU", 0), node.get("GPU", 0), node.get("memory", 0) / GIB): None for node in self._machines()}
        return (
            f"profile '{run.profile}' of task '{run.task.name}' needs {wanted} on one machine, "
            f"but the machines of the Ray cluster have {' / '.join(has)}"
        )


def in_child(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Runs a command that attaches to a cluster in a child process, and anew if that is lost; returns its exit status.

    If the part of Ray on this machine is killed, a process that was attached to it cannot attach again, and Ray's C++ code may
    end it with status 0.

    Args:
        command: an importable function of the words, which goes on where it was and returns 75 if it lost Ray.
        words: its arguments.
    """
    context = multiprocessing.get_context("spawn")
    for left in reversed(range(OnRay.attempts)):
        connection, other = context.Pipe(duplex=False)
        child = context.Process(target=_run_command, args=(other, command, words))
        child.start()
        other.close()  # close this end, so that the pipe breaks when the child exits
        status = ProcessLost.status
        try:
            with suppress(EOFError):
                status = connection.recv()
        except KeyboardInterrupt:
            child.terminate()
            child.join()
            if child.exitcode:  # it was too early to say so itself
                raise
            return INTERRUPTED
        child.join()
        if status != ProcessLost.status:
            return status
        then = "the command goes on in a new one." if left else "finished runs are kept, the same command goes on."
        print(f"Ray on this machine, or the process attached to it, ended: {then}", file=sys.stderr)
    return ProcessLost.status


def _run_command(connection: Connection, command: Callable[[list[str]], int], words: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the parent, which passes it on as SIGTERM
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end_with_parent()
    connection.send(shell(lambda: command(words)))


def _connect(address: str | None) -> Any:
    """Connects to a cluster and returns Ray; raises `ConfigError` or `MissingDependencyError` if that fails."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(f"executor='ray' needs Ray, which is not installed: {install_command('ray')}.") from error
    asked = address or os.environ.get("RAY_ADDRESS") or "auto"
    if asked != "auto":
        _check_answers(asked)
    names = [name for name in os.environ if name in _PASSED_ON or name.startswith("TEMPPLUG_")]
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=asked,
            runtime_env={"env_vars": {name: os.environ[name] for name in names}},
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"ray_address={asked} cannot be reached as a Ray cluster ({one_line(error)}): start one by `ray start --head`."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray would otherwise choose the exit status of the process
    return ray


def _check_answers(address: str) -> None:
    """Raises `ConfigError` unless the address accepts connections, because Ray itself would retry for 15 minutes."""
    host, _, port = address.rpartition(":")
    if "/" in host or not host or not port.isdigit():
        raise ConfigError(f"ray_address={address} must be HOST:PORT, as printed by `ray start --head`.")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"ray_address={address} does not answer ({error}): is `ray start --head` running there?") from error


def _execute(run: Run, data_dir: Path | None, time_limit: float | None) -> Iterator[Message]:
    """Executes a run on a machine of the cluster; yields its progress and finally its outcome."""
    host = socket.gethostname()
    yield 0.0, f"begins on {host}"
    with _private_folder() as work_dir, closing(Child(data_dir, run.resources.cpus, run.variables or {})) as child:
        told = time.monotonic()
        for message in child.messages(run, work_dir, time_limit):
            if not isinstance(message, tuple) or time.monotonic() - told >= INTERVAL:
                told = time.monotonic()
                yield replace(message, error=f"on {host}: {message.error}") if isinstance(message, Failure) else message


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Creates an empty private folder that is removed when the block exits or this process dies."""
    # Ray kills a worker with its children and its process group. Once it has forked, the keeper is in neither, and only then
    # does it make the folder: a worker that is killed at any moment leaves nothing behind.
    with subprocess.Popen([sys.executable, "-I", "-c", _KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        folder = Path(os.fsdecode(keeper.stdout.read()))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            keeper.stdin.close()
