"""What a result was made on: versions of the software and a description of the machine. It must not know any benchmark."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("tempplug", "torch", "transformers", "sentence-transformers")


def versions() -> dict[str, str]:
    """Returns the version of Python and of each package that is installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
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


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
