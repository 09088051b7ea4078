"""Figures reported by papers (one JSON file per field), and the runs that reproduce their tables (``maps/``, TOML).

``sentence.json`` leaves out the transfer row of DySTreSS* in table 5 of DySTreSS, which equals that of table 11.
"""

from tempplug_benchmarks.papers.tables import Cell, Paper, PaperRow, PaperTables, load

__all__ = ["Cell", "Paper", "PaperRow", "PaperTables", "load"]
