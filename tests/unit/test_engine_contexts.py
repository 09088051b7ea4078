"""The engines inside what training does: autocast, compiled models, checkpointing, several backward passes, no gradients."""

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
from engine_cases import bare_rows
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tempplug import ContrastiveLoss
from tempplug.engine.tiled import tiled_statistics
from tempplug.roles import Block, Pairing, PairRoles
from tempplug.strategies.maps import ScaleMap, constant_scale

ENGINES = ["dense", "tiled"]
STRATEGIES = ["learnable", "dystress", "temperature-free"]
both_engines = pytest.mark.parametrize("engine", ENGINES)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def views(rows: int = 33, dimension: int = 6, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, dimension, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)]


class Model(nn.Module):
    """An encoder and a loss."""

    def __init__(self, strategy: str, engine: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
        self.loss = ContrastiveLoss(strategy, engine=engine)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.loss(self.encoder(first), self.encoder(second))  # type: ignore[no-any-return]

    def step(self, call: Any, *inputs: Tensor) -> list[Tensor]:
        """The loss and the gradients of all parameters."""
        loss = call(*inputs)
        return [loss.detach(), *torch.autograd.grad(loss, list(self.parameters()))]


def assert_same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


@both_engines
@every_strategy
def test_autocast_does_not_reach_the_loss(strategy: str, engine: str) -> None:
    a, b = views()
    loss_fn = ContrastiveLoss(strategy, engine=engine)
    expected = loss_fn(a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_fn(a, b)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    assert_same(torch.autograd.grad(loss, [a, b]), torch.autograd.grad(expected, [a, b]))


@every_strategy
@pytest.mark.parametrize("layout", ["two-view", "cross-view"])
def test_tiles_stay_in_float32_where_the_backward_pass_runs_under_autocast(layout: str, strategy: str) -> None:
    a, b = views()
    loss = ContrastiveLoss(strategy, layout=layout, engine="tiled")(a, b)
    expected = torch.autograd.grad(loss, [a, b], retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.autograd.grad(loss, [a, b])
    assert_same(inside, expected)


@both_engines
def test_half_precision_of_an_encoder_under_autocast_stays_outside(engine: str) -> None:
    model = Model("fixed:temperature=0.05", engine)
    first, second = views()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = [model.encoder(each) for each in (first, second)]
        loss = model.loss(*low)
    assert low[0].dtype == torch.bfloat16
    exact = ContrastiveLoss("fixed:temperature=0.05", engine="dense")(*[each.double() for each in low])
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, low[0])
    assert gradient.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler looks at it
@both_engines
@every_strategy
def test_a_compiled_model_has_the_same_loss_and_gradients(strategy: str, engine: str) -> None:
    model = Model(strategy, engine)
    inputs = [each.detach() for each in views()]
    expected = model.step(model, *inputs)
    torch._dynamo.reset()
    found = model.step(torch.compile(model, backend="eager"), *inputs)
    if engine == "tiled":
        assert_same(found, expected)  # it stays outside of the graph
    # Log-odds divide by 1 - |s|, so that the last digit of a similarity is the fourth of a gradient.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=3e-5)


@both_engines
@every_strategy
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_encoder_and_loss_changes_nothing(reentrant: bool, strategy: str, engine: str) -> None:
    model = Model(strategy, engine)
    found: list[list[Tensor]] = []
    for call in (model, lambda *inputs: checkpoint(model, *inputs, use_reentrant=reentrant)):
        inputs = views()
        loss = call(*inputs)  # type: ignore[no-untyped-call]
        model.zero_grad()
        loss.backward()
        found.append([loss.detach(), *[each.grad for each in (*inputs, *model.parameters()) if each.grad is not None]])
    assert len(found[0]) >= 3 + 4
    assert_same(found[1], found[0])


@both_engines
@every_strategy
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "labels"])
def test_a_graph_that_is_retained_gives_its_gradient_again(layout: str, strategy: str, engine: str) -> None:
    a, b = views()
    inputs = {"labels": torch.arange(33) // 2} if layout == "labels" else {}
    loss = ContrastiveLoss(strategy, layout=layout, engine=engine)(a, b, **inputs)
    first = torch.autograd.grad(loss, [a, b], retain_graph=True)
    assert_same(torch.autograd.grad(loss, [a, b], retain_graph=True), first)
    assert_same(torch.autograd.grad(loss, [a, b]), first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, [a, b])


def cross_block(anchors: Tensor, candidates: Tensor) -> Block:
    roles = PairRoles(anchors=4, candidates=4, device=torch.device("cpu"), positives=Pairing(((0, 4, 0),)))
    similarity = (anchors * candidates).sum(1).detach()
    return Block(anchors, candidates, bare_rows(anchors, candidates), roles, similarity, torch.float32)


@pytest.mark.parametrize("changed", [0, 1])
def test_rows_changed_in_place_before_the_backward_pass_raise(changed: int) -> None:
    rows = [torch.nn.functional.normalize(each) for each in views(4, 3)]
    (statistics,) = tiled_statistics(cross_block(*rows), ScaleMap(torch.tensor(10.0)))
    with torch.no_grad():
        rows[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        statistics.negative_lse.sum().backward()  # type: ignore[no-untyped-call]


@both_engines
def test_a_queue_filled_before_the_backward_pass_changes_nothing(engine: str) -> None:
    """The loss holds unit rows of its own; what becomes of the embeddings after the call is the caller's affair."""
    a, b = views()
    queue = torch.randn(40, 6, generator=torch.Generator().manual_seed(5))
    loss_fn = ContrastiveLoss(layout="queue", engine=engine)
    expected = torch.autograd.grad(loss_fn(a, b, queue=queue.clone()), [a, b])
    loss = loss_fn(a, b, queue=queue)
    with torch.no_grad():
        queue[:33] = b
    assert_same(torch.autograd.grad(loss, [a, b]), expected)


def test_a_second_derivative_is_refused_by_the_tiled_engine() -> None:
    a, b = views(5, 3, torch.float64)
    loss = ContrastiveLoss(engine="tiled")(a, b)
    with pytest.raises(RuntimeError, match=r"engine='tiled' has no second derivative.*engine='dense'"):
        torch.autograd.grad(loss, a, create_graph=True)


@every_strategy
@pytest.mark.parametrize("layout", ["two-view", "cross-view"])
def test_the_dense_engine_has_second_derivatives(layout: str, strategy: str) -> None:
    """Of the embeddings, through their normalisation."""
    a, b = views(3, 2, torch.float64)
    spec = "dystress:detach=false" if strategy == "dystress" else strategy
    loss_fn = ContrastiveLoss(spec, layout=layout, engine="dense").double()
    assert torch.autograd.gradcheck(loss_fn, (a, b))
    assert torch.autograd.gradgradcheck(loss_fn, (a, b))


@both_engines
@every_strategy
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradients_no_graph_and_the_same_loss(mode: Any, strategy: str, engine: str) -> None:
    a, b = views(35)
    with mode():
        loss = ContrastiveLoss(strategy, engine=engine)(a, b)
    assert not loss.requires_grad
    # The first call may have made what later ones use again: tensors of inference mode must not be among that.
    loss_fn = ContrastiveLoss(strategy, engine=engine)
    again = loss_fn(a, b)
    assert again.requires_grad
    again.backward()
    assert torch.equal(again, loss)


def test_constant_scales_are_shared_and_of_no_inference_mode() -> None:
    cpu = torch.device("cpu")
    with torch.inference_mode():
        made = constant_scale(0.123, torch.float64, cpu)
    assert constant_scale(0.123, torch.float64, cpu) is made
    assert not made.scale.is_inference()
    assert made.scale.shape == ()
    assert made.scale.item() == made.bound == 0.123
    assert constant_scale(0.123, torch.float32, cpu).scale.dtype == torch.float32


@both_engines
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "labels"])
def test_reductions_are_sums_and_means_of_the_rows(layout: str, engine: str) -> None:
    found = {}
    for reduction in ("none", "sum", "mean"):
        a, b = views(33, 6, torch.float64)
        inputs = {"labels": torch.arange(33) // 2} if layout == "labels" else {}
        loss = ContrastiveLoss("fixed", layout=layout, engine=engine, reduction=reduction)(a, b, **inputs)
        loss.sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        found[reduction] = loss.detach(), a.grad, b.grad
    rows = len(found["none"][0])
    assert rows == (33 if layout == "cross-view" else 66)
    for position in range(3):
        summed = found["none"][position] if position else found["none"][0].sum()
        torch.testing.assert_close(found["sum"][position], summed, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found["mean"][position], summed / rows, rtol=1e-12, atol=1e-12)


@both_engines
@pytest.mark.parametrize("layout", ["two-view", "cross-view", "symmetric", "queue"])
@pytest.mark.parametrize("hard", [False, True])
def test_what_is_frozen_changes_no_gradient_of_the_others(hard: bool, layout: str, engine: str) -> None:
    """Every choice of what learns: an encoder may be frozen, and the temperature learn alone."""
    names = ["view_a", "view_b", *(["queue"] if layout == "queue" else []), *(["hard_negatives"] if hard else [])]
    loss_fn = ContrastiveLoss(
        "learnable", layout={"symmetric": "cross-view"}.get(layout, layout), symmetric=layout == "symmetric", engine=engine
    ).double()
    (log_scale,) = loss_fn.parameters()
    generator = torch.Generator().manual_seed(0)
    values = {name: torch.randn(9, 4, generator=generator, dtype=torch.float64) for name in names}

    def gradients(learning: tuple[str, ...]) -> dict[str, Tensor]:
        inputs = {name: value.clone().requires_grad_(name in learning) for name, value in values.items()}
        log_scale.requires_grad_("scale" in learning)
        leaves = {**inputs, "scale": log_scale}
        found = torch.autograd.grad(loss_fn(**inputs), [leaves[name] for name in learning])
        return dict(zip(learning, found, strict=True))

    everything = gradients((*names, "scale"))
    for count in range(1, len(everything)):
        for learning in itertools.combinations(everything, count):
            for name, gradient in gradients(learning).items():
                torch.testing.assert_close(gradient, everything[name], rtol=1e-12, atol=1e-14, msg=f"{name} of {learning}")


@both_engines
@every_strategy
def test_a_loss_that_ran_can_be_copied_and_pickled(strategy: str, engine: str) -> None:
    """As averages of weights do, in the middle of training."""
    loss_fn = ContrastiveLoss(strategy, engine=engine)
    a, b = views()
    loss = loss_fn(a, b)
    for copied in (copy.deepcopy(loss_fn), pickle.loads(pickle.dumps(loss_fn))):
        assert torch.equal(copied(a, b), loss)


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
