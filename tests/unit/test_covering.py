import itertools

from covering import every_pair


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
