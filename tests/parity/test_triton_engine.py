"""The Triton engine against the float64 oracle, under triton's interpreter: every map, layout, precision and odd size.

All calls of this file run in one process of their own, started by the first test that wants a result.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# In CI a missing triton is a failure, not a reason to skip.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None and not os.environ.get("CI"),
        reason="triton is not installed: pip install 'tempplug[triton]'",
    ),
]
SHIFTED = {"profile": "shifted", "shift": 0.2, "width": 0.5}
STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("fixed", {"temperature": 0.05}),
    ("learnable", {}),
    ("macl", {}),
    ("uncertainty", {}),
    ("temperature-free", {}),
    ("dystress", {}),
    ("dystress", {"profile": "linear"}),
    ("dystress", {"profile": "exponential"}),
    ("dystress", {"profile": "monotonic"}),
    ("dystress", SHIFTED),
    ("dystress", {"detach": False}),
    ("dystress", {"profile": "linear", "detach": False}),
    ("dystress", {"profile": "exponential", "detach": False}),
    ("dystress", {"profile": "monotonic", "detach": False}),
    ("dystress", {**SHIFTED, "detach": False}),
]
LAYOUTS = ["two-view", "cross-view+symmetric", "queue", "two-view+hard", "cross-view", "cross-view+hard"]
PRECISIONS = ["float32", "bfloat16", "float16"]
ROWS = [2, 3, 127, 129]
DIMENSIONS = [1, 3, 130, 64]


def _cases() -> list[dict[str, Any]]:
    """Every strategy with every layout; the other factors turn at paces of their own, so that all pairs of them meet."""
    found = []
    for (i, (strategy, options)), (j, layout) in itertools.product(enumerate(STRATEGIES), enumerate(LAYOUTS)):
        found.append(
            {
                "strategy": strategy,
                "options": options,
                "layout": layout,
                "dtype": PRECISIONS[(j + i // 4) % 3],
                "rows": ROWS[(j + i // 4 + 3 * (j // 4)) % 4],
                "dimension": DIMENSIONS[(j + 3 * (i // 4)) % 4],
            }
        )
    return found


# Wider than any gradient in registers.
WIDE: list[dict[str, Any]] = [
    {"strategy": strategy, "options": {}, "layout": layout, "dtype": dtype, "rows": 70, "dimension": 300}
    for (strategy, layout), dtype in zip(
        itertools.product(("learnable", "uncertainty", "temperature-free"), ("two-view", "cross-view+symmetric", "queue")),
        itertools.cycle(PRECISIONS),
        strict=False,
    )
]
# Its keys end between two tiles and its queue with one.
WIDE.append({"strategy": "fixed", "options": {}, "layout": "queue", "dtype": "float32", "rows": 98, "dimension": 300})
OBJECTIVES: list[dict[str, Any]] = [
    {
        "strategy": "macl",
        "options": {},
        "objective": name,
        "layout": "two-view",
        "dtype": "float32",
        "rows": 20,
        "dimension": 16,
    }
    for name in ("dcl", "flatnce", "reweighted")
]
# One pair and hard negatives: an anchor of the other view, or the other direction, has no negative.
LONELY: list[dict[str, Any]] = [
    {"strategy": s, "options": {}, "objective": o, "layout": layout, "dtype": "float32", "rows": 1, "dimension": 5}
    for s, o, layout in itertools.product(
        ("fixed", "learnable", "temperature-free"), ("infonce", "reweighted"), ("two-view+hard", "cross-view+symmetric+hard")
    )
]
CASES = _cases() + WIDE + OBJECTIVES + LONELY
CALLS: list[tuple[str, dict[str, Any]]] = [
    *(("parity", {"case": case}) for case in CASES),
    *(("cold", {"scale": scale, "dimension": d}) for scale, d in itertools.product((72.0, 90.0, 200.0, 500.0, 5000.0), (2, 8))),
    *(("collapsed", {"scale": scale}) for scale in (10.0, 60.0, 150.0, 1000.0)),
    *(("online_runs", {"scale": scale}) for scale in (20.0, 5000.0)),
    *(("upstream", {"sizes": s, "precision": p}) for s, p in itertools.product((1e-6, 1.0, 1e6), ("float32", "float16"))),
    *(("repeated", {"precision": precision, "dimension": d}) for precision, d in itertools.product(PRECISIONS, (20, 300))),
    *(("many_slabs", {"square": square}) for square in (True, False)),
    *(
        (name, {})
        for name in (
            "nothing_upstream",
            "near_duplicates",
            "uneven_upstream",
            "many_candidates",
            "not_a_number",
            "twice_differentiated",
            "only_what_is_asked",
            "refused",
        )
    ),
]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """The result of every call, by name and arguments."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("triton_cases.py")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", script], input=json.dumps(CALLS), capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    return {json.dumps(call): result for call, result in zip(CALLS, json.loads(run.stdout), strict=True)}


def _of(results: dict[str, Any], call: str, **arguments: Any) -> dict[str, Any]:
    found = results[json.dumps((call, arguments))]
    assert isinstance(found, dict)
    return found


