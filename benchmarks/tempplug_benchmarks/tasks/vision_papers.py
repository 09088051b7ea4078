"""The papers' profiles of the suite ``vision``, as data: which images, whose recipe, and the tables that an arm answers.

It must not know how a profile is made of it, and imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tempplug_benchmarks.papers import PaperRow

AMCL_TOP = "amcl+amcl-top:top_k=100,beta=0.001"
"""AMCL as its own experiments have it, where ``amcl+dcl`` is its soft form. The paper has 100 or 150 of the most similar
negatives on STL-10 and prints no β: with this one embeddings do not collapse, see `tempplug.objectives.amcl_top`."""


@dataclass(frozen=True, kw_only=True)
class PaperProfile:
    """The paper's profile of one task.

    Attributes:
        task: its name.
        dataset: name, as `tempplug_adapters.images.image_data.load_images` takes it.
        images: how many there are to train on.
        summary: which they are, and whose recipe; without their number, which other profiles have another of.
        method: what trains, by name.
        recipe: of the method, whose settings.
        changes: to them.
        baseline: the fixed temperature that others are compared with.
        temperatures: all fixed ones, the baseline's among them.
        macl: spec of MACL, whose options are the recipe's where it has none.
        dystress: likewise.
        more: further arms.
        reported: the rows of paper tables that an arm answers, by its label.
        evaluations: beyond those of all tasks: ``top-5`` and ``few-labels``.
        workers: processes that read images beside the training.
    """

    task: str
    dataset: str
    images: int
    summary: str
    method: str = "simclr"
    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    baseline: float = 0.1
    temperatures: tuple[float, ...] = (0.1, 0.2, 0.5, 1)
    macl: str = "macl"
    dystress: str = "dystress"
    more: tuple[str, ...] = ()
    reported: Mapping[str, tuple[PaperRow, ...]] = field(default_factory=dict)
    evaluations: tuple[str, ...] = ()
    workers: int = 0


def fixed(temperature: float, objective: str = "infonce") -> str:
    """Returns the label of an arm with a fixed temperature."""
    return f"fixed:temperature={temperature:g}+{objective}"


def row(paper: str, table: str, method: str, dataset: str) -> tuple[PaperRow, ...]:
    """Returns the one row of a paper's table that an arm answers."""
    return (PaperRow(paper, table, method, dataset),)


def _macl(method: str) -> tuple[PaperRow, ...]:
    tables = ("9",) if method == "DCL" else ("9", "B.3")  # DCL's neighbours are lost
    return tuple(PaperRow("macl", table, method, "CIFAR-10") for table in tables)


def _dystress_cifar(dataset: str) -> dict[str, tuple[PaperRow, ...]]:
    methods = {
        fixed(0.1): "SimCLR",
        fixed(0.1, "dcl"): "SimCLR+DCL",
        "macl+reweighted": "MACL (repro.)",
        "dystress+infonce": "DySTreSS",
    }
    return {label: row("dystress", "3", method, dataset) for label, method in methods.items()}


def _amcl(dataset: str, table: str = "3", method: str = "SimCLR baseline", ours: str = "SimCLR + AMCL") -> dict[str, Any]:
    return {fixed(0.5): row("amcl", table, method, dataset), AMCL_TOP: row("amcl", table, ours, dataset)}


