"""`gather=True` under torchrun, accelerate, Lightning and the Hugging Face Trainer: processes together equal one.

Every launch has a time limit, after which it counts as hanging.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import largest, train_accelerate, train_lightning, train_trainer
from launched.pairs import CASES, ENGINES, KERNEL_CASES, PRECISIONS, Encoder, call, create_loss, gradients, local, pairs
from launcher import launched, torchrun
from torch import Tensor, nn

import tempplug

pytestmark = pytest.mark.slow

# Equal rows, unequal ones, one process with a single row; three processes.
GROUPS = {"4,4": 2, "4,3": 2, "1,5": 2, "2,4,3": 3}
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}


@cache
def alone(case: str, rows: int) -> dict[str, Any]:
    """Loss and gradients of one process on all rows, dense and in float64."""
    encoder, loss_fn = Encoder().double(), create_loss(CASES[case], "dense", gather=False).double()
    loss = call(CASES[case], encoder, loss_fn, local(pairs(rows), slice(None), torch.float64))
    loss.backward()
    return {"loss": loss.detach(), "gradients": gradients(encoder, loss_fn)}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """What every process got, by group of rows, case, engine and precision; of two also with kernels and the Trainer."""
    found: dict[Any, list[Any]] = {}
    for processes in (2, 3):
        groups = [group for group, needed in GROUPS.items() if needed == processes]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            ranks = launched(
                torchrun(processes), "train_torchrun.py", tmp_path_factory.mktemp("torchrun"), *groups, processes=processes
            )
        found |= {key: [rank[key] for rank in ranks] for key in ranks[0]}
    return found


def assert_equals_one(rank: dict[str, Any], case: str, group: str, engine: str, precision: str) -> None:
    expected = alone(case, sum(map(int, group.split(","))))
    largest = max(value.abs().max().item() for value in expected["gradients"].values())
    assert rank["engine"] == engine
    assert_close(rank["loss"], expected["loss"], precision, max(1.0, expected["loss"].item()))
    assert rank["gradients"].keys() == expected["gradients"].keys()
    for place, gradient in rank["gradients"].items():
        assert_close(gradient, expected["gradients"][place], precision, max(1.0, largest))


def assert_close(ours: Tensor, expected: Tensor, precision: str, scale: float) -> None:
    assert ours.dtype == PRECISIONS[precision]
    assert (ours.double() - expected).abs().max().item() <= TOLERANCE[precision] * scale


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("group", GROUPS)
def test_processes_equal_one(together: dict[Any, list[Any]], group: str, case: str, engine: str, precision: str) -> None:
    for rank in together[group, case, engine, precision]:
        assert_equals_one(rank, case, group, engine, precision)


def test_kernels_on_several_processes_equal_one(together: dict[Any, list[Any]]) -> None:
    for rank in together["kernels"]:
        assert tuple(rank) == KERNEL_CASES
        for case, found in rank.items():
            assert_equals_one(found, case, "4,3", "triton", "float32")


@pytest.mark.parametrize("layout", largest.LAYOUTS)
@pytest.mark.parametrize("processes", [2, 3])
def test_no_process_holds_the_similarities_of_all_pairs(together: dict[Any, list[Any]], processes: int, layout: str) -> None:
    """Neither in forward nor in backward: a block of local rows at most, and with the tiled engine one tile."""
    anchors = largest.ROWS * (2 if layout == "two-view" else 1)
    local_block = anchors * anchors * processes
    assert together["largest", processes, "dense", layout] == [local_block] * processes
    assert all(numbers <= 256 * 1024 < local_block // 2 for numbers in together["largest", processes, "tiled", layout])


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
    return losses, parameters_of(encoder, loss_fn)


def parameters_of(*modules: nn.Module) -> list[Tensor]:
    return [parameter.detach() for module in modules for parameter in module.parameters()]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 0.0) -> None:
    for first, second in zip(ours, theirs, strict=True):
        torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


def test_accelerate_with_an_uneven_last_batch_equals_one_process(tmp_path: Path) -> None:
    # Without --multi_gpu accelerate starts one process; the script itself asks for the CPU. Port 0 is any free one.
    options = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    command = [sys.executable, "-m", "accelerate.commands.launch", *options.split()]
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


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both processes of Lightning ended with; one process starts the other."""
    return launched([sys.executable], "train_lightning.py", tmp_path_factory.mktemp("lightning"))


def test_lightning_equals_one_process(lightning: list[dict[str, Any]]) -> None:
    loss_fn = tempplug.ContrastiveLoss("learnable")
    steps = [first + second for first, second in zip(*(rank["seen"] for rank in lightning), strict=True)]
    assert sorted(item for items in steps for item in items) == list(range(train_lightning.ITEMS))
    losses, parameters = trained_alone(loss_fn, torch.optim.AdamW, 0.05, steps)
    for rank in lightning:
        assert (rank["world"], rank["strategy"]) == (2, "DDPStrategy")
        assert_same(list(rank["one epoch"].values()), parameters, 1e-4)
    first, second = (rank["losses"][: len(losses)] for rank in lightning)
    assert [(a + b) / 2 for a, b in zip(first, second, strict=True)] == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("run", ["one epoch", "whole", "resumed"])
def test_lightning_keeps_processes_equal(lightning: list[dict[str, Any]], run: str) -> None:
    first, second = lightning
    assert first[run].keys() == second[run].keys()
    assert "loss_fn.strategy.log_scale" in first[run]
    assert_same(list(first[run].values()), list(second[run].values()))


def test_lightning_resumes_from_its_checkpoint(lightning: list[dict[str, Any]]) -> None:
    for rank in lightning:
        assert_same(list(rank["saved"].values()), list(rank["one epoch"].values()))
        assert_same(list(rank["resumed"].values()), list(rank["whole"].values()))
        assert rank["resumed losses"] == rank["losses"][len(rank["losses"]) // 2 :]
        assert not torch.equal(*(rank[run]["loss_fn.strategy.log_scale"] for run in ("one epoch", "whole")))


@pytest.mark.parametrize("strategy", train_trainer.STRATEGIES)
def test_trainer_with_an_uneven_last_batch_equals_one_process(
    together: dict[Any, list[Any]], strategy: str, tmp_path: Path
) -> None:
    trainer = together["trainer"]
    assert [rank[strategy]["sizes"] for rank in trainer] == [[4, 4, 4, 4] * 2, [4, 4, 4, 1] * 2]
    one = train_trainer.train(strategy, 1, tmp_path)
    for rank in trainer:
        assert_same(rank[strategy]["parameters"], one["parameters"], 1e-3)
    assert_same(trainer[0][strategy]["parameters"], trainer[1][strategy]["parameters"])
    two = trainer[0][strategy]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["temperature"] == pytest.approx(one["temperature"], rel=1e-4)
    assert len(set(two["temperature"])) == len(two["temperature"])
