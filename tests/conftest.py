"""Fixtures shared by all tests: the folder of real data, and one torch thread count for every run."""

from __future__ import annotations

import gc
import multiprocessing.resource_tracker
import multiprocessing.spawn
import multiprocessing.util
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import programs


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data named by TEMPPLUG_DATA: skipped where that is not set, a failure where it is wrong."""
    folder = os.environ.get("TEMPPLUG_DATA")
    if not folder:
        pytest.skip("TEMPPLUG_DATA is not set: this test reads the folder of real data that it names")
    if not Path(folder).is_dir():
        pytest.fail(f"TEMPPLUG_DATA={folder!r} is not a folder: set it to the folder of real data, or leave it out")
    return Path(folder).resolve()


def pytest_configure() -> None:
    """What runs in the background of a script ignores Ctrl-C, under nohup also SIGHUP, and so would all processes of tests."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process ends with one of them while the others have nothing left."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is imported by now lives to the end: no collection of garbage looks at it, of which each Trainer makes some."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary folder for all tests, removed at their end: launchers leave logs, and killed processes what they had."""
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is
    multiprocessing.util.get_temp_dir()  # this one too: it is removed when the process ends, after the tests
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="tempplug-tests-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"], tempfile.tempdir = folder, folder
        yield
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@pytest.fixture(scope="session")
def server_of_warm_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which Python starts with what is slow to import already imported, see `warm`."""
    with programs(tmp_path_factory.mktemp("warm")) as environment:
        yield environment


@pytest.fixture(scope="module")
def warm(server_of_warm_processes: dict[str, str]) -> Iterator[None]:
    """Lets the warm server fork the processes that a module starts, also by `multiprocessing`, except its tracker."""
    multiprocessing.resource_tracker.ensure_running()
    usual = multiprocessing.spawn.get_executable()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server_of_warm_processes.items():
            patch.setenv(name, value)
        multiprocessing.set_executable(os.environ["PYTHON_EXEC"])
        yield
    multiprocessing.set_executable(usual)
