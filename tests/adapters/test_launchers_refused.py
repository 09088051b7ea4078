"""A batch that one process refuses ends the call on all of them, with an error that names it; nobody waits forever."""

from __future__ import annotations

import pytest
from launched.pairs import ENGINES
from launched.refuse_torchrun import CALLS
from launcher import launched, torchrun

pytestmark = pytest.mark.slow

Ends = list[dict[str, tuple[str, str]]]
REASONS = {
    "no rows": ("ShapeError", "view_a of shape [0, 6]"),
    "unpaired rows": ("ShapeError", "view_b has 3 rows where view_a has 4"),
    "not a number": ("NonFiniteError", "view_b holds NaN"),
    "labels": ("ConfigError", "labels= is read neither by layout"),
    "hard negatives": ("ShapeError", "hard_negatives has 7 dimensions"),
    "queue": ("ConfigError", "queue= is read neither by layout"),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, tuple[str, str]]]]:
    """How each call ended on the first process and on the second, which refuses, by engine."""
    return launched(torchrun(2), "refuse_torchrun.py", tmp_path_factory.mktemp("refused"))


@pytest.fixture(params=ENGINES)
def ends(request: pytest.FixtureRequest, ranks: list[dict[str, dict[str, tuple[str, str]]]]) -> Ends:
    return [rank[request.param] for rank in ranks]


def test_no_call_is_left_out(ends: Ends) -> None:
    assert [list(rank) for rank in ends] == [list(CALLS)] * 2
    assert CALLS.keys() - REASONS.keys() == {"several positives", "stops early", "good"}


@pytest.mark.parametrize("call", REASONS)
def test_the_process_says_why_and_the_other_says_who(ends: Ends, call: str) -> None:
    other, refusing = (rank[call] for rank in ends)
    error, reason = REASONS[call]
    assert refusing[0] == error
    assert reason in refusing[1]
    assert other[0] == "ProcessError"
    assert "process 1 of 2 refused its inputs" in other[1]


def test_classes_of_one_process_are_refused_by_all(ends: Ends) -> None:
    assert [rank["several positives"][0] for rank in ends] == ["ConfigError"] * 2
    assert "gave an anchor 2" in ends[0]["several positives"][1]


def test_a_process_without_a_batch_is_noticed_by_the_guard_of_torch(ends: Ends) -> None:
    for rank in ends:
        assert rank["stops early"][0] == "RuntimeError"
        assert "exhausted" in rank["stops early"][1]


def test_a_good_call_after_all_of_them_finishes(ends: Ends) -> None:
    assert [rank["good"] for rank in ends] == [("finished", "True")] * 2
