"""The ``tempplug`` command: what it prints, what it suggests, and with which status it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import tempplug
from tempplug.cli import main
from tempplug.create import load_class
from tempplug.errors import install_command
from tempplug.options import format_value, options_of
from tempplug.plugins import AdapterInfo, CommandInfo, NegativeInfo, ObjectiveInfo, Registry, StrategyInfo, SuiteInfo
from tempplug.plugins.info import Info

# The defaults, as the design's table has them.
SPECS = """
fixed:temperature=0.1
learnable:initial_temperature=0.07,max_scale=100,learning_rate=0.01
macl:base_temperature=0.1,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false
dystress:temperature_min=0.1,temperature_max=0.2,profile=cosine,shift=0,rate=3.5,detach=true
temperature-free:eps=0.0001
schedule:shape=cosine,temperature_min=0.1,temperature_max=1,seed=0,granularity=step
head-tail:class_counts=100/100,temperature_head=1,temperature_tail=0.1
amcl:dimension=100,span=2,floor=0.05,beta=1
uncertainty:base_temperature=0.1
individual:size=100,temperature_init=0.1,temperature_min=0.05,temperature_max=1,rho=0.3,gamma=0.8,momentum=0.9,learning_rate=0.01,per_view=false,relative=false
tempnet:dimension=100,temperature_min=0.01,temperature_max=0.05,prototypes=256,per_view=false
mm-ts:class_counts=100/100,temperature_min=0.05,temperature_max=0.2,amplitude=0.08
by-group:temperatures=1/1,learn=false,max_scale=100,learning_rate=0.01
sogclr:size=100,gamma=0.9,eps=0,rho=0,decay=0,per_view=true,relative=true
infonce:margin=0,margin_kind=additive
dcl
dclw:sigma=0.5
flatnce
reweighted
dual-temperature
amcl-top:top_k=100,beta=1
sigmoid:relative_bias=false,learning_rate=0.01
false-negatives:margin=0.1,rule=absolute,weight=0
guide:margin=0,rule=absolute,weight=0
same-key
within-group
hardness:strength=5,of=all
log-q
debiased:prior=0.1
"""
KINDS: dict[str, type[Info]] = {
    "strategies": StrategyInfo,
    "objectives": ObjectiveInfo,
    "negatives": NegativeInfo,
    "adapters": AdapterInfo,
    "suites": SuiteInfo,
    "commands": CommandInfo,
}
LOSSES: list[StrategyInfo | ObjectiveInfo | NegativeInfo] = [
    *(info for kind in (StrategyInfo, ObjectiveInfo, NegativeInfo) for info in Registry().all(kind))
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide terminal, and a registry of what is installed, whatever other files registered in this process."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr("tempplug.plugins.manager._registry", None)


@pytest.mark.parametrize("width", [100, 80, 40])
@pytest.mark.parametrize("words", ["list", "-h", "train -h", "show macl", "plugins", "train simcse -h", "bench run -h"])
def test_text_fits_the_terminal_and_loses_nothing(
    run_command: Run, monkeypatch: pytest.MonkeyPatch, words: str, width: int
) -> None:
    _, wide, _ = run_command(*words.split())
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, _ = run_command(*words.split())
    assert status == 0
    # what has no space in it stays whole, such as a spec string
    long = [line for line in out.splitlines() if len(line) > width]
    assert not [line for line in long if len(line.split()[-1]) < width - 40]
    assert out.split() == wide.split() or "usage:" in out


def test_text_fits_80_columns_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = command("list").stdout.decode().splitlines()
    assert 70 < max(map(len, lines)) <= 80


def groups_of(out: str) -> dict[str, list[str]]:
    """The lines of commands below each title of the help."""
    groups: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in out.partition("and exit\n\n")[2].partition("\n\n")[0].splitlines():
        if line.startswith("  "):
            rows.append(line)
        else:
            rows = groups[line.removesuffix(":")] = []
    return groups


def test_the_help_has_at_most_40_lines_of_80_letters(run_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run_command("-h")[1].splitlines()) <= 40


COMMANDS = ["", *("list", "show", "presets", "plugins"), *(info.name for info in Registry().all(CommandInfo))]
COMMANDS += [f"bench {action}" for action in ("list", "run", "sweep", "report", "verify", "pack")]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_its_examples_are_whole(
    run_command: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    _, wide, _ = run_command(*command.split(), "--help")
    monkeypatch.setenv("COLUMNS", "80")
    _, narrow, _ = run_command(*command.split(), "--help")
    lines = narrow.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    # what can be typed
    examples = [line for line in wide.splitlines() if re.match(r"  (tempplug .*--|--strategies (macl|all) )", line)]
    assert [line for line in examples if line not in lines] == []


def test_help_and_version(run_command: Run) -> None:
    status, out, err = run_command()
    assert (status, err) == (0, "")
    assert (0, out, "") == run_command("--help") == run_command("-h")
    groups = {title: dict(line.split(maxsplit=1) for line in lines) for title, lines in groups_of(out).items()}
    assert list(groups) == ["find a temperature", "train", "use what was trained", "compare", "look up"]
    shown = {first: text for rows in groups.values() for first, text in rows.items()}
    assert len(shown) == sum(map(len, groups.values())), "a command stands in one group"
    infos = Registry().all(CommandInfo)
    assert shown.keys() == {"list", "show", "presets", "plugins", *(info.name.split()[0] for info in infos)}
    for info in infos:
        first, _, last = info.name.partition(" ")
        assert last in shown[first].removeprefix("NAME").replace(",", " ").split() if last else shown[first] == info.summary
    assert run_command("--version") == (0, f"tempplug {tempplug.__version__}\n", "")
    for words, usage, expected in (
        (["list", "-h"], "list [-h]", "strategies, objectives, negatives, adapters, suites"),
        (["show", "-h"], "show [-h]", "NAME"),
        (["train", "-h"], "train COMMAND ...\n\ncommands:\n  train simcse  ", ""),
        (["train", "--help"], "train COMMAND ...\n\ncommands:\n  train simcse  ", ""),
        (["bench", "-h"], "bench ", ""),  # a plugin's own
    ):
        status, out, err = run_command(*words)
        assert (status, err) == (0, "")
        assert out.startswith(f"usage: tempplug {usage}")
        assert expected in out


def test_list_prints_every_kind(run_command: Run) -> None:
    status, out, err = run_command("list")
    assert (status, err) == (0, "")
    blocks = out.strip().split("\n\n")
    for block, (name, kind) in zip(blocks, KINDS.items(), strict=True):
        title, *lines = block.splitlines()
        assert title == name
        assert run_command("list", name)[1].strip() == block
        infos = Registry().all(kind)
        assert len(lines) == len(infos) > 0
        for line, info in zip(lines, infos, strict=True):
            assert line.startswith(f"  {info.name}  ")
            assert info.summary in line
            note = "; ".join(filter(None, (info.reference, info.status)))
            assert not note or line.endswith(f"[{note}]")


def test_list_as_json_has_the_fields_of_every_declaration(run_command: Run) -> None:
    status, out, err = run_command("list", "--json")
    assert (status, err) == (0, "")
    listed = json.loads(out)
    assert list(listed) == list(KINDS)
    for name, kind in KINDS.items():
        infos = Registry().all(kind)
        assert [entry["name"] for entry in listed[name]] == [info.name for info in infos]
        assert [entry["reference"] for entry in listed[name]] == [info.reference for info in infos]
        assert json.loads(run_command("list", name, "--json")[1]) == {name: listed[name]}
    (macl,) = (entry for entry in listed["strategies"] if entry["name"] == "macl")
    assert macl["target"] == "tempplug.strategies.macl:MACL"
    assert run_command("list", "strategy", "--json")[0] == 2


def test_the_package_is_the_command(tmp_path: Path) -> None:
    for words, status in ((["list", "objectives"], 0), (["lits"], 2)):
        module = [sys.executable, "-m", "tempplug", *words]
        done = subprocess.run(module, cwd=tmp_path, capture_output=True, check=False, timeout=120)
        installed = command(*words)
        assert (done.returncode, done.stdout, done.stderr) == (status, installed.stdout, installed.stderr)


def shown(out: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Returns the fields of ``tempplug show`` and the columns of its option lines."""
    lines = out.splitlines()
    fields = {line.split()[0]: line.split(maxsplit=1)[-1] for line in lines[2:] if line[:2] == "  " and line[2] != " "}
    options = [line.split("  ") for line in lines if line.startswith("    ")]
    return fields, {columns[2]: [column.strip() for column in columns[3:] if column.strip()] for columns in options}


