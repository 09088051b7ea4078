"""What the registry does with a declaration: imports its target, hands records to listeners, refuses what is malformed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug.plugins import AdapterInfo, Registry, StrategyInfo, hookimpl, registry

Install = Callable[..., None]


def needy(install: Install, tmp_path: Path, text: str, **declared: Any) -> tuple[Registry, StrategyInfo]:
    """A registry, and the declaration of a strategy whose module holds the text."""
    (tmp_path / "module_of_needy_target.py").write_text(text, encoding="utf-8")
    known = Registry()
    given = {
        "name": "thing",
        "target": "module_of_needy_target:Thing",
        "summary": "a test",
        "requires": ("absent",),
        **declared,
    }
    known.register(strategies(StrategyInfo(**given)), "needy")
    return known, known.get(StrategyInfo, "thing")


def strategies(*infos: StrategyInfo) -> object:
    class Plugin:
        @hookimpl
        def tempplug_register_strategies(self) -> list[StrategyInfo]:
            return list(infos)

    return Plugin()


WITH_EXTRA = {"extra": "gpu", "distribution": "needy"}


@pytest.mark.parametrize(("declared", "wanted"), [(WITH_EXTRA, "'needy[gpu]'"), ({}, "'absent'")])
def test_a_missing_framework_gives_the_pip_command_and_the_cause(
    install: Install, tmp_path: Path, declared: dict[str, str], wanted: str
) -> None:
    known, info = needy(install, tmp_path, "import absent.inner", **declared)
    with pytest.raises(MissingDependencyError) as error:
        known.load(info)
    expected = f"strategy 'thing' needs the package 'absent', which is not installed: pip install {wanted} (No module named"
    assert str(error.value).startswith(expected)
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
    assert isinstance(error.value, ImportError)


def test_what_is_not_installed_is_told_without_importing_anything(install: Install, tmp_path: Path) -> None:
    known, info = needy(install, tmp_path, "raise AssertionError", **WITH_EXTRA)
    with pytest.raises(MissingDependencyError, match=r"needs the package 'absent', which is not installed: pip install 'needy"):
        known.check_installed(info)
    known.check_installed(replace(info, requires=("json",)))


@pytest.mark.parametrize("target", ["from absent import newer_name", "import absent.newer_module"])
def test_a_framework_of_another_version_is_not_called_missing(install: Install, tmp_path: Path, target: str) -> None:
    known, info = needy(install, tmp_path, target, **WITH_EXTRA)
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "__init__.py").touch()
    try:
        with pytest.raises(MissingDependencyError, match="whose installed version does not fit") as error:
            known.load(info)
    finally:
        sys.modules.pop("absent", None)
    assert "pip install --upgrade 'needy[gpu]'" in str(error.value)
    assert str(error.value.__cause__) in str(error.value)


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("module_that_is_not_there:Thing", "ModuleNotFoundError: No module named 'module_that_is_not_there'"),
        ("json:Thing", "AttributeError: module 'json' has no attribute 'Thing'"),
        ("module_of_needy_target:Thing", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_bad_target_names_the_plugin_and_the_cause(install: Install, tmp_path: Path, target: str, cause: str) -> None:
    known, info = needy(install, tmp_path, "1 / 0", target=target, requires=())
    with pytest.raises(ConfigError) as error:
        known.load(info)
    assert str(error.value) == f"strategy 'thing' of the plugin 'needy' cannot be loaded from '{target}': {cause}"
    assert type(error.value.__cause__).__name__ == cause.partition(":")[0]


def test_a_target_may_be_a_module(install: Install) -> None:
    assert Registry().load(AdapterInfo(name="any", target="json", summary="a test")) is json


class Listener:
    """A plugin object that keeps the records that it is given."""

    def __init__(self) -> None:
        self.records: list[object] = []

    @hookimpl
    def tempplug_log(self, record: object) -> None:
        self.records.append(record)


class Indifferent:
    """pluggy lets an implementation leave out what it does not need."""

    calls = 0

    @hookimpl
    def tempplug_log(self) -> None:
        self.calls += 1


class Failing(Listener):
    @hookimpl
    def tempplug_log(self, record: object) -> None:
        super().tempplug_log(record)
        raise OSError("disk full")


def test_records_reach_every_listener_in_order_and_one_that_fails_is_left_out(install: Install) -> None:
    """Also a plugin that is installed; training goes on."""
    install("listener", "records = []\n@hookimpl\ndef tempplug_log(record):\n    records.append(record)")
    known, first, failing, indifferent, last = Registry(), Listener(), Failing(), Indifferent(), Listener()
    for name, plugin in {"first": first, "failing": failing, "indifferent": indifferent, "last": last}.items():
        known.register(plugin, name)
    with pytest.warns(RuntimeWarning, match="plugin 'failing' failed in tempplug_log and gets no further records: OSError"):
        known.log("one")
    known.log("two")
    assert failing.records == ["one"]
    assert first.records == last.records == sys.modules["module_of_listener"].records == ["one", "two"]
    assert indifferent.calls == 2


class Nothing:
    pass


class WrongHook:
    @hookimpl
    def tempplug_logs(self, record: object) -> None: ...


@pytest.mark.parametrize(
    ("plugin", "match"),
    [
        (Nothing(), "the plugin 'mine' cannot be registered: it implements no hook"),
        (WrongHook(), "the plugin 'mine' cannot be registered: unknown hook 'tempplug_logs'"),
    ],
)
def test_registering_by_hand_refuses_what_is_no_plugin(plugin: object, match: str) -> None:
    known = Registry()
    with pytest.raises(ConfigError, match=match):
        known.register(plugin, "mine")
    known.register(Listener(), "mine")
    with pytest.raises(ConfigError, match=r"the plugin 'mine' cannot be registered: .*already registered"):
        known.register(Listener(), "mine")


def test_the_registry_of_the_process_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempplug.plugins.manager._registry", None)
    assert registry() is registry()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"name": ""}, "name='' of a strategy must be words"),
        ({"name": "a,b"}, "name='a,b' of a strategy must be words"),
        ({"name": " a"}, "name=' a' of a strategy must be words"),
        ({"name": 3}, "name=3 of strategy 3 must be a string"),
        ({"target": ""}, "target='' of strategy 'mine' must be written package.module:Attribute"),
        ({"target": "a:b:c"}, "target='a:b:c' of strategy 'mine' must be written"),
        ({"target": "a:"}, "target='a:' of strategy 'mine' must be written"),
        ({"summary": None}, "summary=None of strategy 'mine' must be a string"),
        ({"status": "proved"}, "status='proved' of strategy 'mine' must be one of implemented, measured, reproduced."),
        ({"requires": "torch"}, "requires='torch' of strategy 'mine' must be a tuple of import names"),
        ({"requires": (3,)}, r"requires=\(3,\) of strategy 'mine' must be a tuple"),
    ],
)
def test_a_declaration_checks_its_fields(fields: dict[str, object], match: str) -> None:
    given: dict[str, Any] = {"name": "mine", "target": "a.b:C", "summary": "a test"}
    assert StrategyInfo(**given).name == "mine"
    with pytest.raises(ConfigError, match=match):
        StrategyInfo(**{**given, **fields})
