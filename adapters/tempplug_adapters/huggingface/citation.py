"""Formats the source of a strategy as BibTeX, for model cards; independent of what is trained."""

from __future__ import annotations

import re

from tempplug import Strategy


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