READS = {
    **{"individual": "index=", "head-tail": "labels=", "uncertainty": "uncertainty="},
    **{"mm-ts": "labels=", "sogclr": "index=", "by-group": "groups="},
    **{"guide": "guide=", "same-key": "keys=", "within-group": "groups=", "log-q": "candidate_log_q=, index="},
}


@pytest.mark.parametrize("info", LOSSES, ids=lambda info: info.name)
def test_show_explains_every_strategy_objective_and_term(
    run_command: Run, info: StrategyInfo | ObjectiveInfo | NegativeInfo
) -> None:
    status, out, err = run_command("show", info.name)
    assert (status, err) == (0, "")
    target = load_class(info)
    assert out.splitlines()[0] == f"{info.word} {info.name}: {info.summary}"
    fields, options = shown(out)
    assert fields["formula"] == target.formula != ""
    assert fields["source"] == target.source != ""
    assert fields.get("reads", "") == READS.get(info.name, "")
    declared = {option.name: option for option in options_of(target)}
    assert list(options) == list(declared)
    assert fields["options"] == ("options" if options else "none")
    assert fields["spec"] in SPECS.splitlines(), "the defaults differ from the design's table"
    for name, option in declared.items():
        wanted = "required" if option.required else f"default {format_value(option.default)}"
        assert option.kind is not None
        assert options[name] == [wanted, f"{option.kind.describe()}; {option.kind.help}"]
        assert option.kind.help, f"{name} of {info.name} has no help"
    create: dict[type[Info], Callable[[str], Any]] = {
        StrategyInfo: tempplug.create_strategy,
        ObjectiveInfo: tempplug.create_objective,
        NegativeInfo: lambda spec: tempplug.create_negatives(spec)[0],
    }
    made = create[type(info)](fields["spec"]).options
    assert all(made[name] == option.default for name, option in declared.items() if not option.required)


