"""Generated molecules for the tests of pre-training and fine-tuning: as sets, and as the files that the command reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_finetune import Labelled
from tempplug_benchmarks.tasks.molecule import generate, labels


@cache
def unlabelled(count: int = 101) -> MoleculeSet:
    return MoleculeSet(generate(count, seed=1))


@cache
def labelled_set(count: int = 300, tasks: int = 3) -> MoleculeSet:
    smiles = generate(count, seed=0)
    return MoleculeSet(smiles, torch.tensor(labels(smiles, tasks, seed=0)))


@cache
def labelled(count: int = 300, tasks: int = 3) -> Labelled:
    return Labelled.split(labelled_set(count, tasks))


def write_files(folder: Path) -> Path:
    """Writes 300 SMILES and one that is none, a table with one task, and one with three of which values are missing."""
    (folder / "unlabelled.smi").write_text("\n".join(["no molecule", *generate(300, seed=1)]))
    for name, tasks in (("one", 1), ("Three", 3)):
        smiles = generate(200, seed=0)
        rows = [
            f"{text},{','.join('' if each != each else f'{each:g}' for each in row)}"
            for text, row in zip(smiles, labels(smiles, tasks, 0), strict=True)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["smiles," + ",".join("abc"[:tasks]), *rows]))
    return folder
