"""How much memory a call needs at its peak beyond what was there before it. It must not know what the call does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tempplug.errors import ConfigError

MEBIBYTE = 2**20
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # documented in the kernel's proc(5): resets VmHWM to the memory that is resident now


def peak_growth(call: Callable[[], None], device: str) -> float:
    """Returns the mebibytes by which the memory grows at its peak while the call runs.

    On a CPU it is resident memory, so that pages which a freed allocation left behind would hide a need: measure in a process
    that has not had a larger need before.

    Args:
        call: what is measured; what it loads on first use should be loaded already.
        device: ``cpu`` or ``cuda``.

    Raises:
        ConfigError: this system does not tell the peak.
    """
    if device == "cuda":
        return _cuda_growth(call)
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
        before = _resident("VmRSS")
        call()
        return (_resident("VmHWM") - before) / MEBIBYTE
    except OSError as error:
        raise ConfigError(f"peak memory cannot be measured here: {error}. It needs Linux and its /proc.") from error


def limit_memory() -> None:
    """Keeps this process within the memory that is available, so that a too large case fails instead of the machine.

    Does nothing where the system knows neither the limit nor what is available.
    """
    try:
        import resource

        information = Path("/proc/meminfo").read_text(encoding="ascii")
    except (ImportError, OSError):
        return
    available = _field(information, "MemAvailable")
    resource.setrlimit(resource.RLIMIT_DATA, (int(available * 0.95), resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _cuda_growth(call: Callable[[], None]) -> float:
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MEBIBYTE


def _resident(field: str) -> int:
    return _field(_STATUS.read_text(encoding="ascii"), field)


def _field(text: str, field: str) -> int:
    r"""Returns the bytes of a line such as ``VmRSS:  123 kB``.

    >>> _field("VmPeak: 9 kB\nVmRSS:  2 kB\n", "VmRSS")
    2048
    """
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"there is no {field}")
