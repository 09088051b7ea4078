"""A strategy's source as BibTeX, for model cards. It must not know what is trained."""

from __future__ import annotations

import re

from tempplug import Strategy


def bibtex(strategy: Strategy) -> str:
    """Returns the source that a strategy names as BibTeX: authors, year and title where it is written in that order."""
    authors, year, title = "", "", strategy.source or f"strategy '{strategy.name}'"
    if match := re.fullmatch(r"(?P<authors>[^,:]+ et al\.)(?: (?P<year>\d{4}))?, (?P<title>.+)", title):
        authors, year, title = match["authors"].replace(" et al.", " and others"), match["year"] or "", match["title"]
    # where in the paper it stands
    title, _, place = (re.sub(r", ((?:eqs?\.|algorithm|section) ?[\d.,\s-]+|[\d.]+)$", r"\0\1", title)).partition("\0")
    fields = {
        "title": title,
        "author": authors,
        "year": year,
        "note": f"{place}; " * bool(place) + f"strategy {strategy.name} of tempplug",
    }
    lines = [f"    {key} = {{{value}}}," for key, value in fields.items() if value]
    return "\n".join([f"@misc{{tempplug-{strategy.name},", *lines, "}"])
