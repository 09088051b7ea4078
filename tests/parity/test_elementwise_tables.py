"""Temperature, logit and slope of every strategy against published-precision reference numbers, ours and the oracle's.

`reference_numbers.json` was computed independently with complex-step derivatives and prints ten significant digits.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tempplug
from tempplug.arguments import parse_spec
from tempplug.testing import oracle_logit

REFERENCE = json.loads(Path(__file__).with_name("reference_numbers.json").read_text())
TABLES = REFERENCE["similarity"]
SCHEDULES = {
    column: f"schedule:shape={column.split(':')[0]},temperature_max={bounds[0]},temperature_min={bounds[1]},period=400"
    for column in REFERENCE["schedule_columns"][1:]
    for bounds in [column.split(":")[1].split("-")]
}


def one(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def column(rows: list[list[float]], names: list[str], name: str) -> Tensor:
    return torch.tensor([row[names.index(name)] for row in rows], dtype=torch.float64)


def assert_printed(ours: Tensor, reference: Tensor) -> None:
    """Half a unit of the tenth digit is at most 5e-10 relative; the same again is left for rounding."""
    assert ours.dtype == torch.float64
    assert ours.shape == reference.shape
    error = (ours.detach() - reference).abs() / reference.abs().clamp(min=1)
    assert float(error.max()) <= 1e-9, f"off by {float(error.max()):.2e} at row {int(error.argmax())}"


def prepared(strategy: tempplug.Strategy, positive_similarity: float = 0.5) -> tempplug.LogitMap:
    return strategy.prepare(tempplug.Batch(positive_similarity=one(positive_similarity)))


def exact(spec: str) -> tempplug.Strategy:
    """Returns the strategy in float64; a learned ln(1/τ) is set anew, since it was born in float32."""
    strategy = tempplug.create_strategy(spec).double()
    with torch.no_grad():
        for parameter in strategy.parameters():
            parameter.fill_(math.log(1 / 0.07))
    return strategy


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["strategy"])
def test_map_matches_the_table(table: dict[str, Any]) -> None:
    values = {name: column(table["rows"], table["columns"], name) for name in table["columns"]}
    s = values["similarity"]
    logit_map = prepared(exact(table["strategy"]))
    assert_printed(logit_map.logit(s), values["logit"])
    assert_printed(logit_map.slope(s), values["slope"])
    if "temperature" in values:
        assert_printed(logit_map.temperature(s), values["temperature"])


@pytest.mark.parametrize("table", [t for t in TABLES if "dystress" in t["strategy"]], ids=lambda table: table["strategy"])
def test_map_without_detach_has_the_full_slope(table: dict[str, Any]) -> None:
    values = {name: column(table["rows"], table["columns"], name) for name in table["columns"]}
    logit_map = prepared(exact(table["strategy"] + ",detach=false"))
    assert_printed(logit_map.slope(values["similarity"]), values["full_slope"])
    s = values["similarity"].requires_grad_()
    (gradient,) = torch.autograd.grad(logit_map.logit(s).sum(), s)
    # ±0, ±1 and the edges of `shifted` are corners of some curves, where autograd may take either side
    smooth = (s.detach().abs() < 1) & (s.detach() != 0)
    assert_printed(gradient[smooth], values["full_slope"][smooth])


def test_learned_scale_has_the_parameter_slope_of_the_table() -> None:
    (table,) = [each for each in TABLES if "parameter_slope" in each["columns"]]
    strategy = exact(table["strategy"])
    (parameter,) = strategy.parameters()
    expected = column(table["rows"], table["columns"], "parameter_slope")
    logits = prepared(strategy).logit(column(table["rows"], table["columns"], "similarity"))
    slopes = [torch.autograd.grad(logit, parameter, retain_graph=True)[0] for logit in logits]
    assert_printed(torch.cat(slopes), expected)


@pytest.mark.parametrize("detach", [True, False], ids=["detached", "full"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["strategy"])
def test_oracle_matches_the_table(table: dict[str, Any], detach: bool) -> None:
    name, options = parse_spec(table["strategy"])
    if name == "dystress":
        options["detach"] = detach
    values = {each: column(table["rows"], table["columns"], each) for each in table["columns"]}
    s = values["similarity"].requires_grad_()
    logit = oracle_logit(name, s, **options)
    (slope,) = torch.autograd.grad(logit.sum(), s)
    assert_printed(logit.detach(), values["logit"])
    full = values.get("full_slope", values["slope"])
    # the slope of |s| at 0 is 0 to autograd, as in the table
    assert_printed(slope, values["slope"] if detach else full)


@pytest.mark.filterwarnings("ignore:.*below its floor:RuntimeWarning")
@pytest.mark.parametrize("row", REFERENCE["macl"], ids=lambda row: "/".join(map(str, row[:4])))
def test_macl_temperature_follows_the_positives(row: list[float]) -> None:
    base, alpha, threshold, positive_similarity, adapted, floored = row
    options: dict[str, Any] = {"base_temperature": base, "alpha": alpha, "threshold": threshold}
    logit_map = prepared(tempplug.create_strategy("macl", **options), positive_similarity)
    half = one(0.5)
    assert_printed(logit_map.temperature(half), one(floored))
    assert_printed(logit_map.logit(half), one(0.5 / floored))
    oracle = oracle_logit("macl", half, positive_similarity=one(positive_similarity), **options)
    assert_printed(half / oracle, one(floored))
    if adapted > 0.1 * base:
        without_floor = tempplug.create_strategy("macl", floor_ratio=1e-6, **options)
        assert_printed(prepared(without_floor, positive_similarity).temperature(half), one(adapted))


@pytest.mark.parametrize("row", REFERENCE["schedule"], ids=lambda row: f"epoch{row[0]:g}")
def test_schedule_is_at_its_table(row: list[float]) -> None:
    for spec, expected in zip(SCHEDULES.values(), row[1:], strict=True):
        strategy = tempplug.create_strategy(spec)
        strategy.set_progress(epoch=row[0])
        assert_printed(prepared(strategy).temperature(one(1.0)), one(expected))
        name, options = parse_spec(spec)
        assert_printed(1 / oracle_logit(name, one(1.0), epoch=row[0], **options), one(expected))
