"""Declarations of the built-in strategies; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins.hookspecs import hookimpl
from tempplug.plugins.info import StrategyInfo

# Of those that are not here, the formula is checked and nothing was measured; a test compares this with the committed results.
STATUS = {
    "fixed": "measured",
    "learnable": "measured",
    "dystress": "measured",
    "schedule": "measured",
    "head-tail": "measured",
    "amcl": "measured",
    "macl": "reproduced",
    "temperature-free": "reproduced",
}


def _info(name: str, target: str, summary: str, reference: str) -> StrategyInfo:
    status = STATUS.get(name, "implemented")
    return StrategyInfo(name=name, target=f"tempplug.strategies.{target}", summary=summary, reference=reference, status=status)


@hookimpl
def tempplug_register_strategies() -> list[StrategyInfo]:
    """Returns the built-in strategies."""
    return [
        _info("fixed", "fixed:Fixed", "one temperature for every pair", "Chen et al. 2020 (SimCLR)"),
        _info("learnable", "learnable:Learnable", "one learned temperature", "Radford et al. 2021 (CLIP)"),
        _info("macl", "macl:MACL", "follows the mean similarity of the positives", "Huang et al. 2023 (MACL), eq. 7"),
        _info("dystress", "dystress:DySTreSS", "a function of each pair's similarity", "DySTreSS, Algorithms 1 and 2"),
        _info(
            "temperature-free",
            "temperature_free:TemperatureFree",
            "scaled log-odds 2·atanh(s) in place of a division",
            "Temperature-Free InfoNCE, eqs. 11-12",
        ),
        _info("schedule", "schedule:Schedule", "oscillates over the epochs", "Kukleva et al. 2023 (Temperature Schedules)"),
        _info(
            "head-tail",
            "head_tail:HeadTail",
            "one temperature for frequent classes, one for rare ones",
            "Kukleva et al. 2023 (Temperature Schedules), section 3.3",
        ),
        _info("amcl", "amcl:AMCL", "learned for every pair, with several heads", "Wang et al. 2024 (AMCL)"),
        _info(
            "individual",
            "individual:Individual",
            "learned for every example of the data set",
            "Qiu et al. 2023 (iSogCLR)",
        ),
        _info(
            "uncertainty",
            "uncertainty:Uncertainty",
            "divided by each anchor's learned confidence",
            "Zhang et al. 2021 (Temperature as Uncertainty)",
        ),
        _info("tempnet", "tempnet:TempNet", "chosen by a network from each anchor's embedding", "Qiu et al. 2024 (TempNet)"),
        _info(
            "mm-ts", "mm_ts:MMTS", "a schedule for each example, by the size of its cluster", "Sheludzko et al. 2026 (MM-TS)"
        ),
    ]
