"""What ``tempplug`` does: it lists and explains what there is itself, and hands everything else to plugins' sub-commands.

It must not know any strategy, adapter or suite, and loads torch only to show a strategy or an objective.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tempplug import __version__, completion
from tempplug.errors import UnknownNameError, install_command, listed, nearest
from tempplug.options import Option, format_value, options_of
from tempplug.parser import Parser, columns, wrapped
from tempplug.plugins import CommandInfo, NegativeInfo, ObjectiveInfo, StrategyInfo, registry
from tempplug.plugins.info import Info
from tempplug.plugins.manager import BUILT_IN, DISABLE, KINDS, MOVED, Plugin
from tempplug.preset_losses import presets

OWN_COMMANDS = {
    "list": "list strategies, objectives, negatives, adapters, suites, commands",
    "show": "explain one of them: formula, options with ranges, paper",
    "presets": "list the losses of published models, with batch and source",
    "plugins": "list who registers what, and how to leave one out",
}

GROUPS = {
    "find a temperature": ("advise", "sweep", "plot"),
    "train": ("train", "watch"),
    "use what was trained": ("embed", "score", "recommend", "export"),
    "compare": ("eval", "bench"),
    "look up": tuple(OWN_COMMANDS),
}
"""First words of commands; all others stand under a title of their own."""
_FEW = 10

EPILOG = (
    "`tempplug COMMAND -h` explains a command, `tempplug train -h` lists all that begin with train.",
    "",
    "exit status: 0 done, 1 failed, 2 wrong usage or input, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP. TEMPPLUG_TRACEBACK=1 shows "
    "where in the code an error came from.",
)


def run(words: list[str]) -> object:
    """Runs the command of the words after ``tempplug``; returns its exit status, or what a plugin's command returns."""
    if completion.is_completing():
        return _complete(completion.typed_words())
    if words and words[0] not in OWN_COMMANDS and not words[0].startswith("-"):
        return _plugin_command(words)
    parsed = _parser().parse_args(words)
    if parsed.command == "list":
        _list(parsed.kind, as_json=parsed.json)
    elif parsed.command == "show":
        _show(" ".join(parsed.name))
    elif parsed.command == "presets":
        _presets()
    elif parsed.command == "plugins":
        _plugins()
    else:
        _parser().print_help()
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="tempplug",
        usage="tempplug [-h] [--version] COMMAND ...",
        description="Temperature strategies for contrastive losses.",
        epilog="\n".join([*_grouped(), "", *EPILOG]),
    )
    parser.add_argument("--version", action="version", version=f"tempplug {__version__}")
    chosen = parser.add_subparsers(dest="command", help=argparse.SUPPRESS, metavar="COMMAND", prog="tempplug")
    listing = chosen.add_parser("list", description=f"{OWN_COMMANDS['list'].capitalize()}.")
    kind: Any = listing.add_argument("kind", nargs="?", metavar="KIND", help=f"only these: {', '.join(KINDS)}")
    kind.completer = lambda **_: list(KINDS)
    listing.add_argument("--json", action="store_true", help="print a JSON object: a list of declarations for each kind")
    show = chosen.add_parser("show", description=f"{OWN_COMMANDS['show'].capitalize()}.")
    names: Any = show.add_argument("name", nargs="+", metavar="NAME", help="a name that `tempplug list` prints")
    names.completer = lambda **_: [info.name for known in KINDS.values() for info in registry().all(known)]
    for name in ("presets", "plugins"):
        chosen.add_parser(name, description=f"{OWN_COMMANDS[name].capitalize()}.")
    return parser


