"""The registry: finds strategies, objectives, adapters, suites and commands by name. Imports no torch.

Built-ins resolve without scanning entry points. Entry points of the group ``tempplug`` load once; a broken one becomes a
`RuntimeWarning` and a line in later errors. ``TEMPPLUG_DISABLE_PLUGINS`` (names, comma-separated) leaves some out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from tempplug import __version__
from tempplug.errors import (
    ConfigError,
    DuplicateNameError,
    MissingDependencyError,
    TempplugError,
    UnknownNameError,
    install_command,
    unknown,
)
from tempplug.plugins import info as declarations
from tempplug.plugins.info import PROJECT, CommandInfo, Info, InfoType, StrategyInfo

BUILT_IN = ("tempplug.plugin",)
# What the ``tempplug`` command does itself: a plugin's command cannot begin with these words.
OWN_COMMANDS = ("list", "show", "plugins")
DISABLE = "TEMPPLUG_DISABLE_PLUGINS"
# What was built in once: why it is unknown, and what has it now.
MOVED: dict[tuple[type[Info], str], str] = {
    (
        StrategyInfo,
        "target-probability",
    ): "strategy 'target-probability' is no longer built in, since no measurement advises it. "
    "It is the plugin of its study: pip install ./benchmarks/studies/target_probability in the folder of tempplug.",
}
KINDS: dict[str, type[Info]] = {kind.plural: kind for kind in Info.__subclasses__()}


@dataclass(frozen=True)
class Plugin:
    """A plugin and what it registers.

    Attributes:
        name: of the entry point, which ``TEMPPLUG_DISABLE_PLUGINS`` takes, or the one given at registration by hand.
        distribution: its name and version, empty where the plugin was registered by hand.
        declared: the declared names by kind; none where the plugin is disabled or broken.
        logs: whether it receives the records of training steps.
        disabled: whether the environment leaves it out.
        loaded: whether it could be loaded.
    """

    name: str
    distribution: str
    declared: Mapping[type[Info], Sequence[str]]
    logs: bool = False
    disabled: bool = False
    loaded: bool = True


class Registry:
    """Names to declarations to objects, from the built-ins and from every installed plugin."""

    def __init__(self) -> None:
        self._plugins = pluggy.PluginManager(PROJECT)
        self._plugins.add_hookspecs(declarations)
        self._entry_points_loaded = False
        self._entry_points: dict[str, EntryPoint] = {}
        self._disabled: set[str] = set()
        self._declared: dict[type[Info], dict[str, list[tuple[str, Any]]]] = {kind: {} for kind in KINDS.values()}
        self._asked: set[tuple[str, str]] = set()
        self._faults: list[str] = []
        self._warned = 0
        for module in BUILT_IN:
            self._plugins.register(importlib.import_module(module), name=module)

    def all(self, kind: type[InfoType]) -> list[InfoType]:
        """Returns every declaration of a kind, built-ins first, then plugins, each in order of declaration."""
        self._load_entry_points()
        by_name = self._collect(kind)
        self._warn()
        return [info for infos in by_name.values() for _, info in infos]

    def get(self, kind: type[InfoType], name: str) -> InfoType:
        """Returns the declaration of that name.

        Raises:
            UnknownNameError: no plugin offers it; the nearest name and the plugins that failed to load are in the message.
            DuplicateNameError: two plugins offer it.
        """
        by_name = self._collect(kind)
        if name not in by_name:
            self._load_entry_points()
            by_name = self._collect(kind)
        self._warn()
        if name not in by_name and (kind, name) in MOVED:
            raise UnknownNameError("\n".join([MOVED[kind, name], *self._faults]))
        if name not in by_name:
            raise unknown(kind.word, name, sorted(by_name), faults=self._faults)
        offers = by_name[name]
        if len(offers) > 1:
            plugins = " and ".join(f"'{plugin}'" for plugin, _ in offers)
            raise DuplicateNameError(
                f"{kind.word} '{name}' is offered by the plugins {plugins}: disable one with {DISABLE} or uninstall it."
            )
        return offers[0][1]

    def load(self, info: Info) -> Any:
        """Imports and returns the object that a declaration points to.

        Raises:
            MissingDependencyError: a framework that it requires is not installed, or not in a version that fits; the
                message has the pip command and the cause.
            ConfigError: the target does not exist or fails on import; the message names the plugin and the cause.
        """
        module, _, attribute = info.target.partition(":")
        try:
            with self.explaining(info):
                loaded = importlib.import_module(module)
                return getattr(loaded, attribute) if attribute else loaded
        except TempplugError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{self.describe(info)} cannot be loaded from '{info.target}': {type(error).__name__}: {error}"
            ) from error

    @contextmanager
    def explaining(self, info: Info) -> Iterator[None]:
        """Raises `MissingDependencyError`, with the pip command, for an `ImportError` of the block of a missing framework."""
        try:
            yield
        except TempplugError:
            raise
        except ImportError as error:
            package = _absent(info, error)
            if not package:
                raise
            raise MissingDependencyError(_missing(info, package, error)) from error

    def check_installed(self, info: Info) -> None:
        """Raises `MissingDependencyError`, with the pip command, where a declaration's framework is absent; imports nothing."""
        package = next((name for name in info.requires if not _installed(name)), "")
        if package:
            raise MissingDependencyError(_missing(info, package))

    def log(self, record: Any) -> None:
        """Hands the record of a step to every plugin that implements ``tempplug_log``; one that raises is left out later."""
        self._load_entry_points()
        for implementation in self._plugins.hook.tempplug_log.get_hookimpls():
            plugin = implementation.plugin_name
            if (plugin, "tempplug_log") in self._asked:
                continue
            try:
                # pluggy lets an implementation leave out arguments that it does not need
                implementation.function(*(record for _ in implementation.argnames))
            except (Exception, SystemExit) as error:
                self._asked.add((plugin, "tempplug_log"))
                self._fault(plugin, f"failed in tempplug_log and gets no further records: {error!r}")
        self._warn()

    def register(self, plugin: object, name: str) -> None:
        """Adds a plugin object or module by hand; `ConfigError` for a name that is taken, or hooks that do not fit."""
        try:
            self._register(plugin, name)
        except Exception as error:
            raise ConfigError(f"the plugin '{name}' cannot be registered: {error}") from error

    def describe(self, info: Info) -> str:
        """Returns what a declaration declares and who made it: ``strategy 'mine' of the plugin 'theirs'``."""
        offers = [offer for by_name in self._declared.values() for offer in by_name.get(info.name, [])]
        plugin = next((plugin for plugin, offered in offers if offered == info and plugin not in BUILT_IN), None)
        return f"{info.word} '{info.name}'" + (f" of the plugin '{plugin}'" if plugin else "")

    def plugins(self) -> list[Plugin]:
        """Returns all plugins: what is built in, entry points (the disabled and broken ones too), then those added by hand."""
        self._load_entry_points()
        collected = {kind: self._collect(kind) for kind in KINDS.values()}
        self._warn()
        loggers = {implementation.plugin_name for implementation in self._plugins.hook.tempplug_log.get_hookimpls()}
        registered = [name for name, plugin in self._plugins.list_name_plugin() if plugin is not None]
        names = dict.fromkeys([*BUILT_IN, *self._entry_points, *registered])
        return [
            Plugin(
                name=name,
                distribution=self._distribution(name),
                declared={
                    kind: [offered for offered, offers in by_name.items() if name in (owner for owner, _ in offers)]
                    for kind, by_name in collected.items()
                },
                logs=name in loggers,
                disabled=name in self._disabled,
                loaded=name in registered,
            )
            for name in names
        ]

    def _distribution(self, name: str) -> str:
        if name in BUILT_IN:
            return f"{PROJECT} {__version__}"
        dist = self._entry_points[name].dist if name in self._entry_points else None
        return f"{dist.name} {dist.version}" if dist else ""

    def faults(self) -> list[str]:
        """Returns what is wrong with the installed plugins, one sentence each; for the errors of callers."""
        return list(self._faults)

    def _collect(self, kind: type[InfoType]) -> dict[str, list[tuple[str, InfoType]]]:
        """Returns the declarations by name, after calling the hooks that were not called before."""
        hook, by_name = f"tempplug_register_{kind.plural}", self._declared[kind]
        for implementation in getattr(self._plugins.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            if (plugin, hook) in self._asked:
                continue
            self._asked.add((plugin, hook))
            try:
                infos = list(implementation.function())
            except (Exception, SystemExit) as error:
                self._fault(plugin, f"failed in {hook}: {error!r}")
                continue
            for info in infos:
                if not isinstance(info, kind):
                    self._fault(plugin, f"returned {info!r} from {hook}, which is no {kind.__name__}: it is ignored")
                elif self._reserved(kind, info.name):
                    self._fault(plugin, f"offers '{info.name}', a built-in name: its declaration is ignored")
                elif any(owner == plugin for owner, _ in by_name.get(info.name, [])):
                    self._fault(plugin, f"offers '{info.name}' twice: the second declaration is ignored")
                else:
                    by_name.setdefault(info.name, []).append((plugin, info))
        return by_name

    def _reserved(self, kind: type[Info], name: str) -> bool:
        if kind is CommandInfo:
            return name.split()[0] in OWN_COMMANDS
        return any(owner in BUILT_IN for owner, _ in self._declared[kind].get(name, []))

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        disabled = {name.strip() for name in os.environ.get(DISABLE, "").split(",")}
        for entry_point in entry_points(group=PROJECT):
            name = self._name(entry_point)
            self._entry_points[name] = entry_point
            if name in disabled:
                self._disabled.add(name)
                continue
            try:
                plugin = entry_point.load()
                if not self._plugins.is_registered(plugin):
                    self._register(plugin, name)
            except (Exception, SystemExit) as error:
                self._fault(name, f"could not be loaded: {error!r}")

    def _name(self, entry_point: EntryPoint) -> str:
        """Returns the name of an entry point, with its distribution where another one has that name already."""
        taken = self._plugins.has_plugin(entry_point.name)
        return f"{entry_point.name} of {entry_point.dist.name}" if taken and entry_point.dist else entry_point.name

    def _register(self, plugin: object, name: str) -> None:
        self._plugins.register(plugin, name=name)
        try:
            self._plugins.check_pending()
            if not self._plugins.get_hookcallers(plugin):
                raise ConfigError("it implements no hook; mark its functions with tempplug.plugins.hookimpl")
        except Exception:
            self._plugins.unregister(plugin)
            raise

    def _fault(self, plugin: str, what: str) -> None:
        self._faults.append(f"The plugin '{plugin}' {what}.")

    def _warn(self) -> None:
        """Warns of new faults, once everything is in place: where warnings are errors, the registry is still whole."""
        new, self._warned = self._faults[self._warned :], len(self._faults)
        for fault in new:
            warnings.warn(fault, RuntimeWarning, stacklevel=3)


def _absent(info: Info, error: ImportError) -> str:
    """Returns the package that an import failed for, empty where the declaration does not name what installs it."""
    cause: BaseException | None = error
    while cause is not None:
        package = (cause.name or "").partition(".")[0] if isinstance(cause, ImportError) else ""
        if package in info.requires or (package and info.extra and not _installed(package)):
            return package
        cause = cause.__cause__ or cause.__context__
    # libraries that import lazily do not always tell which module they lack
    return next((name for name in info.requires if not _installed(name)), "")


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _missing(info: Info, package: str, error: Exception | None = None) -> str:
    if _installed(package):
        fault, command = "whose installed version does not fit", "pip install --upgrade "
    else:
        fault, command = "which is not installed", "pip install "
    wanted = install_command(info.extra, info.distribution) if info.extra else f"pip install '{package}'"
    wanted = wanted.replace("pip install ", command)
    cause = f" ({error})" if error else ""
    return f"{info.word} '{info.name}' needs the package '{package}', {fault}: {wanted}{cause}."


_registry: Registry | None = None


def registry() -> Registry:
    """Returns the registry of this process, made on first use."""
    global _registry
    if _registry is None:
        _registry = Registry()
    return _registry


def make_listing(package: str, kind: type[Info]) -> None:
    """Makes a package callable: ``tempplug.strategies`` is both a package and the function that lists strategies."""

    class Listing(types.ModuleType):
        def __call__(self) -> list[Any]:
            return registry().all(kind)

    sys.modules[package].__class__ = Listing
