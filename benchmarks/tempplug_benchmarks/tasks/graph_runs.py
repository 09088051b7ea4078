"""One run of the suite ``graph``: reads or generates its graphs, trains with `tempplug_adapters.graph`, measures the classes.

It must not know how arms are compared. Importing this loads no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tempplug.errors import DataError
from tempplug_benchmarks.task import RunContext
from tempplug_benchmarks.tasks.graph_generated import generate

if TYPE_CHECKING:
    from tempplug_adapters.graph.graph_data import GraphSet

GENERATED = "generated"
"""The ``graphs`` of a recipe that generates them, with node features; another name is a data set of the TU collection."""
GENERATED_PLAIN = "generated without features"

_TRAINING = 0.5
"""Share of a run's progress that training is given; the rest is the evaluation."""


def train_graphs(context: RunContext) -> dict[str, float]:
    """Trains on graphs without their classes and returns the accuracy of a support vector machine on what was learnt."""
    from tempplug import ContrastiveLoss
    from tempplug_adapters.graph.graphcl_recipe import GraphCLSettings
    from tempplug_adapters.graph.graphcl_train import LAYOUT, represent, train_graphcl
    from tempplug_adapters.graph.svm import evaluate_svm
    from tempplug_adapters.training.checkpoint import CHECKPOINT

    recipe: dict[str, Any] = dict(context.recipe)
    settings = GraphCLSettings(
        epochs=recipe["epochs"],
        batch_size=recipe["batch_size"],
        learning_rate=recipe["learning_rate"],
        hidden=recipe["hidden"],
        layers=recipe["layers"],
        augmentations=tuple(str(recipe["augmentations"]).split()),
        seed=context.seed,
    )
    graphs = _graphs(context)
    model, _ = train_graphcl(
        graphs,
        ContrastiveLoss(context.arm.strategy, context.arm.objective, LAYOUT),
        settings,
        checkpoint=context.work_dir / CHECKPOINT,
        progress=lambda epoch, _: context.progress(_TRAINING * epoch / settings.epochs, f"epoch {epoch}"),
    )
    if graphs.labels is None:
        raise DataError(f"the data set {recipe['graphs']} has no labels.")
    score = evaluate_svm(
        represent(model, graphs),
        graphs.labels,
        seed=context.seed,
        folds=recipe["folds"],
        progress=lambda fraction: context.progress(_TRAINING + (1 - _TRAINING) * fraction, "evaluating"),
    )
    return {"accuracy": score.accuracy}


def _graphs(context: RunContext) -> GraphSet:
    from tempplug_adapters.graph.graph_data import load_tu

    name = str(context.recipe["graphs"])
    if name in (GENERATED, GENERATED_PLAIN):
        return generate(int(context.recipe["count"] or 0), name == GENERATED, seed=0)
    if context.data_dir is None:
        raise DataError(f"profile '{context.profile}' needs real data: pass --data-dir or set TEMPPLUG_DATA.")
    return load_tu(name, context.work_dir / "data", context.data_dir)