def _name(case: dict[str, Any]) -> str:
    options = "-".join(str(value) for value in case["options"].values())
    return f"{case['strategy']}-{options}-{case['layout']}-{case['dtype']}-{case['rows']}x{case['dimension']}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_loss_and_gradients_are_those_of_the_oracle(case: dict[str, Any], results: dict[str, Any]) -> None:
    errors = _of(results, "parity", case=case)
    # Where float32 similarities themselves are not enough (near-duplicates under the log odds), plain torch is the measure.
    assert errors["loss"] < 5e-6 + 2 * errors["plain_loss"]
    # Gradients come back in the precision of the embeddings.
    allowed = {"float32": 5e-6, "bfloat16": 8e-3, "float16": 1e-3}
    assert errors["gradient"] < allowed[case["dtype"]] + 2 * errors["plain_gradient"]


def test_every_pair_of_factors_meets() -> None:
    cases = _cases()
    factors: dict[str, list[Any]] = {"layout": LAYOUTS, "dtype": PRECISIONS, "rows": ROWS, "dimension": DIMENSIONS}
    for (one, left), (other, right) in itertools.combinations(factors.items(), 2):
        assert {(case[one], case[other]) for case in cases} == set(itertools.product(left, right)), (one, other)
    for name, values in factors.items():
        for strategy in STRATEGIES:
            met = {case[name] for case in cases if (case["strategy"], case["options"]) == strategy}
            assert met == set(values), (strategy, name)


@pytest.mark.parametrize("dimension", [2, 8])
@pytest.mark.parametrize("scale", [72.0, 90.0, 200.0, 500.0, 5000.0])
def test_small_temperatures_stay_exact_across_the_switch_to_a_running_maximum(
    scale: float, dimension: int, results: dict[str, Any]
) -> None:
    errors = _of(results, "cold", scale=scale, dimension=dimension)
    assert errors["value"] < 1e-6
    # A similarity is known to 2^-24, its logit to scale times that.
    assert errors["gradient"] < 1e-6 + 4 * scale * 2.0**-24


@pytest.mark.parametrize("scale", [10.0, 60.0, 150.0, 1000.0])
def test_rows_far_apart_keep_their_gradient(scale: float, results: dict[str, Any]) -> None:
    errors = _of(results, "collapsed", scale=scale)
    assert errors["value"] < 1e-6
    assert errors["gradient"] < 1e-6 + 4 * scale * 2.0**-24


def test_running_maximum_only_where_it_is_needed(results: dict[str, Any]) -> None:
    assert _of(results, "online_runs", scale=20.0) == {"flag": False}
    assert _of(results, "online_runs", scale=5000.0) == {"flag": True}


@pytest.mark.parametrize(("precision", "allowed"), [("float32", 2e-6), ("float16", 1e-3)])
@pytest.mark.parametrize("sizes", [1e-6, 1.0, 1e6])
def test_any_upstream_gradient(sizes: float, precision: str, allowed: float, results: dict[str, Any]) -> None:
    assert _of(results, "upstream", sizes=sizes, precision=precision)["gradient"] < allowed


def test_half_precision_holds_anchors_of_little_weight(results: dict[str, Any]) -> None:
    assert _of(results, "uneven_upstream")["gradient"] < 2e-3


def test_half_precision_holds_the_steepest_slopes(results: dict[str, Any]) -> None:
    assert _of(results, "near_duplicates")["gradient"] < 1e-2


def test_many_terms_add_up_as_exactly_as_few(results: dict[str, Any]) -> None:
    assert _of(results, "many_candidates")["error"] < 2e-7


def test_no_upstream_gradient_is_zero(results: dict[str, Any]) -> None:
    assert _of(results, "nothing_upstream") == {"zero": True}


def test_nan_embeddings_give_nan(results: dict[str, Any]) -> None:
    assert _of(results, "not_a_number") == {"value": True, "gradient": True}


@pytest.mark.parametrize("dimension", [20, 300])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_two_runs_give_the_same_bits(precision: str, dimension: int, results: dict[str, Any]) -> None:
    assert _of(results, "repeated", precision=precision, dimension=dimension) == {"value": True, "gradient": True}


@pytest.mark.parametrize("square", [True, False])
def test_slabs_add_up(square: bool, results: dict[str, Any]) -> None:
    assert _of(results, "many_slabs", square=square)["gradient"] < 1e-6


def test_second_derivatives_are_refused(results: dict[str, Any]) -> None:
    assert "engine='dense'" in _of(results, "twice_differentiated")["message"]


def test_only_gradients_that_are_wanted_are_computed(results: dict[str, Any]) -> None:
    assert _of(results, "only_what_is_asked") == {"asked": ["anchors"]}


def test_maps_without_a_kernel_are_refused(results: dict[str, Any]) -> None:
    found = _of(results, "refused")
    assert found["reason"] == "logit map Odd has no kernel"
    assert found["reason"] in found["message"]
    assert found["taken"] is None
