"""The ``tempplug`` command and what plugins add to it: sub-commands, and declarations that are right, wrong or missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempplug
from tempplug.errors import ConfigError
from tempplug.plugins import CommandInfo, Registry, StrategyInfo, SuiteInfo, hookimpl

Run = Callable[..., tuple[int, str, str]]


class Commands:
    """A plugin whose commands remember how they were called."""

    @hookimpl
    def tempplug_register_commands(self) -> list[CommandInfo]:
        targets = {
            "grow": "succeeds",
            "grow rose": "returns_three",
            "grow rose fast": "returns_nothing",
            "wilt": "fails",
            "absent": "is_not_there",
        }
        return [CommandInfo(name=name, target=f"{__name__}:{target}", summary=f"to {name}") for name, target in targets.items()]


CALLS: list[tuple[int | None, list[str]]] = []


def ending(status: int | None) -> Callable[[list[str]], int | None]:
    def command(arguments: list[str]) -> int | None:
        CALLS.append((status, arguments))
        return status

    return command


succeeds, returns_three, returns_nothing = map(ending, (0, 3, None))


def fails(arguments: list[str]) -> int:
    raise ConfigError("no water.")


@pytest.mark.parametrize(
    ("words", "returned", "passed"),
    [
        ("grow", 0, ""),
        ("grow --help", 0, "--help"),
        ("grow tulip -h", 0, "tulip -h"),
        ("grow rose -h", 3, "-h"),
        ("grow rose --fast fast", 3, "--fast fast"),
        ("grow rose fast --version", None, "--version"),
    ],
)
def test_a_plugin_command_gets_the_words_after_its_name(
    run_command: Run, own_registry: Registry, words: str, returned: int | None, passed: str
) -> None:
    own_registry.register(Commands(), "garden")
    CALLS.clear()
    assert run_command(*words.split()) == (returned or 0, "", "")
    assert [(returned, passed.split())] == CALLS


def test_errors_of_a_plugin_command_are_messages(run_command: Run, own_registry: Registry) -> None:
    own_registry.register(Commands(), "garden")
    assert run_command("wilt") == (2, "", "error: no water.\n")
    status, _, err = run_command("absent")
    assert status == 2
    assert err.startswith("error: command 'absent' of the plugin 'garden' cannot be loaded from ")
    assert "has no attribute 'is_not_there'" in err


class Undeclared(tempplug.Strategy):
    """An author who declared no kinds of options, no formula and no source."""

    name = "undeclared"

    def __init__(self, size: int, width: float = 2.0) -> None:
        super().__init__(size=size, width=width)


def test_show_copes_with_options_without_a_kind(run_command: Run, register: Callable[..., None]) -> None:
    register("theirs", undeclared=f"{__name__}:Undeclared")
    status, out, _ = run_command("show", "undeclared")
    assert status == 0
    assert out == (
        "strategy undeclared: a test\n\n  formula  -\n  source   -\n  spec     undeclared:size=VALUE,width=2\n"
        "  options\n    size   required\n    width  default 2\n"
    )


def test_show_refuses_what_two_plugins_offer_and_what_is_no_strategy(run_command: Run, register: Callable[..., None]) -> None:
    register("garden", rose="json:loads")
    status, _, err = run_command("show", "rose")
    assert status == 2
    assert err.startswith("error: strategy 'rose' of the plugin 'garden' must point to a subclass of tempplug.Strategy")
    register("second", rose="json:dumps")
    status, _, err = run_command("show", "rose")
    assert status == 2
    assert err.startswith("error: strategy 'rose' is offered by the plugins 'garden' and 'second'")


def test_show_of_a_name_with_two_meanings_explains_both(run_command: Run, own_registry: Registry) -> None:
    class Plugin:
        @hookimpl
        def tempplug_register_suites(self) -> list[SuiteInfo]:
            return [SuiteInfo(name="macl", target="json:loads", summary="a test")]

    own_registry.register(Plugin(), "theirs")
    status, out, _ = run_command("show", "macl")
    assert status == 0
    assert [line for line in out.splitlines() if line and line[0] != " "] == [
        "strategy macl: follows the mean similarity of the positives",
        "suite macl: a test",
    ]


def test_errors_about_names_tell_of_broken_plugins(run_command: Run, own_registry: Registry) -> None:
    class Broken:
        @hookimpl
        def tempplug_register_strategies(self) -> list[StrategyInfo]:
            raise RuntimeError("cannot start")

    own_registry.register(Broken(), "theirs")
    with pytest.warns(RuntimeWarning, match="plugin 'theirs' failed in tempplug_register_strategies"):
        status, _, err = run_command("show", "rose")
    assert status == 2
    assert err.splitlines()[1].startswith("The plugin 'theirs' failed in tempplug_register_strategies: RuntimeError")
    assert "The plugin 'theirs' failed" in run_command("frobnicate")[2]


def test_plugins_lists_who_registers_what_in_which_version(
    run_command: Run, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "roses",
        """
        @hookimpl
        def tempplug_register_strategies(): return [strategy("rose"), strategy("tulip")]
        @hookimpl
        def tempplug_register_commands(): return [CommandInfo(name="water", target="json:loads", summary="a test")]
        @hookimpl
        def tempplug_log(record): pass
        """,
        "rosegarden",
    )
    install("weeds", "raise OSError('too dry')")
    install("noisy", "raise OSError('never imported')")
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TEMPPLUG_DISABLE_PLUGINS", "noisy, else")
    made = Registry()
    monkeypatch.setattr("tempplug.plugins.manager._registry", made)
    made.register(Commands(), "garden")
    with pytest.warns(RuntimeWarning, match="plugin 'weeds' could not be loaded"):
        status, out, err = run_command("plugins")
    assert (status, err) == (0, "")
    rows = {line.split("  ")[0]: [cell.strip() for cell in line.split("  ") if cell.strip()][1:] for line in out.splitlines()}
    version = f"tempplug {tempplug.__version__}"
    built_in = [line for line in out.splitlines() if line.startswith("built in ")]
    assert [version in line for line in built_in] == [True]
    assert rows["adapters"][0] == version
    assert rows["roses"] == ["rosegarden 1.0", "2 strategies: rose, tulip; 1 command: water; gets records"]
    assert rows["weeds"] == ["weeds 1.0", "could not be loaded"]
    assert rows["noisy"] == ["noisy 1.0", "left out by TEMPPLUG_DISABLE_PLUGINS"]
    assert rows["garden"] == ["by hand", "5 commands: grow, grow rose, grow rose fast, wilt, absent"]
    assert "The plugin 'weeds' could not be loaded: OSError('too dry')." in out
    assert "TEMPPLUG_DISABLE_PLUGINS=NAME,NAME in the environment leaves plugins out" in out
