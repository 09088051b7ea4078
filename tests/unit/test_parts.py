"""What helpers of a loss take: its parts and its memory, never the loss."""

from __future__ import annotations

import ast
import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tempplug
from tempplug import ContrastiveLoss
from tempplug.call import read
from tempplug.errors import ConfigError

FOLDER = Path(tempplug.__file__).parent
# Who makes losses, and nothing that a call of one runs through.
MAKERS = {"__init__.py", "preset_losses.py"}


def trees() -> dict[str, ast.Module]:
    files = {str(file.relative_to(FOLDER)): file for file in FOLDER.rglob("*.py")}
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in files.items()}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_other_module_reads_a_private_attribute_of_the_loss() -> None:
    found = trees()
    (loss,) = (each for each in found["loss.py"].body if isinstance(each, ast.ClassDef) and each.name == "ContrastiveLoss")
    stored = {each.attr for each in ast.walk(loss) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)}
    methods = {each.name for each in loss.body if isinstance(each, ast.FunctionDef)}
    names = set(filter(private, stored | methods))
    assert names
    for file, tree in found.items():
        read = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr in names]
        of_others = {ast.unparse(each) for each in read if not (isinstance(each.value, ast.Name) and each.value.id == "self")}
        assert not of_others, file


def test_nothing_that_a_call_runs_through_imports_the_loss() -> None:
    importing = {
        file
        for file, tree in trees().items()
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and each.module == "tempplug.loss"
    }
    assert {file for file in importing if not file.startswith("testing/")} == MAKERS


def test_parts_are_those_that_the_loss_has_now() -> None:
    loss_fn = ContrastiveLoss("fixed", negatives="hardness:strength=2")
    assert loss_fn.parts.terms == tuple(loss_fn.terms)
    assert loss_fn.parts == loss_fn.parts
    other = ContrastiveLoss("macl", "dcl", "cross-view", reduction="sum", engine="dense")
    for name in ("strategy", "objective", "layout", "reduction", "engine"):
        setattr(loss_fn, name, getattr(other, name))
        assert getattr(loss_fn.parts, name) is getattr(other, name)
    views = torch.randn(5, 3), torch.randn(5, 3)
    expected = ContrastiveLoss("macl", "dcl", "cross-view", reduction="sum", negatives="hardness:strength=2")(*views)
    torch.testing.assert_close(loss_fn(*views), expected)


def test_a_copy_has_no_record_and_gives_no_warning_twice() -> None:
    loss_fn = ContrastiveLoss("fixed:temperature=20")
    views = torch.randn(5, 3), torch.randn(5, 3)
    with pytest.warns(RuntimeWarning, match="a scale of"):
        loss_fn(*views)
    copied = copy.deepcopy(loss_fn)
    with pytest.raises(ConfigError, match="call the loss first"):
        copied.record  # noqa: B018
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied(*views)


@pytest.mark.parametrize(
    ("layout", "given", "once"),
    [
        ("cross-view", lambda rows: {}, True),
        ("cross-view", lambda rows: {"hard_negatives": torch.randn(rows, 2, 3)}, True),
        ("cross-view", lambda rows: {"hard_negatives": torch.randn(rows, 3).double()}, False),
        ("labels", lambda rows: {"labels": torch.arange(rows) % 2}, True),
        ("labels", lambda rows: {"labels": (torch.arange(rows) % 2).int()}, False),
    ],
    ids=["rows", "hard negatives of rows", "another type", "labels", "labels of another type"],
)
def test_a_kind_of_call_is_checked_once_unless_its_arguments_are_converted(
    layout: Any, given: Any, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    check = read._check
    monkeypatch.setattr(read, "_check", lambda *arguments: calls.append(1) or check(*arguments))
    loss_fn, twin = ContrastiveLoss(layout=layout), ContrastiveLoss(layout=layout)
    for rows in (4, 4, 6, 4):
        pair, arguments = (torch.randn(rows, 3), torch.randn(rows, 3)), given(rows)
        found, before = loss_fn(*pair, **arguments), len(calls)
        torch.testing.assert_close(found, copy.deepcopy(twin)(*pair, **arguments))
        del calls[before:]
    assert len(calls) == (2 if once else 4)
