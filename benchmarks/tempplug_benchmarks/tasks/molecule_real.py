"""Real molecules of the suite ``molecule``: a recipe names the file to pre-train on as it lies in the data folder.

Importing this loads no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempplug_adapters.graph.molecule_recipe import METHOD, MoleculeRecipe

if TYPE_CHECKING:
    from tempplug_adapters.graph.molecule_method import Molecules
    from tempplug_adapters.training.method import Source


def read_molecules(recipe: MoleculeRecipe, source: Source) -> tuple[MoleculeRecipe, Molecules]:
    """Returns the recipe with the file's whole path, and the molecules."""
    if recipe.pretrain_file is not None and source.data_dir is not None:
        recipe = recipe.changed(pretrain_file=str(source.data_dir / recipe.pretrain_file))
    return recipe, METHOD.load().load(recipe, source)
