"""What each kind of option accepts, what it says of what it refuses, and how options are found and written."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tempplug.arguments import parse_value
from tempplug.errors import ConfigError
from tempplug.options import Choice, Configured, Flag, Kind, Number, Numbers, Option, format_value, options_of

if TYPE_CHECKING:
    from fractions import Fraction

WHERE = "size=? of strategy 'test'"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Number(above=0), 1e-300, 1e-300),
        (Number(at_least=0), 0, 0.0),
        (Number(at_least=0), -0.0, 0.0),
        (Number(below=1), 1 - 1e-12, 1 - 1e-12),
        (Number(optional=True), None, None),
        (Number(above=0), np.float64(0.5), 0.5),
        (Number(integer=True), 3.0, 3),
        (Number(integer=True), np.int64(3), 3),
        (Number(integer=True), 2**60 + 1, 2**60 + 1),
        (Choice(("a", "b")), "b", "b"),
        (Flag(), False, False),
        (Numbers(), [1, 2.5], (1.0, 2.5)),
        (Numbers(), range(2), (0.0, 1.0)),
        (Numbers(), {3, 1}, (1.0, 3.0)),
        (Numbers(Number(integer=True)), np.array([5, 3]), (5, 3)),
        (Numbers(Number(integer=True), or_number=True), 4, 4),
        (Numbers(Number(integer=True), or_number=True), [4], (4,)),
    ],
)
def test_accepted_values_come_back_in_one_type(kind: Kind, value: object, expected: object) -> None:
    checked = kind.check(WHERE, value)
    assert checked == expected
    assert str(checked) == str(expected)  # -0.0 equals 0.0
    assert type(checked) is type(expected)
    if isinstance(expected, tuple):
        assert isinstance(checked, tuple)
        assert [type(item) for item in checked] == [type(item) for item in expected]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (Number(), "0.1", "must be a number."),
        (Number(), True, "must be a number."),
        (Number(), math.nan, "must be finite."),
        (Number(), 10**400, "must be finite."),
        (Number(above=0), 0, "must be greater than 0."),
        (Number(at_least=0), -1e-9, "must be at least 0."),
        (Number(below=1), 1, "must be less than 1."),
        (Number(at_most=1), 1.001, "must be at most 1."),
        (Number(above=0, at_most=0.5), 0.6, "must be greater than 0 and at most 0.5."),
        (Number(at_least=-1, below=1), -2, "must be at least -1 and less than 1."),
        (Number(above=0), math.nan, "must be greater than 0."),
        (Number(integer=True), 2.5, "must be an integer."),
        (Number(integer=True), math.nan, "must be an integer."),
        (Number(integer=True, at_least=1), 0, "must be an integer, at least 1."),
        (Choice(("a", "b")), "c", "must be one of a, b."),
        (Flag(), 1, "must be true or false."),
        (Numbers(), 5, "must be a list of 1 or more numbers such as 1/1, each finite."),
        (Numbers(), "1/2", "must be a list of 1 or more numbers such as 1/1, each finite."),
        (Numbers(), {1: 50, 2: 20}, "must be a list of 1 or more numbers such as 1/1, each finite."),
        (Numbers(), [], "must be a list of 1 or more numbers such as 1/1, each finite."),
        (Numbers(minimum_length=2), [1], "must be a list of 2 or more numbers such as 1/1, each finite."),
        (Numbers(or_number=True), "x", "must be finite, or a list of 1 or more such numbers."),
        (Numbers(Number(above=0), or_number=True), -1, "must be greater than 0."),
        (Numbers(or_number=True), True, "must be a number."),
    ],
)
def test_refused_values_say_where_and_what_was_wanted(kind: Kind, value: object, wanted: str) -> None:
    with pytest.raises(ConfigError) as error:
        kind.check(WHERE, value)
    assert str(error.value) == f"{WHERE} {wanted}"
    assert isinstance(error.value, ValueError)
    with pytest.raises(ConfigError, match=f"^item -2.5 of {re.escape(WHERE)} must be at least 0.$"):
        Numbers(Number(at_least=0)).check(WHERE, [1, -2.5])


@settings(deadline=None)
@given(
    low=st.none() | st.integers(-300, 300),
    span=st.none() | st.integers(1, 300),
    includes_low=st.booleans(),
    includes_high=st.booleans(),
    integer=st.booleans(),
)
def test_the_example_of_a_range_lies_inside(
    low: int | None, span: int | None, includes_low: bool, includes_high: bool, integer: bool
) -> None:
    high = None if span is None else (low or 0) + span + 1
    kind = Number(
        above=None if includes_low else low,
        at_least=low if includes_low else None,
        below=None if includes_high else high,
        at_most=high if includes_high else None,
        integer=integer,
    )
    assert kind.check(WHERE, kind.example()) == kind.example()


@pytest.mark.parametrize(
    "kind",
    [
        Choice(("a", "b")),
        Flag(),
        Numbers(minimum_length=3),
        Numbers(Number(integer=True, at_least=1), or_number=True),
        Number(above=0.2, below=0.3),
    ],
)
def test_the_example_of_every_kind_is_accepted_and_can_be_written(kind: Kind) -> None:
    example = kind.check(WHERE, kind.example())
    assert kind.check(WHERE, parse_value(format_value(example))) == example


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((True, "true"), (False, "false"), (None, "none"), (2.0, "2"), (0.1, "0.1"), (1e-4, "0.0001"), (7, "7")),
        *((0.1 + 0.2, "0.30000000000000004"), (-1.5e300, "-1.5e+300"), ("word", "word"), (np.float32(0.1), "0.1")),
        *(([450, 270.0], "450/270"), ((2,), "2/")),
    ],
)
def test_values_as_spec_strings_write_them(value: object, text: str) -> None:
    assert format_value(value) == text


@settings(deadline=None)
@given(st.floats(allow_nan=False) | st.integers() | st.booleans() | st.none() | st.lists(st.integers(), min_size=1))
def test_every_written_value_is_read_back_exactly(value: object) -> None:
    assert parse_value(format_value(value)) == value


class Base(Configured):
    kind = "strategy"
    name = "base"

    size: float

    def __init__(self, size: Annotated[float, Number(above=0)] = 1.0, *ignored: int, word: Any = "x", **more: int) -> None:
        self.configure(size=size, word=word)


class Narrows(Base):
    """Has an option of its own, and gives its base one that it computes."""

    name = "narrows"

    half: float

    def __init__(self, half: Annotated[float, Number(at_most=10)]) -> None:
        super().__init__(size=2 * half)
        self.configure(half=half)


class Together(Base):
    """Configures its own option and its base's in one call."""

    name = "together"

    def __init__(self, half: Annotated[float, Number(at_most=10)]) -> None:
        self.configure(size=2 * half, half=half)


