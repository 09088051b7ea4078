"""What a result was made on: versions of the software and a description of the machine. It must not know any benchmark."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("tempplug", "torch", "transformers", "sentence-transformers")


def versions(also: Sequence[str] = ()) -> dict[str, str]:
    """Returns the version of Python and of each package that is installed.

    Args:
        also: names of further distributions.
    """
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *also):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, str | int]:
    """Returns the model of the processor, the cores, the threads that torch uses here and, where there is one, the GPU."""
    import torch

    found: dict[str, str | int] = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
    return found


def describe_environment(hardware: Mapping[str, str | int], versions: Mapping[str, str]) -> str:
    """Returns machine and versions in one line.

    Args:
        hardware: see `hardware`.
        versions: see `versions`.

    >>> describe_environment({"cpu": "Abacus", "cores": 2, "threads": 1}, {"python": "3.11.0"})
    'Abacus, 2 cores, 1 threads; python 3.11.0'
    """
    machine = f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['threads']} threads"
    if "gpu" in hardware:
        machine += f", {hardware['gpu']}"
    return machine + "; " + ", ".join(f"{name} {number}" for name, number in versions.items())


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