PAPERS = (
    PaperProfile(
        task="cifar10",
        dataset="cifar10",
        images=50_000,
        summary="CIFAR-10 by MACL's recipe",
        recipe="macl-cifar",
        changes={"probe": "macl-cifar10"},
        more=(fixed(0.1, "flatnce"), fixed(0.1, "dual-temperature")),
        reported={
            fixed(0.1): _macl("NT-Xent"),
            fixed(0.1, "dcl"): _macl("DCL"),
            fixed(0.1, "flatnce"): _macl("FlatNCE"),
            fixed(0.1, "dual-temperature"): _macl("Dual"),
            "macl+reweighted": _macl("MACL"),
        },
    ),
    PaperProfile(
        task="cifar10-dystress",
        dataset="cifar10",
        images=50_000,
        summary="CIFAR-10 by DySTreSS's recipe",
        recipe="dystress-cifar",
        reported=_dystress_cifar("CIFAR-10"),
    ),
    PaperProfile(
        task="cifar100",
        dataset="cifar100",
        images=50_000,
        summary="CIFAR-100 by DySTreSS's recipe",
        recipe="dystress-cifar",
        reported=_dystress_cifar("CIFAR-100"),
    ),
    PaperProfile(
        task="cifar10-amcl",
        dataset="cifar10",
        images=50_000,
        summary="CIFAR-10 by AMCL's recipe",
        recipe="amcl",
        baseline=0.5,
        more=(AMCL_TOP,),
        reported=_amcl("CIFAR-10"),
    ),
    PaperProfile(
        task="cifar100-amcl",
        dataset="cifar100",
        images=50_000,
        summary="CIFAR-100 by AMCL's recipe",
        recipe="amcl",
        baseline=0.5,
        more=(AMCL_TOP,),
        reported=_amcl("CIFAR-100"),
    ),
    PaperProfile(
        task="tiny-imagenet",
        dataset="tiny-imagenet",
        images=100_000,
        summary="Tiny-ImageNet by AMCL's recipe",
        recipe="amcl",
        changes={"backbone": "resnet50", "stem": "imagenet", "image_size": 64, "num_train_epochs": 800},
        baseline=0.5,
        more=(AMCL_TOP,),
        reported=_amcl("Tiny-ImageNet"),
    ),
    PaperProfile(
        task="stl10",
        evaluations=("few-labels",),
        dataset="stl10-unlabeled",
        images=100_000,
        summary="STL-10's images without labels by AMCL's recipe",
        recipe="amcl",
        changes={"evaluation_dataset": "stl10", "image_size": 96},
        baseline=0.5,
        # DySTreSS's range for images larger than CIFAR's
        dystress="dystress:temperature_min=0.1",
        more=(AMCL_TOP, "schedule+infonce@heads=3", "uncertainty+infonce@heads=3"),
        reported=_amcl("STL-10", "5", "Baseline", "+AMCL"),
    ),
    PaperProfile(
        task="imagenette",
        dataset="imagenette",
        images=9_469,
        summary="Imagenette by the recipe of Temperature-Free",
        recipe="imagenette",
        baseline=0.5,
        temperatures=(0.1, 0.25, 0.5, 1),
        reported={
            label: row("temperature-free", "2", method, "Imagenette")
            for label, method in (
                *((fixed(float(value)), f"temperature {value}") for value in ("0.1", "0.25", "0.5", "1")),
                ("temperature-free+infonce", "temperature free"),
            )
        },
        workers=8,
    ),
    PaperProfile(
        task="imagenet-100",
        evaluations=("top-5",),
        dataset="imagenet-100",
        images=126_689,
        summary="100 classes of ImageNet by MACL's recipe",
        recipe="macl-imagenet",
        changes={"neighbours": 20},
        macl="macl:threshold=0.2",
        more=(fixed(0.1, "reweighted"),),
        reported={
            fixed(0.1): row("macl", "7", "NT-Xent", "ImageNet-100"),
            fixed(0.1, "dcl"): row("macl", "7", "DCL", "ImageNet-100"),
            "macl:threshold=0.2+reweighted": row("macl", "7", "MACL", "ImageNet-100"),
            fixed(0.1, "reweighted"): row("macl", "7", "w/o adaptive", "ImageNet-100"),
        },
        workers=8,
    ),
    PaperProfile(
        task="imagenet",
        evaluations=("top-5",),
        dataset="imagenet",
        images=1_281_167,
        summary="ImageNet by MACL's recipe",
        recipe="macl-imagenet",
        changes={"neighbours": 20},
        reported={
            fixed(0.1): row("macl", "1", "SimCLR", "ImageNet"),
            "macl+reweighted": row("macl", "1", "w/ MACL", "ImageNet"),
        },
        workers=8,
    ),
)
