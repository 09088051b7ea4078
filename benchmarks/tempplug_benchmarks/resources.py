"""The resources that a benchmark run requests from a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that a cluster reserves for one run; they are ignored on the local machine.

    Attributes:
        cpus: CPU cores, at least 1; also the number of torch threads.
        gpus: number of GPUs; a fraction lets several runs share one, and 0 hides all GPUs from the run.
        memory: main memory in GiB.
    """

    cpus: int = 1
    gpus: float = 0
    memory: float = 2

    def __str__(self) -> str:
        """Returns the resources as text.

        >>> print(Resources(), Resources(cpus=4, gpus=0.5, memory=12.25), sep="; ")
        1 CPU, no GPU, 2 GiB; 4 CPUs, 0.5 GPU, 12.2 GiB
        """
        return in_words(self.cpus, self.gpus, self.memory)


GPU = Resources(cpus=4, gpus=1, memory=16)
"""Resources of a training of a paper's size; the CPUs prepare data and evaluate."""


def in_words(cpus: float, gpus: float, memory: float) -> str:
    """Returns numbers of CPUs and GPUs and an amount of memory in GiB as text."""
    return f"{_count(cpus, 'CPU')}, {_count(gpus, 'GPU') if gpus else 'no GPU'}, {float(f'{memory:.3g}'):g} GiB"


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' if number > 1 else ''}"
