"""The engines inside what training does: autocast, several backward passes, frozen parts, no gradients, copies, memory."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from covering import every_pair
from engine_cases import block_of_rows
from torch import Tensor

from tempplug import ContrastiveLoss
from tempplug.block import Block
from tempplug.engine.tiled import tiled_statistics
from tempplug.roles import Pairing, PairRoles
from tempplug.strategies.maps import ScaleMap, constant_scale
from tempplug.types import EngineName

ENGINES: list[EngineName] = ["dense", "tiled"]
STRATEGIES = ["learnable", "dystress:detach=false", "temperature-free"]
# What each engine does with the logits of negatives, with the sums of rows, and with blocks that share a softmax.
TERMS = [None, "false-negatives:margin=-0.2,weight=0.5", "same-key+hardness:of=in-batch+log-q", "guide+debiased"]
JOINT = "cross-view:directions=ab+aa+ba+bb"
KNOWN = {
    "labels": torch.arange(33) // 2,
    "keys": torch.arange(33) % 20,
    "guide": {name: torch.randn(33, 3, generator=torch.Generator().manual_seed(len(name))) for name in ("view_a", "view_b")},
    "candidate_log_q": -torch.linspace(0, 4, 33),
    "index": torch.arange(33) % 5,
}


def views(rows: int = 33, dimension: int = 6, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, dimension, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)]


def cross_block(anchors: Tensor, candidates: Tensor) -> Block:
    roles = PairRoles(anchors=4, candidates=4, device=torch.device("cpu"), positives=Pairing(((0, 4, 0),)))
    similarity = (anchors * candidates).sum(1).detach()
    return block_of_rows(anchors, candidates, roles, similarity, torch.float32)


@pytest.mark.parametrize("changed", [0, 1])
def test_rows_changed_in_place_before_the_backward_pass_raise(changed: int) -> None:
    rows = [torch.nn.functional.normalize(each) for each in views(4, 3)]
    (statistics,) = tiled_statistics(cross_block(*rows), ScaleMap(torch.tensor(10.0)))
    with torch.no_grad():
        rows[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        statistics.negative_lse.sum().backward()  # type: ignore[no-untyped-call]


def test_second_derivatives_and_passes_are_refused_by_the_tiled_engine() -> None:
    a, b = views(5, 3, torch.float64)
    loss = ContrastiveLoss(engine="tiled")(a, b)
    with pytest.raises(RuntimeError, match=r"engine='tiled' has no second derivative.*engine='dense'"):
        torch.autograd.grad(loss, a, create_graph=True, retain_graph=True)
    torch.autograd.grad(loss, a)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, a)


def test_constant_scales_are_shared_and_of_no_inference_mode() -> None:
    cpu = torch.device("cpu")
    with torch.inference_mode():
        made = constant_scale(0.123, torch.float64, cpu)
    assert constant_scale(0.123, torch.float64, cpu) is made
    assert not made.scale.is_inference()
    assert made.scale.shape == ()
    assert made.scale.item() == made.bound == 0.123
    assert constant_scale(0.123, torch.float32, cpu).scale.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:layout '.*' leaves .* without a negative:RuntimeWarning")
@pytest.mark.parametrize(
    ("strategy", "layout", "negatives", "objective"),
    [
        *every_pair(
            STRATEGIES,
            ["two-view", "cross-view", JOINT],
            [None, "same-key+debiased", "false-negatives:margin=-0.5+log-q"],
            ["infonce"],
        ),
        ("amcl:dimension=2", "two-view", "guide", "infonce"),
        ("amcl:dimension=2", "cross-view", None, "infonce"),
        ("learnable", "cross-view", None, "sigmoid:initial_bias=-2"),
    ],
)
def test_the_dense_engine_has_second_derivatives(strategy: str, layout: Any, negatives: str | None, objective: str) -> None:
    """Of the embeddings, through their normalisation, and of what is learned; terms have none of either order."""
    a, b = views(3, 2, torch.float64)
    torch.manual_seed(0)
    loss_fn = ContrastiveLoss(strategy, objective, layout, engine="dense", negatives=negatives).double()
    learned = {} if negatives and "debiased" in negatives else dict(loss_fn.named_parameters())  # its bound has no gradient
    parameters = {name: each.detach().clone().requires_grad_() for name, each in learned.items()}
    known = {
        "keys": torch.tensor([1, 1, 2]),
        "candidate_log_q": -torch.ones(3),
        "guide": {"view_a": b.detach(), "view_b": a.detach()},
    }
    given = loss_fn.accepted(**known)

    def loss(a: Tensor, b: Tensor, *learned: Tensor) -> Tensor:
        return torch.func.functional_call(loss_fn, dict(zip(parameters, learned, strict=True)), (a, b), given)  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, (a, b, *parameters.values()))
    assert torch.autograd.gradgradcheck(loss, (a, b, *parameters.values()))


@pytest.mark.parametrize(
    ("strategy", "layout", "engine", "hard"),
    every_pair(
        ["learnable", "amcl:dimension=4"], ["two-view", "cross-view", "symmetric", "queue", JOINT], ENGINES, [False, True]
    ),
)
def test_what_is_frozen_changes_no_gradient_of_the_others(strategy: str, layout: str, engine: EngineName, hard: bool) -> None:
    """Every choice of what learns: an encoder may be frozen, and the temperature learn alone."""
    names = ["view_a", "view_b", *(["queue"] if layout == "queue" else []), *(["hard_negatives"] if hard else [])]
    name: Any = "cross-view" if layout == "symmetric" else layout
    torch.manual_seed(0)
    negatives = "hardness" if hard else None
    loss_fn = ContrastiveLoss(
        strategy, layout=name, symmetric=layout == "symmetric", engine=engine, negatives=negatives
    ).double()
    values = {name: torch.randn(9, 4, dtype=torch.float64) for name in names}

    def gradients(learning: tuple[str, ...]) -> dict[str, list[Tensor]]:
        leaves = {name: [value.clone().requires_grad_(name in learning)] for name, value in values.items()}
        leaves["parameters"] = list(loss_fn.requires_grad_("parameters" in learning).parameters())
        loss = loss_fn(**{name: leaves[name][0] for name in names})
        return {name: list(torch.autograd.grad(loss, leaves[name], retain_graph=True)) for name in learning}

    everything = gradients((*names, "parameters"))
    for count in range(1, len(everything)):
        for learning in itertools.combinations(everything, count):
            for name, gradient in gradients(learning).items():
                torch.testing.assert_close(gradient, everything[name], rtol=1e-12, atol=1e-14, msg=f"{name} of {learning}")


@pytest.mark.parametrize(("engine", "strategy", "negatives"), every_pair(ENGINES, STRATEGIES, [*TERMS, "log-q:size=9"]))
def test_a_loss_that_ran_can_be_copied_and_pickled(engine: EngineName, strategy: str, negatives: str | None) -> None:
    """As averages of weights do, in the middle of training; and another that loads its state goes on as it does."""
    loss_fn, resumed = (ContrastiveLoss(strategy, layout=JOINT, engine=engine, negatives=negatives) for _ in range(2))
    a, b = views()
    given = loss_fn.accepted(**KNOWN)
    loss_fn(b, a, **{**given, **loss_fn.accepted(index=KNOWN["index"] // 2)})
    resumed.load_state_dict(loss_fn.state_dict())
    copies = copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn)), resumed
    loss = loss_fn(a, b, **given)
    for copied in copies:
        assert torch.equal(copied(a, b, **given), loss)


PEAK = """
import sys, torch, tempplug
def step(rows):
    a, b = (torch.randn(rows, 16).requires_grad_() for _ in range(2))
    inputs = {"labels": torch.arange(rows) // 2} if sys.argv[3] == "labels" else {}
    tempplug.ContrastiveLoss(sys.argv[2], layout=sys.argv[3], engine=sys.argv[1])(a, b, **inputs).backward()
    # Of this program alone, where getrusage remembers the size of the process that started it.
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = step(64)
print((step(3000) - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the largest memory of a process is read from /proc")
@pytest.mark.parametrize(
    ("engine", "strategy", "layout", "smallest", "largest"),
    [
        ("tiled", "dystress", "two-view", 0.0, 0.3),
        ("tiled", "fixed", "labels", 0.0, 0.4),
        ("dense", "fixed", "two-view", 1.0, 9.0),
    ],
)
def test_memory_is_a_small_part_of_the_matrix(engine: str, strategy: str, layout: str, smallest: float, largest: float) -> None:
    """The dense engine is there to show that the measure sees a matrix. What the allocator holds back is not counted."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, engine, strategy, layout],
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "100000", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    matrix = 6000 * 6000 * 4
    assert smallest <= int(done.stdout) / matrix <= largest
