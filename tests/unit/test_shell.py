"""The shell around all commands: whatever they raise ends in one line without control characters, and in the right status."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tempplug.cli import shell
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug.plugins import CommandInfo, Registry, hookimpl

Run = Callable[..., tuple[int, str, str]]


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


def deep_json() -> object:
    return json.loads("[" * 100_000)


@pytest.mark.parametrize(
    ("command", "status", "line"),
    [
        (lambda: None, 0, None),
        (lambda: 0, 0, None),
        (lambda: 3, 3, None),
        (lambda: "done", 1, "error: the command must return its exit status, a number, not str"),
        (raising(ConfigError("lr=0 must be greater.")), 2, "error: lr=0 must be greater."),
        (raising(DataError("a\nb\x1b[31m\x00\u202e.txt is damaged.")), 2, r"error: a\nb\x1b[31m\x00\u202e.txt is damaged."),
        (raising(FileNotFoundError(errno.ENOENT, "No such file", "a\nb")), 1, r"error: No such file: a\nb"),
        (raising(OSError(errno.ENOSPC, "No space left on device")), 1, "error: No space left on device"),
        (raising(OSError("odd")), 1, "error: odd"),
        (lambda: Path("a" * 5000).is_dir(), 2, f"error: no file can have so long a name: '{'a' * 40}...{'a' * 40}'."),
        (raising(BrokenPipeError(errno.EPIPE, "Broken pipe")), 1, "error: Broken pipe"),
        (raising(zlib.error("Error -3")), 1, "error: error: Error -3 (test_shell.py, line"),
        (lambda: b"\xff".decode(), 1, "error: UnicodeDecodeError: 'utf-8' codec can't decode"),
        (lambda: int("9" * 5000), 1, "error: ValueError: Exceeds the limit (4300 digits)"),
        (deep_json, 1, "error: RecursionError: maximum recursion depth exceeded"),
        (raising(MemoryError()), 1, "error: MemoryError:  (test_shell.py, line"),
        (raising(KeyError("a\x1b")), 1, r"error: KeyError: 'a\x1b' (test_shell.py, line"),
        (raising(KeyboardInterrupt()), 130, "interrupted"),
        (raising(KeyboardInterrupt("go on by the same command.")), 130, "interrupted: go on by the same command."),
        (lambda: sys.exit(), 0, None),
        (lambda: sys.exit(0), 0, None),
        (lambda: sys.exit(2), 2, None),
        (lambda: sys.exit(7), 1, "error: the command ended itself with status 7."),
        (lambda: sys.exit("no\x1b[2Jway"), 1, r"error: no\x1b[2Jway"),
        (lambda: sys.exit([1]), 1, "error: [1]"),  # type: ignore[arg-type]
    ],
)
def test_every_end_is_one_line(
    command: Callable[[], object], status: int, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(command) == status
    out, err = capsys.readouterr()
    assert out == ""
    if line is None:
        assert err == ""
    else:
        assert err.startswith(line)
        assert err.count("\n") == 1
        assert err[:-1].isprintable()


def test_unknown_names_keep_their_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(raising(UnknownNameError("unknown 'a\x1b'. There is:\n  b\n  c"))) == 2
    assert capsys.readouterr().err == "error: unknown 'a\\x1b'. There is:\n  b\n  c\n"


def test_where_an_error_came_from_can_be_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TEMPPLUG_TRACEBACK", "1")
    assert shell(raising(KeyError("a"))) == 1
    assert "Traceback" in capsys.readouterr().err


class Garden:
    """A plugin whose command ends as it is told."""

    end: Any = None

    @hookimpl
    def tempplug_register_commands(self) -> list[CommandInfo]:
        return [
            CommandInfo(name="wilt", target=f"{__name__}:wilt", summary="ends", requires=("absent",), extra="garden"),
            CommandInfo(name="rot", target=f"{__name__}.none:wilt", summary="ends", distribution="garden"),
        ]


def wilt(arguments: list[str]) -> Any:
    return Garden.end()


def test_a_framework_that_a_command_misses_while_it_runs_is_named(run_command: Run, own_registry: Registry) -> None:
    own_registry.register(Garden(), "garden")
    for line in ("import absent.parts", "raise ImportError('this needs more')"):
        Garden.end = lambda line=line: exec(line)
        status, _, err = run_command("wilt")
        assert status == 2
        assert err.startswith(
            "error: command 'wilt' needs the package 'absent', which is not installed: pip install -c constraints.txt -e "
            "'.[garden]' in the folder of tempplug ("
        )
    Garden.end = lambda: exec("from json import absence")
    status, _, err = run_command("wilt")
    assert (status, err.count("\n")) == (2, 1)


def test_a_plugin_that_ends_the_process_is_a_fault_of_the_plugin(
    install: Callable[..., None], run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("rude", "raise SystemExit(0)")
    install("ruder", "@hookimpl\ndef tempplug_register_commands():\n    raise SystemExit('gone')")
    monkeypatch.setattr("tempplug.plugins.manager._registry", Registry())
    with pytest.warns(RuntimeWarning) as warned:
        status, out, _ = run_command("list", "commands")
    assert status == 0
    assert "train simcse" in out
    told = sorted(str(each.message) for each in warned)
    assert told[0].startswith("The plugin 'rude' could not be loaded: SystemExit(0)")
    assert told[1].startswith("The plugin 'ruder' failed in tempplug_register_commands: SystemExit('gone')")


COMMAND = [sys.executable, "-m", "tempplug.cli"]


@pytest.mark.parametrize("words", [["list"], ["train", "simcse", "--help"]])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(words: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    # argparse does not tell that it could not write its help
    assert (process.returncode, err) in [(141, b""), *([(0, b"")] if "--help" in words else [])]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to stand for a full disk")
def test_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr in (
            b"error: No space left on device\n",
            b"error: standard output cannot be written: No space left on device\n",
        )
        silent = subprocess.run([*COMMAND, "lits"], stdout=full, stderr=full, check=False, timeout=60)
        assert silent.returncode == 2


@pytest.mark.parametrize("words", [["list"], ["lits"]])
def test_a_closed_standard_output_is_said_before_any_work(words: list[str]) -> None:
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *words], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"error: standard output is closed: redirect it, to /dev/null for example.\n"


@pytest.mark.parametrize(("word", "status"), [("list", 0), ("lits", 2)])
def test_a_closed_standard_error_sends_messages_nowhere_else(word: str, status: int) -> None:
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, word], stdout=subprocess.PIPE, check=False)
    assert done.returncode == status
    assert b"error" not in done.stdout
    assert (b"macl" in done.stdout) == (word == "list")
    both = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *COMMAND, word], check=False)
    assert both.returncode == 1


@pytest.mark.parametrize(
    "blocking",
    [
        "import time; time.sleep(60)",  # in the import of a framework
        # in that of a library which makes an error of its own of it
        "import time\ntry:\n    time.sleep(60)\nexcept BaseException:\n    raise ImportError('cannot import')",
        "exec('import time; time.sleep(60)')",  # of which Python remembers that it was interrupted
    ],
)
def test_an_interruption_of_an_import_is_one(tmp_path: Path, blocking: str) -> None:
    (tmp_path / "torch.py").write_text(f"print('here', flush=True)\n{blocking}\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen([*COMMAND, "show", "macl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"interrupted\n")


def test_the_statuses_are_told(run_command: Run) -> None:
    told = "exit status: 0 done, 1 failed, 2 wrong usage or input, 130 Ctrl-C, 143 SIGTERM"
    assert told in run_command("--help")[1]
