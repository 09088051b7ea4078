"""What the tests of registry and command share: a way to install a plugin without pip, a registry of one's own, the command."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tempplug.cli import main
from tempplug.plugins import Registry, StrategyInfo, hookimpl

HEAD = """
from tempplug.plugins import AdapterInfo, CommandInfo, ObjectiveInfo, StrategyInfo, SuiteInfo, hookimpl

def strategy(name, target="json:loads", **more):
    return StrategyInfo(name=name, target=target, summary="a test", **more)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a module and the metadata of a distribution whose entry point it is."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TEMPPLUG_DISABLE_PLUGINS", raising=False)
    before = set(sys.modules)

    def write(entry_point: str, source: str, distribution: str | None = None) -> None:
        distribution = distribution or entry_point
        module = f"module_of_{distribution}"
        (tmp_path / f"{module}.py").write_text(HEAD + textwrap.dedent(source), encoding="utf-8")
        metadata = tmp_path / f"{distribution}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(f"[tempplug]\n{entry_point} = {module}\n", encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("module_of_"):
            del sys.modules[name]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process: status, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        status = main(list(words))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of this test alone."""
    made = Registry()
    monkeypatch.setattr("tempplug.plugins.manager._registry", made)
    return made


@pytest.fixture
def register(own_registry: Registry) -> Callable[..., None]:
    """Registers strategies, given as infos or by name and target, as a plugin of a name."""

    def offer(plugin: str, *infos: StrategyInfo, **targets: str) -> None:
        class Plugin:
            @hookimpl
            def tempplug_register_strategies(self) -> list[StrategyInfo]:
                made = [StrategyInfo(name=name, target=target, summary="a test") for name, target in targets.items()]
                return [*infos, *made]

        own_registry.register(Plugin(), plugin)

    return offer
