"""Small transfer tasks as tables, and an encoder that needs no model."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
WORDS = ["ab", "cde", "fghi", "jk", "lmnop", "qr", "stu", "vwx", "yz"]


def letters(sentences: list[str]) -> Tensor:
    """A vector of how often each letter stands in a sentence, and whether it is a full stop."""
    return torch.tensor([[float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz."] for text in sentences])


def sentence(number: int, label: int) -> str:
    """Returns one to five words, one of which tells the class in four sentences of five."""
    chosen = np.random.RandomState(number).choice(WORDS, 1 + number % 4)
    return " ".join([*chosen, *([WORDS[label]] if number % 5 else [])])


def write_tables(folder: Path) -> Path:
    """Writes all seven tasks, 60 rows a file (TREC 72), packed and not."""
    folder.mkdir(exist_ok=True)
    for name in ("MR", "CR", "SUBJ", "MPQA", "SST2_phrases.train", "SST2.dev", "SST2.test"):
        rows = [f"{number % 2}\t{sentence(number, number % 2)}" for number in range(60)]
        (folder / f"{name}.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    for name in ("TREC.train", "TREC.test"):
        rows = [f"{TREC[number % 6]}\tmore\t{sentence(number, number % 6)}" for number in range(72)]
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("\n".join(["label\tfine\ttext", *rows]) + "\n")
    for name in ("MRPC.train", "MRPC.test"):
        rows = [f"{n % 2}\t{sentence(n, 0)}\t{sentence(n if n % 2 else n + 1, 0)}" for n in range(60)]
        (folder / f"{name}.tsv").write_text("\n".join(["label\tsentence1\tsentence2", *rows]) + "\n")
    return folder
