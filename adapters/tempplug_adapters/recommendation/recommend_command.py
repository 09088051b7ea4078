"""``tempplug recommend``: the items that come next for users of a trained recommender, by their own names."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.ending import LINES, WIDTH, ending, number
from tempplug_adapters.quoting import shell_flag, shell_word
from tempplug_adapters.storage.files import make_folder, write_text
from tempplug_adapters.training.use_command import open_folder, trained_parser


def main(arguments: list[str]) -> int:
    """Runs the command on the words after ``tempplug recommend``, and returns its exit status."""
    parser = trained_parser(
        "recommend",
        "Name the items that come next for users of the training; those of their newest items are left out.",
        ("--user", {"nargs": "+", "required": True, "help": "names as in the data of the training"}),
        ("--top", {"type": int, "default": 10, "metavar": "N", "help": "items for each user (default: 10)"}),
        ("--output", {"type": Path, "metavar": "FILE", "help": "CSV file for user, rank, item and score"}),
        data=False,
    )
    options = parser.parse_args(arguments)
    if options.top < 1:
        raise ConfigError(f"top={options.top} must be at least 1.")
    if options.output is not None:
        make_folder(options.output.resolve().parent, "output")
    from tempplug_adapters.training.command_line import quietly  # imports torch, which --help does not need

    with quietly():
        trained = open_folder(options, "recommend")
        found = trained.run("recommend", options.user, options.top)
    if options.output is not None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("user", "rank", "item", "score"))
        for user, items in zip(options.user, found, strict=True):
            writer.writerows((user, rank, item, f"{score:.6g}") for rank, (item, score) in enumerate(items, 1))
        write_text(options.output, text.getvalue())
    lines = [f"{user}: {', '.join(item for item, _ in items)}" for user, items in zip(options.user, found, strict=True)]
    if len(found) == 1:
        lines = [f"{rank:>3}  {item:<40}  {number(score)}" for rank, (item, score) in enumerate(found[0], 1)]
    room = LINES - 3
    said = [line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines[:room]]
    said += [f"and {len(lines) - room} more"] * (len(lines) > room)
    if options.output or len(lines) > room:
        said.append(f"wrote {options.output}" if options.output else "all of them: --output FILE.csv")
    module: Any = trained.module
    known = module.data.users
    other = known[(known.index(options.user[0]) + 1) % len(known)]
    then = f"tempplug recommend {shell_word(options.folder)} {shell_flag('--user', other)} --top {options.top}"
    print(ending(said, {}, then))
    return 0
