"""Figures that papers report, as printed (one JSON file a field), and the runs that answer their tables (``maps/``, TOML).

``sentence.json`` leaves out the transfer row of DySTreSS* in table 5 of DySTreSS, which equals that of table 11.
"""

from tempplug_benchmarks.papers.tables import Cell, Paper, PaperRow, PaperTables, load

__all__ = ["Cell", "Paper", "PaperRow", "PaperTables", "load"]
