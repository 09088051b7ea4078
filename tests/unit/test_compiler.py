"""Compiled and exported models: what a graph takes in of the loss gives the numbers of a plain call, the rest stays outside."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import pytest
import torch
from oracle_cases import HEAD_TAIL, build, make_call
from torch import Tensor, nn

from tempplug import ContrastiveLoss, create_strategy
from tempplug.errors import ConfigError

WITHOUT_PRIVATE_NAMES = """
import torch
private = torch._C._dynamo.eval_frame
kept = private.set_code_exec_strategy
del private.set_code_exec_strategy
import tempplug.call.compiler
private.set_code_exec_strategy = kept
"""
COMPILED = """
import torch
from tempplug import ContrastiveLoss
from tempplug.call.compiler import _lean
loss_fn = ContrastiveLoss(engine="tiled")
view_a, view_b = torch.randn(2, 8, 4).unbind()
graphs = []
def backend(module, inputs):
    graphs.append([node.name for node in module.graph.nodes if node.op.startswith("call")])
    return module.forward
compiled = torch.compile(lambda: loss_fn(view_a * 2, view_b) * 3, backend=backend)
assert torch.allclose(compiled(), loss_fn(view_a * 2, view_b) * 3)
print(_lean, graphs)
"""
ROWS, DIMENSION = 9, 6
SPECS = [
    "fixed",
    "learnable",
    "macl",
    "uncertainty",
    HEAD_TAIL,
    f"amcl:dimension={DIMENSION}",
    "temperature-free",
    "dystress",
    "dystress:profile=shifted,shift=0.3,detach=false",
    "schedule:period=5",
    "individual:size=50",
    f"tempnet:dimension={DIMENSION}",
    HEAD_TAIL.replace("head-tail", "mm-ts") + ",period=5",
    "by-group:temperatures=0.05/0.2/0.1,learn=true",
]
CROSS = ["cross-view:directions=ab+aa+ba+bb+ragged", "cross-view:directions=ab,hard=own,in_batch=false+ragged"]
LAYOUTS = ["two-view", "two-view+hard", "cross-view", "cross-view+hard", "symmetric", "queue+hard", *CROSS]
# Every term, and every part of one that a tracer may stumble over.
TERMS = [
    "",
    "false-negatives:margin=-0.3+within-group+hardness:of=hard",
    "guide:weight=0.5+same-key+hardness:of=in-batch",
    "log-q+debiased+hardness",
    "log-q:size=4000",
]
OBJECTIVES = [
    *("infonce", "dcl", "dclw", "reweighted", "flatnce", "dual-temperature:second_temperature=2", "sigmoid"),
    *("sogclr:size=2100", "infonce:margin=0.3,margin_kind=angular"),
]
# Every layout with two lists of terms, other ones than in the test of exports; the tracing of gradients is slow.
CASES = list(islice(zip(cycle(LAYOUTS), cycle(TERMS), strict=False), 3 * len(LAYOUTS), 5 * len(LAYOUTS)))
BACKENDS = ["aot_eager", "eager", "eager"]
# The compiler looks at what it is given.
quiet = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",
    "ignore:layout '.*' leaves .* without a negative:RuntimeWarning",
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run(script: str, python: str = sys.executable) -> str:
    return subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


Made = tuple[ContrastiveLoss, list[Tensor], dict[str, Any]]


def made(strategy: str, layout: str = "two-view", objective: str = "infonce", negatives: str = "") -> Made:
    """A loss, its views and its other inputs."""
    call = make_call(layout, strategy, ROWS, DIMENSION, torch.float32, negatives)
    loss_fn = build(strategy, objective, call, "mean")
    if "tempnet" in strategy:
        # Divided by 0.01, as they begin, products of float32 differ by their rounding alone.
        torch.nn.init.zeros_(loss_fn.strategy.networks[0].log_sharpness)
    # What is learned or counted from batches is fixed where it is not trained.
    counts = any(each.observes for each in (loss_fn.strategy, loss_fn.objective, *loss_fn.terms))
    return loss_fn.train(not counts), call.views, call.inputs


def views(seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(ROWS, DIMENSION).requires_grad_() for _ in range(2)]


def compare(strategy: str, layout: str, objective: str, backend: str, negatives: str = "") -> None:
    """Asserts that a compiled twin has the same loss, gradients, buffers and record."""
    loss_fn, inputs, given = made(strategy, layout, objective, negatives)
    twin = copy.deepcopy(loss_fn)
    expected = loss_fn(*inputs, **given)
    found = torch.compile(twin, backend=backend, fullgraph=True)(*inputs, **given)
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found, [*inputs, *twin.parameters()])
    plain = torch.autograd.grad(expected, [*inputs, *loss_fn.parameters()])
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(dict(twin.named_buffers()), dict(loss_fn.named_buffers()))
    assert twin.record.engine == "dense"
    assert twin.record.numbers() == pytest.approx(loss_fn.record.numbers(), rel=1e-4, abs=1e-6)


def test_the_compiler_is_loaded_only_by_those_that_compile() -> None:
    script = "import sys, torch, tempplug; tempplug.ContrastiveLoss()(torch.randn(8, 4), torch.randn(8, 4)); "
    assert run(script + "print('torch._dynamo' in sys.modules)") == "False"


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("before", "lean"), [("", True), (WITHOUT_PRIVATE_NAMES, False)], ids=["lean", "fallback"])
def test_graphs_end_before_tiles_and_go_on_behind_them(before: str, lean: bool) -> None:
    assert run(before + COMPILED, os.environ["PYTHON_EXEC"]) == f"{lean} [['mul'], ['mul']]"


@pytest.mark.slow
@quiet
@pytest.mark.parametrize(
    ("layout", "negatives", "strategy", "objective", "backend"),
    [(*first, *rest) for first, *rest in zip(CASES, cycle(SPECS), cycle(OBJECTIVES), cycle(BACKENDS), strict=False)],
)
def test_a_compiled_loss_has_the_same_value_gradients_and_record(
    layout: str, negatives: str, strategy: str, objective: str, backend: str
) -> None:
    """The tracer meets every value of each parameter, and every layout with two lists of terms."""
    if (strategy[:10], objective) == ("individual", "sigmoid"):
        objective = "infonce"  # which the strategy needs
    if strategy.startswith("amcl") or objective == "sigmoid":
        negatives = negatives.replace("+debiased", "")
    compare(strategy, layout, objective, backend, negatives)


@quiet
@pytest.mark.parametrize(
    ("strategy", "layout", "objective", "negatives"),
    [
        ("learnable", CROSS[0], "infonce", TERMS[1]),
        ("individual:size=50", CROSS[1], "dclw", TERMS[3]),
        (f"amcl:dimension={DIMENSION}", "two-view", "amcl-top:top_k=3,beta=0.1", ""),
    ],
)
def test_some_calls_can_be_compiled(strategy: str, layout: str, objective: str, negatives: str) -> None:
    compare(strategy, layout, objective, "eager", negatives)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # of torch itself
@pytest.mark.parametrize(("strategy", "layout"), [("learnable", "symmetric"), ("macl", "queue")])
def test_inductor_gives_the_same(strategy: str, layout: str) -> None:
    compare(strategy, layout, "infonce", "inductor")


def test_a_model_is_trained_in_one_graph() -> None:
    graphs: list[set[Any]] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append({node.target for node in module.graph.nodes})
        return module.forward

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(DIMENSION, 3)
            self.loss = ContrastiveLoss("learnable")

        def forward(self, view_a: Tensor, view_b: Tensor) -> Tensor:
            return self.loss(self.encoder(view_a), self.encoder(view_b))

    model = Model()
    twin, compiled = copy.deepcopy(model), torch.compile(model, backend=backend, fullgraph=True)
    for seed in range(3):
        for each, call in ((model, compiled), (twin, twin)):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
            optimizer.zero_grad()
            call(*views(seed)).backward()
            optimizer.step()
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert len(graphs) == 1
    assert torch.logsumexp in graphs[0]


def test_sizes_may_change() -> None:
    loss_fn = ContrastiveLoss("macl", layout="cross-view", symmetric=True)
    compiled = torch.compile(loss_fn, backend="eager", fullgraph=True, dynamic=True)
    for rows in (8, 5, 13):
        view_a, view_b = torch.randn(2, rows, DIMENSION).unbind()
        torch.testing.assert_close(compiled(view_a, view_b), loss_fn(view_a, view_b))


def test_schedules_and_bounds_are_followed_without_another_graph() -> None:
    for loss_fn in (made(spec)[0] for spec in ("schedule:period=5", "learnable:initial_temperature=0.02,max_scale=50")):
        compiled = torch.compile(loss_fn, backend="eager", fullgraph=True)
        compiled(*views())
        with torch.compiler.set_stance("fail_on_recompile"):
            for epoch in (1.5, 2.0):
                loss_fn.set_progress(epoch=epoch)
                with torch.no_grad():
                    for parameter in loss_fn.parameters():
                        parameter.fill_(9.0)  # above its bound
                found = compiled(*views())
                assert all(each.item() == pytest.approx(math.log(50)) for each in loss_fn.parameters())
                torch.testing.assert_close(found, loss_fn(*views()))


def test_short_and_long_rows() -> None:
    loss_fn, (view_a, view_b) = ContrastiveLoss(), views()
    compiled = torch.compile(loss_fn, backend="aot_eager", fullgraph=True)
    for row in (0.0, 1e-7, 1e15, 1e30):
        long = view_a.detach().clone()
        long[2] *= row
        long.requires_grad_()
        expected, found = loss_fn(long, view_b), compiled(long, view_b)
        torch.testing.assert_close(found, expected)
        ours, plain = (torch.autograd.grad(loss, long)[0] for loss in (found, expected))
        # In units of each row's own gradient, which shrinks with its length.
        size = plain.norm(dim=1, keepdim=True).clamp(min=1e-30)
        torch.testing.assert_close(ours / size, plain / size, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("strategy", "argument"), [("individual:size=3", "index"), ("head-tail:class_counts=4/5/6", "labels")])
def test_a_graph_stops_at_positions_that_do_not_exist(strategy: str, argument: str) -> None:
    given = {argument: torch.zeros(ROWS, dtype=torch.int64)}
    compiled = torch.compile(made(strategy)[0], backend="aot_eager", fullgraph=True)
    compiled(*views(), **given)
    for outside in (-1, 3):
        given[argument][4] = outside
        with pytest.raises(RuntimeError, match=f"{argument} must lie between 0 and 2"):
            compiled(*views(), **given)


def test_transforms_may_be_compiled_and_leave_no_record() -> None:
    loss_fn, (view_a, view_b) = ContrastiveLoss("macl"), views()
    gradient = torch.func.grad(lambda rows: loss_fn(rows, view_b))
    torch.testing.assert_close(torch.compile(gradient, backend="aot_eager", fullgraph=True)(view_a), gradient(view_a))
    with pytest.raises(ConfigError, match="record is empty"):
        loss_fn.record  # noqa: B018


@quiet
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("strategy", "arguments", "given"),
    [
        ("fixed", {"engine": "tiled"}, {}),
        ("fixed", {"layout": "labels"}, {"labels": torch.arange(ROWS) % 3}),
        ("fixed", {"layout": "masks"}, {"positive_mask": torch.eye(ROWS) > 0, "negative_mask": torch.eye(ROWS) < 1}),
        ("individual:size=50", {}, {"index": torch.arange(ROWS)}),
        ("fixed", {"negatives": "log-q:size=50"}, {"index": torch.arange(ROWS)}),
    ],
    ids=["tiled", "labels", "masks", "individual", "counted log-q"],
)
def test_what_looks_at_values_stays_outside(strategy: str, arguments: Any, given: Any, fullgraph: bool) -> None:
    loss_fn = ContrastiveLoss(strategy, **arguments)
    twin = copy.deepcopy(loss_fn)
    compiled = torch.compile(twin, backend="aot_eager", fullgraph=fullgraph)
    if fullgraph:
        with pytest.raises(torch._dynamo.exc.Unsupported, match="this call of the loss stays outside of graphs"):
            compiled(*views(), **given)
        return
    assert torch.equal(compiled(*views(), **given), loss_fn(*views(), **given))
    assert twin.record.engine == "tiled"


@quiet
def test_large_blocks_stay_outside_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempplug.call.compiler.LARGEST_ON_CPU", 4 * ROWS**2 - 1)
    for engine, expected in (("auto", "tiled"), ("dense", "dense")):
        loss_fn = ContrastiveLoss(engine=engine)  # type: ignore[arg-type]
        torch.compile(loss_fn, backend="eager")(*views())
        assert loss_fn.record.engine == expected
    loss_fn = ContrastiveLoss(layout="cross-view")
    torch.compile(loss_fn, backend="eager")(*views())
    assert loss_fn.record.engine == "dense"


@quiet
def test_an_export_takes_in_what_a_compiled_loss_on_a_cpu_leaves_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to be a graph, while a compiled block of so many pairs is slower than tiles."""
    monkeypatch.setattr("tempplug.call.compiler.LARGEST_ON_CPU", 4 * ROWS**2 - 1)
    loss_fn, given = ContrastiveLoss(), tuple(views())
    found = torch.export.export(loss_fn, given).module()(*given)
    torch.testing.assert_close(found, loss_fn(*given))
    monkeypatch.setattr("tempplug.call.compiler.LARGEST", 4 * ROWS**2 - 1)
    with pytest.raises(Exception, match="this call of the loss stays outside of graphs"):
        torch.export.export(loss_fn, given)


