"""tempplug: every published temperature strategy for contrastive losses, behind one name.

``import tempplug`` loads no torch; the names below are imported on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tempplug import (
        metrics as metrics,
        negatives as negatives,
        objectives as objectives,
        strategies as strategies,
        testing as testing,
    )
    from tempplug.arguments import add_temperature_arguments as add_temperature_arguments
    from tempplug.create import (
        create_negatives as create_negatives,
        create_objective as create_objective,
        create_strategy as create_strategy,
    )
    from tempplug.gradient_cache import cached_backward as cached_backward
    from tempplug.layouts import CrossView as CrossView, Labels as Labels, Masks as Masks, Queue as Queue, TwoView as TwoView
    from tempplug.loss import ContrastiveLoss as ContrastiveLoss
    from tempplug.negatives.base import NegativeTerm as NegativeTerm, Pairs as Pairs
    from tempplug.negatives.debiased import Debiased as Debiased
    from tempplug.negatives.false_negatives import FalseNegatives as FalseNegatives
    from tempplug.negatives.guide import Guide as Guide
    from tempplug.negatives.hardness import Hardness as Hardness
    from tempplug.negatives.log_q import LogQ as LogQ
    from tempplug.negatives.same_key import SameKey as SameKey, WithinGroup as WithinGroup
    from tempplug.objectives.amcl_top import AMCLTop as AMCLTop
    from tempplug.objectives.base import Objective as Objective
    from tempplug.objectives.dcl import DCL as DCL
    from tempplug.objectives.dclw import DCLW as DCLW
    from tempplug.objectives.dual_temperature import DualTemperature as DualTemperature
    from tempplug.objectives.flatnce import FlatNCE as FlatNCE
    from tempplug.objectives.infonce import InfoNCE as InfoNCE
    from tempplug.objectives.reweighted import Reweighted as Reweighted
    from tempplug.objectives.sigmoid import Sigmoid as Sigmoid
    from tempplug.objectives.sogclr import SogCLR as SogCLR
    from tempplug.preset_losses import preset as preset, presets as presets
    from tempplug.search import SearchSpace as SearchSpace, search_space as search_space
    from tempplug.strategies.amcl import AMCL as AMCL
    from tempplug.strategies.base import Strategy as Strategy
    from tempplug.strategies.by_group import ByGroup as ByGroup
    from tempplug.strategies.dystress import DySTreSS as DySTreSS
    from tempplug.strategies.fixed import Fixed as Fixed
    from tempplug.strategies.head_tail import HeadTail as HeadTail
    from tempplug.strategies.individual import Individual as Individual
    from tempplug.strategies.learnable import Learnable as Learnable
    from tempplug.strategies.macl import MACL as MACL
    from tempplug.strategies.maps import LogitMap as LogitMap
    from tempplug.strategies.mm_ts import MMTS as MMTS
    from tempplug.strategies.schedule import Schedule as Schedule
    from tempplug.strategies.temperature_free import TemperatureFree as TemperatureFree
    from tempplug.strategies.tempnet import TempNet as TempNet
    from tempplug.strategies.uncertainty import Uncertainty as Uncertainty
    from tempplug.term_map import TermMap as TermMap, WeightMap as WeightMap
    from tempplug.types import Batch as Batch, RowStatistics as RowStatistics, StepRecord as StepRecord

_MODULES = ("metrics", "negatives", "objectives", "strategies", "testing")
_NAMES = {
    "tempplug.arguments": ("add_temperature_arguments",),
    "tempplug.create": ("create_negatives", "create_objective", "create_strategy"),
    "tempplug.layouts": ("CrossView", "Labels", "Masks", "Queue", "TwoView"),
    "tempplug.loss": ("ContrastiveLoss",),
    "tempplug.negatives.base": ("NegativeTerm", "Pairs"),
    "tempplug.negatives.debiased": ("Debiased",),
    "tempplug.negatives.false_negatives": ("FalseNegatives",),
    "tempplug.negatives.guide": ("Guide",),
    "tempplug.negatives.hardness": ("Hardness",),
    "tempplug.negatives.log_q": ("LogQ",),
    "tempplug.negatives.same_key": ("SameKey", "WithinGroup"),
    "tempplug.objectives.amcl_top": ("AMCLTop",),
    "tempplug.objectives.base": ("Objective",),
    "tempplug.objectives.dcl": ("DCL",),
    "tempplug.objectives.dclw": ("DCLW",),
    "tempplug.objectives.dual_temperature": ("DualTemperature",),
    "tempplug.objectives.flatnce": ("FlatNCE",),
    "tempplug.objectives.infonce": ("InfoNCE",),
    "tempplug.objectives.reweighted": ("Reweighted",),
    "tempplug.objectives.sigmoid": ("Sigmoid",),
    "tempplug.objectives.sogclr": ("SogCLR",),
    "tempplug.preset_losses": ("preset", "presets"),
    "tempplug.search": ("SearchSpace", "search_space"),
    "tempplug.strategies.amcl": ("AMCL",),
    "tempplug.strategies.base": ("Strategy",),
    "tempplug.strategies.by_group": ("ByGroup",),
    "tempplug.strategies.dystress": ("DySTreSS",),
    "tempplug.strategies.fixed": ("Fixed",),
    "tempplug.strategies.head_tail": ("HeadTail",),
    "tempplug.strategies.individual": ("Individual",),
    "tempplug.strategies.learnable": ("Learnable",),
    "tempplug.strategies.macl": ("MACL",),
    "tempplug.strategies.maps": ("LogitMap",),
    "tempplug.strategies.mm_ts": ("MMTS",),
    "tempplug.strategies.schedule": ("Schedule",),
    "tempplug.strategies.tempnet": ("TempNet",),
    "tempplug.strategies.temperature_free": ("TemperatureFree",),
    "tempplug.strategies.uncertainty": ("Uncertainty",),
    "tempplug.term_map": ("TermMap", "WeightMap"),
    "tempplug.gradient_cache": ("cached_backward",),
    "tempplug.types": ("Batch", "RowStatistics", "StepRecord"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = sorted((*_HOMES, *_MODULES, "__version__"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tempplug.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tempplug' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
