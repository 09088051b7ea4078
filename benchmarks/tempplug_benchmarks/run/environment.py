"""The environment of a result: software versions and a description of the machine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("tempplug", "torch", "transformers", "sentence-transformers")
PRODUCT = ("tempplug", "adapters", "benchmarks/tempplug_benchmarks")
"""Folders of a checkout that affect results."""


def versions(also: Sequence[str] = ()) -> dict[str, str]:
    """Returns the versions of Python and of installed packages, and the ``commit`` in a Git checkout.

    Args:
        also: names of additional distributions.
    """
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *also):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


def hardware() -> dict[str, str | int]:
    """Returns the result of `tempplug.processor.describe_machine`; the call imports torch."""
    from tempplug.processor import describe_machine

    return describe_machine()


def describe_environment(hardware: Mapping[str, str | int], versions: Mapping[str, str]) -> str:
    """Returns the machine and the versions (see `hardware` and `versions`) as one line.

    >>> describe_environment({"cpu": "Abacus", "cores": 2, "threads": 1}, {"python": "3.11.0"})
    'Abacus, 2 cores, 1 threads; python 3.11.0'
    """
    return f"{describe_machine(hardware)}; " + ", ".join(f"{name} {number}" for name, number in versions.items())


def describe_machine(hardware: Mapping[str, str | int]) -> str:
    """Returns the machine as text.

    Args:
        hardware: see `hardware`.
    """
    machine = str(hardware["cpu"])
    if "vendor" in hardware:
        machine += f" ({hardware['vendor']} family {hardware.get('family')} model {hardware.get('model')})"
    machine += f", {hardware['instructions']}" if "instructions" in hardware else ""
    machine += f", products by {hardware['products']}" if "products" in hardware else ""
    machine += f", {hardware['cores']} cores, {hardware['threads']} threads"
    if "gpu" in hardware:
        machine += f", {hardware['gpu']}"
    return machine


@cache
def _commit() -> str:
    """Returns the commit of this checkout, with ``+changes`` appended if code was modified; "" outside a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(root), *command], capture_output=True, text=True, check=True, timeout=60
            ).stdout.strip()
            for command in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--", *PRODUCT))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+changes" if changes else commit
