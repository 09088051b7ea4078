"""Which executor a command means. It must not know runs."""

from __future__ import annotations

from pathlib import Path

from tempplug.errors import ConfigError
from tempplug_benchmarks.executor import Executor, InThisProcess
from tempplug_benchmarks.ray_executor import OnRay
from tempplug_benchmarks.workers import InProcesses

NAMES = ("local", "ray")


def create_executor(
    name: str,
    data_dir: Path | None,
    workers: int | None = None,
    time_limit: float | None = None,
    ray_address: str | None = None,
) -> Executor:
    """Returns what carries out runs.

    Args:
        name: ``local``, this machine, or ``ray``, a cluster.
        data_dir: folder of real data, None where none was given; of one path on all machines.
        workers: how many runs at once, at least 1; None is 1 here, and as many as there is room for on a cluster. With 1
            and no limit they run in this process.
        time_limit: seconds that a run may take; one that takes longer is ended and noted as failed. None is no limit.
        ray_address: of the cluster; None is the one that RAY_ADDRESS names, or that runs on this machine.

    Raises:
        ConfigError: ``workers`` is less than 1, the limit is not above 0, or an address was given that is not used.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} must be at least 1.")
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit={time_limit} must be above 0 seconds.")
    if name == "ray":
        return OnRay(data_dir, workers, time_limit, ray_address)
    if ray_address is not None:
        raise ConfigError(f"ray_address={ray_address} goes with --executor ray.")
    if workers in (None, 1) and time_limit is None:
        return InThisProcess(data_dir)
    return InProcesses(data_dir, workers or 1, time_limit)
