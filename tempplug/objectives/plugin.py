"""Declarations of the built-in objectives; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins.hookspecs import hookimpl
from tempplug.plugins.info import ObjectiveInfo

# Of those that are not here, the formula is checked and nothing was measured; a test compares this with the committed results.
STATUS = {
    "infonce": "measured",
    "dcl": "measured",
    "reweighted": "measured",
}


def _info(name: str, target: str, summary: str, reference: str) -> ObjectiveInfo:
    status = STATUS.get(name, "implemented")
    return ObjectiveInfo(name=name, target=f"tempplug.objectives.{target}", summary=summary, reference=reference, status=status)


@hookimpl
def tempplug_register_objectives() -> list[ObjectiveInfo]:
    """Returns the built-in objectives."""
    return [
        _info("infonce", "infonce:InfoNCE", "cross-entropy of the positives (NT-Xent, SupCon)", "van den Oord et al. 2018"),
        _info("dcl", "dcl:DCL", "InfoNCE without the positive in the denominator", "Yeh et al. 2022 (DCL)"),
        _info("dclw", "dclw:DCLW", "DCL with weighted positives", "Yeh et al. 2022 (DCL), section 3"),
        _info("flatnce", "flatnce:FlatNCE", "value 1, gradient of DCL", "Chen et al. 2021 (FlatNCE)"),
        _info(
            "reweighted",
            "reweighted:Reweighted",
            "InfoNCE divided by its own gradient scale",
            "Huang et al. 2023 (MACL), eq. 11",
        ),
        _info(
            "dual-temperature",
            "dual_temperature:DualTemperature",
            "InfoNCE at one temperature, its gradient scale at another",
            "Zhang et al. 2022 (SimCo)",
        ),
        _info("amcl-top", "amcl_top:AMCLTop", "the most similar negatives' mean logit, for amcl", "Wang et al. 2024 (AMCL)"),
        _info(
            "sogclr", "sogclr:SogCLR", "denominators from moving averages, one for each example", "Yuan et al. 2022 (SogCLR)"
        ),
        _info(
            "sigmoid", "sigmoid:Sigmoid", "every pair by itself with a learned bias, no softmax", "Zhai et al. 2023 (SigLIP)"
        ),
    ]
