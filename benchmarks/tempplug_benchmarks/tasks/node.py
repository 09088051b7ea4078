"""The suite ``node``: GRACE with every temperature strategy on citation graphs, evaluated by node classification."""

from __future__ import annotations

from typing import Any

from tempplug_adapters.graph.grace_recipe import METHOD
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task
from tempplug_benchmarks.tasks.node_generated import VERSION, generated_nodes

BASELINE = "fixed:temperature=0.5+infonce"
# PyGCL's evaluator and the paper test on the remaining 10 %, contrary to its argument names; see node_evaluation.
_METRICS = (
    Metric(
        name="F1-micro",
        figure="f1_micro 10/80/10",
        summary="F1-micro × 100 on 10 % of the nodes, 10 % to train on, 80 % to validate (the paper's)",
        smallest_difference=0.1,
    ),
    Metric(name="F1-macro", figure="f1_macro 10/80/10", summary="F1-macro × 100 of the same"),
    Metric(
        name="F1-micro 10/10/80",
        figure="f1_micro 10/10/80",
        summary="F1-micro × 100 on 80 % of the nodes, 10 % to train on, 10 % to validate",
    ),
    Metric(name="F1-macro 10/10/80", figure="f1_macro 10/10/80", summary="F1-macro × 100 of the same"),
    Metric(
        name="validation",
        figure="f1_validation 10/10/80",
        summary="F1-micro × 100 on the 10 % to validate of 10/10/80, on which no other figure is measured",
    ),
)
_ARMS = (
    *(*fixed("infonce", 0.1, 0.25, 0.5, 1), "temperature-free+infonce", "macl+reweighted", "macl+infonce", "dystress+infonce"),
    *(*fixed("dcl", 0.5), "learnable+infonce", "schedule+infonce"),
)
_METHODS = {f"fixed:temperature={value}+infonce": f"temperature {value}" for value in ("0.1", "0.25", "0.5", "1")}
_METHODS["temperature-free+infonce"] = "temperature free"
_REPORTED = {label: (PaperRow("temperature-free", "3", method, "CiteSeer"),) for label, method in _METHODS.items()}


def _profile(dataset: str, *, source: str = "", folder: str = "", reported: bool = False, **changes: Any) -> Profile:
    """Returns a profile of a graph in the data folder or of a generated one."""
    return Profile(
        dataset=dataset,
        source=source,
        load=None if source else generated_nodes,
        stands_in="" if source else "a generated graph",
        needs=(folder,) if folder else (),
        recipe=METHOD.recipe(**changes),
        arms=(*arms(*_ARMS, reported=_REPORTED if reported else None), UNTRAINED),
        metrics=_METRICS,
        primary="F1-micro",
        validation="validation",
    )


def _planetoid(name: str, size: str, reported: bool = False, **changes: Any) -> Profile:
    dataset = f"{name} ({size}; Planetoid's files), features scaled to sum 1"
    return _profile(dataset, source=name, folder=f"graph/planetoid/{name}/raw", reported=reported, **changes)


def _dblp(epochs: int) -> Profile:
    return _profile(
        "DBLP (17,716 nodes, 105,734 edges; CitationFull), features scaled to sum 1",
        source="DBLP",
        folder="graph/citation_full/dblp/raw",
        num_train_epochs=epochs,
        per_device_train_batch_size=1024,
    )


_GENERATED = f"generated citation graph, version {VERSION}"
_CITESEER = "3,327 nodes, 9,104 edges"
_CORA = "2,708 nodes, 10,556 edges"


def _task(name: str, summary: str, profiles: dict[str, Profile], papers: str = "") -> Task:
    return Task(name=name, summary=summary, method=METHOD, baseline=BASELINE, papers=papers, profiles=profiles)


SUITE = Suite(
    "node",
    "GRACE node representations, nodes classified by them",
    (
        _task(
            "citeseer",
            "all nodes of CiteSeer contrasted at once, then classified by logistic regression",
            {
                "quick": _profile(_GENERATED, num_train_epochs=40),
                "small": _planetoid("CiteSeer", _CITESEER, reported=True, num_train_epochs=200),
                "paper": _planetoid("CiteSeer", _CITESEER, reported=True),
            },
            papers="node",
        ),
        _task(
            "cora",
            "all nodes of Cora contrasted at once, then classified by logistic regression",
            {"small": _planetoid("Cora", _CORA, num_train_epochs=200), "paper": _planetoid("Cora", _CORA)},
        ),
        _task(
            "dblp",
            "mini-batches of DBLP with sampled neighbours, nodes classified by logistic regression",
            {
                "quick": _profile(_GENERATED, num_train_epochs=10, per_device_train_batch_size=150),
                "small": _dblp(epochs=10),
                "paper": _dblp(epochs=100),
            },
        ),
    ),
)
