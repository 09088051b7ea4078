"""An arm: one strategy with one objective, written ``STRATEGY[:options]+OBJECTIVE``, which is also what reports call it.

Options that are not written come from the recipe, so that ``macl+infonce`` means one thing in every suite: MACL as the method's
papers set it, under InfoNCE. Settings of the recipe that one arm alone has stand behind an ``@``: ``schedule+infonce@heads=3``.
This module must not know tasks or runs, and loads torch only to resolve specs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tempplug.arguments import parse_options
from tempplug.errors import ConfigError, UnknownNameError, nearest
from tempplug.options import format_spec, format_value, options_of
from tempplug.plugins import StrategyInfo, registry
from tempplug_adapters.contexts import filled
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.papers import PaperRow

# A plus sign belongs to a number (1e+3) unless a letter, the start of an objective's name, follows it.
_OBJECTIVE = re.compile(r"\+(?=[a-z])", re.IGNORECASE)
NO_OBJECTIVE = "none"
"""Behind the plus sign where a method has no softmax: AMCL has a form for SimSiam and Barlow Twins."""
_CONTROL = re.compile(r"control\((.+)\)")


@dataclass(frozen=True)
class Arm:
    """What is trained beside other arms.

    Attributes:
        label: ``STRATEGY[:options]+OBJECTIVE[@SETTING=VALUE,...]``; a plain name where nothing is contrasted; or
            ``control(LABEL)``, which is ``fixed`` at the mean temperature of that arm.
        reported: the rows of paper tables that it answers.
        changes: settings of the recipe that this arm alone has.
    """

    label: str
    reported: tuple[PaperRow, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contrasts(self) -> bool:
        """Whether it has a strategy and an objective of its own."""
        return bool(self.parts)

    @property
    def controlled(self) -> str:
        """Label of the arm that this one is the control of; empty where it is none.

        >>> Arm("control(macl+infonce)").controlled, Arm("macl+infonce").controlled
        ('macl+infonce', '')
        """
        found = _CONTROL.fullmatch(self.label)
        return found[1] if found else ""

    @property
    def parts(self) -> tuple[str, str] | tuple[()]:
        """The specs of strategy and objective as they are written; empty where nothing is contrasted, and of controls.

        >>> Arm("fixed:temperature=1e+3+dcl").parts
        ('fixed:temperature=1e+3', 'dcl')
        """
        if self.controlled:
            return ()
        strategy, *objectives = _OBJECTIVE.split(self.label.partition("@")[0], maxsplit=1)
        return (strategy, objectives[0]) if objectives else ()


class Specs(NamedTuple):
    """Strategy and objective of an arm, every option written out that does not come from the data; None where it has none."""

    strategy: str | None = None
    objective: str | None = None


UNTRAINED = Arm("untrained", changes={"num_train_epochs": 0})
"""What training begins with, random weights or pretrained ones: what training is worth."""


def arms(*labels: str, reported: Mapping[str, tuple[PaperRow, ...]] | None = None) -> tuple[Arm, ...]:
    """Returns arms.

    Args:
        *labels: ``STRATEGY[:options]+OBJECTIVE[@SETTING=VALUE,...]`` each.
        reported: rows of paper tables by label; none where the papers answer another question.
    """
    return tuple(Arm(label, (reported or {}).get(label, ()), split_changes(label)[1]) for label in labels)


def split_changes(text: str) -> tuple[str, dict[str, Any]]:
    """Returns what stands before the ``@`` of an arm or a task, and the settings behind it.

    Raises:
        ConfigError: there is nothing behind it, no ``SETTING=VALUE``, or a slash, which no name of a folder has.

    >>> split_changes("cifar10@num_train_epochs=400,optimizer=sgd")
    ('cifar10', {'num_train_epochs': 400, 'optimizer': 'sgd'})
    """
    name, at, rest = text.partition("@")
    if "/" in rest:
        raise ConfigError(f"'{text}' must have no slash behind its @.")
    return name, parse_options(rest.split(",")) if at else {}


def parse_arm(text: str, recipe: Recipe) -> Arm:
    """Returns the arm that ``STRATEGY[+OBJECTIVE][@SETTING=VALUE,...]`` means.

    Args:
        text: spec string of a strategy and, behind ``+``, of an objective, and settings of the recipe that it alone has.
        recipe: whose objective is taken where there is none.

    Raises:
        ConfigError: the strategy, the objective or a setting is empty or malformed, or it is a control, which follows from
            results.

    >>> parse_arm("macl:alpha=2", Recipe()).label, parse_arm("macl+dcl@seed=3", Recipe()).label
    ('macl:alpha=2+reweighted', 'macl+dcl@seed=3')
    """
    if Arm(text).controlled:
        raise ConfigError(f"arm '{text}' follows from the results of {Arm(text).controlled}: run that with --controls.")
    contrast, changes = split_changes(text)
    strategy, *objectives = _OBJECTIVE.split(contrast, maxsplit=1)
    if not strategy.strip():
        raise ConfigError(f"arm '{text}' must be STRATEGY or STRATEGY+OBJECTIVE, such as fixed:temperature=0.05+dcl.")
    objective = objectives[0] if objectives else recipe.loss.objective_of(strategy)
    return Arm(f"{strategy}+{objective}{text[len(contrast) :]}", changes=changes)


def resolve(arm: Arm, recipe: Recipe) -> Specs:
    """Returns what an arm means under a recipe.

    Args:
        arm: which one.
        recipe: of its profile.

    Raises:
        TempplugError: a spec names an unknown strategy, objective or option, or a value out of range.
    """
    if not arm.parts:
        return Specs()
    from tempplug import create_objective

    strategy, objective = arm.parts
    epochs = recipe.changed(**arm.changes).num_train_epochs
    resolved = _strategy(*filled(strategy, recipe.loss.temperatures), epochs)
    return Specs(resolved, None if objective == NO_OBJECTIVE else create_objective(objective).spec())


def _strategy(name: str, given: Mapping[str, Any], epochs: float) -> str:
    from tempplug import create_strategy

    options = options_of(registry().load(registry().get(StrategyInfo, name)))
    known = [each.name for each in options]
    if all(each.name in given for each in options if each.required):
        strategy = create_strategy(name, **given)
        strategy.set_length(epochs)
        return strategy.spec()
    # What the data decide, such as class counts, is known when they are read, and all options together are checked then.
    for key in given:
        if key not in known:
            raise UnknownNameError(f"strategy '{name}' has no option '{key}'.{nearest(key, known)} It has: {', '.join(known)}.")
    written = {}
    for each in options:
        if each.name in given or not each.required:
            value = given.get(each.name, each.default)
            if each.kind is not None:
                value = each.kind.check(f"{each.name}={format_value(value)} of strategy '{name}'", value)
            written[each.name] = value
    return format_spec(name, written)
