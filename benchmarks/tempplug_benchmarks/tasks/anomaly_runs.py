"""One run of the suite ``anomaly``: fine-tunes a pretrained network on one class with `tempplug_adapters.msc`, and measures it.

It must not know how arms are compared. Importing this loads no framework.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tempplug_benchmarks.task import RunContext
from tempplug_benchmarks.tasks.vision_runs import read_images

if TYPE_CHECKING:
    from tempplug_adapters.images.backbones import Backbone

TINY = "tiny"
"""The ``backbone`` of a recipe that has a small network with random weights, always the same, in place of a pretrained one."""


def train_anomaly(context: RunContext) -> dict[str, float]:
    """Fine-tunes on images of the normal class and returns the ROC-AUC of all classes' test images, after and before."""
    from tempplug_adapters.huggingface import TemperatureArguments
    from tempplug_adapters.msc.one_class import one_class
    from tempplug_adapters.msc.recipe import MSCSettings
    from tempplug_adapters.msc.train import train_msc
    from tempplug_adapters.training.command_line import choose_device

    recipe: dict[str, Any] = dict(context.recipe)
    values = {each.name: recipe[each.name] for each in fields(MSCSettings) if each.name in recipe}
    settings = MSCSettings(seed=context.seed, **values)
    train, test = (
        read_images(recipe["dataset"], split, context, wanted=recipe[f"{split}_total"]) for split in ("train", "test")
    )
    measured = train_msc(
        _backbone(context),
        one_class(train, test, recipe["normal_class"], train_images=settings.train_images, test_images=settings.test_images),
        TemperatureArguments(context.arm.strategy, contrastive_objective=context.arm.objective),
        settings,
        context.work_dir,
        resume_from_checkpoint="auto",
        device=choose_device("auto"),
        # before the first epoch and after the last one, representations are computed
        progress=lambda done, loss: context.progress(
            (done + 0.5) / (settings.epochs + 1), f"epoch {done} of {settings.epochs}, loss {loss:.3f}"
        ),
    )
    after, before = measured["roc_auc_after"], measured["roc_auc_before"]
    return {"ROC-AUC": after, "before": before, "gain": after - before}


def _backbone(context: RunContext) -> Backbone:
    name = str(context.recipe["backbone"])
    if name != TINY:
        from tempplug_adapters.msc.pretrained import load_backbone

        return load_backbone(name, data_dir=context.data_dir)
    import torch

    from tempplug_adapters.images.backbones import create_backbone

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return create_backbone("resnet18", stem="cifar", width=8)
