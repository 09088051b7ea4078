"""The papers' profiles of the suite ``vision``, as data: which images, whose recipe, and the tables that an arm answers.

It must not know how a profile is made of it, and imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tempplug_benchmarks.papers import PaperRow


@dataclass(frozen=True)
class PaperProfile:
    """The paper's profile of one task.

    Attributes:
        task: its name.
        dataset: name, as `tempplug_adapters.images.image_data.load_images` takes it.
        images: how many there are to train on.
        summary: what they are.
        base: whose settings.
        changes: to them, and to how images are read and measured.
        arms: what they have apart from others: ``baseline`` and all ``fixed`` temperatures, MACL's ``threshold``, and ``more``
            of them, each with label, strategy and objective.
        reported: the rows of paper tables that an arm answers, by its label.
    """

    task: str
    dataset: str
    images: int
    summary: str
    base: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    arms: Mapping[str, Any] = field(default_factory=dict)
    reported: Mapping[str, tuple[PaperRow, ...]] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """Label of the arm that the others are compared with."""
        return f"fixed-{self.arms.get('baseline', 0.1):g}"


def _row(paper: str, table: str, method: str, dataset: str) -> tuple[PaperRow, ...]:
    return (PaperRow(paper, table, method, dataset),)


def _macl(method: str) -> tuple[PaperRow, ...]:
    tables = ("9",) if method == "DCL" else ("9", "B.3")  # DCL's neighbours are lost
    return tuple(PaperRow("macl", table, method, "CIFAR-10") for table in tables)


def _dystress_cifar(dataset: str) -> dict[str, tuple[PaperRow, ...]]:
    methods = {"fixed-0.1": "SimCLR", "dcl": "SimCLR+DCL", "macl-reweighted": "MACL (repro.)", "dystress": "DySTreSS"}
    return {label: _row("dystress", "3", method, dataset) for label, method in methods.items()}


def _amcl(dataset: str) -> dict[str, tuple[PaperRow, ...]]:
    return {"fixed-0.5": _row("amcl", "3", "SimCLR baseline", dataset), "amcl": _row("amcl", "3", "SimCLR + AMCL", dataset)}


_HALF = {"baseline": 0.5}
_IMAGENET = {"load_size": 256, "workers": 8}
_CIFAR100 = "60,000 images of 100 classes, 32 x 32"
PAPERS = (
    PaperProfile(
        "cifar10",
        "cifar10",
        50_000,
        "60,000 images of 10 classes, 32 x 32; MACL's recipe",
        "macl-cifar",
        {"probe": "macl-cifar10"},
        {
            "more": (
                ("flatnce", "fixed:temperature=0.1", "flatnce"),
                ("dual-temperature", "fixed:temperature=0.1", "dual-temperature"),
            )
        },
        {
            "fixed-0.1": _macl("NT-Xent"),
            "dcl": _macl("DCL"),
            "flatnce": _macl("FlatNCE"),
            "dual-temperature": _macl("Dual"),
            "macl-reweighted": _macl("MACL"),
        },
    ),
    PaperProfile(
        "cifar10-dystress",
        "cifar10",
        50_000,
        "CIFAR-10 by DySTreSS's recipe",
        "dystress-cifar",
        reported=_dystress_cifar("CIFAR-10"),
    ),
    PaperProfile(
        "cifar100",
        "cifar100",
        50_000,
        f"{_CIFAR100}; DySTreSS's recipe",
        "dystress-cifar",
        reported=_dystress_cifar("CIFAR-100"),
    ),
    PaperProfile("cifar10-amcl", "cifar10", 50_000, "CIFAR-10 by AMCL's recipe", "amcl", {}, _HALF, _amcl("CIFAR-10")),
    PaperProfile("cifar100-amcl", "cifar100", 50_000, "CIFAR-100 by AMCL's recipe", "amcl", {}, _HALF, _amcl("CIFAR-100")),
    PaperProfile(
        "tiny-imagenet",
        "tiny-imagenet",
        100_000,
        "110,000 images of 200 classes, 64 x 64; AMCL's recipe",
        "amcl",
        {"backbone": "resnet50", "stem": "imagenet", "image_size": 64, "epochs": 800},
        _HALF,
        _amcl("Tiny-ImageNet"),
    ),
    PaperProfile(
        "stl10",
        "stl10-unlabeled",
        100_000,
        "100,000 images without labels, 96 x 96, and 13,000 of 10 classes to measure with; AMCL's recipe",
        "amcl",
        {"labelled": "stl10", "image_size": 96},
        _HALF,
        {"fixed-0.5": _row("amcl", "5", "Baseline", "STL-10"), "amcl": _row("amcl", "5", "+AMCL", "STL-10")},
    ),
    PaperProfile(
        "imagenette",
        "imagenette",
        9_469,
        "13,394 images of 10 classes of ImageNet; the recipe of Temperature-Free",
        "imagenette",
        {"load_size": 160, "workers": 8},
        {"baseline": 0.5, "fixed": (0.1, 0.25, 0.5, 1)},
        {
            label: _row("temperature-free", "2", method, "Imagenette")
            for label, method in (
                *((f"fixed-{value}", f"temperature {value}") for value in ("0.1", "0.25", "0.5", "1")),
                ("temperature-free", "temperature free"),
            )
        },
    ),
    PaperProfile(
        "imagenet-100",
        "imagenet-100",
        126_689,
        "131,689 images of 100 classes of ImageNet; MACL's recipe",
        "macl-imagenet",
        {**_IMAGENET, "neighbours": 20},
        {
            "threshold": 0.2,
            "more": (
                ("reweighted", "fixed:temperature=0.1", "reweighted"),
                (
                    "dystress-shifted",
                    "dystress:temperature_min=0.1,temperature_max=0.2,profile=shifted,shift=-0.4,width=0.7",
                    "infonce",
                ),
            ),
        },
        {
            "fixed-0.1": _row("macl", "7", "NT-Xent", "ImageNet-100"),
            "dcl": _row("macl", "7", "DCL", "ImageNet-100"),
            "macl-reweighted": _row("macl", "7", "MACL", "ImageNet-100"),
            "reweighted": _row("macl", "7", "w/o adaptive", "ImageNet-100"),
            "dystress": _row("dystress", "1", "DySTreSS", "ImageNet-100"),
            "dystress-shifted": _row("dystress", "1", "DySTreSS*", "ImageNet-100"),
        },
    ),
    PaperProfile(
        "imagenet",
        "imagenet",
        1_281_167,
        "1,331,167 images of 1,000 classes; MACL's recipe",
        "macl-imagenet",
        {**_IMAGENET, "neighbours": 20},
        {},
        {
            "fixed-0.1": _row("macl", "1", "SimCLR", "ImageNet"),
            "macl-reweighted": _row("macl", "1", "w/ MACL", "ImageNet"),
        },
    ),
)