def _grouped() -> list[str]:
    """Returns the lines of all commands in groups; those with the same first word share a row."""
    rows = {word: (word, summary) for word, summary in OWN_COMMANDS.items()}
    for info in registry().all(CommandInfo):
        first, _, last = info.name.partition(" ")
        before = f"{rows[first][1]}, " if first in rows else ""
        rows[first] = (f"{first} NAME", f"{before}{last}") if last else (first, info.summary)
    grouped = {word for words in GROUPS.values() for word in words}
    groups = {**GROUPS, "more": [word for word in rows if word not in grouped]}
    width = max(len(name) for name, _ in rows.values())
    lines = []
    for title, words in groups.items():
        present = [rows[word] for word in words if word in rows]
        lines += [f"{title}:", *columns((name.ljust(width), text) for name, text in present)] if present else []
    return lines


def _complete(words: list[str]) -> object:
    """Prints what goes on after the words of a line that are complete."""
    names = [*OWN_COMMANDS, *(info.name for info in registry().all(CommandInfo))]
    if words and words[0] in OWN_COMMANDS:
        return _parser().parse_args([])
    for length in range(len(words), 0, -1):
        if " ".join(words[:length]) in names:
            completion.skip(length)
            return _plugin_command([*words[:length], "--help"])  # a parser of another plugin does no more than print
    completion.skip(len(words))
    typed = "".join(f"{word} " for word in words)
    completion.offer_words(name.removeprefix(typed).split()[0] for name in names if name.startswith(typed))
    return 0


def _plugin_command(words: list[str]) -> object:
    commands = {declaration.name: declaration.summary for declaration in registry().all(CommandInfo)}
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        if name in commands:
            info = registry().get(CommandInfo, name)
            command = registry().load(info)
            with registry().explaining(info):
                return command(words[length:])
    completions = {name: summary for name, summary in commands.items() if name.startswith(f"{words[0]} ")}
    if completions and words[1:2] in (["-h"], ["--help"]):
        print("\n".join([f"usage: tempplug {words[0]} COMMAND ...", "", "commands:", *columns(completions.items())]))
        return 0
    lists = f"`tempplug {words[0]} -h` lists them."
    if completions and (len(words) == 1 or words[1].startswith("-")):
        seconds = listed((name.partition(" ")[2] for name in completions), 80)
        raise UnknownNameError(f"'{words[0]}' is only the beginning of a command; it goes on with {seconds}. {lists}")
    if completions:
        typed = " ".join(words[:2])
        raise UnknownNameError(f"unknown command '{typed}'.{nearest(typed, completions)} {lists}")
    known = [*OWN_COMMANDS, *commands]
    # a misspelled first word is close to a first word only
    suggestion = nearest(words[0], [*known, *(name.split()[0] for name in commands)])
    raise UnknownNameError(
        "\n".join([f"unknown command '{words[0]}'.{suggestion} `tempplug -h` lists them.", *registry().faults()])
    )


def _list(kind: str | None, *, as_json: bool) -> None:
    if kind is not None and kind not in KINDS:
        raise UnknownNameError(f"cannot list '{kind}'.{nearest(kind, KINDS)} Known: {', '.join(KINDS)}.")
    chosen = {name: registry().all(KINDS[name]) for name in ([kind] if kind else KINDS)}
    if as_json:
        fields = {name: [asdict(info) for info in infos] for name, infos in chosen.items()}
        print(json.dumps(fields, indent=2, ensure_ascii=False))
        return
    blocks = []
    for name, infos in chosen.items():
        notes = ["; ".join(filter(None, (info.reference, info.status))) for info in infos]
        rows = [(info.name, info.summary + (f"  [{note}]" if note else "")) for info, note in zip(infos, notes, strict=True)]
        blocks.append("\n".join([name, *columns(rows)]))
    print("\n\n".join(blocks))


def _presets() -> None:
    for preset in presets():
        print(f"{preset.name}: {preset.loss()}")
        rows = [("batch", preset.batch), ("needs", ", ".join(f"{name}=" for name in preset.needs))]
        rows += [("source", preset.source), ("note", preset.note)]
        print("\n".join(columns(row for row in rows if row[1])))


