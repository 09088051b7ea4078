"""Spec strings, key=value words and the three flags."""

from __future__ import annotations

import argparse
import math
from typing import Any

import pytest

import tempplug
from tempplug.arguments import add_temperature_arguments, merge_spec, parse_options, parse_spec, parse_value
from tempplug.create import create_strategy
from tempplug.errors import ConfigError, TempplugError

NUMBERS = {"0.05": 0.05, "2": 2, "-2": -2, "+3": 3, ".5": 0.5, "5.": 5.0, "1e-4": 1e-4, "1E3": 1000.0, "-1.5e+3": -1500.0}
WORDS = {"true": True, "False": False, "none": None, "None": None, "inf": math.inf, "-Infinity": -math.inf}
LISTS = {"450/270/162": [450, 270, 162], "0.5/-1": [0.5, -1], "450/": [450]}
TEXTS = ("shifted", "two-view", "1/x", "/", "1//2", "1.2.3", "0x10", "1_000", "e5", "nano", "--inf")


@pytest.mark.parametrize(("text", "expected"), [*(NUMBERS | WORDS | LISTS).items(), *((text, text) for text in TEXTS)])
def test_values(text: str, expected: object) -> None:
    value = parse_value(text)
    assert value == expected
    assert type(value) is type(expected)


def test_nan_is_a_number_so_that_ranges_refuse_it() -> None:
    assert math.isnan(parse_value("NaN"))


def test_options_of_words() -> None:
    assert parse_options([]) == {}
    assert parse_options(["floor-ratio=0.2", " alpha = 2 ", "text=a=b"]) == {"floor_ratio": 0.2, "alpha": 2, "text": "a=b"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("macl", ("macl", {})),
        (" macl ", ("macl", {})),
        ("macl:alpha=2", ("macl", {"alpha": 2})),
        (" macl : alpha = 2 , threshold=0.8 ", ("macl", {"alpha": 2, "threshold": 0.8})),
        ("head-tail:class-counts=450/270/162", ("head-tail", {"class_counts": [450, 270, 162]})),
    ],
)
def test_specs(spec: str, expected: tuple[str, dict[str, Any]]) -> None:
    assert parse_spec(spec) == expected


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("", "'' is not a spec string: write name or name:key=value,key=value"),
        ("  ", "'  ' is not a spec string"),
        ("macl:", "'macl:' is not a spec string"),
        ("macl: ", "'macl: ' is not a spec string"),
        (":alpha=2", "':alpha=2' is not a spec string"),
        ("macl:alpha", "^'alpha' is not an option: write key=value, such as alpha=0.5, and a list as 450/270.$"),
        ("macl:=2", "'=2' is not an option"),
        ("macl:alpha= ", "is not an option"),
        ("macl:alpha=2,", "'' is not an option"),
        ("macl:,alpha=2", "'' is not an option"),
        ("macl:floor-ratio=1,floor_ratio=2", r"^option 'floor_ratio' is given twice\.$"),
        ("head-tail:class_counts=450,270", "'270' is not an option: .*a list as 450/270"),
        (None, "None is not a spec string such as"),
        (0.05, "0.05 is not a spec string such as"),
    ],
)
def test_malformed_specs(spec: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse_spec(spec)


def test_spec_and_words_merge() -> None:
    assert merge_spec("macl:alpha=2", ["threshold=0.8", "strict=true"]) == (
        "macl",
        {"alpha": 2, "threshold": 0.8, "strict": True},
    )
    assert merge_spec("fixed", []) == ("fixed", {})
    with pytest.raises(ConfigError) as error:
        merge_spec("macl:alpha=2", ["threshold=0", "alpha=2"])
    assert str(error.value) == "option 'alpha' is given twice: in the spec string 'macl:alpha=2' and in --temperature-args."


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False)
    made.add_argument("--epochs", type=int)
    tempplug.add_temperature_arguments(made)
    return made


@pytest.mark.parametrize("separator", ["-", "_"])
def test_flags_work_in_both_spellings(parser: argparse.ArgumentParser, separator: str) -> None:
    words = [
        *(f"--temperature{separator}strategy", "macl:alpha=2"),
        *(f"--temperature{separator}args", "threshold=0.8", "floor-ratio=0.2"),
        *(f"--contrastive{separator}objective", "dcl"),
        *(f"--contrastive{separator}negatives", "same-key+hardness:strength=1e+1"),
        *("--epochs", "3"),
    ]
    parsed = parser.parse_args(words)
    assert vars(parsed) == {
        "temperature_strategy": "macl:alpha=2",
        "temperature_args": ["threshold=0.8", "floor-ratio=0.2"],
        "contrastive_objective": "dcl",
        "contrastive_negatives": "same-key+hardness:strength=1e+1",
        "epochs": 3,
    }
    name, options = merge_spec(parsed.temperature_strategy, parsed.temperature_args)
    expected = "macl:base_temperature=0.1,alpha=2,threshold=0.8,floor_ratio=0.2,strict=false"
    assert tempplug.create_strategy(name, **options).spec() == expected


def test_flags_have_defaults_that_build_the_baseline(parser: argparse.ArgumentParser) -> None:
    parsed = parser.parse_args([])
    assert (parsed.temperature_strategy, parsed.temperature_args, parsed.contrastive_objective) == ("fixed", [], "infonce")
    assert parsed.contrastive_negatives is None
    other = argparse.ArgumentParser()
    add_temperature_arguments(other, default=None)
    assert other.parse_args([]).temperature_strategy is None


def test_one_parse_does_not_leak_into_the_next(parser: argparse.ArgumentParser) -> None:
    parser.parse_args(["--temperature-args", "alpha=2"]).temperature_args.append("beta=3")
    assert parser.parse_args(["--epochs", "1"]).temperature_args == []


def test_help_names_the_flags_and_where_to_look(parser: argparse.ArgumentParser) -> None:
    text = " ".join(parser.format_help().split())
    flags = ("--temperature-strategy", "--temperature-args", "--contrastive-objective", "--contrastive-negatives")
    for expected in (*flags, "`tempplug list`"):
        assert expected in text


# Each of them once ended in a message of several lines, of thousands of letters, or in an error of Python's own.
ODD = [
    "ma\ncl",
    "macl\x00:alpha=1",
    "macl:al\npha=1",
    "macl:alpha\n",
    "macl:alpha=" + "1" * 5000,
    "macl:alpha=" + "x" * 5000,
    "schedule:seed=" + "9" * 5000,
    "head-tail:class_counts=" + "9" * 5000 + "/1",
    "schedule:shape=co\nsine",
    "x" * 5000,
    "macl:" + "y" * 5000 + "=1",
    "fixed:temperature=１",
    "amcl:dimension=1e39",
    "individual:size=1e300",
]


@pytest.mark.parametrize("spec", ODD, ids=range(len(ODD)))
def test_odd_specs_are_refused_in_one_short_line(spec: str) -> None:
    with pytest.raises(TempplugError) as caught:
        create_strategy(spec)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400
