"""The doors of tempplug: hook specifications, declarations and the registry. Imports no torch."""

from tempplug.plugins.info import AdapterInfo, CommandInfo, NegativeInfo, ObjectiveInfo, StrategyInfo, SuiteInfo, hookimpl
from tempplug.plugins.manager import Registry, registry

__all__ = [
    "AdapterInfo",
    "CommandInfo",
    "NegativeInfo",
    "ObjectiveInfo",
    "Registry",
    "StrategyInfo",
    "SuiteInfo",
    "hookimpl",
    "registry",
]
