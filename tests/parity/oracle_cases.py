"""Calls of the loss that the float64 oracle can answer too, how they are made, and their comparison.

Row losses are compared one by one; gradients are those of a randomly weighted sum of the rows, so that errors of two rows
cannot cancel. A call may run in tiles of any size, and inside whatever a training has around it. Calls are made on the CPU,
where the oracle reads them, and the loss runs on `DEVICE`. pytest is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import torch
from arguments_of_rows import of_rows, targets_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tempplug import ContrastiveLoss
from tempplug.arguments import parse_spec
from tempplug.engine import forward, tiles
from tempplug.errors import ConfigError
from tempplug.testing import oracle_row_losses
from tempplug.testing.oracle_blocks import Direction, directions, unit_rows

# Where the loss runs: cpu, or a device of torch such as cuda.
DEVICE = os.environ.get("TEMPPLUG_TEST_DEVICE", "cpu")
EPOCH = 137.5
COUNTS = "/".join(str(count) for count in (7, 90, 7, 40, 3, 60, 11, 25, 2, 50) * 7)
DYSTRESS = ["cosine", "cosine,detach=false", "linear,detach=false", "exponential,rate=2.5", "monotonic,detach=false"]
HEAD_TAIL = f"head-tail:class_counts={COUNTS}"
STRATEGIES = [
    "fixed:temperature=0.07",
    "fixed:temperature=0.004",
    "learnable",
    "learnable:initial_temperature=0.02",
    "learnable:initial_temperature=0.2,max_scale=8",
    "learnable:initial_temperature=0.009,max_scale=none",
    "macl",
    "macl:base_temperature=0.05,alpha=2,threshold=0.8",
    *[f"dystress:profile={profile}" for profile in DYSTRESS],
    "dystress:profile=shifted,shift=-0.4,detach=false",
    "dystress:profile=shifted,shift=0.3,temperature_min=0.05",
    "temperature-free",
    "temperature-free:eps=0.01",
    "schedule",
    "schedule:shape=triangle,temperature_min=0.05",
    "schedule:shape=step,period=100",
    "schedule:period=25,granularity=epoch",
    HEAD_TAIL,
    f"{HEAD_TAIL},head_classes=1/2/5,temperature_head=0.3,temperature_tail=0.2",
    "uncertainty",
    "amcl:dimension=D",
    "amcl:dimension=D,beta=0",
    "amcl:dimension=D,span=0.5,floor=0.01,beta=0.01",
    f"mm-ts:class_counts={COUNTS}",
    f"mm-ts:class_counts={COUNTS},amplitude=0.3,temperature_min=0.2,temperature_max=0.3,period=100",
    "tempnet:dimension=D,temperature_min=0.02,temperature_max=0.4,prototypes=5",
    "by-group:temperatures=0.05/0.1/0.3,learn=true",
    "by-group:temperatures=0.05/0.1/0.3",
]
SIGMOID = ["sigmoid", "sigmoid:initial_bias=-3", "sigmoid:relative_bias=true,initial_bias=0.2"]
# The last one takes ten times the strategy's temperature, where it has one.
DUAL = ["dual-temperature:second_temperature=1.5", "dual-temperature"]
SIZE = 2100
GLOBAL = [f"sogclr:size={SIZE},gamma=0.3", f"sogclr:size={SIZE},gamma=0.6,eps=0.01,rho=2,relative=false"]
MARGINS = ["infonce:margin=0.4,margin_kind=angular", "infonce:margin=0.2"]
OBJECTIVES = ["infonce", "dcl", "dclw", "flatnce", *MARGINS, *GLOBAL, "reweighted", *SIGMOID, *DUAL]
ONE_POSITIVE = ["two-view", "two-view+hard", "cross-view", "symmetric", "symmetric+hard", "queue", "queue+hard"]
LAYOUTS = [*ONE_POSITIVE, "labels", "labels-one-view", "labels-pairs+hard", "masks", "masks-one"]
RAGGED = ["two-view+ragged", "symmetric+ragged", "queue+ragged", "labels-pairs+ragged"]
TARGETS = [*(f"{base}+targets{rest}" for base in ("cross-view", "symmetric") for rest in ("", "+hard", "+ragged"))]
TARGETS += ["symmetric+targets-pair"]
KEYS = ["cross-view:positives=keys", "cross-view:positives=keys+ragged"]
KEYS += [f"cross-view:directions=ab+ba,softmax=separate,positives=keys{rest}" for rest in ("", "+hard")]
TERMS = [
    "",
    "false-negatives:margin=-0.2",
    "false-negatives:margin=-0.3,rule=relative,weight=0.5",
    "guide:margin=-0.1",
    "guide:margin=-0.05,rule=relative,weight=0.25",
    "same-key",
    "within-group",
    "hardness:strength=9",
    "hardness:of=hard",
    "hardness:strength=9,of=in-batch",
    "log-q",
    "log-q:size=4000",
    "debiased:prior=0.2",
    "same-key+debiased:prior=0.1",
    "false-negatives:margin=-0.3+hardness:of=in-batch+log-q+debiased",
]


class Context(NamedTuple):
    """A setting of torch and how the loss is called in it.

    Attributes:
        around: enters and leaves the setting.
        backward: whether the backward pass runs inside, outside or not at all.
        compiled: whether the loss is compiled before the call.
        checkpointed: whether the backward pass computes the call again, and after it another one of the same step.
    """

    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    backward: Literal["inside", "outside", "none"] = "inside"
    compiled: bool = False
    checkpointed: bool = False

    def call(self, loss_fn: ContrastiveLoss, *views: Tensor, **inputs: Any) -> Tensor:
        """Returns the loss that is computed inside."""
        if self.compiled:
            torch._dynamo.reset()
            loss_fn = torch.compile(loss_fn, backend="eager")  # type: ignore[assignment]
        with self.around():
            if not self.checkpointed:
                return loss_fn(*views, **inputs)
            # The same anchors against other candidates, with a gradient of 0.
            other = [*views[:-1], views[-1] + 1]
            rows, others = (checkpoint(partial(loss_fn, **inputs), *each, use_reentrant=False) for each in (views, other))
            return rows + 0.0 * others.sum()

    def gradients(self, value: Tensor, leaves: list[Tensor]) -> list[Tensor | None]:
        """Returns the gradients, computed inside or outside; without a backward pass none."""
        if self.backward == "none":
            return []
        with self.around() if self.backward == "inside" else nullcontext():
            return list(torch.autograd.grad(value, leaves, allow_unused=True))


@contextmanager
def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


CONTEXTS = {
    "plain": Context(),
    "deterministic algorithms": Context(
        partial(_set, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True)
    ),
    "autocast": Context(partial(torch.autocast, DEVICE, dtype=torch.bfloat16), backward="outside"),
    "inference mode": Context(torch.inference_mode, backward="none"),
    "no gradients": Context(torch.no_grad, backward="none"),
    "compiled": Context(compiled=True),
    "float64 by default": Context(partial(_set, torch.get_default_dtype, torch.set_default_dtype, torch.float64)),
    "another default device": Context(partial(torch.device, "meta")),
    "checkpoint": Context(checkpointed=True),
    "three threads": Context(partial(_set, torch.get_num_threads, torch.set_num_threads, 3)),
}

# Whether a block has many ragged tiles or one, and whether they are kept for the backward pass or computed again.
CUTS = {
    "one tile": (False, True),
    "many tiles, again": (True, False),
    "one tile, again": (False, False),
    "many tiles": (True, True),
}


@contextmanager
def cut_into(cut: str) -> Iterator[None]:
    """Cuts blocks as `CUTS` says, or with another word as the engine does."""
    many, kept = CUTS.get(cut, (False, True))
    small = {"SINGLE": 1 if many else 1 << 20, "CPU_TILE": (4, 5)} if cut in CUTS else {"SINGLE": tiles.SINGLE}
    with patch.multiple(tiles, **small), patch.object(forward, "KEPT", forward.KEPT if kept else 0):
        tiles.make_tiling.cache_clear()
        try:
            yield
        finally:
            tiles.make_tiling.cache_clear()


@dataclass
class Call:
    """One call: the layout's name, its inputs, and the leaves whose gradients are compared."""

    layout: str
    symmetric: bool
    views: list[Tensor]
    inputs: dict[str, Any] = field(default_factory=dict)
    negatives: str = ""

    def leaves(self) -> list[Tensor]:
        given = [*self.views, self.inputs.get("queue"), self.inputs.get("hard_negatives")]
        uncertainty = self.inputs.get("uncertainty", ())
        given += uncertainty if isinstance(uncertainty, tuple) else [uncertainty]
        return [each for each in given if each is not None]

    def on_device(self) -> Call:
        """The same call on `DEVICE`, with leaves of its own there."""
        return self if DEVICE == "cpu" else replace(self, views=moved(self.views), inputs=moved(self.inputs))


