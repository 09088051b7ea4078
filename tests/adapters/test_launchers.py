"""`gather=True` under torchrun, accelerate and Lightning: processes together equal one, and refuse together what one refuses.

Every launch has a time limit, after which it counts as hanging.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import differing, largest, train_accelerate, train_lightning
from launched.pairs import CASES, ENGINES, KERNEL_CASES, PRECISIONS, STEPS, Encoder, call, create_loss, gradients, local, pairs
from launched.refused import CALLS
from launcher import launched, torchrun
from torch import Tensor, nn

import tempplug
from tempplug.types import Gather

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}


@cache
def alone(case: str, rows: int) -> dict[str, Any]:
    """Loss and gradients of one process on all rows, dense and in float64."""
    encoder, loss_fn = Encoder().double(), create_loss(CASES[case], "dense", gather=False).double()
    loss = call(CASES[case], encoder, loss_fn, local(pairs(rows), slice(None), torch.float64))
    loss.backward()
    return {"loss": loss.detach(), "gradients": gradients(encoder, loss_fn)}


@pytest.fixture(scope="module")
def together(warm: None, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """What every process got, by group of rows, case, engine and precision, and by the names of the other parts."""
    found: dict[Any, list[Any]] = {}
    for processes in (2, 3):
        folder = tmp_path_factory.mktemp("torchrun")
        with pytest.MonkeyPatch.context() as patch:
            if processes == 2:  # which run kernels
                patch.setenv("TRITON_INTERPRET", "1")
            ranks = launched(torchrun(processes), "train_torchrun.py", folder, processes=processes)
        found |= {key: [rank[key] for rank in ranks] for key in ranks[0]}
    return found


def assert_equals_one(rank: dict[str, Any], group: str, case: str, engine: str, precision: str) -> None:
    expected = alone(case, sum(map(int, group.split(","))))
    assert rank["engine"] == engine
    assert rank["gradients"].keys() == expected["gradients"].keys()
    largest = max(1.0, *(value.abs().max().item() for value in expected["gradients"].values()))
    parts = [(rank["loss"], expected["loss"], max(1.0, expected["loss"].item()))]
    parts += [(gradient, expected["gradients"][place], largest) for place, gradient in rank["gradients"].items()]
    for ours, theirs, scale in parts:
        assert ours.dtype == PRECISIONS[precision]
        assert (ours.double() - theirs).abs().max().item() <= TOLERANCE[precision] * scale


@pytest.mark.parametrize("step", STEPS, ids="-".join)
def test_processes_equal_one(together: dict[Any, list[Any]], step: tuple[str, str, str, str]) -> None:
    for rank in together[step]:
        assert_equals_one(rank, *step)


def test_kernels_on_several_processes_equal_one(together: dict[Any, list[Any]]) -> None:
    for rank in together["kernels"]:
        assert tuple(rank) == KERNEL_CASES
        for case, found in rank.items():
            assert_equals_one(found, "4,3", case, "triton", "float32")


@pytest.mark.parametrize("layout", largest.LAYOUTS)
@pytest.mark.parametrize("processes", [2, 3])
def test_no_process_holds_the_similarities_of_all_pairs(together: dict[Any, list[Any]], processes: int, layout: str) -> None:
    """Neither in forward nor in backward: a block of local rows at most, and with the tiled engine one tile."""
    anchors = largest.ROWS * (2 if layout == "two-view" else 1)
    local_block = anchors * anchors * processes
    assert together["largest", processes, "dense", layout] == [local_block] * processes
    assert all(numbers <= 256 * 1024 < local_block // 2 for numbers in together["largest", processes, "tiled", layout])


REFUSED = {
    "no rows": ("ShapeError", "view_a of shape [0, 6]"),
    "unpaired rows": ("ShapeError", "view_b has 3 rows where view_a has 4"),
    "not a number": ("NonFiniteError", "view_b holds NaN"),
    "labels": ("ConfigError", "labels= is read neither by layout"),
    "hard negatives": ("ShapeError", "hard_negatives has 7 dimensions"),
    "queue": ("ConfigError", "queue= is read neither by layout"),
}
# the first one's row, which names the other, and the refusing one's
ENDS = {
    **{name: (("ProcessError", "process 1 of 2 refused its inputs"), end) for name, end in REFUSED.items()},
    "several positives": (("ConfigError", "gave an anchor 2"),) * 2,
    "stops early": (("RuntimeError", "exhausted"),) * 2,  # noticed by torch's own guard
    "good": (("finished", "True"),) * 2,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_that_one_process_refuses_ends_the_call_on_all_of_them(together: dict[Any, list[Any]], engine: str) -> None:
    """The process gives the reason, the others name it, no process waits forever, and a good call after all finishes."""
    ranks = [rank[engine] for rank in together["refused"]]
    assert [list(rank) for rank in ranks] == [list(CALLS)] * 2 == [list(ENDS)] * 2
    for name, expected in ENDS.items():
        for rank, (error, message) in zip(ranks, expected, strict=True):
            assert rank[name][0] == error, name
            assert message in rank[name][1]


@pytest.mark.parametrize("name", differing.DIFFERENT)
@pytest.mark.parametrize("gather", differing.KINDS)
def test_calls_that_differ_end_in_all_processes_with_what_each_had(
    together: dict[Any, list[Any]], gather: Gather, name: str
) -> None:
    (first, told), second = (rank[gather][name] for rank in together["differing"])
    assert (first, told) == ("ProcessError", told) == second
    assert differing.DIFFERENT[name][1] in told


@pytest.mark.parametrize("name", differing.REFUSED)
@pytest.mark.parametrize("gather", differing.KINDS)
def test_what_one_process_refuses_is_quoted_in_the_others(together: dict[Any, list[Any]], gather: Gather, name: str) -> None:
    (error, told), own = (rank[gather][name] for rank in together["differing"])
    assert ": ".join(own).startswith(differing.REFUSED[name][1])
    assert error == "ProcessError"
    assert told.endswith(f"process 1 of 2 refused its inputs, so no process has a loss: process 1 raised {': '.join(own)}")


@pytest.mark.parametrize("gather", differing.KINDS)
def test_a_good_call_after_refused_ones_equals_one_process(together: dict[Any, list[Any]], gather: Gather) -> None:
    loss, gradient = differing.good(False, slice(None))
    losses, gradients = zip(*(rank[gather]["good"] for rank in together["differing"]), strict=True)
    torch.testing.assert_close(losses, (loss, loss), rtol=1e-13, atol=0)
    torch.testing.assert_close(torch.cat(gradients, 1), gradient, rtol=1e-11, atol=1e-14)


def trained_alone(
    loss_fn: tempplug.ContrastiveLoss, optimizer: type[torch.optim.SGD | torch.optim.AdamW], lr: float, steps: list[list[int]]
) -> tuple[list[float], list[Tensor]]:
    """Returns losses, and parameters at the end, of a plain loop in one process; ``steps`` are the items of joined batches."""
    data, encoder, losses = pairs(1 + max(map(max, steps))), Encoder(), []
    stepper = optimizer([{"params": encoder.parameters()}, {"params": loss_fn.parameters(), "weight_decay": 0.0}], lr=lr)
    for items in steps:
        loss = loss_fn(*encoder(data["a"][items].float(), data["b"][items].float()))
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in nn.ModuleList([encoder, loss_fn]).parameters()]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 0.0) -> None:
    for first, second in zip(ours, theirs, strict=True):
        torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


def test_accelerate_with_an_uneven_last_batch_equals_one_process(tmp_path: Path) -> None:
    # Without --multi_gpu accelerate starts one process; the script itself asks for the CPU. Port 0 is any free one.
    options = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    command = [os.environ["PYTHON_EXEC"], "-m", "accelerate.commands.launch", *options.split()]
    ranks = launched(command, "train_accelerate.py", tmp_path)
    assert [rank["sizes"] for rank in ranks] == [[3, 3], [3, 1]]
    loss_fn = tempplug.ContrastiveLoss("learnable", layout="cross-view", symmetric=True)
    batch, items = 2 * train_accelerate.BATCH, list(range(train_accelerate.ITEMS))
    losses, parameters = trained_alone(loss_fn, torch.optim.SGD, 0.1, [items[:batch], items[batch:]])
    for rank in ranks:
        assert (rank["world"], rank["wrapped"]) == (2, "DistributedDataParallel")
        assert rank["losses"] == pytest.approx(losses, rel=1e-5)
        assert_same(rank["parameters"], parameters, 1e-5)
        assert rank["temperature"] == pytest.approx(loss_fn.record.temperature_mean.item(), rel=1e-5)
    assert_same(ranks[0]["parameters"], ranks[1]["parameters"])
    assert parameters[-1].item() != pytest.approx(torch.tensor(1 / 0.07).log().item(), abs=1e-3), "the temperature was learned"


def test_lightning_equals_one_process(tmp_path: Path) -> None:
    """One process starts the other."""
    ranks = launched([os.environ["PYTHON_EXEC"]], "train_lightning.py", tmp_path)
    loss_fn = tempplug.ContrastiveLoss("learnable")
    steps = [first + second for first, second in zip(*(rank["seen"] for rank in ranks), strict=True)]
    assert sorted(item for items in steps for item in items) == sorted([*range(train_lightning.ITEMS)] * 2)
    losses, parameters = trained_alone(loss_fn, torch.optim.AdamW, 0.05, steps)
    for rank in ranks:
        assert (rank["world"], rank["strategy"]) == (2, "DDPStrategy")
        assert_same(list(rank["state"].values()), parameters, 1e-3)
        assert rank["logged"] == pytest.approx(loss_fn.record.temperature_mean.item(), rel=1e-4)
    assert_same(*(list(rank["state"].values()) for rank in ranks))
    assert [(a + b) / 2 for a, b in zip(*(rank["losses"] for rank in ranks), strict=True)] == pytest.approx(losses, rel=1e-4)
