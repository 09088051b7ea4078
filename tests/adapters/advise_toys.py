"""Courses of ``tempplug advise`` with known accuracies."""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug import Fixed
from tempplug_adapters.advise.training import Course

HELD_OUT = 1000


def right(percent: float, noise: int = 0) -> Tensor:
    """Credits of that mean in five folds; those of two courses differ in few anchors, or in many where the noise differs."""
    order = torch.randperm(HELD_OUT, generator=torch.Generator().manual_seed(noise)) if noise else torch.arange(HELD_OUT)
    return (order < round(percent / 100 * HELD_OUT)).float().view(-1, 5).T


def courses(*accuracies: tuple[str | float, float | tuple[float, ...]], lengths: tuple[int, ...] = (1, 2, 4)) -> list[Course]:
    """A course for each temperature or spec string, with its accuracy in percent, one or one a length."""
    found = []
    for what, given in accuracies:
        each = given if isinstance(given, tuple) else (given,) * len(lengths)
        spec = what if isinstance(what, str) else Fixed(what).spec()
        credits = {length: right(percent) for length, percent in zip(lengths, each, strict=True)}
        found.append(Course(spec, credits, dict.fromkeys(lengths, what if isinstance(what, float) else 0.07)))
    return found