def moved(value: Any) -> Any:
    """Tensors of lists, tuples and dicts as leaves on `DEVICE`."""
    if isinstance(value, Tensor):
        return value.detach().to(DEVICE).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {name: moved(each) for name, each in value.items()}
    return type(value)(map(moved, value)) if isinstance(value, list | tuple) else value


def make_call(case: str, strategy: str, rows: int, dimension: int, dtype: torch.dtype, negatives: str = "") -> Call:
    """A call of a layout, behind which ``+hard`` gives it hard negatives, and ``+ragged`` those of which some are absent."""
    generator = torch.Generator().manual_seed(1000 * rows + dimension)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    base = case.removesuffix("+hard").removesuffix("+ragged")
    hard, ragged = base != case, case.endswith("+ragged")
    base, targets, kind = base.partition("+targets")
    layout = {"symmetric": "cross-view"}.get(base, base.partition("-")[0] if base[0] in "lm" else base)
    rows = max(rows, 3) if base.startswith(("labels-one-view", "masks")) else rows
    a = leaf(rows, dimension)
    b = (a.detach() + 0.7 * leaf(rows, dimension).detach()).requires_grad_()
    call = Call(layout, base == "symmetric", [a] if base == "labels-one-view" else [a, b], negatives=negatives)
    classes = torch.arange(rows) * 7 % (max(2, rows // 3) if base in ("labels", "labels-one-view") else rows)
    if strategy.startswith(("head-tail", "mm-ts")):
        classes %= COUNTS.count("/") + 1
    if layout == "labels" or strategy.startswith(("head-tail", "mm-ts")):
        call.inputs["labels"] = classes
    if base == "queue":
        call.inputs["queue"] = leaf(11 if rows < 1000 else 1100, dimension)
    if strategy.startswith("individual"):
        call.inputs["index"] = torch.arange(rows) * 2
    if hard:
        owned = rows % 2 or ragged or "hard=own" in base
        call.inputs["hard_negatives"] = leaf(rows, 2, dimension) if owned else leaf(5, dimension)
    if ragged:
        call.inputs["hard_negative_mask"] = torch.rand(rows, 2, generator=generator) < 0.6
    if strategy.startswith("uncertainty"):
        both = base in ("two-view", "symmetric", "labels", "labels-pairs") or "+b" in base
        call.inputs["uncertainty"] = (leaf(rows), leaf(rows)) if both else leaf(rows)
    if layout == "masks":
        call.views = [a, leaf(rows + 2, dimension)]
        own = torch.eye(rows, rows + 2, dtype=torch.bool)
        other = own.roll(1, dims=1)
        positive = own if base == "masks-one" else own | (other & (torch.arange(rows) % 2 == 0)[:, None])
        call.inputs |= {"positive_mask": positive, "negative_mask": ~positive & ~own.roll(2, dims=1)}
        positive[-1] = False  # an anchor without a positive, and pairs without a role
    if targets:
        call.inputs["targets"] = targets_of(call, kind == "-pair", generator)
    call.inputs |= of_rows(call, generator)
    if strategy.startswith("by-group"):
        call.inputs.setdefault("groups", torch.arange(rows) * 5 % 3)
    return call


def roles_of(call: Call) -> list[list[Direction]]:
    """The oracle's roles of the blocks of each softmax of a call."""
    rest, (name, options) = call.inputs, parse_spec(call.layout)
    rows = {**dict(zip(("view_a", "view_b"), call.views, strict=False))}
    rows |= {each: rest[each] for each in ("queue", "hard_negatives") if each in rest}
    return directions(
        name,
        {"directions": "ab+ba", "softmax": "separate"} if call.symmetric else options,
        {each: unit_rows(tensor) for each, tensor in rows.items()},
        labels=rest.get("labels"),
        masks=(rest.get("positive_mask"), rest.get("negative_mask")),
        hard_negative_mask=rest.get("hard_negative_mask"),
        targets=rest.get("targets"),
        arguments=rest,
    )


@torch.no_grad()
def zero_rows(call: Call) -> None:
    """Makes every fourth embedding a row of zeros."""
    for leaf in call.leaves():
        if leaf.ndim > 1:
            leaf.flatten(0, -2)[::4] = 0


def of_dimension(strategy: str, call: Call) -> str:
    """Returns the spec string with the dimension of the call's embeddings in the place of D."""
    return strategy.replace("=D", f"={call.views[0].shape[1]}")


def build(strategy: str, objective: str, call: Call, reduction: str, engine: str = "auto") -> ContrastiveLoss:
    torch.manual_seed(5)  # of parameters that start at random
    strategy = of_dimension(strategy, call)
    options: dict[str, Any] = {"symmetric": call.symmetric, "reduction": reduction, "engine": engine}
    loss_fn = ContrastiveLoss(strategy, objective, call.layout, negatives=call.negatives or None, **options)
    loss_fn.set_progress(epoch=EPOCH)
    loss_fn.to(DEVICE)
    if call.views[0].dtype == torch.float64:
        loss_fn.double()
    if objective.startswith("sogclr"):
        call.inputs.setdefault("index", torch.arange(len(call.views[0])) * 2)
        with torch.no_grad():
            state = loss_fn.objective.log_averages
            values = torch.linspace(-2, 3, len(state)).roll(SIZE // 2)
            state.copy_(values.masked_fill(torch.arange(len(state)) % 3 == 0, -torch.inf))
    if "max_scale=8" in strategy:
        with torch.no_grad():
            next(loss_fn.parameters()).fill_(3.0)  # above the bound: the next call clamps it
        loss_fn.strategy.warned_of_bounds = True
    return loss_fn


def oracle_arguments(strategy: str, objective: str, call: Call, loss_fn: ContrastiveLoss) -> dict[str, Any]:
    name, options = parse_spec(of_dimension(strategy, call))
    objective_name, objective_options = parse_spec(objective)
    inputs = dict(call.inputs)
    if objective_name == "sogclr":
        index, state = inputs["index"], loss_fn.objective.log_averages.cpu().double().exp()
        index = index["view_a"] if isinstance(index, dict) else index
        if "log-q:size" not in call.negatives:
            del inputs["index"]
        inputs["averages"] = state[index], state[index + SIZE]
    return {
        "strategy": name,
        "strategy_options": options,
        "objective": objective_name,
        "objective_options": objective_options,
        **dict(zip(("layout", "layout_options"), parse_spec(call.layout), strict=True)),
        "symmetric": call.symmetric,
        "negatives": dict(map(parse_spec, filter(None, call.negatives.split("+")))),
        "epoch": EPOCH,
        "learned": [each.detach().cpu().double().requires_grad_() for each in loss_fn.strategy.parameters()],
        **{name: each.detach().cpu().double().requires_grad_() for name, each in loss_fn.objective.named_parameters()},
        **inputs,
    }


def learned_of(arguments: dict[str, Any]) -> list[Tensor]:
    """Returns the oracle's learned numbers in the order of the loss's parameters."""
    return [*arguments["learned"], *([arguments["bias"]] if "bias" in arguments else [])]


def compare(
    strategy: str, objective: str, call: Call, tolerance: float, engine: str = "auto", context: Context = CONTEXTS["plain"]
) -> bool:
    """Asserts that row losses and gradients are those of the oracle, or else that both refuse the call, and returns which."""
    loss_fn = build(strategy, objective, call, "none", engine)
    arguments, there = oracle_arguments(strategy, objective, call, loss_fn), call.on_device()
    try:
        expected, kept = oracle_row_losses(*call.views, **arguments)
    except ConfigError as refused:  # an objective without a form for several positives
        try:
            context.call(loss_fn, *there.views, **there.inputs)
        except ConfigError:
            return False
        raise AssertionError("the loss accepts what the oracle refuses") from refused
    rows = context.call(loss_fn, *there.views, **there.inputs)
    # Where no anchor has a positive, no engine runs.
    assert engine in ("auto", loss_fn.record.engine) or (not loss_fn.record.engine and not kept.any())
    assert rows.dtype == (torch.float64 if call.views[0].dtype == torch.float64 else torch.float32)
    assert rows.shape == expected.shape
    error = (rows.detach().cpu() - expected.detach()).abs() / expected.detach().abs().clamp(min=1)
    assert error.max().item() <= tolerance, f"row losses differ by {error.max().item():.2e}, row {int(error.argmax())}"
    if context.backward == "none":
        return True
    weights = torch.rand(len(rows), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves, references = [*there.leaves(), *loss_fn.parameters()], [*call.leaves(), *learned_of(arguments)]
    ours = context.gradients((rows * weights.to(rows)).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), references, allow_unused=True)
    for position, (left, right, leaf) in enumerate(zip(ours, theirs, leaves, strict=True)):
        assert left is not None
        assert left.dtype == leaf.dtype
        wanted = torch.zeros(leaf.shape).double() if right is None else right.double()
        found, representable = left.cpu().double(), wanted.isfinite()
        # The gradient of a very short row is beyond float16: it must be the same infinity.
        assert torch.equal(found[~representable], wanted[~representable])
        found, wanted = found.where(representable, 0.0), wanted.where(representable, 0.0)
        bound = tolerance * wanted.abs().max().clamp(min=1) + torch.finfo(leaf.dtype).eps * wanted.abs()
        excess = ((found - wanted).abs() - bound).max().item()
        assert excess <= 0, f"gradient of input {position} is off by {excess:.2e} beyond its bound"
    return True