class Forgets(Base):
    def __init__(self, given: Fraction | None = None) -> None: ...


def test_options_are_read_from_the_constructor() -> None:
    assert options_of(Base) == (Option("size", 1.0, False, Number(above=0)), Option("word", "x", False, None))
    assert options_of(type("Inherits", (Base,), {})) == options_of(Base)
    assert options_of(Narrows) == (Option("half", None, True, Number(at_most=10)),)
    with pytest.raises(ConfigError, match=r"annotations of Forgets.__init__ cannot be read: .*'Fraction'.*TYPE_CHECKING"):
        options_of(Forgets)


def test_configured_objects_check_keep_and_write_their_options_and_those_of_their_base() -> None:
    made = Base(size=3, word="y")
    assert (made.size, made.options) == (3.0, {"size": 3.0, "word": "y"})
    assert type(made.size) is float
    assert made.spec() == "base:size=3,word=y"
    for kind in (Narrows, Together):
        both = kind(half=2)
        assert (both.half, both.size, both.spec()) == (2.0, 4.0, f"{kind.name}:half=2")
    for wrong, message in (
        (lambda: Base(size=0), "size=0 of strategy 'base' must be greater than 0."),
        (lambda: Narrows(half=-1), "size=-2 of strategy 'narrows' must be greater than 0."),
        (lambda: Narrows(half=11), "half=11 of strategy 'narrows' must be at most 10."),
    ):
        with pytest.raises(ConfigError) as error:
            wrong()
        assert str(error.value) == message
