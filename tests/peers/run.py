"""Runs other libraries' own tests with our losses in the place of theirs: ``python tests/peers/run.py [NAME ...]``.

`peers.toml` has the libraries, the commits of their repositories, and the tests that are expected to fail. The release of a
library is installed into an environment of its own, over the packages of this one. The repository is cloned, or read from
``FOLDER/NAME`` (a repository or its files) with ``--sources FOLDER`` or ``TEMPPLUG_PEERS``. Tests of sentence-transformers and
PyGCL need the data that ``TEMPPLUG_DATA`` names. The exit status is 1 if a result was not expected.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent


def checked_out(peer: dict[str, Any], source: Path, folder: Path) -> Path:
    """Returns a folder with the peer's paths at its commit."""
    if all((source / path).exists() for path in peer["paths"]):
        for path in peer["paths"]:
            shutil.copytree(source / path, folder / path)
        return folder
    if not source.is_dir():
        source = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", peer["url"], str(source)], check=True)
    command = ["git", "-C", str(source), "archive", peer["commit"], *peer["paths"]]
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def installed(packages: list[str], folder: Path) -> Path:
    """Returns the interpreter of an environment that has the packages, over those of this one."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        below = {sysconfig.get_path("purelib"), *(path for path in sys.path if Path(path, "tempplug").is_dir())}
        below |= {str(HERE.parents[1]), *(str(HERE.parents[1] / name) for name in ("adapters", "benchmarks"))}
        (site / "below.pth").write_text("\n".join(sorted(below)) + "\n", encoding="utf-8")
    constraints = str(HERE.parents[1] / "constraints.txt")
    subprocess.run([str(python), "-m", "pip", "install", "-q", "-c", constraints, *packages], check=True)
    return python


def results(peer: dict[str, Any], python: Path, folder: Path, own: bool) -> dict[str, str]:
    """Returns passed, failed or skipped of each test."""
    data = os.environ.get("TEMPPLUG_DATA")
    if peer.get("model") and not data:
        raise SystemExit("TEMPPLUG_DATA is not set: these tests read a model of the folder that it names")
    settings = {"replace": {} if own else peer["replace"], "model": peer.get("model") and str(Path(data, peer["model"]))}
    path = os.pathsep.join(map(str, (HERE, HERE.parent / "adapters")))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "TEMPPLUG_PEER": json.dumps(settings)}
    tests = [str(HERE / test) if (HERE / test).is_file() else test for test in peer["tests"]]
    report = folder / "report.xml"
    options = ["-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "replacing", "-p", "no:cacheprovider", "--tb=line"]
    command = [str(python), "-m", "pytest", *options, "-W", "ignore", f"--junitxml={report}", *tests]
    with (folder / "log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment | peer.get("environment", {}), stdout=log, stderr=log, check=False)
    if not report.is_file():
        raise SystemExit((folder / "log").read_text(encoding="utf-8"))
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        failed = "failed" if tags & {"failure", "error"} else "passed"
        found[f"{case.get('classname')}.{case.get('name')}"] = "skipped" if "skipped" in tags else failed
    return found


def main(words: list[str]) -> int:
    """Runs the tests of all peers or of those that are named, and prints a table and the reasons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(peers)}; all by default")
    parser.add_argument(
        "--sources", type=Path, default=os.environ.get("TEMPPLUG_PEERS"), help="folder of repositories, by name"
    )
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments; by default they are removed")
    parser.add_argument("--own", action="store_true", help="run the tests with the libraries' own losses, for comparison")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.names) - set(peers):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(peers)}")
    lines: list[str] = []
    reasons: list[str] = []
    surprises: list[str] = []
    for name in chosen.names or peers:
        peer = peers[name]
        with tempfile.TemporaryDirectory() as temporary:
            folder = checked_out(peer, Path(chosen.sources or temporary, name), Path(temporary))
            python = installed(peer["install"], (chosen.environments or folder) / f"environment-{name}")
            found = results(peer, python, folder, chosen.own)
        expected = [each for each in peer.get("expected", []) if (each.get("own") if chosen.own else each.get("own") != "only")]
        failed = {test for test, status in found.items() if status == "failed"}
        excused = set()
        for each in expected:
            matched = {test for test in found if any(fnmatchcase(test, pattern) for pattern in each["tests"])}
            excused |= matched & failed
            reasons.append(f"- {name}: {' '.join(each['tests'])}: {each['reason']}.")
            surprises += [f"{name}: {test} {found[test]}, and should fail: {each['reason']}" for test in matched - failed]
            surprises += [] if matched else [f"{name}: no test is named {' '.join(each['tests'])}"]
        surprises += [f"{name}: {test} failed" for test in sorted(failed - excused)]
        surprises += [] if found else [f"{name}: no test was run"]
        statuses = list(found.values())
        release = peer["install"][0].partition("==")[2]
        counts = statuses.count("passed"), len(excused), statuses.count("skipped")
        lines.append(f"| {' | '.join([f'{name} {release}', peer['commit'][:7], *map(str, counts)])} |")
        print(lines[-1], flush=True)
    print("\n| library | tests of | passed | failed, as expected | skipped |\n| :-- | :-- | --: | --: | --: |")
    print("\n".join([*lines, "", *reasons]))
    print("\n".join(["", f"not expected: {len(surprises)}", *surprises]))
    return len(surprises)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
