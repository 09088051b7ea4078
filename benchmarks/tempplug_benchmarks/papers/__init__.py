"""Figures that papers report, transcribed and quoted with their source: paper, table, method, metric.

One JSON file a field of research; `load` reads it. ``sentence.json`` has MACL's tables 3, B.4 (its STS half) and B.5, and
DySTreSS's tables 5 (without the transfer row of DySTreSS*, which equals that of table 11) and 11. Figures stand as printed;
where a printed average is not the mean of its row, the cell's note says so.
"""

from tempplug_benchmarks.papers.tables import Cell, Paper, PaperRow, PaperTables, load

__all__ = ["Cell", "Paper", "PaperRow", "PaperTables", "load"]
