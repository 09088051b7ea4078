"""The registry on real distributions: each test writes modules and metadata, as pip would, and puts them on the path."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tempplug.errors import (
    DuplicateNameError,
    UnknownNameError,
)
from tempplug.plugins import (
    AdapterInfo,
    CommandInfo,
    ObjectiveInfo,
    Registry,
    StrategyInfo,
    SuiteInfo,
)
from tempplug.plugins.info import Info

Install = Callable[..., None]


def hook(body: str, kind: str = "strategies", more: str = "") -> str:
    """Returns the source of a hook of plugins."""
    return f"@hookimpl\ndef tempplug_register_{kind}({more}):\n    {body}\n"


def offers(*names: str) -> str:
    """Returns the source of a hook that declares these strategies."""
    return hook(f"return [{', '.join(f'strategy({name!r})' for name in names)}]")


def names(known: Registry, kind: type[Info] = StrategyInfo) -> list[str]:
    return [info.name for info in known.all(kind)]


def fails(known: Registry, match: str) -> str:
    """Returns the error for an unknown name, after the warning that matches."""
    with pytest.warns(RuntimeWarning, match=match) as caught:
        names(known)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # each fault warns once
        with pytest.raises(UnknownNameError) as error:
            known.get(StrategyInfo, "nobody-offers-this")
    return str(error.value)


def test_built_ins_resolve_without_scanning_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def scanned(**_: str) -> None:
        raise AssertionError("entry points were scanned")

    monkeypatch.setattr("tempplug.plugins.manager.entry_points", scanned)
    known = Registry()
    assert known.get(StrategyInfo, "macl").target == "tempplug.strategies.macl:MACL"
    assert known.load(known.get(ObjectiveInfo, "dcl")).name == "dcl"
    with pytest.raises(AssertionError, match="scanned"):
        known.get(StrategyInfo, "not-built-in")


def test_an_installed_plugin_joins_after_the_built_ins(install: Install) -> None:
    install("garden", offers("rose", "tulip"))
    known = Registry()
    assert known.get(StrategyInfo, "tulip").target == "json:loads"
    listed = names(known)
    assert listed[0] == "fixed"
    assert listed[-2:] == ["rose", "tulip"]
    assert known.describe(known.get(StrategyInfo, "rose")) == "strategy 'rose' of the plugin 'garden'"
    assert known.describe(known.get(StrategyInfo, "fixed")) == "strategy 'fixed'"


def test_every_kind_of_declaration_has_its_hook(install: Install) -> None:
    kinds = {
        StrategyInfo: "strategies",
        ObjectiveInfo: "objectives",
        AdapterInfo: "adapters",
        SuiteInfo: "suites",
        CommandInfo: "commands",
    }
    declared = "return [{}(name='own {}', target='json:loads', summary='a test')]"
    install("everything", "".join(hook(declared.format(kind.__name__, name), name) for kind, name in kinds.items()))
    known = Registry()
    for kind, name in kinds.items():
        assert known.get(kind, f"own {name}").summary == "a test"
        assert [each for each in names(known, kind) if each.startswith("own ")] == [f"own {name}"]


def test_entry_points_load_once_and_hooks_run_once(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
    from pathlib import Path

    calls = Path(__file__).with_name("calls")

    def count(event):
        with calls.open("a") as file:
            file.write(event)

    count("i")

    @hookimpl
    def tempplug_register_strategies():
        count("s")
        yield strategy("counted")
    """
    install("counting", source)
    known = Registry()
    for _ in range(2):
        assert "counted" in names(known)
        known.get(StrategyInfo, "counted")
        with pytest.raises(UnknownNameError):
            known.get(StrategyInfo, "nobody-offers-this")
    assert (tmp_path / "calls").read_text() == "is"


BROKEN, FAILED = "plugin 'broken' could not be loaded", "plugin 'broken' failed in tempplug_register_strategies"


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("raise RuntimeError('cannot start')", rf"{BROKEN}: RuntimeError\('cannot start'\)"),
        ("import no_such_package", f"{BROKEN}: ModuleNotFoundError"),
        ("def (:", f"{BROKEN}: .*SyntaxError"),
        (hook("raise KeyError('wrong key')"), f"{FAILED}: KeyError"),
        (hook("yield strategy('half'); raise KeyError('wrong key')"), f"{FAILED}: KeyError"),
        (hook("return None"), f"{FAILED}: TypeError"),
        (hook("return [42]"), "plugin 'broken' returned 42 from tempplug_register_strategies, which is no StrategyInfo"),
        (
            hook("return [ObjectiveInfo(name='mine', target='json:loads', summary='a test')]"),
            "plugin 'broken' returned ObjectiveInfo.* which is no StrategyInfo",
        ),
        (offers("a:b"), f"{FAILED}: ConfigError.*must be words without"),
        (hook("return []", "strategys"), f"{BROKEN}: .*unknown hook 'tempplug_register_strategys'"),
        (hook("return []", more="context"), f"{BROKEN}: PluginValidationError"),
        (offers("mine").replace("@hookimpl", ""), f"{BROKEN}: .*mark its functions with tempplug.plugins.hookimpl"),
    ],
)
def test_a_broken_plugin_is_a_warning_and_a_line_in_later_errors(install: Install, source: str, match: str) -> None:
    install("broken", source)
    install("healthy", offers("rose"))
    known = Registry()
    error = fails(known, match)
    lines = error.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("unknown strategy 'nobody-offers-this'.")
    assert lines[1].startswith("The plugin 'broken' ")
    assert known.faults() == lines[1:]
    assert names(known)[-1] == "rose"
    assert known.get(StrategyInfo, "fixed").name == "fixed"


