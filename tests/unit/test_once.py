"""`once`: found out the first time, of each object alone, and never again."""

from __future__ import annotations

from tempplug.once import once


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    @once
    def answer(self) -> list[int]:
        """What it says."""
        self.calls += 1
        return [self.calls]


def test_a_value_is_found_out_once_and_kept() -> None:
    counted = Counted()
    first = counted.answer
    assert first == [1]
    assert counted.answer is first
    assert counted.calls == 1


def test_every_object_has_its_own() -> None:
    one, other = Counted(), Counted()
    assert one.answer is not other.answer
    assert Counted.answer.__doc__ == "What it says."
