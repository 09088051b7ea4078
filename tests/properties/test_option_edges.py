"""Options at the edges of their ranges, and of float32: refused, or every loss and gradient is finite."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import Any

import pytest
import torch

import tempplug
from tempplug import ContrastiveLoss
from tempplug.create import load_class
from tempplug.errors import ConfigError
from tempplug.options import COLDEST, HOTTEST, Choice, Flag, Number, Temperature, options_of

EDGES = (1e-45, 1e-38, 1e-20, 1e20, 1e38, 1e300)
NEEDED: dict[str, dict[str, object]] = {
    "amcl": {"dimension": 6},
    "individual": {"size": 60},
    "head-tail": {"class_counts": "20/13"},
    "mm-ts": {"class_counts": "20/13"},
    "by-group": {"temperatures": "0.05/0.1"},
    "tempnet": {"dimension": 6},
    "sogclr": {"size": 60},
    "amcl-top": {"top_k": 2, "beta": 1},
}
KINDS = {info.name: options_of(load_class(info)) for info in (*tempplug.strategies(), *tempplug.objectives())}
STRATEGIES = [info.name for info in tempplug.strategies()]
OBJECTIVES = [info.name for info in tempplug.objectives()]


def ends(number: Number) -> list[float]:
    """The ends of a range, as far as it has some, and the smallest number above an open one."""
    if isinstance(number, Temperature):
        return [COLDEST, HOTTEST]
    bounds = (None if number.above is None else number.above + 1e-45, number.at_least, number.at_most)
    return [each for each in bounds if each is not None]


def spec(name: str, options: dict[str, object]) -> str:
    return ":".join([name, *([",".join(f"{key}={value}" for key, value in options.items())] if options else [])])


def is_finite(strategy: str, objective: str, layout: str, dtype: torch.dtype, rows: int) -> bool | None:
    """Whether loss and gradients are; None where the options are refused."""
    generator = torch.Generator().manual_seed(rows)
    a = torch.randn(rows, 6, generator=generator)
    b = a + 0.3 * torch.randn(rows, 6, generator=generator)
    b[1], a[2], a[1] = b[0], -a[3], a[0]
    a, b = a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()
    given: dict[str, Any] = {"labels": torch.arange(rows) % 2} if layout == "labels" or "class_counts" in strategy else {}
    if "size" in strategy + objective:
        given["index"] = torch.arange(rows)
    if "by-group" in strategy:
        given["groups"] = torch.arange(rows) % 2
    if "uncertainty" in strategy:
        both = torch.randn(2, rows, generator=generator, dtype=torch.float32).to(dtype).unbind()
        given["uncertainty"] = both[0] if layout == "cross-view" else both
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loss_fn = ContrastiveLoss(strategy, objective, layout)  # type: ignore[arg-type]
            loss_fn.set_progress(epoch=1.5)
            loss = loss_fn(a, b, **given)
        except ConfigError:
            return None
        loss.backward()  # type: ignore[no-untyped-call]
    assert a.grad is not None
    assert b.grad is not None
    return all(bool(each.isfinite().all()) for each in (loss, a.grad, b.grad))


@pytest.mark.parametrize("name", [*STRATEGIES, *OBJECTIVES])
def test_one_option_at_an_edge(name: str) -> None:
    for option in KINDS[name]:
        if not isinstance(option.kind, Number) or option.kind.integer:
            continue
        for value in (*ends(option.kind), *EDGES):
            options = (
                NEEDED.get(name, {}) | {option.name: value} | dict([option.kind.only_with] if option.kind.only_with else [])
            )
            options |= {"temperature_max": value} if option.name == "temperature_min" and value > 1 else {}
            options |= {"temperature_min": value} if option.name == "temperature_max" and value < 0.1 else {}
            chosen = spec(name, options)
            beside = spec("amcl", NEEDED["amcl"]) if name == "amcl-top" else "fixed"
            pair = (chosen, "infonce") if name in STRATEGIES else (beside, chosen)
            for layout, dtype in itertools.product(("two-view", "labels"), (torch.float32, torch.bfloat16)):
                assert is_finite(*pair, layout, dtype, 12) is not False, f"{pair} {layout} {dtype}"


def draw(chance: random.Random, name: str) -> str:
    """Returns a spec with some options at the ends of their ranges, several at once."""
    options = dict(NEEDED.get(name, {}))
    for option in sorted(KINDS[name], key=lambda each: each.name != "profile"):
        kind = option.kind
        if isinstance(kind, Choice | Flag) and chance.random() < 0.5:
            options[option.name] = chance.choice(kind.values if isinstance(kind, Choice) else ("true", "false"))
        if not isinstance(kind, Number) or kind.integer or chance.random() < 0.4:
            continue
        if kind.only_with is None or options.get(kind.only_with[0]) == kind.only_with[1]:
            options[option.name] = chance.choice([*ends(kind), *ends(kind), 0.1, 0.5])
    return spec(name, options)


@pytest.mark.parametrize("name", STRATEGIES)
def test_several_options_at_their_ends(name: str) -> None:
    chance, finite = random.Random(name), 0
    for _ in range(120):
        call = draw(chance, name), draw(chance, chance.choice(OBJECTIVES))
        layout, rows = chance.choice(("two-view", "labels", "cross-view")), chance.choice((4, 12, 60))
        found = is_finite(*call, layout, chance.choice((torch.float32, torch.float64, torch.bfloat16)), rows)
        assert found is not False, f"{call} {layout} {rows}"
        finite += bool(found)
    assert finite >= 5, "a test of nothing but refusals"