def commands(name: str) -> str:
    return hook(f"return [CommandInfo(name={name!r}, target='json:loads', summary='a test')]", "commands")


OBJECTIVE = hook("return [ObjectiveInfo(name='macl', target='json:loads', summary='a test')]", "objectives")
BUILT_IN = "plugin 'theirs' offers '{}', a built-in name: its declaration is ignored"


@pytest.mark.parametrize(
    ("source", "kind", "warning", "counts"),
    [
        # Of another kind a name is free.
        (offers("macl", "rose") + OBJECTIVE, StrategyInfo, BUILT_IN.format("macl"), {"macl": 1, "rose": 1}),
        *((commands(name), CommandInfo, BUILT_IN.format(name), {name: 0}) for name in ("list", "show", "show flowers")),
        (offers("rose", "rose"), StrategyInfo, "plugin 'theirs' offers 'rose' twice", {"rose": 1}),
        (
            offers("rose") + hook("raise KeyError('wrong key')", "objectives"),
            ObjectiveInfo,
            "failed in tempplug_register_objectives",
            {"infonce": 1},
        ),
    ],
)
def test_a_declaration_that_cannot_stand_is_left_out_alone(
    install: Install, source: str, kind: type[Info], warning: str, counts: dict[str, int]
) -> None:
    install("theirs", source)
    known = Registry()
    if OBJECTIVE in source:
        assert known.get(ObjectiveInfo, "macl").target == "json:loads"
    with pytest.warns(RuntimeWarning, match=warning):
        found = names(known, kind)
    assert {name: found.count(name) for name in counts} == counts
    assert known.get(StrategyInfo, "macl").target.startswith("tempplug.strategies")
    assert kind is CommandInfo or known.get(StrategyInfo, "rose").target == "json:loads"


def test_two_plugins_with_one_name_fail_only_when_it_is_asked_for(install: Install) -> None:
    install("first", offers("rose", "tulip"))
    install("second", offers("rose", "lily"))
    known = Registry()
    assert {"tulip", "lily"} < set(names(known))
    assert known.get(StrategyInfo, "lily").name == "lily"
    with pytest.raises(DuplicateNameError, match="strategy 'rose' is offered by the plugins") as error:
        known.get(StrategyInfo, "rose")
    assert "'first'" in str(error.value)
    assert "'second'" in str(error.value)
    assert "TEMPPLUG_DISABLE_PLUGINS" in str(error.value)


def test_two_distributions_may_call_their_entry_points_alike(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("plugin", offers("rose"), distribution="meadow")
    install("plugin", offers("rose", "lily"), distribution="forest")
    known = Registry()
    with pytest.raises(DuplicateNameError) as error:
        known.get(StrategyInfo, "rose")
    second = "meadow" if "'plugin of meadow'" in str(error.value) else "forest"
    assert f"'plugin of {second}'" in str(error.value)
    monkeypatch.setenv("TEMPPLUG_DISABLE_PLUGINS", f"plugin of {second}")
    assert Registry().get(StrategyInfo, "rose").name == "rose"
    monkeypatch.setenv("TEMPPLUG_DISABLE_PLUGINS", "plugin")
    assert "rose" not in names(Registry())


def test_an_installed_plugin_that_a_program_registered_itself_joins_once(install: Install) -> None:
    install("garden", offers("rose"))
    known = Registry()
    known.register(importlib.import_module("module_of_garden"), "by hand")
    assert names(known).count("rose") == 1
    assert known.describe(known.get(StrategyInfo, "rose")) == "strategy 'rose' of the plugin 'by hand'"
    assert known.faults() == []


def test_disabled_plugins_are_not_even_imported(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("broken", "raise RuntimeError('cannot start')")
    install("first", offers("rose"))
    install("second", offers("rose"))
    monkeypatch.setenv("TEMPPLUG_DISABLE_PLUGINS", " broken, second ,unknown")
    known = Registry()
    assert known.describe(known.get(StrategyInfo, "rose")).endswith("of the plugin 'first'")
    assert not {"module_of_broken", "module_of_second"} & set(sys.modules)
