"""Python processes that start with torch and the packages on top of it imported already, as imports take most of their time.

A server imports the packages, nothing of tempplug, and forks for every process that is asked of it. Programs stand in for
``python`` and the commands beside it: each hands its words, folder, environment and open files to the server, passes signals
on, and ends as the process ends. The process runs what it is given as the interpreter would, from ``-c``, ``-m``, a file or a
command's script, in a ``__main__`` of its own; only the end of the interpreter, after what is registered for it, is left out.

Tests of how a process starts or ends, of what it imports or of its memory must not use it. All processes share one hash seed.
"""

# ruff: noqa: PTH100, PTH102, PTH109, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ADDRESS = "TEMPPLUG_WARM"
NAMES = ("accelerate", "python", "python3", "tempplug", "torchrun")
PACKAGES = ("accelerate.commands.launch", "datasets", "sentence_transformers", "torch.distributed.run", "torch_geometric.nn")
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
FREE = 500
"""The first number for files that no program has open."""


@contextmanager
def programs(folder: str | os.PathLike[str]) -> Iterator[dict[str, str]]:
    """Starts a server and yields the environment in which it is used; ends the server and all its processes.

    Args:
        folder: an empty one for the programs and the socket.
    """
    import subprocess

    address, place = os.path.join(folder, "socket"), os.path.join(folder, "bin")
    search = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    if not hasattr(os, "pidfd_open"):  # not Linux: the interpreter itself
        yield {"PATH": search, "PYTHON_EXEC": sys.executable}
        return
    os.mkdir(place)
    for name in NAMES:
        with open(
            os.path.join(place, name), "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o755)
        ) as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" ask {name} "$@"\n')
    with subprocess.Popen(
        [sys.executable, __file__, "serve", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        text=True,
        start_new_session=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        said = [""]
        while said[-1] != "ready\n":
            said.append(server.stdout.readline())
            assert said[-1], "".join(said)
        yield {
            ADDRESS: address,
            "PATH": place + os.pathsep + search,
            "PYTHON_EXEC": os.path.join(place, "python"),  # torchrun's own variable
        }
        server.stdin.close()  # which ends it


def ask(words: list[str]) -> None:
    """What a program does."""
    files = [file for file in map(int, os.listdir("/dev/fd")) if is_open(file)]
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ[ADDRESS])
    said = json.dumps([words, os.getcwd(), dict(os.environ), files]).encode()
    socket.send_fds(server, [len(said).to_bytes(8, "big")], files)
    server.sendall(said)
    for file in files:
        os.close(file)
    answers = server.makefile("r")
    process = int(answers.readline())
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(process, number))
    status = int(answers.readline())
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def serve(address: str) -> list[str]:
    """Forks whenever it is asked, and returns, in the forked process, the words that it was asked for."""
    del sys.path[0]
    for package in PACKAGES:
        __import__(package)
    gc.collect()
    gc.freeze()
    selector = selectors.DefaultSelector()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    asked: dict[int, socket.socket] = {}  # by the process
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                head, files, _, _ = socket.recv_fds(client, 8, 253)
                with client.makefile("rb") as rest:
                    words, folder, environment, numbers = json.loads(rest.read(int.from_bytes(head, "big")))
                process = os.fork()
                if not process:
                    selector.close()
                    for other in (listener, client, *asked.values()):
                        other.close()
                    become(folder, environment, dict(zip(numbers, files, strict=True)))
                    return list(words)
                for file in files:
                    os.close(file)
                with suppress(OSError):
                    client.sendall(f"{process}\n".encode())
                asked[process] = client
                selector.register(client, selectors.EVENT_READ, process)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, process)
            elif key.fileobj == 0:  # the tests are over
                for process in asked:
                    os.kill(process, signal.SIGKILL)
                os._exit(0)
            elif isinstance(key.fileobj, socket.socket):  # the program was killed
                selector.unregister(key.fileobj)
                with suppress(ProcessLookupError):
                    os.kill(key.data, signal.SIGKILL)
            else:  # the process ended
                selector.unregister(key.fileobj)
                os.close(key.fd)
                status = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                client = asked.pop(key.data)
                with suppress(KeyError):
                    selector.unregister(client)
                with suppress(OSError):
                    client.sendall(f"{status}\n".encode())
                client.close()


def become(folder: str, environment: dict[str, str], files: dict[int, int]) -> None:
    """Takes the surroundings of the program: its open files by their numbers, its folder and its environment."""
    kept = {number: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, FREE) for number, file in files.items()}
    for file in files.values():
        os.close(file)
    for number, file in kept.items():
        os.dup2(file, number)
        os.close(file)
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = map(os.path.abspath, filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path_importer_cache.clear()
    for name in ("random", "numpy.random"):
        sys.modules[name].seed()
    sys.modules["torch"].default_generator.seed()
    sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):
        __import__("sitecustomize")
    sys.modules["multiprocessing"].set_executable(environment["PYTHON_EXEC"])


def execute(name: str, *words: str) -> None:
    """Does what the interpreter does with its words, or with the script of a command."""
    if not name.startswith("python"):
        words = (os.path.join(os.path.dirname(sys.executable), name), *words)
    # Triton looks at its variables when it is imported; other flags are the interpreter's own affair.
    plain = [word for word in words[:1] if word != "-B"] + list(words[1:])  # multiprocessing hands that on
    if "TRITON_INTERPRET" in os.environ or not plain or (plain[0][0] == "-" and plain[0] not in ("-c", "-m", "-u")):
        os.execv(sys.executable, [sys.executable, *words])
    words = tuple(plain)
    if words[0] == "-u":
        sys.stdout.reconfigure(write_through=True)
        words = words[1:]
    if words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *words[2:]]
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
    else:
        main.__file__ = words[0]
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        sys.argv = list(words)
        with open(words[0], "rb") as file:
            code = compile(file.read(), words[0], "exec", dont_inherit=True)
    exec(code, vars(main))


def finish(words: list[str]) -> None:
    """Executes words and ends with the status of an interpreter, which takes a second more to take modules apart."""
    status: object = 0
    try:
        execute(*words)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2:])
    finish(serve(sys.argv[2]))