class Model(nn.Module):
    """An encoder and a loss."""

    def __init__(self, loss_fn: ContrastiveLoss) -> None:
        super().__init__()
        self.encoder, self.loss_fn = nn.Linear(DIMENSION, DIMENSION), loss_fn

    def forward(self, view_a: Tensor, view_b: Tensor, given: dict[str, Any]) -> Tensor:
        return self.loss_fn(self.encoder(view_a), self.encoder(view_b), **given)


@pytest.mark.slow
@quiet
@pytest.mark.parametrize(
    ("strategy", "strict", "layout", "negatives"),
    list(zip(SPECS, cycle([False, True]), cycle(LAYOUTS), cycle(TERMS), strict=False)),
)
def test_a_model_and_its_loss_can_be_exported(strategy: str, strict: bool, layout: str, negatives: str) -> None:
    if strategy.startswith("amcl"):
        negatives = negatives.replace("+debiased", "")
    loss_fn, inputs, given = made(strategy, layout, negatives=negatives)
    model = Model(loss_fn)
    expected = copy.deepcopy(model)(*inputs, given)
    program = torch.export.export(model, (*inputs, given), strict=strict)
    torch.testing.assert_close(program.module()(*inputs, given), expected)


@pytest.mark.parametrize("given", [{"labels": torch.arange(ROWS) % 3}, {}], ids=["labels", "tiled"])
def test_what_looks_at_values_is_not_exported(given: dict[str, Tensor]) -> None:
    loss_fn = ContrastiveLoss(layout="labels") if given else ContrastiveLoss(engine="tiled")
    with pytest.raises(ConfigError, match="this call of the loss stays outside of graphs"):
        torch.export.export(Model(loss_fn), (*views(), given))


def test_every_strategy_is_among_them() -> None:
    import tempplug

    names = {create_strategy(spec).name for spec in SPECS}
    assert names == {info.name for info in tempplug.strategies()}
