"""The loss against the float64 oracle: every case of the `matrix`, reductions, records, and settings of torch."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from covering import every_pair
from matrix import CASES, CROSS, EACH, ENGINES, TOP, Case, check
from oracle_cases import (
    CONTEXTS,
    COUNTS,
    CUTS,
    LAYOUTS,
    OBJECTIVES,
    RAGGED,
    TERMS,
    build,
    cut_into,
    make_call,
    oracle_arguments,
    roles_of,
)
from torch._subclasses.fake_tensor import FakeTensorMode

import tempplug
from tempplug import create_strategy
from tempplug.errors import TensorError
from tempplug.testing import oracle_loss, oracle_row_losses
from tempplug.testing.oracle_blocks import oracle_term

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* hard_negatives are rows of zeros:RuntimeWarning",
    "ignore:.*below its floor:RuntimeWarning",
    "ignore:layout '.*' leaves .* without a negative:RuntimeWarning",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)).replace(COUNTS, "…"))
def test_row_losses_and_gradients_are_those_of_the_oracle(case: Case) -> None:
    check(case)


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
        [
            *("two-view+hard", "cross-view", "queue+ragged", "labels", "cross-view:directions=ab+aa+ba+bb,hard=own+ragged"),
            *("cross-view+targets", "cross-view+targets+hard", "cross-view:positives=keys+hard"),
        ],
        list({spec.partition(":")[0]: spec for spec in TERMS}.values()),
    ),
)
def test_record_is_that_of_the_oracle(strategy: str, layout: str, negatives: str) -> None:
    call = make_call(layout, strategy, 17, 3, torch.float64, negatives)
    objective = "infonce" if "targets" in layout else "dcl"  # which has no meaning for targets
    loss_fn = build(strategy, objective, call, "mean")
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
    assert record["loss"] == pytest.approx(oracle_loss(*call.views, **{**arguments, "objective": objective}).item(), rel=1e-10)
    if not {"labels", "targets", "positives", "directions"} & {*re.findall(r"\w+", layout)}:
        probability = torch.exp(-oracle_row_losses(*call.views, **arguments)[0]).mean().item()
        assert record["positive_probability"] == pytest.approx(probability, rel=1e-10)
        assert record["gradient_scale"] == pytest.approx(1 - probability, rel=1e-10)


UNKNOWN = [
    *every_pair(["individual:size=40"], ["infonce"], [*LAYOUTS, "labels+hard"], list(CUTS), [""]),
    *every_pair(["individual:size=40"], ["infonce"], [*RAGGED, *CROSS[:3], "labels"], list(CUTS), TERMS[-4:]),
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


# Numbers and sizes that no other test has, so that nothing which calls share was made before.
UNUSED = ["fixed:temperature=0.2371", "temperature-free:eps=1.371e-4", "dystress:temperature_min=0.1371"]
SETTINGS = ["float64 by default", "deterministic algorithms", "another default device", "autocast"]
SETTINGS += ["inference mode", "no gradients"]  # which have no backward pass, and leave nothing for that of a later call


@pytest.mark.parametrize(
    ("strategy", "layout", "engine", "setting", "rows"),
    every_pair([*UNUSED, *EACH], ["cross-view", "two-view", "labels", "queue", "masks"], ENGINES, SETTINGS, [31, 347]),
)
def test_a_setting_of_torch_changes_no_digit_and_no_type(
    strategy: str, layout: str, engine: str, setting: str, rows: int
) -> None:
    """In that call or a later one, at sizes of one tile and of many positives."""
    call = make_call(layout, strategy, rows, 6, torch.float32)
    call.views = [view.detach().t().contiguous().t().requires_grad_() for view in call.views]
    found = []
    for context in (setting, "plain"):
        loss_fn = build(strategy, "infonce", call, "mean", engine)
        loss = CONTEXTS[context].call(loss_fn, *call.views, **call.inputs)
        assert loss.requires_grad == (CONTEXTS[context].backward != "none")
        found.append([loss.detach(), loss_fn.record.temperature_mean, *CONTEXTS[context].gradients(loss, call.views)])
    torch.testing.assert_close(found[0], found[1][: len(found[0])], rtol=0, atol=0)


def test_every_strategy_objective_and_term_is_among_them() -> None:
    names = {create_strategy(spec.replace("=D", "=6")).name for spec in EACH}
    assert names == {info.name for info in tempplug.strategies()} - {"individual"}
    assert {spec.partition(":")[0] for spec in [*OBJECTIVES, *TOP]} == {info.name for info in tempplug.objectives()}
    terms = [each for spec in TERMS[1:] for each in spec.split("+")]
    assert {each.partition(":")[0] for each in terms} == {info.name for info in tempplug.negatives()}


def test_every_pair_that_an_allowed_case_holds_is_in_a_chosen_case() -> None:
    def allowed(number: int, letter: str, flag: bool) -> bool:
        return not (number == 2 and letter == "b") and not (flag and letter == "a")

    chosen = every_pair((1, 2, 3), "abc", (True, False), allowed=allowed)
    wanted = {
        pair
        for case in itertools.product((1, 2, 3), "abc", (True, False))
        if allowed(*case)
        for pair in itertools.combinations(enumerate(case), 2)
    }
    assert {pair for case in chosen for pair in itertools.combinations(enumerate(case), 2)} == wanted
    assert all(allowed(*case) for case in chosen)
    assert len(chosen) < 12
