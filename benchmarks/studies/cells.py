"""Cells, the settings in which a study trains, and what was measured in them.

Its results are files of JSON Lines, ``benchmarks/studies/NAME/results/PLAN/SET.jsonl``, that `studies.train_cells` writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from tempplug.arguments import parse_spec
from tempplug.errors import DataError

AT = 128
"""The batch that has the learning rate of a model."""
STARTS = ("vectors", "centred", "shifted", "random", "pretrained")
TARGETS = ("", "teacher", "half-teacher", "same-query")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """How a data set is trained on.

    Attributes:
        passes: over the pairs.
        batch: pairs of a step.
        noise: share of a batch's pairs that are copies of others of it with half of their words: false negatives.
        hard: whether every query has a hard negative.
        rate: Adam's for batches of `AT`; None: that of the model.
        start: ``vectors`` (pretrained), ``centred`` (the same minus their mean over the words of the training pairs, padding
            and unknown words being 0 as before), ``shifted`` (the same minus the mean embedding of the training pairs,
            padding and unknown words, too), ``pretrained`` (another model than word vectors) or ``random``, for word vectors
            normally distributed with their deviation.
        targets: shares of the candidates in each query's probability: none, which is all to its own document; ``teacher``, the
            softmax of the guide's similarities; ``half-teacher``, the mean of both; ``same-query``, the same for all documents
            of the batch with the same query.

    Raises:
        DataError: ``start`` or ``targets`` is none of these.
    """

    passes: int
    batch: int = AT
    noise: float = 0.0
    hard: bool = False
    start: str = "vectors"
    rate: float | None = None
    targets: str = ""

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise DataError(f"start={self.start!r} of a cell must be one of {', '.join(STARTS)}.")
        if self.targets not in TARGETS:
            raise DataError(f"targets={self.targets!r} of a cell must be one of {', '.join(filter(None, TARGETS))}, or empty.")


@dataclass(frozen=True)
class Measured:
    """The results of a cell of a data set, means over seeds, by arm: nDCG@10 × 100 on both, and mean temperatures.

    ``first_similarity`` is the mean cosine of negatives in the first batch.
    """

    data: str
    cell: Cell
    steps: float = 0.0
    held_out: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    temperature: dict[str, float] = field(default_factory=dict)
    first_similarity: float = 0.0

    def fixed(self, figures: Mapping[str, float]) -> list[tuple[float, float]]:
        """Returns ln τ and the figure of each fixed temperature, in ascending order."""
        of = ((parse_spec(spec), value) for spec, value in figures.items())
        return sorted((math.log(float(given["temperature"])), value) for (name, given), value in of if name == "fixed")

    def best(self) -> float:
        """Returns ln of the best temperature by held-out pairs."""
        found = self.fixed(self.held_out)
        place = max(range(len(found)), key=lambda each: found[each][1])
        if place in (0, len(found) - 1):
            return found[place][0]
        around, middle = found[place - 1 : place + 2], found[place][0]
        a, b, _ = np.polyfit([each for each, _ in around], [figure for _, figure in around], 2)
        return float(np.clip(-b / (2 * a), around[0][0], around[-1][0])) if a < 0 else middle

    def chosen(self, specs: Iterable[str]) -> str:
        """Returns the strategy that is best on held-out pairs."""
        return max(specs, key=lambda each: self.held_out[each])

    def loss(self, figure: float) -> float:
        """Returns a figure on the test collection in per cent of the best fixed temperature, minus 100."""
        best = self.chosen(spec for spec in self.held_out if parse_spec(spec)[0] == "fixed")
        return 100 * (figure / self.test[best] - 1)

    def at(self, log_temperature: float) -> float:
        """Returns the interpolated figure on the test collection at a fixed temperature."""
        temperatures, figures = zip(*self.fixed(self.test), strict=True)
        return float(np.interp(log_temperature, temperatures, figures))


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Returns the results of a file, without a last line that was not written to its end."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run_of(line: Mapping[str, Any]) -> tuple[Cell, str, int]:
    """Returns the cell, the strategy and the seed of a result; fields that the file lacks have their defaults."""
    known = {each.name: line[each.name] for each in fields(Cell) if each.name in line}
    return Cell(**known), line["strategy"], line["seed"]


def read_measured(files: Iterable[Path], seed: int | None = None) -> list[Measured]:
    """Returns the cells of data sets, one of each file, with the runs of one seed or of all."""
    found: list[Measured] = []
    for file in files:
        lines = [line for line in read_lines(file) if seed in (None, line["seed"])]
        for cell in dict.fromkeys(run_of(line)[0] for line in lines):
            of = [line for line in lines if run_of(line)[0] == cell]
            specs = dict.fromkeys(line["strategy"] for line in of)
            means = {
                name: {spec: fmean(line[name] for line in of if line["strategy"] == spec) for spec in specs}
                for name in ("held_out", "test", "temperature")
                if name in of[0]  # results of 2026-11-26 lack the last one
            }
            similarity = fmean(line.get("first_similarity", 0.0) for line in of)
            found.append(Measured(file.stem, cell, of[0]["steps"], **means, first_similarity=similarity))
    return found
