"""What a test puts in place of what a page says, so that its snippets take seconds and need no network.

`RULES` are substitutions on each shell command, its continuation lines joined and its comment gone, and on each piece of
Python: a model of the hub becomes a folder, a training gets two steps. `FILES` are made in the folder of a page where its
snippets name them. Both hold for all pages, and an entry that no page has any use for fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import shortened_commands
import torch
from snippets import snippets

from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

# (regular expression, what replaces it)
RULES: list[tuple[str, str]] = [
    *shortened_commands.RULES,
    (r"google-bert/bert-base-uncased", "bert"),
    (r"(sentence_transformers_nli\.py .*)", r"\1 --triplets 512 --max_steps 2 --report_to none"),
    (r"(\btrain\.py --pairs .*)", r"\1 --use_cpu true --report_to none --max_steps 8 --logging_steps 2"),
]

# pages over five seconds, which `make fast` leaves out
SLOW: set[str] = {
    *shortened_commands.SLOW,
    "README.md",
    "docs/assistants.md",
    "docs/trainers.md",
    "docs/which-loss.md",
    "docs/writing-a-plugin.md",
}

# pages that read the folder named by TEMPPLUG_DATA
REAL_DATA: set[str] = {*shortened_commands.REAL_DATA, "docs/trainers.md"}

LIGHTNING = "ignore::DeprecationWarning:lightning"
# warnings of other people's packages that a page's snippets give rise to, as pytest's filters have them
LIGHTNINGS = ["ignore:.*(many workers|logging interval|treespec|torch.jit.script|dropout_adj)", LIGHTNING]
WARNINGS: dict[str, list[str]] = {"docs/assistants.md": LIGHTNINGS, "docs/trainers.md": LIGHTNINGS}


def bert(path: Path) -> None:
    """A folder with a BERT of one layer and its tokenizer."""
    write_tiny_encoder(path, seed=0, layers=1, width=32)


def pairs_jsonl(path: Path) -> None:
    """64 pairs of sentences, as JSON Lines."""
    import json

    rows = ({"anchor": a, "positive": b} for a, b in paraphrase_pairs(64, 0))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def embeddings(path: Path) -> None:
    """64 embeddings of width 16; those of two such files belong together row by row."""
    import numpy as np

    generator = torch.Generator().manual_seed(0)
    common = torch.randn(64, 16, generator=generator)
    noise = torch.randn(64, 16, generator=generator)
    np.save(path, (common + (0.3 if path.stem == "positives" else 0.0) * noise).numpy())


def script(path: Path) -> None:
    """The training script that the guide to sweeps shows whole."""
    (shown,) = (each for each in snippets("docs/watch.md") if each.title == path.name)
    path.write_text(shown.code, encoding="utf-8")


# name: what makes it
FILES: dict[str, Callable[[Path], None]] = {
    **shortened_commands.FILES,
    "anchors.npy": embeddings,
    "bert": bert,
    "pairs.jsonl": pairs_jsonl,
    "positives.npy": embeddings,
    "train.py": script,
}


def shortened(code: str) -> str:
    """A command or a piece of Python, by all rules."""
    for pattern, replacement in RULES:
        code = re.sub(pattern, replacement, code, flags=re.MULTILINE)
    return code


def named(code: str) -> list[str]:
    """The files of `FILES` that code names, after the rules."""
    short = shortened(code)
    return [name for name in FILES if re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", short)]
