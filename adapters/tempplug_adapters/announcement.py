"""Prints what a training uses when it starts: strategy with every option, objective and layout of its loss.

It prints on standard error, so that the results on standard output stay as they are. It must not know any framework.
"""

from __future__ import annotations

import sys
from weakref import WeakSet

from torch import distributed, nn

from tempplug import ContrastiveLoss

_said: WeakSet[nn.Module] = WeakSet()


def layout_of(loss: ContrastiveLoss) -> str:
    """Returns the name of a loss's layout, and whether it averages both directions."""
    return loss.layout.name + (", symmetric" if getattr(loss.layout, "symmetric", False) else "")


def announce(loss: ContrastiveLoss, name: str = "") -> None:
    """Prints what a loss uses, on the first process alone; trainers call it when a training starts.

    Args:
        loss: with the length of the training told, from which a schedule's period may follow.
        name: of the loss, where there are several.
    """
    _said.add(loss)
    if distributed.is_available() and distributed.is_initialized() and distributed.get_rank():
        return
    said = f"strategy {loss.strategy.spec()}, objective {loss.objective.spec()}, layout {layout_of(loss)}"
    text = f"{name}: {said}" if name else said
    bars = sys.modules.get("tqdm")  # where there is a bar, the line belongs above it
    if bars is None:
        print(text, file=sys.stderr, flush=True)
    else:
        bars.tqdm.write(text, file=sys.stderr)


def announce_once(loss: ContrastiveLoss) -> None:
    """Announces a loss that no trainer has announced; losses that stand in for a library's call it in training."""
    if loss not in _said:
        announce(loss)


# A compiler calls it once, when it traces a loss, and takes what it returned for a constant.
announce_once._dynamo_marked_constant = True  # type: ignore[attr-defined]
