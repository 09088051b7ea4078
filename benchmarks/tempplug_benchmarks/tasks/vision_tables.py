"""Tasks of the suite ``vision`` that paper tables have and no comparison of strategies needs: other methods, other recipes.

They run where they are named. It must not know how a profile is made of them, and imports nothing heavy.
"""

from __future__ import annotations

from typing import Any

from tempplug_benchmarks.tasks.vision_papers import PAPERS, PaperProfile, row

PLAIN = "plain@heads=1"
"""A method without a softmax as it is, with one head."""
AMCL_ALONE = "amcl+none"
"""The same with AMCL, which has a form for it and no objective."""

SHIFTED = "dystress:profile=shifted,shift=-0.4,width=0.7+infonce"
_OF = {each.task: each for each in PAPERS}
_AMCL_METHODS = {"moco": "MoCo v2", "simsiam": "SimSiam", "barlow-twins": "Barlow Twins"}
_IMAGENET: dict[str, Any] = {"num_train_epochs": 100, "per_device_train_batch_size": 512}


def _amcl(task: str, name: str, changes: dict[str, Any], imagenet: bool = False) -> list[PaperProfile]:
    """Returns AMCL's methods but SimCLR on the images of another task."""
    of = _OF[task]
    recipes = {"moco": "moco-v2", "simsiam": "simsiam", "barlow-twins": "barlow-twins"} if imagenet else {}
    own: dict[str, dict[str, Any]] = {
        "simsiam": {"num_train_epochs": 1000} if not imagenet else {},
        # λ of AMCL's paper
        "barlow-twins": {"redundancy_weight": 5e-3} if imagenet else {},
    }
    return [
        PaperProfile(
            task=f"{name}-{method}",
            dataset=of.dataset,
            images=of.images,
            summary=f"{title} on {of.dataset}, AMCL's recipe",
            method=method,
            recipe=recipes.get(method, "cifar" if method == "simsiam" else "amcl"),
            changes={**own.get(method, {}), **changes},
            baseline=0.2 if imagenet else 0.1,
            temperatures=(0.2 if imagenet else 0.1,),
            evaluations=of.evaluations,
            workers=of.workers,
        )
        for method, title in _AMCL_METHODS.items()
    ]


def _variant(task: str, name: str, summary: str, **fields: Any) -> PaperProfile:
    of = _OF[task]
    same = {"dataset": of.dataset, "images": of.images, "evaluations": of.evaluations, "workers": of.workers}
    return PaperProfile(task=name, summary=summary, **{**same, **fields})


_MOCO_CIFAR = {"num_train_epochs": 200, "per_device_train_batch_size": 128, "augmentation": "simclr-cifar"}
_LONGER = {"num_train_epochs": 400, "per_device_train_batch_size": 128, "warmup_steps": 10 / 400}
TABLES = (
    *_amcl("cifar10-amcl", "cifar10-amcl", {}),
    *_amcl("cifar100-amcl", "cifar100-amcl", {}),
    *_amcl("tiny-imagenet", "tiny-imagenet", dict(_OF["tiny-imagenet"].changes)),
    _variant("imagenet", "imagenet-amcl", "ImageNet by SimCLR's recipe, AMCL's length", recipe="google", changes=_IMAGENET),
    *_amcl("imagenet", "imagenet-amcl", _IMAGENET, imagenet=True),
    *(
        _variant(
            task,
            f"{task.removesuffix('-dystress')}-dystress-moco",
            f"MoCo v2 on {_OF[task].dataset}, DySTreSS's length and batch; its paper does not say more",
            method="moco",
            recipe="amcl",
            changes=_MOCO_CIFAR,
            temperatures=(0.1,),
        )
        for task in ("cifar10-dystress", "cifar100")
    ),
    _variant(
        "imagenet-100",
        "imagenet-100-dystress",
        "100 classes of ImageNet by DySTreSS's recipe",
        recipe="dystress-imagenet",
        # the rows that it shares with MACL's table 7 were trained so long
        changes={"num_train_epochs": 200, "warmup_steps": 10 / 200, "neighbours": 20},
        more=(SHIFTED,),
        reported={
            "dystress+infonce": row("dystress", "1", "DySTreSS", "ImageNet-100"),
            SHIFTED: row("dystress", "1", "DySTreSS*", "ImageNet-100"),
        },
    ),
    _variant(
        "imagenet",
        "imagenet-dystress",
        "ImageNet by DySTreSS's recipe",
        recipe="dystress-imagenet",
        changes={"neighbours": 20},
    ),
    *(
        _variant(
            "imagenet-100",
            f"imagenet-100-{method}",
            f"{title} on 100 classes of ImageNet: its own recipe, DySTreSS's length and batch",
            method=method,
            recipe=method,
            changes={**_LONGER, "embedding_dimension": 2048},
        )
        for method, title in (("simsiam", "SimSiam"), ("barlow-twins", "Barlow Twins"))
    ),
    _variant(
        "imagenet-100",
        "imagenet-100-moco",
        "MoCo v2 on 100 classes of ImageNet, MACL's recipe",
        method="moco",
        recipe="macl-imagenet-100",
        baseline=0.2,
        temperatures=(0.2,),
    ),
    _variant(
        "imagenet-100",
        "imagenet-100-nnclr",
        "NNCLR on 100 classes of ImageNet, MACL's recipe",
        method="nnclr",
        recipe="macl-imagenet-100",
        temperatures=(0.1,),
    ),
)
