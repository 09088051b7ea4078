"""The loss against the float64 oracle: a covering array of everything that a call can be, so that every two settings meet."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from covering import every_pair
from oracle_cases import (
    CONTEXTS,
    COUNTS,
    CUTS,
    HEAD_TAIL,
    LAYOUTS,
    OBJECTIVES,
    ONE_POSITIVE,
    RAGGED,
    STRATEGIES,
    TERMS,
    build,
    compare,
    cut_into,
    make_call,
    oracle_arguments,
    roles_of,
    zero_rows,
)
from torch._subclasses.fake_tensor import FakeTensorMode

import tempplug
from tempplug import ContrastiveLoss, create_strategy
from tempplug.arguments import parse_spec
from tempplug.errors import TensorError
from tempplug.testing import oracle_loss, oracle_row_losses
from tempplug.testing.oracle_blocks import oracle_term
from tempplug.types import EngineName

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*below its floor:RuntimeWarning", "ignore:layout '.*' leaves .* without a negative:RuntimeWarning"
)

# One spec of each strategy.
EACH = list({spec.partition(":")[0]: spec for spec in reversed(STRATEGIES)}.values())
ENGINES: list[EngineName] = ["auto", "dense", "tiled"]
# An engine, and how it cuts a block where that is not its own choice.
WAYS = [("auto", ""), ("dense", ""), *(("tiled", cut) for cut in CUTS)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [(2, 3), (2, 16), (3, 3), (14, 6), (17, 1), (17, 3), (33, 16), (66, 130)]
ROWS = ["as they are", "some of zeros"]
AROUND = [name for name, context in CONTEXTS.items() if context.backward != "none" and not context.compiled]
# Logits of 50 nats and more, or slopes that large, which float32 rounds to 1e-5.
STEEP = ("amcl", "temperature-free:", "fixed:temperature=0.004", "learnable:initial_temperature=0.02")
# What else a call can have is one more list here, and one more name in the test. Options of a strategy change its map alone.
CASES = every_pair(EACH, [*LAYOUTS, *RAGGED], OBJECTIVES, WAYS, DTYPES, SIZES, ROWS, AROUND, TERMS)
OTHERS = [spec for spec in STRATEGIES if spec not in EACH]
SOME = ["two-view", "symmetric+hard", "queue+ragged", "labels"]
CASES += every_pair(
    OTHERS, SOME, OBJECTIVES[:4], WAYS, DTYPES, SIZES[2:6], ROWS, AROUND, ["", "guide:margin=-0.1", "hardness:strength=9"]
)
AMCL = [spec for spec in STRATEGIES if spec.startswith("amcl")]
TOP = ["amcl-top:top_k=1,beta=0.02", "amcl-top:top_k=3,beta=0.5"]
CASES += every_pair(AMCL, [*ONE_POSITIVE, "masks-one"], TOP, WAYS, DTYPES[:1], [(14, 6), (17, 3)], ROWS[:1], AROUND, TERMS[:1])
# Several tiles of the engine's own size, 256 rows by 1024 columns.
CASES += [
    (strategy, layout, objective, ("tiled", ""), dtype, size, ROWS[0], "plain", negatives)
    for strategy, layout, objective, dtype, size, negatives in [
        ("learnable", "two-view", "infonce", torch.float32, (530, 3), ""),
        ("temperature-free", "two-view+hard", "reweighted", torch.float64, (530, 130), "same-key"),
        ("dystress:profile=cosine", "symmetric", "dclw", torch.float64, (1000, 130), ""),
        ("macl", "queue+hard", "dual-temperature", torch.float32, (1000, 3), ""),
        (HEAD_TAIL, "labels", "infonce", torch.float64, (530, 3), ""),
        ("uncertainty", "masks", "infonce", torch.float32, (1000, 3), ""),
        ("amcl:dimension=D", "two-view", "dcl", torch.float64, (530, 3), ""),
        ("learnable", "cross-view:directions=ab+aa+ba+bb+ragged", "infonce", torch.float64, (601, 3), "guide"),
    ]
]
# Blocks that share a softmax, and which hard negatives an anchor sees.
DIRECTIONS = ["+".join(("ab", *more)) for count in range(4) for more in itertools.combinations(("aa", "ba", "bb"), count)]


def stands(directions: str, softmax: str, hard: str, in_batch: str, extra: str) -> bool:
    """Whether a layout has such options, with such hard negatives."""
    of_its_own = softmax == "joint" or directions in ("ab", "ab+ba")
    return of_its_own and (in_batch == "true" or (directions == "ab" and extra != ""))


OPTIONS = [DIRECTIONS, ["joint", "separate"], ["shared", "ab", "own"], ["true", "false"], ["", "+hard", "+ragged"]]
CROSS = [
    f"cross-view:directions={directions},softmax={softmax},hard={hard},in_batch={in_batch}{extra}"
    for directions, softmax, hard, in_batch, extra in every_pair(*OPTIONS, allowed=stands)
]
# Of one block alone, the last one.
OF_BLOCK = ["false-negatives:margin=-0.3,blocks=LAST", "hardness:strength=9,blocks=LAST"]
OF_CROSS = [*list({spec.partition(":")[0]: spec for spec in TERMS}.values()), *OF_BLOCK]
CASES += every_pair(EACH, CROSS, OBJECTIVES[::2], WAYS, DTYPES, SIZES[3:], ROWS, AROUND, OF_CROSS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)).replace(COUNTS, "…"))
def test_row_losses_and_gradients_are_those_of_the_oracle(case: tuple[Any, ...]) -> None:
    strategy, layout, objective, (engine, cut), dtype, size, rows, around, negatives = case
    if objective.startswith("sigmoid"):  # which has no sum of exp to estimate
        negatives = re.sub(r"\+?debiased(:prior=0.2)?$", "", negatives)
    last = str(parse_spec(layout)[1].get("directions", "")).split("+")[-1]
    call = make_call(layout, strategy, *size, dtype, negatives.replace("LAST", last))
    if rows == "some of zeros":
        zero_rows(call)
    # A row loss is a difference of logits, of up to 250 nats at the smallest temperature, each rounded to float32. Log-odds and
    # their slope divide by 1 - |s|, down to eps, of which the float32 rounding of s alone is 1e-3.
    reduced = 1e-4 if strategy.startswith(STEEP) else 2e-5
    reduced = 2e-3 if strategy == "temperature-free" else reduced
    reduced = 5e-4 if strategy.startswith("tempnet") else reduced  # whose network divides products by 0.01
    with cut_into(cut):
        compare(strategy, objective, call, 1e-10 if dtype == torch.float64 else reduced, engine, CONTEXTS[around])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions_leave_out_anchors_without_a_positive_and_records_hold_the_mean(layout: str) -> None:
    call = make_call(layout, "fixed", 17, 3, torch.float64)
    losses = {reduction: build("fixed", "infonce", call, reduction) for reduction in ("none", "sum", "mean")}
    rows, kept = oracle_row_losses(*call.views, **oracle_arguments("fixed", "infonce", call, losses["none"]))
    assert not kept.all() or not layout.startswith("masks")
    mean = (rows.sum() / kept.sum()).item()
    for reduction, expected in (("none", rows), ("sum", rows.sum()), ("mean", rows.sum() / kept.sum())):
        found = losses[reduction](*call.views, **call.inputs)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        numbers = losses[reduction].record.numbers()
        assert [numbers["loss"], numbers["infonce"]] == pytest.approx([mean, mean], rel=1e-10)


@pytest.mark.parametrize(
    ("strategy", "layout", "negatives"),
    every_pair(
        ["fixed:temperature=0.07", "macl", "dystress", "temperature-free", "uncertainty"],
        ["two-view+hard", "cross-view", "queue+ragged", "labels", "cross-view:directions=ab+aa+ba+bb,hard=own+ragged"],
        TERMS,
    ),
)
def test_record_is_that_of_the_oracle(strategy: str, layout: str, negatives: str) -> None:
    call = make_call(layout, strategy, 17, 3, torch.float64, negatives)
    loss_fn = build(strategy, "dcl", call, "mean")
    loss_fn(*call.views, **call.inputs)
    record = loss_fn.record.numbers()
    arguments = oracle_arguments(strategy, "infonce", call, loss_fn)
    rows = dict(zip(("view_a", "view_b"), call.views, strict=False))
    left_out, weights = [], []
    for blocks in roles_of(call):
        for each in blocks:
            term = oracle_term(arguments["negatives"], each, blocks[0], {**call.inputs, **rows})[each.negative]
            left_out.append(term == -torch.inf)
            weights.append(term[term > -torch.inf].exp())
    if set(arguments["negatives"]) - {"debiased"} and ("hardness:of=hard" not in negatives or "hard_negatives" in call.inputs):
        assert record["negatives_left_out"] == pytest.approx(torch.cat(left_out).double().mean().item(), abs=1e-12)
        assert record["negative_weight"] == pytest.approx(torch.cat(weights).mean().item(), rel=1e-10)
    else:  # no term of a pair
        assert not {"negatives_left_out", "negative_weight"} & record.keys()
    assert record["infonce"] == pytest.approx(oracle_loss(*call.views, **arguments).item(), rel=1e-10)
    assert record["loss"] == pytest.approx(oracle_loss(*call.views, **{**arguments, "objective": "dcl"}).item(), rel=1e-10)
    if layout != "labels" and "directions" not in layout:
        probability = torch.exp(-oracle_row_losses(*call.views, **arguments)[0]).mean().item()
        assert record["positive_probability"] == pytest.approx(probability, rel=1e-10)
        assert record["gradient_scale"] == pytest.approx(1 - probability, rel=1e-10)


UNKNOWN = [
    *every_pair(["individual:size=40"], ["infonce"], [*LAYOUTS, "labels+hard"], list(CUTS), [""]),
    *every_pair(["individual:size=40"], ["infonce"], [*RAGGED, *CROSS[:3], "labels"], list(CUTS), TERMS[1:]),
    *every_pair(["learnable", "dystress", "uncertainty"], ["dcl"], ["labels+hard", "labels-one-view+hard"], list(CUTS), [""]),
]


@pytest.mark.parametrize(("strategy", "objective", "layout", "cut", "negatives"), UNKNOWN)
def test_engines_agree_where_the_oracle_has_no_formula(
    strategy: str, objective: str, layout: str, cut: str, negatives: str
) -> None:
    """In loss, gradient, state and record; the gradient is the same once more where the graph is kept."""
    found = []
    for engine in ("dense", "tiled"):
        # An odd number of rows has hard negatives of its own, which some terms need.
        call = make_call(layout, strategy, 16 if not negatives else 17, 5, torch.float64, negatives)
        if layout.startswith("labels-one-view"):
            call.inputs["labels"][:2] = torch.tensor([100, 10**9])  # two anchors without a positive
        loss_fn = build(strategy, objective, call, "none", engine)
        with cut_into(cut):
            value = loss_fn(*call.views, **call.inputs)
            weights = torch.linspace(1, 2, value.numel(), dtype=torch.float64).view(value.shape)
            leaves = [*call.leaves(), *loss_fn.parameters()]
            gradients, again = (torch.autograd.grad((value * weights).sum(), leaves, retain_graph=True) for _ in range(2))
        torch.testing.assert_close(again, gradients, rtol=1e-12, atol=1e-14)
        assert loss_fn.record.engine == engine
        found.append(([value, *gradients, *loss_fn.buffers()], loss_fn.record.numbers()))
    (numbers, record), (others, of_other) = found
    torch.testing.assert_close(numbers, others, rtol=1e-11, atol=1e-13)
    assert record == pytest.approx(of_other, rel=1e-10)


@pytest.mark.parametrize(("strategy", "layout"), list(zip(itertools.cycle(EACH), LAYOUTS, strict=False)))
def test_tensors_without_values_are_refused_and_leave_nothing_behind(strategy: str, layout: str) -> None:
    """Also those of a mode: what a call keeps for later calls must be real."""
    call = make_call(layout, strategy, 13, 6, torch.float32)
    loss_fn = build(strategy, "infonce", call, "mean")
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        pytest.raises(TensorError, match="FakeTensorMode is active: the loss needs"),
    ):
        loss_fn(*call.views, **call.inputs)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(view) for view in call.views]
    with pytest.raises(TensorError, match="FakeTensorMode is active: the loss needs tensors with values"):
        loss_fn(*fake, **call.inputs)
    assert type(loss_fn(*call.views, **call.inputs)) is torch.Tensor


@pytest.mark.parametrize(("strategy", "engine", "transposed"), every_pair(EACH, ENGINES, [False, True]))
def test_another_default_type_changes_no_digit_and_no_type(strategy: str, engine: str, transposed: bool) -> None:
    call = make_call("cross-view", strategy, 33, 6, torch.float32)
    views = [view.detach().t().contiguous().t().requires_grad_() if transposed else view for view in call.views]
    found = []
    for context in ("plain", "float64 by default"):
        loss_fn = build(strategy, "dcl", call, "mean", engine)
        loss = CONTEXTS[context].call(loss_fn, *views, **call.inputs)
        found.append([loss.detach(), *CONTEXTS[context].gradients(loss, views)])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize(("layout", "rows"), every_pair(["two-view", "labels", "queue"], [30, 300, 1100]))
def test_deterministic_algorithms_change_no_digit(layout: Any, rows: int) -> None:
    """At sizes of one tile, of several tiles, and of many positives."""
    call = make_call(layout, "fixed", rows, 8, torch.float32)
    found = []
    for context in ("plain", "deterministic algorithms"):
        loss = CONTEXTS[context].call(ContrastiveLoss(layout=layout), *call.views, **call.inputs)
        found.append([loss.detach(), *CONTEXTS[context].gradients(loss, call.leaves())])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_every_strategy_objective_and_term_is_among_them() -> None:
    names = {create_strategy(spec.replace("=D", "=6")).name for spec in EACH}
    assert names == {info.name for info in tempplug.strategies()} - {"individual"}
    assert {spec.partition(":")[0] for spec in [*OBJECTIVES, *TOP]} == {info.name for info in tempplug.objectives()}
    assert {spec.partition(":")[0] for spec in TERMS[1:]} == {info.name for info in tempplug.negatives()}
