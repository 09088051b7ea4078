"""The suite ``node``: GRACE with every temperature strategy on citation graphs, nodes classified by its representations.

Declares tasks, recipes and arms; `node_runs` executes them. Importing this loads no framework.
"""

from __future__ import annotations

from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Task
from tempplug_benchmarks.tasks.node_generated import VERSION
from tempplug_benchmarks.tasks.node_runs import GENERATED, train

BASELINE = "fixed-0.5"

# PyGCL's evaluator tests on the 10 % that its argument names call neither, and so does the paper; see node_evaluation.
_METRICS = (
    Metric(name="F1-micro", summary="F1-micro × 100 on 10 % of the nodes, 10 % to train on, 80 % to validate (the paper's)"),
    Metric(name="F1-macro", summary="F1-macro × 100 of the same"),
    Metric(name="F1-micro 10/10/80", summary="F1-micro × 100 on 80 % of the nodes, 10 % to train on, 10 % to validate"),
    Metric(name="F1-macro 10/10/80", summary="F1-macro × 100 of the same"),
)
_REPORTED = {
    f"fixed-{value}": PaperRow("temperature-free", "3", f"temperature {value}", "CiteSeer")
    for value in ("0.1", "0.25", "0.5", "1")
}
_REPORTED["temperature-free"] = PaperRow("temperature-free", "3", "temperature free", "CiteSeer")


def _arms(epochs: int, reported: bool) -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        epochs: of its recipe; a schedule's period is a fifth of them.
        reported: whether the paper's rows answer the same question.
    """
    macl = "macl:base_temperature=0.5,alpha=0.5,threshold=0"
    specs = (
        ("fixed-0.1", "fixed:temperature=0.1", "infonce"),
        ("fixed-0.25", "fixed:temperature=0.25", "infonce"),
        (BASELINE, "fixed:temperature=0.5", "infonce"),
        ("fixed-1", "fixed:temperature=1", "infonce"),
        ("temperature-free", "temperature-free", "infonce"),
        ("macl", macl, "reweighted"),
        ("macl-infonce", macl, "infonce"),
        ("dystress", "dystress:temperature_min=0.25,temperature_max=0.5", "infonce"),
        ("fixed-0.5-dcl", "fixed:temperature=0.5", "dcl"),
        ("learnable", "learnable:initial_temperature=0.5", "infonce"),
        ("schedule", f"schedule:temperature_min=0.25,temperature_max=1,period={epochs / 5:g}", "infonce"),
    )
    return tuple(Arm(*spec, reported=(_REPORTED[spec[0]],) if reported and spec[0] in _REPORTED else ()) for spec in specs)


def _profile(
    graph: str, dataset: str, needs: tuple[str, ...] = (), *, epochs: int, batch_size: int | None = None, reported: bool = False
) -> Profile:
    """Returns a profile with the recipe of PyGCL's example of GRACE, which is the paper's."""
    return Profile(
        dataset=dataset,
        recipe={
            "graph": graph,
            "epochs": epochs,
            "batch_size": batch_size,
            "neighbours": 15,
            "hidden": 32,
            "projection": 32,
            "layers": 2,
            "activation": "relu",
            "learning_rate": 0.01,
            "weight_decay": 0.0,
            "edge_removal": 0.3,
            "feature_masking": 0.3,
            "save_epochs": 100 if batch_size is None else 5,
        },
        arms=_arms(epochs, reported),
        metrics=_METRICS,
        primary="F1-micro",
        needs=needs,
    )


def _generated(epochs: int, batch_size: int | None = None) -> Profile:
    return _profile(GENERATED, f"generated citation graph, version {VERSION}", epochs=epochs, batch_size=batch_size)


def _planetoid(name: str, size: str, epochs: int, reported: bool = False) -> Profile:
    dataset = f"{name} ({size}; Planetoid's files), features scaled to sum 1"
    return _profile(name, dataset, (f"graph/planetoid/{name}/raw",), epochs=epochs, reported=reported)


def _dblp(epochs: int) -> Profile:
    dataset = "DBLP (17,716 nodes, 105,734 edges; CitationFull), features scaled to sum 1"
    return _profile("DBLP", dataset, ("graph/citation_full/dblp/raw",), epochs=epochs, batch_size=1024)


_CITESEER = "3,327 nodes, 9,104 edges"
_CORA = "2,708 nodes, 10,556 edges"

SUITE = Suite(
    "node",
    "GRACE node representations, nodes classified by them",
    (
        Task(
            name="citeseer",
            summary="all nodes of CiteSeer contrasted at once, then classified by logistic regression",
            baseline=BASELINE,
            papers="node",
            train=train,
            profiles={
                "quick": _generated(epochs=40),
                "small": _planetoid("CiteSeer", _CITESEER, epochs=200, reported=True),
                "paper": _planetoid("CiteSeer", _CITESEER, epochs=1000, reported=True),
            },
        ),
        Task(
            name="cora",
            summary="all nodes of Cora contrasted at once, then classified by logistic regression",
            baseline=BASELINE,
            train=train,
            profiles={
                "small": _planetoid("Cora", _CORA, epochs=200),
                "paper": _planetoid("Cora", _CORA, epochs=1000),
            },
        ),
        Task(
            name="dblp",
            summary="mini-batches of DBLP with sampled neighbours, nodes classified by logistic regression",
            baseline=BASELINE,
            train=train,
            profiles={
                "quick": _generated(epochs=10, batch_size=150),
                "small": _dblp(epochs=10),
                "paper": _dblp(epochs=100),
            },
        ),
    ),
)
