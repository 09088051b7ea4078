"""Declarations of the built-in terms on negatives; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins.hookspecs import hookimpl
from tempplug.plugins.info import NegativeInfo


def _info(name: str, target: str, summary: str, reference: str) -> NegativeInfo:
    return NegativeInfo(
        name=name, target=f"tempplug.negatives.{target}", summary=summary, reference=reference, status="implemented"
    )


@hookimpl
def tempplug_register_negatives() -> list[NegativeInfo]:
    """Returns the built-in terms."""
    return [
        _info(
            "false-negatives",
            "false_negatives:FalseNegatives",
            "leaves out negatives more similar than the positive",
            "Zhang et al. 2025 (Qwen3 Embedding)",
        ),
        _info(
            "guide", "guide:Guide", "leaves out negatives that a guide model finds more similar", "Solatorio 2024 (GISTEmbed)"
        ),
        _info("same-key", "same_key:SameKey", "leaves out negatives with the key of their anchor", "identical texts"),
        _info("within-group", "same_key:WithinGroup", "leaves out negatives of other groups", "batches of several data sets"),
        _info("hardness", "hardness:Hardness", "weighs negatives by their similarity", "Lan et al. 2025 (LLaVE), eq. 5"),
        _info("log-q", "log_q:LogQ", "corrects for how often candidates are sampled", "Yi et al. 2019, eq. 4"),
        _info("debiased", "debiased:Debiased", "subtracts the share of false negatives", "Chuang et al. 2020, eq. 7"),
    ]
