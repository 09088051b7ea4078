"""Losses as published models have them, by name; the table is ``presets.toml`` beside this module. Importing loads no torch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError, unknown

if TYPE_CHECKING:
    from tempplug.loss import ContrastiveLoss


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The loss of one model.

    Attributes:
        parts: arguments of `tempplug.ContrastiveLoss`; without ``strategy`` the source states no temperature.
        batch: rows of one loss in the source; empty where it states none.
        needs: arguments of the call beside ``view_a`` and ``view_b``; ``scores`` for `tempplug.ContrastiveLoss.from_scores`.
        source: repository, commit and file, or paper and equation.
        note: what the source has beside this loss.
    """

    name: str
    parts: dict[str, Any]
    batch: str = ""
    needs: tuple[str, ...] = ()
    source: str
    note: str = ""

    def loss(self) -> str:
        """Returns the loss in one line of Python."""
        options = [f"{name}={value!r}" for name, value in self.parts.items() if name != "strategy"]
        strategy = [repr(self.parts["strategy"]) if "strategy" in self.parts else "strategy=..."]
        return f"ContrastiveLoss({', '.join(strategy + options)})".replace("'", '"')


def presets() -> list[Preset]:
    """Returns all presets, in order of the table."""
    table = tomllib.loads(files("tempplug").joinpath("presets.toml").read_text(encoding="utf-8"))
    loaded = []
    for name, entry in table.items():
        about = {field: entry.pop(field) for field in ("batch", "source", "note") if field in entry}
        loaded.append(Preset(name=name, needs=tuple(entry.pop("needs", ())), parts=entry, **about))
    return loaded


def preset(name: str, **changes: Any) -> ContrastiveLoss:
    """Returns the loss that a published model was trained with; ``tempplug presets`` lists them with their sources.

    The ``changes`` are arguments of `tempplug.ContrastiveLoss`, and win over those of the preset.

    Raises:
        UnknownNameError: there is no such preset; the message suggests the nearest.
        ConfigError: the source states no temperature and ``strategy`` is not given, or as of `tempplug.ContrastiveLoss`.

    >>> preset("gte", reduction="sum").layout.spec()
    'cross-view:directions=ab+aa+ba+bb,softmax=joint,hard=shared,in_batch=true,positives=row'
    """
    known = {entry.name: entry for entry in presets()}
    if name not in known:
        raise unknown("preset", name, known)
    parts = {**known[name].parts, **changes}
    if "strategy" not in parts:
        raise ConfigError(
            f"preset '{name}' has no strategy, because its source states no temperature ({known[name].source}): pass one, such "
            "as strategy='fixed:temperature=0.05'."
        )
    from tempplug.loss import ContrastiveLoss  # loads torch

    return ContrastiveLoss(**parts)
