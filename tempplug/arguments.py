"""Spec strings (``macl:alpha=2,threshold=0.8``) and the four flags for any argparse program. Needs no torch.

``--temperature-strategy SPEC [--temperature-args key=value ...] [--contrastive-objective SPEC] [--contrastive-negatives SPEC]``
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any

from tempplug.errors import ConfigError, quoted
from tempplug.plugins import NegativeInfo, ObjectiveInfo, StrategyInfo, registry

# A plus sign inside of a number, as in 1e+3, joins nothing.
_JOINED = re.compile(r"\+(?=\s*[a-z])", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_CALLED = re.compile(r"([a-z][a-z0-9-]*)\(", re.IGNORECASE)
# Python refuses to read integers of thousands of digits; as a number such a one is infinite.
_DIGITS = 400


def parse_value(text: str) -> Any:
    """Returns a number, true/false, none, a list (``450/270/162``; of one number, ``450/``) or the word itself.

    >>> parse_value("0.05"), parse_value("true"), parse_value("3/1"), parse_value("3/"), parse_value("shifted")
    (0.05, True, [3, 1], [3], 'shifted')
    """
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() and len(text) <= _DIGITS else float(text)
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    items = text.removesuffix("/").split("/")
    if all(_NUMBER.fullmatch(item) for item in items):
        return [parse_value(item) for item in items]
    return text


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Returns the options of ``key=value`` words, hyphens in keys as underscores; raises where a key is absent or twice.

    >>> parse_options(["alpha=2", "strict=true"])
    {'alpha': 2, 'strict': True}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not key or not value.strip():
            raise ConfigError(f"{quoted(pair)} is not an option: write key=value, such as alpha=0.5, and a list as 450/270.")
        if key in options:
            raise ConfigError(f"option {quoted(key)} is given twice.")
        options[key] = parse_value(value.strip())
    return options


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the options of a spec string; raises `ConfigError` where it has no name, or an option is malformed.

    >>> parse_spec("dystress:profile=shifted,shift=-0.4")
    ('dystress', {'profile': 'shifted', 'shift': -0.4})
    """
    if not isinstance(spec, str):
        raise ConfigError(f"{spec!r} is not a spec string such as 'macl:alpha=0.5'.")
    name, colon, rest = spec.partition(":")
    name = name.strip()
    if called := _CALLED.match(name):
        raise ConfigError(f"{quoted(spec)} is not a spec string: write {called[1]}:key=value; see `tempplug show {called[1]}`.")
    if _NUMBER.fullmatch(name):
        raise ConfigError(f"{quoted(spec)} is a number, not a spec string: a temperature is written fixed:temperature={name}.")
    if not name or (colon and not rest.strip()):
        raise ConfigError(f"{quoted(spec)} is not a spec string: write name or name:key=value,key=value.")
    return name, parse_options(rest.split(",")) if colon else {}


def split_specs(specs: str) -> list[str]:
    """Returns the spec strings that ``+`` joins.

    >>> split_specs("same-key+hardness:strength=1e+1")
    ['same-key', 'hardness:strength=1e+1']
    """
    return [spec.strip() for spec in _JOINED.split(specs)]


def merge_spec(spec: str, pairs: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Returns the name of a spec string and its options, with those of ``--temperature-args``; none may be given twice."""
    name, options = parse_spec(spec)
    added = parse_options(pairs)
    if twice := sorted(options.keys() & added.keys()):
        raise ConfigError(f"option '{twice[0]}' is given twice: in the spec string {quoted(spec)} and in --temperature-args.")
    return name, {**options, **added}


def add_temperature_arguments(parser: argparse.ArgumentParser, default: str | None = "fixed") -> argparse._ArgumentGroup:
    """Adds the four flags to a parser, each also spelled with underscores, and returns their group.

    The parsed namespace has ``temperature_strategy`` (str, by default ``default``), ``temperature_args`` (list of
    ``key=value``), ``contrastive_objective`` (str) and ``contrastive_negatives`` (str, None for no terms on negatives).
    `merge_spec` turns the first two into what `tempplug.create_strategy` takes; the others are as `tempplug.ContrastiveLoss`
    takes them.

    >>> parser = argparse.ArgumentParser()
    >>> group = add_temperature_arguments(parser)
    >>> flags = parser.parse_args(["--temperature-strategy", "macl:alpha=2", "--temperature-args", "threshold=0.8"])
    >>> merge_spec(flags.temperature_strategy, flags.temperature_args)
    ('macl', {'alpha': 2, 'threshold': 0.8})
    """
    group = parser.add_argument_group("temperature")
    spec = "name or name:key=value,... of a"
    options_of_one = "options of the strategy; `tempplug show NAME` lists them with their ranges"
    several = "or several joined by + (default: none); `tempplug list negatives` shows them"
    flags: list[tuple[str, str, dict[str, Any], str]] = [
        ("temperature-strategy", "SPEC", {"default": default}, f"{spec} temperature strategy; `tempplug list` shows them"),
        ("temperature-args", "KEY=VALUE", {"nargs": "*", "default": []}, options_of_one),
        ("contrastive-objective", "SPEC", {"default": "infonce"}, f"{spec} contrastive objective"),
        ("contrastive-negatives", "SPEC", {}, f"{spec} term on negatives, {several}"),
    ]
    kinds = {
        "temperature-strategy": StrategyInfo,
        "contrastive-objective": ObjectiveInfo,
        "contrastive-negatives": NegativeInfo,
    }
    for flag, metavar, options, meaning in flags:
        action: Any = group.add_argument(f"--{flag}", metavar=metavar, help=meaning, **options)
        if kind := kinds.get(flag):
            action.completer = lambda kind=kind, **_: [info.name for info in registry().all(kind)]
        # a flag of its own, as help would show a second spelling of the first
        spelling, suppressed = flag.replace("-", "_"), {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        group.add_argument(f"--{spelling}", dest=spelling, metavar=metavar, **{**options, **suppressed})
    return group
