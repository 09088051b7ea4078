"""Calls of the loss on two processes with input that one of them refuses, and how each call ended.

Both processes go on to the next call, and at last to a good one: nothing may be left over from the refused ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from launched.pairs import DIMENSION, ENGINES, Encoder
from torch.nn.parallel import DistributedDataParallel

import tempplug

Call = Callable[[tempplug.ContrastiveLoss, bool], torch.Tensor]


def views(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.randn(2, rows, DIMENSION, requires_grad=True).unbind()
    return first, second


def not_a_number(loss_fn: tempplug.ContrastiveLoss, bad: bool) -> torch.Tensor:
    view_a, view_b = views(3)
    return loss_fn(view_a, view_b * torch.nan if bad else view_b)


def several_positives(loss_fn: tempplug.ContrastiveLoss, bad: bool) -> torch.Tensor:
    # Of the joined classes 0 0 1 1 1 only those of the second process give an anchor two positives.
    labelled = tempplug.ContrastiveLoss("fixed", "reweighted", "labels", gather=True, engine=loss_fn.engine)
    return labelled(views(2 + bad)[0], labels=torch.tensor([1, 1, 1] if bad else [0, 0]))


def stops_early(loss_fn: tempplug.ContrastiveLoss, bad: bool) -> torch.Tensor:
    """One batch less on the second process; torch's own guard looks before the loss waits."""
    encoder = DistributedDataParallel(Encoder())
    loss = torch.zeros(())
    with encoder.join(throw_on_early_termination=True):
        for _ in range(1 if bad else 2):
            loss = loss_fn(*encoder(*views(3)))
            loss.backward()
    return loss


# What the second process hands over is bad, the first one's is fine.
CALLS: dict[str, Call] = {
    "no rows": lambda loss_fn, bad: loss_fn(*views(0 if bad else 5)),
    "unpaired rows": lambda loss_fn, bad: loss_fn(views(4)[0], views(3 if bad else 4)[1]),
    "not a number": not_a_number,
    "labels": lambda loss_fn, bad: loss_fn(*views(4), labels=torch.arange(4) if bad else None),
    "hard negatives": lambda loss_fn, bad: loss_fn(*views(4), hard_negatives=torch.ones(2, DIMENSION + bad)),
    "queue": lambda loss_fn, bad: loss_fn(*views(4), queue=torch.ones(2, DIMENSION) if bad else None),
    "several positives": several_positives,
    "stops early": stops_early,
    "good": lambda loss_fn, bad: loss_fn(*views(2 + bad)),
}


def end(call: Call, loss_fn: tempplug.ContrastiveLoss, bad: bool) -> tuple[str, str]:
    """Returns how the call ended: the error and its message, or that it finished and whether the loss is finite."""
    try:
        loss = call(loss_fn, bad)
        loss.backward()
    except Exception as error:
        return type(error).__name__, str(error)
    return "finished", str(bool(loss.isfinite()))


def ends(rank: int) -> dict[str, dict[str, tuple[str, str]]]:
    """Returns how each call ended, by engine."""
    losses = {engine: tempplug.ContrastiveLoss("macl", gather=True, engine=engine) for engine in ENGINES}
    return {engine: {name: end(call, loss, rank == 1) for name, call in CALLS.items()} for engine, loss in losses.items()}
