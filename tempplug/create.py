"""From spec strings to strategies, objectives and terms on negatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from tempplug.arguments import parse_spec, split_specs
from tempplug.errors import ConfigError, UnknownNameError, nearest, quoted
from tempplug.negatives.base import NegativeTerm
from tempplug.objectives.base import Objective
from tempplug.options import build
from tempplug.plugins import NegativeInfo, ObjectiveInfo, StrategyInfo, registry
from tempplug.strategies.base import Strategy
from tempplug.types import LayoutName


def create_strategy(spec: str | float | Strategy, **options: Any) -> Strategy:
    """Returns the strategy that a spec string describes.

    The spec is ``name`` or ``name:key=value,key=value``, or the temperature of ``fixed``; an instance is returned as it is.
    Options given apart win over those of the spec string.

    Raises:
        UnknownNameError: no such strategy or option; the message suggests the nearest.
        ConfigError: an option is out of range, or the spec string is malformed.

    >>> create_strategy("macl:alpha=2,threshold=0.8", base_temperature=0.05).spec()
    'macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false'
    """
    if isinstance(spec, Strategy):
        _refuse(options, spec)
        return spec
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        spec, options = "fixed", {"temperature": spec, **options}
    created: Strategy = _create(StrategyInfo, spec, options)
    return created


def create_objective(spec: str | Objective, **options: Any) -> Objective:
    """Returns the objective that a spec string describes; arguments and errors as in `create_strategy`.

    >>> create_objective("dclw:sigma=0.25").spec()
    'dclw:sigma=0.25'
    """
    if isinstance(spec, Objective):
        _refuse(options, spec)
        return spec
    created: Objective = _create(ObjectiveInfo, spec, options)
    return created


def create_negatives(spec: str | NegativeTerm | Sequence[NegativeTerm] | None, **options: Any) -> list[NegativeTerm]:
    """Returns the terms on negatives that specs joined by ``+`` describe; a term or a list of terms as it is, none for None.

    Options may be given apart for a single term. Errors are those of `create_strategy`, also where a term is given twice.

    >>> [term.spec() for term in create_negatives("same-key+hardness:strength=9,of=in-batch")]
    ['same-key', 'hardness:strength=9,of=in-batch,blocks=none']
    """
    if spec is None:
        return []
    if not isinstance(spec, str):
        terms = list(spec) if isinstance(spec, Iterable) else [spec]
        for term in terms:
            _refuse(options, term)
            if not isinstance(term, NegativeTerm):
                raise ConfigError(f"negatives={term!r} must be a spec string such as 'false-negatives:margin=0.1', or a term.")
        return terms
    parts = split_specs(spec)
    if options and len(parts) > 1:
        raise ConfigError(f"options {', '.join(options)} cannot be given beside several terms, {quoted(spec)}.")
    created = [_create(NegativeInfo, term_spec, options) for term_spec in parts]
    names = [term.name for term in created]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"negative term '{twice[0]}' is given twice in {quoted(spec)}.")
    return created


def load_class(info: StrategyInfo | ObjectiveInfo | NegativeInfo) -> type[Strategy] | type[Objective] | type[NegativeTerm]:
    """Imports and returns the class that a declaration points to; errors as of `tempplug.plugins.Registry.load`.

    Raises:
        ConfigError: the target is of another kind, or has another name than its declaration.
    """
    target = registry().load(info)
    base = Strategy if isinstance(info, StrategyInfo) else Objective if isinstance(info, ObjectiveInfo) else NegativeTerm
    if not (isinstance(target, type) and issubclass(target, base)):
        raise ConfigError(
            f"{registry().describe(info)} must point to a subclass of tempplug.{base.__name__}, not to {target!r}."
        )
    # The class writes its own name into spec strings.
    if target.name != info.name:
        raise ConfigError(
            f"{registry().describe(info)} points to a class that calls itself '{target.name}': set name = '{info.name}' there."
        )
    return target


def message_of_unknown(arguments: Mapping[str, object]) -> str:
    """Returns the error for keyword arguments that are none of the loss."""
    name, value = next(iter(arguments.items()))
    if name in ("temperature", "tau", "scale", "logit_scale"):
        number = isinstance(value, int | float) and value != 0
        wanted = value if "scale" not in name else f"{1 / value:g}" if number else "1 / scale"  # type: ignore[operator]
        return f"{name}= is no argument of ContrastiveLoss: write ContrastiveLoss({wanted}) for a fixed temperature."
    known = ("strategy", "objective", "layout", "negatives", "symmetric", "reduction", "gather", "engine")
    return f"{name}= is no argument of ContrastiveLoss.{nearest(name, known)} Options of a strategy belong to its class."


def _argument_of(name: str) -> str | None:
    """Returns the argument of `tempplug.ContrastiveLoss` that a name belongs to."""
    kinds = {"strategy": StrategyInfo, "objective": ObjectiveInfo, "negatives": NegativeInfo}
    names = {argument: [info.name for info in registry().all(kind)] for argument, kind in kinds.items()}
    names["layout"] = list(get_args(LayoutName))
    return next((argument for argument, known in names.items() if name in known), None)


def _refuse(options: dict[str, Any], instance: object) -> None:
    if options:
        raise ConfigError(f"options {', '.join(options)} cannot be given beside a {type(instance).__name__} instance.")


def _create(kind: type[StrategyInfo | ObjectiveInfo | NegativeInfo], spec: Any, options: dict[str, Any]) -> Any:
    word = kind.word
    if not isinstance(spec, str):
        example = "'macl:alpha=0.5', a number" if kind is StrategyInfo else "'dclw:sigma=0.25'"
        raise ConfigError(
            f"{word}={spec!r} must be a spec string such as {example}, or an instance of tempplug.{word.capitalize()}."
        )
    name, written = parse_spec(spec)
    try:
        info = registry().get(kind, name)
    except UnknownNameError as error:
        if (argument := _argument_of(name)) is None:
            raise
        raise UnknownNameError(f"'{name}' is no {word}: pass it as {argument}='{name}'.") from error
    target = load_class(info)
    return build(target, word, name, {**written, **options})