def _plugins() -> None:
    rows = [
        ("built in" if plugin.name in BUILT_IN else plugin.name, plugin.distribution or "by hand", _contribution(plugin))
        for plugin in registry().plugins()
    ]
    print("\n".join(columns(zip(_joined(row[:2] for row in rows), (row[2] for row in rows), strict=True), "")))
    for fault in registry().faults():
        print(fault)
    told = (
        f"{DISABLE}=NAME,NAME in the environment leaves plugins out, of every command and program; what is built in stays. "
        "One that is broken is left out by itself; `pip uninstall` of its distribution removes it."
    )
    print("\n".join(["", *wrapped(told)]))


def _contribution(plugin: Plugin) -> str:
    """Returns what a plugin registers, all names where they are few."""
    if plugin.disabled:
        return f"left out by {DISABLE}"
    if not plugin.loaded:
        return "could not be loaded"
    parts = []
    for kind, names in plugin.declared.items():
        if names:
            parts.append(f"{len(names)} {kind.plural if len(names) > 1 else kind.word}")
            parts[-1] += f": {', '.join(names)}" if len(names) <= _FEW else ""
    return "; ".join([*parts, *(["gets records"] if plugin.logs else [])]) or "nothing"


def _show(name: str) -> None:
    infos = {kind: [info.name for info in registry().all(kind)] for kind in KINDS.values()}
    kinds = [kind for kind, names in infos.items() if name in names or (kind, name) in MOVED]
    if not kinds:
        known = [known_name for names in infos.values() for known_name in names]
        message = f"nothing is called '{name}'.{nearest(name, known)} `tempplug list` shows what there is."
        raise UnknownNameError("\n".join([message, *registry().faults()]))
    print("\n\n".join(_explain(registry().get(kind, name)) for kind in kinds))


def _explain(info: Info) -> str:
    """Returns what ``tempplug show`` prints of one declaration."""
    lines = [f"{info.word} {info.name}: {info.summary}", ""]
    if not isinstance(info, StrategyInfo | ObjectiveInfo | NegativeInfo):
        rows = [("source", info.reference), ("object", info.target), ("needs", ", ".join(info.requires))]
        if info.extra:
            rows.append(("install", install_command(info.extra, info.distribution)))
        return "\n".join(lines + columns(row for row in rows if row[1]))
    from tempplug.create import load_class  # loads torch

    target = load_class(info)
    options = options_of(target)
    rows = [("formula", target.formula or "-"), ("source", target.source or info.reference or "-")]
    rows += [("status", info.status)] if info.status else []
    reads = ", ".join(f"{name}=" for name in sorted(getattr(target, "takes", ())))
    rows += [("reads", reads)] if reads else []
    rows += [("spec", _example(info.name, options)), ("options", "" if options else "none")]
    return "\n".join([*lines, *columns(rows), *_options(options)])


def _options(options: Sequence[Option]) -> list[str]:
    """Returns one line an option: name, default, range, meaning."""
    names = [option.name for option in options]
    defaults = ["required" if option.required else f"default {format_value(option.default)}" for option in options]
    texts = ["; ".join(filter(None, [option.kind.describe(), option.kind.help])) if option.kind else "" for option in options]
    return columns(zip(names, _joined(zip(defaults, texts, strict=True)), strict=True), "    ")


def _joined(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns each row, of two texts, as one text; the second begins at the same letter in all."""
    pairs = list(rows)
    width = max((len(first) for first, _ in pairs), default=0)
    return [f"{first:<{width}}  {second}".rstrip() for first, second in pairs]


def _example(name: str, options: Sequence[Option]) -> str:
    """Returns a spec string that works: every default written out, and a value in range for what has none."""
    written = []
    for option in options:
        if option.required:
            written.append(f"{option.name}={format_value(option.kind.example()) if option.kind else 'VALUE'}")
        elif option.default is not None:
            written.append(f"{option.name}={format_value(option.default)}")
    return f"{name}:{','.join(written)}" if written else name
