"""The suite ``molecule``, declared in ``molecule.toml``, and its generated molecules: random combinations of rings and chains.

Every SMILES is valid, and its parts determine its labels. Any change of the generated data must increment `VERSION`, which is
part of every result's identity.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from tempplug_adapters.graph.recipes import MOLECULE as METHOD, MoleculeRecipe
from tempplug_benchmarks.suite_file import make_suite, read_file

if TYPE_CHECKING:
    from tempplug_adapters.graph.molecule_method import Molecules
    from tempplug_adapters.training.method import Source

VERSION = 1
LABELLED = 400
"""How many molecules there are to fine-tune on."""
# Rings with two positions for side chains, chain segments, and chain ends.
_CORES = (
    "c1ccc({})cc1{}",
    "c1ncc({})cc1{}",
    "c1cc({})oc1{}",
    "c1cc({})sc1{}",
    "C1CCC({})CC1{}",
    "C1COC({})CC1{}",
    "C1CNC({})C1{}",
    "C1CC({})C1{}",
)
_PIECES = ("C", "CC", "C(C)", "O", "N", "C(=O)", "C(=O)N", "C=C")
_ENDS = ("C", "O", "N", "F", "Cl", "C#N", "C2CC2", "c2ccccc2")
_UNMEASURED = 0.2
"""Share of the labels that are missing, where there are several tasks."""


def generated_molecules(recipe: MoleculeRecipe, source: Source, *, tasks: int) -> tuple[MoleculeRecipe, Molecules]:
    """Returns the recipe with pre-training molecules, in the number it sets, and labelled ones; the same for every seed."""
    import torch

    from tempplug_adapters.graph.molecule_data import MoleculeSet
    from tempplug_adapters.graph.molecule_finetune import Labelled
    from tempplug_adapters.graph.molecule_method import Molecules

    smiles = generate(LABELLED, seed=0)
    labelled = Labelled.split(MoleculeSet(smiles, torch.tensor(labels(smiles, tasks, seed=0))))
    unlabelled = MoleculeSet(generate(recipe.max_pretrain_molecules or 0, seed=1)) if recipe.num_train_epochs else None
    return recipe, Molecules(unlabelled, {source.dataset: labelled})


def generate(count: int, seed: int) -> list[str]:
    """Returns ``count`` SMILES, which may contain duplicates."""
    chance = random.Random(seed)
    return [_molecule(chance) for _ in range(count)]


def labels(smiles: list[str], tasks: int, seed: int) -> list[list[float]]:
    """Returns labels, 1, 0 or NaN, of generated molecules for 1 to 3 tasks; several tasks have a fifth of labels missing."""
    chance = random.Random(seed)
    found = []
    for text in smiles:
        row = [any(end in text for end in ("F", "Cl", "C#N")), "C(=O)N" in text, text[0] == "c"][:tasks]
        found.append([math.nan if tasks > 1 and chance.random() < _UNMEASURED else float(each) for each in row])
    return found


def _molecule(chance: random.Random) -> str:
    chains = ["".join(chance.choices(_PIECES, k=chance.randint(0, 3))) + chance.choice(_ENDS) for _ in range(2)]
    return chance.choice(_CORES).format(*chains)


def read_molecules(recipe: MoleculeRecipe, source: Source) -> tuple[MoleculeRecipe, Molecules]:
    """Returns the recipe with the absolute path of the file, and the molecules."""
    if recipe.pretrain_file is not None and source.data_dir is not None:
        recipe = recipe.changed(pretrain_file=str(source.data_dir / recipe.pretrain_file))
    return recipe, METHOD.load().load(recipe, source)


SUITE = make_suite(read_file("molecule"), METHOD, generated_molecules, read_molecules, version=VERSION)