def test_presets_prints_each_loss_with_its_batch_and_its_source(run_command: Run) -> None:
    status, out, err = run_command("presets")
    assert (status, err) == (0, "")
    blocks = re.split(r"\n(?=\S)", out.rstrip())
    for each, block in zip(tempplug.presets(), blocks, strict=True):
        title, *lines = block.splitlines()
        assert title == f"{each.name}: {each.loss()}"
        told = dict(line.split(maxsplit=1) for line in lines)
        needs = ", ".join(f"{name}=" for name in each.needs)
        wanted = {"batch": each.batch, "needs": needs, "source": each.source, "note": each.note}
        assert told == {name: text for name, text in wanted.items() if text}


@pytest.mark.parametrize("kind", [AdapterInfo, SuiteInfo, CommandInfo])
def test_show_says_what_the_rest_is_and_how_to_install_it(run_command: Run, kind: type[Info]) -> None:
    for info in Registry().all(kind):
        status, out, _ = run_command("show", *info.name.split())
        assert status == 0
        # An adapter and a suite may share a name: both are shown.
        title = f"{info.word} {info.name}: {info.summary}"
        (block,) = (each for each in re.split(r"\n\n(?=\w+ [^\n]+: )", out) if each.splitlines()[0] == title)
        fields, _ = shown(block)
        assert fields["object"] == info.target
        assert fields.get("needs", "") == ", ".join(info.requires)
        assert fields.get("install") == (install_command(info.extra) if info.extra else None)
        assert fields.get("source", "") == info.reference


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["list", "strategy"],
            "cannot list 'strategy'. Did you mean 'strategies'? Known: strategies, objectives, negatives, ",
        ),
        (["show", "macle"], "nothing is called 'macle'. Did you mean 'macl'? `tempplug list` shows what there is.\n"),
        (["show", "train", "simsce"], "nothing is called 'train simsce'. Did you mean 'train simcse'? "),
        (["show", "zzz"], "nothing is called 'zzz'. `tempplug list` shows what there is.\n"),
        (["show", "target-probability"], "strategy 'target-probability' is no longer built in, "),
        (["lits"], "unknown command 'lits'. Did you mean 'list'? `tempplug -h` lists them.\n"),
        (["trian", "simcse"], "unknown command 'trian'. Did you mean 'train'? `tempplug -h` lists them.\n"),
        (["bnech", "run"], "unknown command 'bnech'. Did you mean 'bench'? `tempplug -h` lists them.\n"),
        (["zzz"], "unknown command 'zzz'. `tempplug -h` lists them.\n"),
        (
            ["train", "simsce", "--x"],
            "unknown command 'train simsce'. Did you mean 'train simcse'? `tempplug train -h` lists them.\n",
        ),
        (["train", "zzz"], "unknown command 'train zzz'. "),
        (["train"], "'train' is only the beginning of a command; it goes on with simcse, retrieval, "),
        (["train", "--seed", "1"], "'train' is only the beginning of a command; it goes on with simcse, retrieval, "),
    ],
)
def test_what_does_not_exist_ends_with_2_and_a_suggestion(run_command: Run, words: list[str], message: str) -> None:
    status, out, err = run_command(*words)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {message}")


@pytest.mark.parametrize(("words", "expected"), [(["show"], "NAME"), (["--verbose"], "--verbose"), (["list", "a", "b"], "b")])
def test_wrong_usage_ends_with_2(run_command: Run, words: list[str], expected: str) -> None:
    status, out, err = run_command(*words)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert "usage:" not in err
    assert expected in err
    assert err.endswith(" -h` lists the flags)\n")
    assert err.count("\n") == 1


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tempplug.cli", *words],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_module_runs_passes_its_status_on_and_escapes_what_the_terminal_cannot_encode() -> None:
    for encoding, shown in (("utf-8", "2·atanh(s)".encode()), ("ascii", b"2\\xb7atanh(s)")):
        done = command("list", "strategies", PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"scaled log-odds " + shown in done.stdout
    failed = command("lits")
    assert failed.returncode == 2
    assert b"Did you mean 'list'?" in failed.stderr
    (script,) = entry_points(group="console_scripts", name="tempplug")
    assert script.load() is main
