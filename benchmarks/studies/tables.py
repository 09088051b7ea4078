"""The tables of studies that trained in cells, by the kinds that the comments of a page name; see ``docs/measured.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from studies.advice_rule import tables as advice
from studies.all_factors.tables import factor_rows, follow_rows
from studies.cells import Measured, read_measured
from studies.centring import tables as centring
from studies.equal_budgets.tables import cell_rows, regret_rows
from studies.gains import batch_rows, start_rows
from studies.negatives.tables import negative_cell_rows, negative_rows
from studies.other_libraries.tables import step_rows
from studies.plans import plan_rows
from studies.temperature_law.tables import law_rows, loss_rows
from studies.temperature_rate_length import tables as rates
from studies.temperature_rate_length.effects import effect_rows
from studies.temperature_rate_length.strategies import strategy_rows
from studies.which_positives.tables import positive_rows
from tempplug.errors import DataError

STUDIES = Path(__file__).parent
LAW, CENTRED = ("temperature_law", "temperature_law_test"), ("centred", "centred_test")
RATES = ("rate_glove", "rate_distilled")
OTHER_RATES = ("rate_bert_whole", "rate_images", "rate_nodes")
FAIR, NEGATIVES, GUIDE = ("fair_test_centred",), ("which_negatives",), ("good_guide",)
"""Plans whose results a table has if its comment names no others."""


def cells_of(plans: Iterable[str]) -> list[Measured]:
    """Returns what was measured in the cells of plans, ``PLAN``, or ``PLAN/SET`` for one of its data sets; ``@SEED`` after it
    reads one seed instead of the mean of all.

    Raises:
        DataError: a plan has no results.
    """
    found: list[Measured] = []
    for each in plans:
        plan, _, seed = each.partition("@")
        files = sorted(STUDIES.glob(f"*/results/{plan}{'' if '/' in plan else '/*'}.jsonl"))
        if not files:
            raise DataError(f"there are no results of '{plan}' below {STUDIES}.")
        found += read_measured(files, int(seed) if seed else None)
    return found


def _of_plans(rows: Callable[..., list[list[str]]], plans: Sequence[str], others: str) -> list[list[str]]:
    """``[PLAN …]``: the rows of one table, given the cells of each of its plans or of other ones."""
    return rows(*(cells_of([plan]) for plan in others.split() or plans))


def _by_plan(rows: Callable[[Mapping[str, Sequence[Measured]]], list[list[str]]], others: str) -> list[list[str]]:
    """``[PLAN …]``: the rows of one table, given the cells by the name of the plan, by default of `RATES`."""
    return rows({plan: cells_of([plan]) for plan in others.split() or RATES})


TABLES: Mapping[str, Callable[[str], Sequence[Sequence[Any]]]] = {
    "law": partial(_of_plans, law_rows, LAW),
    "law-losses": partial(_of_plans, loss_rows, LAW),
    "factors": partial(_of_plans, factor_rows, ()),
    "follow": partial(_of_plans, follow_rows, ()),
    "regret": partial(_of_plans, regret_rows, FAIR),
    "regret-cells": partial(_of_plans, cell_rows, FAIR),
    "centred": partial(_of_plans, centring.gain_rows, CENTRED),
    "centred-losses": partial(_of_plans, centring.loss_rows, CENTRED),
    "unknown-words": partial(_of_plans, centring.unknown_rows, ("unknown_words",)),
    "target": partial(_of_plans, start_rows, ("target_probability_test",)),
    "batches": partial(_of_plans, batch_rows, ("batch",)),
    "negatives": partial(_of_plans, negative_rows, NEGATIVES),
    "negatives-cells": partial(_of_plans, negative_cell_rows, NEGATIVES),
    "guide": partial(_of_plans, negative_rows, GUIDE),
    "guide-cells": partial(_of_plans, negative_cell_rows, GUIDE),
    "rate-tries": partial(_by_plan, rates.try_rows),
    "rate-lengths": partial(_by_plan, rates.length_rows),
    "rate-earlier": partial(_by_plan, rates.earlier_rows),
    "rate-lines": partial(_by_plan, rates.line_rows),
    "rate-advised": partial(_by_plan, rates.advised_rows),
    "rate-follow": partial(_by_plan, rates.follow_rows),
    "rate-centring": partial(_by_plan, rates.centring_rows),
    "rate-similarity": partial(_by_plan, rates.similarity_rows),
    "rate-strategies": partial(_by_plan, strategy_rows),
    "rate-effects": partial(_by_plan, effect_rows),
    "rate-grid": partial(_by_plan, rates.grid_rows),
    "rate-choices": partial(_by_plan, rates.choice_rows),
    "positives": partial(_of_plans, positive_rows, ("teacher", "same_query")),
    "library-steps": lambda _: step_rows(),
    "advice-rules": lambda _: advice.rule_rows(advice.read()),
    "advice-telling": lambda _: advice.telling_rows(),
    "advice-answers": lambda _: advice.answer_rows(),
    "advice-gains": lambda _: advice.gain_rows(advice.read()),
    "plans": lambda _: plan_rows(STUDIES),
}
