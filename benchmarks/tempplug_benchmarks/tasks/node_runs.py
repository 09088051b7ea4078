"""One run of the suite ``node``: reads or generates its graph, trains with `tempplug_adapters.graph`, classifies the nodes.

It must not know how arms are compared. Importing this loads no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_benchmarks.task import RunContext

if TYPE_CHECKING:
    from torch_geometric.data import Data

GENERATED = "generated"
"""The ``graph`` of a recipe that generates it."""

_NO_SETTING = ("graph", "save_epochs")


def train(context: RunContext) -> dict[str, float]:
    """Trains by the recipe and returns the scores of both protocols."""
    from tempplug_adapters.graph.grace_recipe import GraceSettings
    from tempplug_adapters.graph.grace_train import train_grace
    from tempplug_adapters.huggingface import TemperatureArguments

    recipe: dict[str, Any] = dict(context.recipe)
    settings = {name: value for name, value in recipe.items() if name not in _NO_SETTING}
    for name in ("edge_removal", "feature_masking"):  # a recipe holds one number for both views
        settings[name] = (settings[name], settings[name])
    epochs = recipe["epochs"]

    def progress(done: int, loss: float) -> None:
        context.progress(done / epochs, f"epoch {done} of {epochs}, loss {loss:.3f}")

    results = train_grace(
        _graph(context),
        TemperatureArguments(context.arm.strategy, contrastive_objective=context.arm.objective),
        GraceSettings(seed=context.seed, **settings),
        context.work_dir,
        dataset=recipe["graph"],
        resume_from_checkpoint="auto",
        save_epochs=recipe["save_epochs"],
        progress=progress,
    )
    literal, named = results["evaluation"]["10/80/10"], results["evaluation"]["10/10/80"]
    return {
        "F1-micro": literal["micro"],
        "F1-macro": literal["macro"],
        "F1-micro 10/10/80": named["micro"],
        "F1-macro 10/10/80": named["macro"],
    }


def _graph(context: RunContext) -> Data:
    if context.recipe["graph"] == GENERATED:
        from tempplug_benchmarks.tasks.node_generated import citation_graph

        return citation_graph(context.seed)
    from tempplug_adapters.graph.node_data import load_graph

    if context.data_dir is None:
        raise DataError(f"profile '{context.profile}' needs real data: pass --data-dir or set TEMPPLUG_DATA.")
    return load_graph(str(context.recipe["graph"]), context.data_dir, context.work_dir)
