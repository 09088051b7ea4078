"""What an editor learns of the loss: which words its arguments take, and that its value is a tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Python = Callable[..., str]

RIGHT = """
from typing import assert_type

import torch

from tempplug import ContrastiveLoss
from tempplug.types import EngineName, LayoutName, Reduction

layout: LayoutName = "cross-view"
reduction: Reduction = "none"
engine: EngineName = "tiled"
view = torch.zeros(4, 3)
loss_fn = ContrastiveLoss("macl", "dcl", layout, reduction=reduction, engine=engine)
assert_type(loss_fn(view, view, labels=torch.arange(4)), torch.Tensor)
assert_type(loss_fn([view], [view]), torch.Tensor)
"""
WRONG = {
    'ContrastiveLoss(reduction="average")': 'Argument "reduction" to "ContrastiveLoss" has incompatible type',
    'ContrastiveLoss(engine="cuda")': 'Argument "engine" to "ContrastiveLoss" has incompatible type',
    "loss_fn(view, view, labels=3)": 'Argument "labels" has incompatible type "int"',
    "loss_fn(view, 0.5)": "Argument 2 ",
}


@pytest.mark.slow
def test_a_type_checker_accepts_right_words_and_refuses_wrong_ones(python: Python, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "\n".join(WRONG) + "\n")
    first = RIGHT.count("\n") + 1
    found = [line for line in python("-m", "mypy", "--strict", program, status=1).splitlines() if ": error: " in line]
    assert len(found) == len(WRONG), "\n".join(found)
    for line, (number, message) in zip(found, enumerate(WRONG.values(), start=first), strict=True):
        assert f"program.py:{number}: error: {message}" in line
