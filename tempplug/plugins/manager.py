"""The registry: finds strategies, objectives, adapters, suites and commands by name. Imports no torch.

Built-ins resolve without scanning entry points. Entry points of the group ``tempplug`` load once, each in its own
``try``: a broken plugin becomes a warning and a line in later errors, never a crash. Names in
``TEMPPLUG_DISABLE_PLUGINS`` (comma-separated) are left out.
"""

from __future__ import annotations

import importlib
import os
import warnings
from importlib.metadata import entry_points
from typing import Any, TypeVar

import pluggy

from tempplug.errors import DuplicateNameError, MissingDependencyError, UnknownNameError, nearest
from tempplug.plugins import hookspecs
from tempplug.plugins.info import AdapterInfo, CommandInfo, Info, ObjectiveInfo, StrategyInfo, SuiteInfo

BUILT_IN = ("tempplug.strategies.plugin", "tempplug.objectives.plugin")
HOOKS: dict[type[Info], str] = {
    StrategyInfo: "tempplug_register_strategies",
    ObjectiveInfo: "tempplug_register_objectives",
    AdapterInfo: "tempplug_register_adapters",
    SuiteInfo: "tempplug_register_suites",
    CommandInfo: "tempplug_register_commands",
}
WORDS: dict[type[Info], str] = {
    StrategyInfo: "strategy",
    ObjectiveInfo: "objective",
    AdapterInfo: "adapter",
    SuiteInfo: "suite",
    CommandInfo: "command",
}
InfoType = TypeVar("InfoType", bound=Info)


class Registry:
    """Names to declarations to objects, from the built-ins and from every installed plugin."""

    def __init__(self) -> None:
        self._plugins = pluggy.PluginManager(hookspecs.PROJECT)
        self._plugins.add_hookspecs(hookspecs)
        self._entry_points_loaded = False
        self._faults: list[str] = []
        for module in BUILT_IN:
            self._plugins.register(importlib.import_module(module), name=module)

    def all(self, kind: type[InfoType]) -> list[InfoType]:
        """Returns every declaration of a kind, built-ins first, then plugins, each in order of declaration."""
        self._load_entry_points()
        return [info for infos in self._collect(kind).values() for _, info in infos]

    def get(self, kind: type[InfoType], name: str) -> InfoType:
        """Returns the declaration of that name.

        Raises:
            UnknownNameError: nobody offers it; the nearest name and the plugins that failed to load are in the message.
            DuplicateNameError: two plugins offer it.
        """
        found = self._collect(kind).get(name)
        if found is None:
            self._load_entry_points()
            found = self._collect(kind).get(name)
        if found is None:
            known = list(self._collect(kind))
            word = WORDS[kind]
            raise UnknownNameError(
                f"unknown {word} '{name}'.{nearest(name, known)} Known: {', '.join(sorted(known)) or 'none'}."
                + "".join(f" {fault}" for fault in self._faults)
            )
        if len(found) > 1:
            plugins = " and ".join(f"'{plugin}'" for plugin, _ in found)
            raise DuplicateNameError(
                f"{WORDS[kind]} '{name}' is offered by the plugins {plugins}: "
                "disable one with TEMPPLUG_DISABLE_PLUGINS or uninstall it."
            )
        return found[0][1]

    def load(self, info: Info) -> Any:
        """Imports and returns the object that a declaration points to.

        Raises:
            MissingDependencyError: a framework that it requires is not installed; the message has the pip command.
        """
        module, _, attribute = info.target.partition(":")
        try:
            loaded = importlib.import_module(module)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in info.requires:
                raise
            wanted = f"{info.distribution}[{info.extra}]" if info.extra else missing
            raise MissingDependencyError(
                f"'{info.name}' needs the package '{missing}', which is not installed: pip install '{wanted}'."
            ) from error
        return getattr(loaded, attribute) if attribute else loaded

    def log(self, record: Any) -> None:
        """Hands the record of a step to every plugin that implements ``tempplug_log``."""
        self._load_entry_points()
        self._plugins.hook.tempplug_log(record=record)

    def register(self, plugin: object, name: str) -> None:
        """Adds a plugin object or module by hand, for programs that do not install one."""
        self._plugins.register(plugin, name=name)

    def _collect(self, kind: type[InfoType]) -> dict[str, list[tuple[str, InfoType]]]:
        found: dict[str, list[tuple[str, InfoType]]] = {}
        implementations = getattr(self._plugins.hook, HOOKS[kind]).get_hookimpls()
        for implementation in sorted(implementations, key=lambda each: each.plugin_name not in BUILT_IN):
            plugin = implementation.plugin_name
            try:
                infos = list(implementation.function())
            except Exception as error:
                self._fault(f"The plugin '{plugin}' failed in {HOOKS[kind]}: {error!r}.")
                continue
            for info in infos:
                owners = found.setdefault(info.name, [])
                if owners and owners[0][0] in BUILT_IN:
                    self._fault(f"The plugin '{plugin}' offers '{info.name}', a built-in name: its declaration is ignored.")
                else:
                    owners.append((plugin, info))
        return found

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        disabled = {name.strip() for name in os.environ.get("TEMPPLUG_DISABLE_PLUGINS", "").split(",")}
        for entry_point in entry_points(group=hookspecs.PROJECT):
            if entry_point.name in disabled or self._plugins.has_plugin(entry_point.name):
                continue
            try:
                self._plugins.register(entry_point.load(), name=entry_point.name)
            except Exception as error:
                self._fault(f"The plugin '{entry_point.name}' could not be loaded: {error!r}.")

    def _fault(self, message: str) -> None:
        if message not in self._faults:
            self._faults.append(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)


_registry: Registry | None = None


def registry() -> Registry:
    """Returns the registry of this process, made on first use."""
    global _registry
    if _registry is None:
        _registry = Registry()
    return _registry
