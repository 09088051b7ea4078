"""An arm: one strategy with one objective, and perhaps terms on negatives: ``STRATEGY[:options]+OBJECTIVE[+TERM...]``.

Options left out of the label take the recipe's values, so ``macl+infonce`` has the same meaning in every suite. Settings of the
recipe that only this arm changes follow an ``@``: ``schedule+infonce@heads=3``. Torch is imported only to resolve specs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tempplug.arguments import parse_options, parse_spec, split_specs
from tempplug.errors import ConfigError, UnknownNameError, listed, nearest
from tempplug.options import format_spec, format_value, options_of
from tempplug.plugins import NegativeInfo, ObjectiveInfo, StrategyInfo, registry
from tempplug_adapters.contexts import filled
from tempplug_adapters.training.recipe import Recipe
from tempplug_benchmarks.papers import PaperRow

NO_OBJECTIVE = "none"
"""The objective in labels of methods without a softmax: AMCL has a form for SimSiam and Barlow Twins."""
_CONTROL = re.compile(r"control\((.+)\)")


@dataclass(frozen=True)
class Arm:
    """One strategy and objective to train and compare with other arms.

    Attributes:
        label: ``STRATEGY[:options]+OBJECTIVE[+TERM...][@SETTING=VALUE,...]``; a plain name if the arm has no contrastive loss;
            or ``control(LABEL)``, which is ``fixed`` at the mean temperature of the arm with that label.
        reported: names of the rows in paper tables that this arm reproduces.
        changes: recipe settings that only this arm changes.
    """

    label: str
    reported: tuple[PaperRow, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contrasts(self) -> bool:
        """Whether the arm has a strategy and an objective."""
        return bool(self.parts)

    @property
    def controlled(self) -> str:
        """The label of the arm that this arm is the control of; empty if it is not a control.

        >>> Arm("control(macl+infonce)").controlled, Arm("macl+infonce").controlled
        ('macl+infonce', '')
        """
        found = _CONTROL.fullmatch(self.label)
        return found[1] if found else ""

    @property
    def parts(self) -> tuple[str, str] | tuple[()]:
        """The unresolved specs (strategy, objective); empty for controls and arms without a contrastive loss.

        >>> Arm("fixed:temperature=1e+3+dcl").parts
        ('fixed:temperature=1e+3', 'dcl')
        """
        if self.controlled:
            return ()
        strategy, *others = split_specs(self.label.partition("@")[0])
        return (strategy, others[0]) if others else ()

    @property
    def negatives(self) -> str | None:
        """The unresolved spec of the terms on negatives; None if the arm has none.

        >>> Arm("macl+dcl+same-key+hardness:strength=9@seed=3").negatives
        'same-key+hardness:strength=9'
        """
        return None if self.controlled else "+".join(split_specs(self.label.partition("@")[0])[2:]) or None

    @property
    def installed(self) -> bool:
        """Whether its strategy, if it has one, is built in or of an installed plugin; that of a stored result may be neither.

        >>> Arm("macl+infonce").installed, Arm("untrained").installed, Arm("theirs:x=1+infonce").installed
        (True, True, False)
        """
        return not self.parts or parse_spec(self.parts[0])[0] in {info.name for info in registry().all(StrategyInfo)}


class Specs(NamedTuple):
    """The resolved strategy, objective and terms on negatives of an arm, with every option that does not depend on the data;
    None if it has none.
    """

    strategy: str | None = None
    objective: str | None = None
    negatives: str | None = None

    def given(self) -> dict[str, str | None]:
        """Returns the specs by name; negatives only where there are terms, so that others are as they always were."""
        found = self._asdict()
        return found if self.negatives else {name: found[name] for name in ("strategy", "objective")}


UNTRAINED = Arm("untrained", changes={"num_train_epochs": 0})
"""The model before training, with random or pretrained weights."""


def arms(*labels: str, reported: Mapping[str, tuple[PaperRow, ...]] | None = None) -> tuple[Arm, ...]:
    """Returns one arm for each label; ``reported`` maps labels to rows of paper tables."""
    return tuple(Arm(label, (reported or {}).get(label, ()), split_changes(label)[1]) for label in labels)


def split_changes(text: str) -> tuple[str, dict[str, Any]]:
    """Splits ``NAME@SETTING=VALUE,...`` into the name and its settings; raises `ConfigError` for malformed settings.

    >>> split_changes("cifar10@num_train_epochs=400,optimizer=sgd")
    ('cifar10', {'num_train_epochs': 400, 'optimizer': 'sgd'})
    """
    name, at, rest = text.partition("@")
    if "/" in rest:
        raise ConfigError(f"'{text}' must have no slash behind its @.")
    return name, parse_options(rest.split(",")) if at else {}


def format_settings(settings: Mapping[str, Any]) -> str:
    """Returns settings as text.

    >>> format_settings({"num_train_epochs": 400.0, "bf16": True})
    'num_train_epochs=400, bf16=true'
    """
    return ", ".join(f"{name}={format_value(value)}" for name, value in settings.items())


def parse_arm(text: str, recipe: Recipe) -> Arm:
    """Parses ``STRATEGY[+OBJECTIVE][+TERM...][@SETTING=VALUE,...]``.

    Args:
        text: a strategy spec, optionally followed by an objective spec, terms on negatives and recipe settings for this arm.
        recipe: supplies the objective if ``text`` has none.

    Raises:
        ConfigError: the strategy, the objective or a setting is empty or malformed, or ``text`` names a control, which can
            only be derived from results.

    >>> parse_arm("macl:alpha=2", Recipe()).label, parse_arm("macl+dcl@seed=3", Recipe()).label
    ('macl:alpha=2+reweighted', 'macl+dcl@seed=3')
    """
    if Arm(text).controlled:
        raise ConfigError(f"arm '{text}' follows from the results of {Arm(text).controlled}: run that with --controls.")
    contrast, changes = split_changes(text)
    strategy, *others = split_specs(contrast)
    if not strategy.strip():
        raise ConfigError(f"arm '{text}' must be STRATEGY or STRATEGY+OBJECTIVE, such as fixed:temperature=0.05+dcl.")
    objectives, terms = ({info.name for info in registry().all(kind)} for kind in (ObjectiveInfo, NegativeInfo))
    if not others or parse_spec(others[0])[0] in terms - objectives:
        others.insert(0, recipe.loss.objective_of(strategy))
    return Arm("+".join([strategy, *others]) + text[len(contrast) :], changes=changes)


def resolve(arm: Arm, recipe: Recipe) -> Specs:
    """Resolves the strategy, the objective and the terms of an arm under the recipe of its profile.

    Raises:
        TempplugError: a strategy, an objective, a term or an option is unknown, or a value is out of range.
    """
    if not arm.parts:
        return Specs()
    from tempplug import create_negatives
    from tempplug.negatives.base import joined_spec

    strategy, objective = arm.parts
    epochs = recipe.changed(**arm.changes).num_train_epochs
    resolved = _spec(StrategyInfo, *filled(strategy, recipe.loss.temperatures), epochs)
    negatives = joined_spec(create_negatives(arm.negatives or recipe.loss.negatives))
    of_objective = None if objective == NO_OBJECTIVE else _spec(ObjectiveInfo, *parse_spec(objective), epochs)
    return Specs(resolved, of_objective, negatives)


def _spec(kind: type[StrategyInfo | ObjectiveInfo], name: str, given: Mapping[str, Any], epochs: float) -> str:
    from tempplug import create_objective, create_strategy

    options = options_of(registry().load(registry().get(kind, name)))
    known = [each.name for each in options]
    if all(each.name in given for each in options if each.required):
        made = create_strategy(name, **given) if kind is StrategyInfo else create_objective(name, **given)
        made.set_length(epochs)
        return made.spec()
    # Options that depend on the data, such as class counts, are checked after the data have been read.
    for key in given:
        if key not in known:
            raise UnknownNameError(f"{kind.word} '{name}' has no option '{key}'.{nearest(key, known)} It has: {listed(known)}.")
    written = {}
    for each in options:
        if each.name in given or not each.required:
            value = given.get(each.name, each.default)
            if each.kind is not None:
                value = each.kind.check(f"{each.name}={format_value(value)} of {kind.word} '{name}'", value)
            written[each.name] = value
    return format_spec(name, written)
