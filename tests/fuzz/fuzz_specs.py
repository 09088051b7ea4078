"""Spec strings of all that has some: valid ones come back as they were, others are refused clearly."""

from __future__ import annotations

import math
import random
from typing import Any

from fuzzing import Verdict

import tempplug
from tempplug.arguments import parse_spec
from tempplug.create import load_class
from tempplug.errors import TempplugError
from tempplug.layouts import LAYOUTS, create_layout
from tempplug.options import Choice, Flag, Number, Numbers, Option, format_value, options_of

JUNK = ":=,/. -+_e0159aZ'\"\\\n\té∞\x00none true nan inf 1e9 1e999 -1 [] {} ()"
NUMBERS = "0 -0 1 2 0.1 -0.5 1e-40 1e-320 1e39 1e300 1e999 nan -inf inf none true false 0x10 1_000 １ ٣ word"
VALUES = (*NUMBERS.split(), "1/2/3", "1/", "/", "//", "1//2", "a/b", "", " ", "9" * 400, "1" * 5000, "0." + "3" * 400)


# Word, name and options of everything that can be created.
KINDS: list[tuple[str, str, tuple[Option, ...]]] = [
    (word, each.name, options_of(load_class(each)))
    for word, infos in (
        ("strategy", tempplug.strategies()),
        ("objective", tempplug.objectives()),
        ("negative term", tempplug.negatives()),
    )
    for each in infos
]
KINDS += [("layout", name, options_of(layout)) for name, layout in LAYOUTS.items()]


def _value(chance: random.Random, option: Option) -> str:
    """Returns a value for an option that its kind may allow."""
    kind: Any = option.kind
    if isinstance(kind, Choice):
        return chance.choice(kind.values)
    if isinstance(kind, Flag):
        return chance.choice(["true", "false"])
    if isinstance(kind, Numbers):
        return "/".join(str(chance.randrange(1, 9)) for _ in range(max(2, kind.minimum_length)))
    if isinstance(kind, Number):
        low = max([each for each in (kind.above, kind.at_least) if each is not None], default=-2.0)
        high = min(
            [each for each in (kind.below, kind.at_most) if each is not None], default=low + chance.choice([0.5, 3.0, 50.0])
        )
        drawn = chance.uniform(low, high)
        return str(max(math.ceil(low), round(drawn))) if kind.integer else f"{drawn:.{chance.randrange(1, 17)}g}"
    return chance.choice(["word", "ab", "ab+aa", "ab+ba", "ab/aa", "aa+ab", "ab+ab"])


def _spec(chance: random.Random) -> tuple[str, str]:
    """Returns what to create, and a spec string of it that is valid or nearly so."""
    word, name, options = chance.choice(KINDS)
    chosen = [option for option in options if option.required or chance.random() < 0.5]
    return word, name + (":" if chosen else "") + ",".join(f"{each.name}={_value(chance, each)}" for each in chosen)


def _spoiled(chance: random.Random, spec: str) -> str:
    """Returns the spec with something odd in it."""
    turn = chance.randrange(6)
    if turn == 0:
        place = chance.randrange(len(spec) + 1)
        return spec[:place] + chance.choice(JUNK) + spec[place:]
    if turn == 1:
        place = chance.randrange(len(spec))
        return spec[:place] + spec[place + 1 :]
    if turn == 2:
        return "".join(chance.choice(JUNK + spec) for _ in range(chance.randrange(30)))
    if turn == 3:
        return spec + chance.choice([",", ":", "=", ",,", ",a", ",=1", ",temperature=1", ",temperature=1,temperature=2", " "])
    head, _, _ = spec.rpartition("=")
    return f"{head}={chance.choice(VALUES)}" if head else f"{spec}:temperature={chance.choice(VALUES)}"


def _create(word: str, spec: str) -> Any:
    if word == "negative term":
        terms = tempplug.create_negatives(spec)
        return terms[0] if len(terms) == 1 else None
    made: Any = {"strategy": tempplug.create_strategy, "objective": tempplug.create_objective, "layout": create_layout}[word]
    return made(spec)


def options(made: Any) -> dict[str, Any]:
    """Returns its options, which a layout without any does not have."""
    return getattr(made, "options", {})


def case(number: int) -> Verdict:
    chance = random.Random(number)
    word, spec = _spec(chance)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        spec = _spoiled(chance, spec) if spec else spec
    told = f"{word} {spec!r}"[:300]
    if _heavy(spec):
        return Verdict("right", told, "not tried: it would fill the memory")
    try:
        made = _create(word, spec)
    except TempplugError as error:
        # One line that can be printed.
        clear = str(error) and "\n" not in str(error) and len(str(error)) < 1000
        return Verdict("refused" if clear else "obscure", told, repr(error)[:300])
    except Exception as error:
        return Verdict("obscure", told, f"{type(error).__name__}: {str(error)[:200]}")
    if made is None:
        return Verdict("right", told, "several terms")
    again = _create(word, made.spec())
    if again.spec() != made.spec() or options(again) != options(made):
        return Verdict("wrong", told, f"{made.spec()} is read back as {again.spec()}")
    written = parse_spec(spec)[1]
    lost = [key for key, value in written.items() if not _same(value, options(made).get(key, value))]
    if lost:
        return Verdict("silent", told, f"{lost[0]} became {options(made)[lost[0]]!r}")
    return Verdict("right", told)


def _heavy(spec: str) -> bool:
    """Returns whether a spec asks for more numbers than a fuzzer should hold, and fewer than are refused."""
    try:
        options = parse_spec(spec)[1]
    except TempplugError:
        return False
    limits = {"size": (1e6, 1e10), "dimension": (1e3, 65536)}
    asked = {name: options[name] for name in limits if isinstance(options.get(name), int | float)}
    return any(limits[name][0] < number <= limits[name][1] for name, number in asked.items())


def _same(written: object, kept: object) -> bool:
    if isinstance(written, list) and isinstance(kept, tuple):
        return list(kept) == written
    return written == kept or format_value(written) == format_value(kept)
