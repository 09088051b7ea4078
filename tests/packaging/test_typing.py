"""What an editor learns of the loss: which words its arguments take, and that its value is a tensor."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Python = Callable[..., str]

RIGHT = """
from typing import assert_type

import torch

import tempplug
from tempplug import AMCL, DCLW, MACL, ContrastiveLoss, CrossView, DySTreSS, FalseNegatives, Fixed, Hardness, HeadTail, LogQ
from tempplug.types import EngineName, LayoutName, ObjectiveName, Reduction

view = torch.zeros(4, 3)
layout: LayoutName = "cross-view"
objective: ObjectiveName = "dcl"
reduction: Reduction = "none"
engine: EngineName = "tiled"
loss_fn = ContrastiveLoss("macl:alpha=2", objective, layout, reduction=reduction, engine=engine)
assert_type(loss_fn(view, view, labels=torch.arange(4)), torch.Tensor)
assert_type(loss_fn([view], [view]), torch.Tensor)
assert_type(loss_fn.record.numbers(), dict[str, float])
ContrastiveLoss(0.05)
ContrastiveLoss(1)
ContrastiveLoss(Fixed(0.05), "dcl", "cross-view", symmetric=True)
ContrastiveLoss(MACL(base_temperature=0.05, alpha=2, threshold=0.8))
ContrastiveLoss(DySTreSS(temperature_min=0.03, temperature_max=0.05, profile="linear"))
ContrastiveLoss(tempplug.TemperatureFree(), layout=CrossView(directions="ab+aa+bb"))
ContrastiveLoss(tempplug.Learnable(initial_temperature=0.07))
ContrastiveLoss(tempplug.Schedule(shape="triangle"))
ContrastiveLoss(HeadTail(class_counts=[3, 1]), layout="labels")
ContrastiveLoss(AMCL(dimension=8), objective=DCLW(sigma=0.25))
ContrastiveLoss(tempplug.Individual(size=10), gather=True)
ContrastiveLoss(negatives=FalseNegatives(margin=0.1))
ContrastiveLoss(negatives=[FalseNegatives(), Hardness(strength=9, of="in-batch")])
ContrastiveLoss(negatives="same-key+log-q:size=9")
tempplug.create_strategy(0.3).spec().upper()
"""
WRONG = {
    "MACL(alfa=2)": 'Unexpected keyword argument "alfa" for "MACL"',
    'MACL("0.1")': 'Argument 1 to "MACL" has incompatible type',
    'Fixed(temperature="warm")': 'Argument "temperature" to "Fixed" has incompatible type',
    "Fixed(tau=0.1)": 'Unexpected keyword argument "tau" for "Fixed"',
    'ContrastiveLoss(objective="infonec")': 'Argument "objective" to "ContrastiveLoss" has incompatible type',
    'ContrastiveLoss(layout="crossview")': 'Argument "layout" to "ContrastiveLoss" has incompatible type',
    'ContrastiveLoss(reduction="average")': 'Argument "reduction" to "ContrastiveLoss" has incompatible type',
    'ContrastiveLoss(engine="cuda")': 'Argument "engine" to "ContrastiveLoss" has incompatible type',
    "ContrastiveLoss(temperature=0.05)": 'Argument "temperature" to "ContrastiveLoss" has incompatible type',
    "ContrastiveLoss(scale=20.0)": 'Argument "scale" to "ContrastiveLoss" has incompatible type',
    'ContrastiveLoss(symmetric="yes")': 'Argument "symmetric" to "ContrastiveLoss" has incompatible type',
    "ContrastiveLoss(strategy=None)": 'Argument "strategy" to "ContrastiveLoss" has incompatible type',
    "ContrastiveLoss(negatives=3)": 'Argument "negatives" to "ContrastiveLoss" has incompatible type',
    'CrossView(direction="ab")': 'Unexpected keyword argument "direction" for "CrossView"',
    'CrossView(directions=["ab", "aa"])': 'Argument "directions" to "CrossView" has incompatible type',
    'Hardness(strength="5")': 'Argument "strength" to "Hardness" has incompatible type',
    'LogQ(size="9")': 'Argument "size" to "LogQ" has incompatible type',
    "AMCL()": 'Missing positional argument "dimension" in call to "AMCL"',
    "loss_fn(view, view, labels=3)": 'Argument "labels" to "__call__" of "ContrastiveLoss" has incompatible type "int"',
    "loss_fn(view, 0.5)": "Argument 2 ",
}


PROGRAM = RIGHT + "\n".join(WRONG) + "\n"
FIRST = RIGHT.count("\n") + 1


@pytest.mark.slow
def test_a_type_checker_accepts_right_words_and_refuses_wrong_ones(python: Python, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = [line for line in python("-m", "mypy", "--strict", program, status=1).splitlines() if ": error: " in line]
    assert len(found) == len(WRONG), "\n".join(found)
    for line, (number, message) in zip(found, enumerate(WRONG.values(), start=FIRST), strict=True):
        assert f"program.py:{number}: error: {message}" in line


@pytest.mark.slow
@pytest.mark.skipif(find_spec("basedpyright") is None, reason="pip install basedpyright, as .ci/versions does")
def test_pyright_refuses_the_same_lines(python: Python, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ("--pythonpath", sys.executable, "--level", "error", "--outputjson")
    said = python("-m", "basedpyright", *options, tmp_path / "program.py", status=1)
    lines = {each["range"]["start"]["line"] + 1 for each in json.loads(said)["generalDiagnostics"]}
    assert lines == set(range(FIRST, FIRST + len(WRONG)))
