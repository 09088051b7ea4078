"""Real molecules of the suite ``molecule``; the recipe names a pre-training file relative to the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempplug_adapters.graph.molecule_recipe import METHOD, MoleculeRecipe

if TYPE_CHECKING:
    from tempplug_adapters.graph.molecule_method import Molecules
    from tempplug_adapters.training.method import Source


def read_molecules(recipe: MoleculeRecipe, source: Source) -> tuple[MoleculeRecipe, Molecules]:
    """Returns the recipe with the absolute path of the file, and the molecules."""
    if recipe.pretrain_file is not None and source.data_dir is not None:
        recipe = recipe.changed(pretrain_file=str(source.data_dir / recipe.pretrain_file))
    return recipe, METHOD.load().load(recipe, source)
