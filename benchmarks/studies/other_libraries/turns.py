"""Steps of two libraries in turn, so that their times are comparable."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def in_turn(steps: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Returns the results of ``rounds`` calls of each step, after two warm-up rounds.

    A step gets the number of the round. The second one benefits from warm caches, so the order alternates.
    """
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name in sorted(steps, reverse=turn % 2 == 1):
            found[name].append(steps[name](turn))
    return {name: values[2:] for name, values in found.items()}
