"""Prints the configuration of a loss when a training starts, to standard error, and formats a strategy's source as BibTeX."""

from __future__ import annotations

import re
import sys
from weakref import WeakSet

from torch import distributed, nn

from tempplug import ContrastiveLoss, Strategy
from tempplug.layouts import CrossView
from tempplug.negatives.base import joined_spec

_announced: WeakSet[nn.Module] = WeakSet()


def layout_of(loss: ContrastiveLoss) -> str:
    """Returns the name of a loss's layout, and whether it averages both directions; with other options its spec string."""
    layout = loss.layout
    if not isinstance(layout, CrossView) or layout.options == CrossView().options:
        return layout.name
    symmetric = layout.options == CrossView(directions="ab+ba", softmax="separate").options
    return f"{layout.name}, symmetric" if symmetric else layout.spec()


def announce(loss: ContrastiveLoss, name: str = "", note: str = "") -> None:
    """Prints the configuration of a loss, on the first process only; trainers call it when a training starts.

    Args:
        loss: the loss, after the length of the training was set, which may determine a schedule's period.
        name: name of the loss, if there are several.
        note: what else to say, a phrase.
    """
    _announced.add(loss)
    if distributed.is_available() and distributed.is_initialized() and distributed.get_rank():
        return
    negatives = f"negatives {joined_spec(loss.terms)}, " if loss.terms else ""
    said = f"strategy {loss.strategy.spec()}, objective {loss.objective.spec()}, {negatives}layout {layout_of(loss)}"
    text = (f"{name}: {said}" if name else said) + (f"; {note}" if note else "")
    bars = sys.modules.get("tqdm")  # if there is a progress bar, the line is printed above it
    if bars is None:
        print(text, file=sys.stderr, flush=True)
    else:
        bars.tqdm.write(text, file=sys.stderr)


def announce_once(loss: ContrastiveLoss, note: str = "") -> None:
    """Announces a loss that no trainer has announced; called by replacements of libraries' losses."""
    if loss not in _announced:
        announce(loss, note=note)


# The compiler calls it once, while it traces a loss, and treats the result as a constant.
announce_once._dynamo_marked_constant = True  # type: ignore[attr-defined]


def bibtex(strategy: Strategy) -> str:
    """Returns the source of a strategy as BibTeX, with authors, year and title if it lists them in that order."""
    authors, year, title = "", "", strategy.source or f"strategy '{strategy.name}'"
    if match := re.fullmatch(r"(?P<authors>[^,:]+ et al\.)(?: (?P<year>\d{4}))?, (?P<title>.+)", title):
        authors, year, title = match["authors"].replace(" et al.", " and others"), match["year"] or "", match["title"]
    # the place in the paper, such as an equation
    title, _, place = (re.sub(r", ((?:eqs?\.|algorithm|section) ?[\d.,\s-]+|[\d.]+)$", r"\0\1", title)).partition("\0")
    fields = {
        "title": title,
        "author": authors,
        "year": year,
        "note": f"{place}; " * bool(place) + f"strategy {strategy.name} of tempplug",
    }
    lines = [f"    {key} = {{{value}}}," for key, value in fields.items() if value]
    return "\n".join([f"@misc{{tempplug-{strategy.name},", *lines, "}"])
