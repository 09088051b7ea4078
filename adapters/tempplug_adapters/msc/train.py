"""`train_msc`: from a pretrained network and one class of images to a fine-tuned network, and its ROC-AUC before and after.

Everything random follows from the seed through PyTorch's global generator, which the checkpoint holds: a killed run goes on to
the same weights, bit for bit. Labels never reach training; the test set is looked at before it and after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tempplug
from tempplug.arguments import parse_spec
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.msc.blocks import freeze_blocks
from tempplug_adapters.msc.model import MSC, centre_of
from tempplug_adapters.msc.one_class import OneClassData
from tempplug_adapters.msc.recipe import AUGMENTATION, MSCSettings, default_frozen_blocks, known_options
from tempplug_adapters.msc.score import anomaly_scores, represent, roc_auc
from tempplug_adapters.training.checkpoint import (
    CHECKPOINT,
    Settings,
    load_checkpoint,
    resume_point,
    save_checkpoint,
    weights_checksum,
)
from tempplug_adapters.training.command_line import write_metrics
from tempplug_adapters.training.files import write_file

RESULTS_FILE = "metrics.json"
BACKBONE_FILE = "backbone.pt"


def create_loss(
    temperature: TemperatureArguments, settings: MSCSettings, images: int, dimension: int
) -> tempplug.ContrastiveLoss:
    """Returns MSC's loss: both views of all images are anchors, and of every other image both views are negatives.

    Args:
        temperature: the flags; the recipe's options are used where they give none.
        settings: of the training.
        images: that are trained on.
        dimension: of the representations.

    Raises:
        ConfigError: an option is out of range, or the strategy wants what one class of images cannot give.
        UnknownNameError: no such strategy or objective.
    """
    name, _ = parse_spec(temperature.temperature_strategy or "fixed")
    if name == "uncertainty":
        raise ConfigError("strategy 'uncertainty' needs an uncertainty for each image, which MSC has not: choose another.")
    return temperature.create_loss("two-view", **known_options(name, settings.epochs, images, dimension))


def train_msc(
    backbone: Backbone,
    data: OneClassData,
    temperature: TemperatureArguments,
    settings: MSCSettings,
    output_dir: str | Path,
    *,
    about: Mapping[str, Any] | None = None,
    resume_from_checkpoint: str | None = None,
    device: str | torch.device = "cpu",
    begin: Callable[[dict[str, str]], None] = lambda specs: None,
    progress: Callable[[int, float], None] = lambda epoch, mean: None,
) -> dict[str, Any]:
    """Measures, fine-tunes, measures again, and writes the network and the numbers.

    Args:
        backbone: pretrained, and not yet fine-tuned, also where a run is resumed; it is changed in place. A network that was
            trained with labels of the test images' classes would leak the answer.
        data: of one normal class; see `tempplug_adapters.msc.one_class.one_class`.
        temperature: which strategy and objective.
        settings: how.
        output_dir: folder for checkpoint, network and numbers.
        about: what else decides what is trained, as numbers and words, the backbone's name say: part of the checkpoint, as is
            a checksum of the backbone's weights.
        resume_from_checkpoint: ``auto`` goes on with the checkpoint of the folder where there is one; or a file.
        device: where to train, e.g. ``cpu`` or ``cuda``.
        begin: called before the training with the resolved specs of strategy and objective.
        progress: called after every epoch with the number of epochs done and the mean loss of the epoch.

    Returns:
        ``normal_class``, ``train_images``, ``test_images``, ``anomalous_images``, ``strategy`` and ``objective`` (resolved
        specs), ``settings``, ``loss`` (of the last epoch), ``seconds_per_epoch`` (both None where no epoch was left to train),
        and ``roc_auc_before`` and ``roc_auc_after``, × 100. Also written as ``metrics.json``; ``backbone.pt`` has the weights.

    Raises:
        ConfigError: options do not fit, or the folder holds the checkpoint of another run.
        UnknownNameError: no such strategy or objective.
        DataError: the checkpoint is damaged, the folder cannot be written, or training diverged.
    """
    output, device = Path(output_dir), torch.device(device)
    point = resume_point(output, resume_from_checkpoint)
    torch.manual_seed(settings.seed)
    loss_fn = create_loss(temperature, settings, len(data.train), backbone.dimension)
    specs = {"strategy": loss_fn.strategy.spec(), "objective": loss_fn.objective.spec()}
    begin(specs)
    origin = {**(about or {}), "initial_weights": weights_checksum(backbone.state_dict())}
    frozen = default_frozen_blocks(backbone.module) if settings.frozen_blocks is None else settings.frozen_blocks
    freeze_blocks(backbone, frozen)
    backbone.to(device).eval()
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    normal = represent(backbone, data.train, settings.image_size)
    before = _auc(normal, backbone, data, settings)
    model = MSC(backbone, centre_of(normal, unit=settings.angular), loss_fn, angular=settings.angular).to(device)
    optimizer = _optimizer(model, settings)
    values = {**settings.values(), "frozen_blocks": frozen}
    recipe = {
        "dataset": data.train.name,
        "normal_class": data.normal_class,
        "images": len(data.train),
        **specs,
        **values,
        **origin,
    }
    state = {"settings": Settings(recipe), "model": model, "optimizer": optimizer}
    start = load_checkpoint(point, **state)
    augment = create_augmentation(AUGMENTATION, settings.image_size)
    loss, began = None, time.perf_counter()
    for epoch in range(start, settings.epochs):
        loss = _train_epoch(model, data, settings, augment, optimizer, epoch, device)
        save_checkpoint(output / CHECKPOINT, epoch + 1, **state)
        progress(epoch + 1, loss)
    trained = settings.epochs - start
    seconds = (time.perf_counter() - began) / trained if trained else None
    model.eval()
    results = {
        "normal_class": data.normal_class,
        "train_images": len(data.train),
        "test_images": len(data.test),
        "anomalous_images": int(data.anomalous.sum()),
        **specs,
        "settings": values,
        "loss": loss,
        "seconds_per_epoch": seconds,
        "roc_auc_before": before,
        "roc_auc_after": _auc(represent(backbone, data.train, settings.image_size), backbone, data, settings),
    }
    write_file(output / BACKBONE_FILE, lambda temporary: torch.save(backbone.state_dict(), temporary))
    write_metrics(output / RESULTS_FILE, results)
    return results


def batches_of(images: int, size: int) -> list[Tensor]:
    """Returns a random division of the images, drawn from PyTorch's global generator.

    Args:
        images: how many, at least 2.
        size: images a batch; a last batch of a single image, which would have no negative, joins the one before it.
    """
    parts = list(torch.split(torch.randperm(images), size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def _train_epoch(
    model: MSC,
    data: OneClassData,
    settings: MSCSettings,
    augment: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    device: torch.device,
) -> float:
    model.train()
    batches = batches_of(len(data.train), settings.batch_size)
    total = torch.zeros((), device=device)
    for position, index in enumerate(batches):
        images = data.train.batch(index).to(device) / 255
        model.loss_fn.set_progress(epoch + position / len(batches), epoch * len(batches) + position)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
            loss = model(augment(images), augment(images), index=index.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(index)
    return total.item() / len(data.train)


def _optimizer(model: MSC, settings: MSCSettings) -> torch.optim.Optimizer:
    spared = model.no_weight_decay()
    wanted = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    decayed = [each for name, each in wanted if name not in spared]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": settings.weight_decay}]
    temperatures = [each for name, each in wanted if name in spared]
    if temperatures:
        groups.append({"params": temperatures, "weight_decay": 0.0})
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.learning_rate)
    return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=settings.momentum)


def _auc(normal: Tensor, backbone: nn.Module, data: OneClassData, settings: MSCSettings) -> float:
    """Returns the ROC-AUC × 100 of the test images by their distance to the normal ones."""
    tested = represent(backbone, data.test, settings.image_size)
    return roc_auc(anomaly_scores(normal, tested, settings.neighbours), data.anomalous)
