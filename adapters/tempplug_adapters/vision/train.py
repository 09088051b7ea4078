"""`train_vision`: from a set of images, a method and a temperature strategy to a trained backbone, on one process or several.

What an epoch draws depends on the seed, the epoch and the process alone, and the checkpoint holds everything else: a killed run
goes on to the same weights, bit for bit. Schedules are told whole epochs, the first of which is number 1, as in the code of
Kukleva et al. 2023.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import BACKBONES
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.representations import represent
from tempplug_adapters.training.checkpoint import CHECKPOINT, Settings, load_checkpoint, resume_point, save_checkpoint
from tempplug_adapters.training.command_line import write_metrics
from tempplug_adapters.vision import processes
from tempplug_adapters.vision.batches import Batches, seed_of
from tempplug_adapters.vision.evaluation.knn import knn_accuracy
from tempplug_adapters.vision.methods import create_method, specs
from tempplug_adapters.vision.old_recipe import VisionSettings
from tempplug_adapters.vision.optimizer import create_optimizer, learning_rate_factor, set_learning_rates
from tempplug_adapters.vision.step_module import StepModule

METRICS_FILE = "metrics.json"
NEIGHBOURS = 200
VOTE_TEMPERATURE = 0.1


class History:
    """What happened in each epoch, as part of the checkpoint.

    Attributes:
        epochs: of each epoch its number from 1, the mean ``loss``, the mean ``temperature`` of its last step (None without a
            softmax), and ``knn`` accuracy where it was measured.
    """

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """Returns the epochs."""
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores them."""
        self.epochs = list(state["epochs"])


def train_vision(
    images: ImageSet,
    method: str,
    temperature: TemperatureArguments,
    settings: VisionSettings,
    output_dir: str | Path,
    *,
    test: ImageSet | None = None,
    about: Mapping[str, Any] | None = None,
    resume_from_checkpoint: str | None = None,
    save_epochs: int = 10,
    evaluate_epochs: int | None = None,
    workers: int = 0,
    device: str | torch.device = "cpu",
    begin: Callable[[dict[str, str | None]], None] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Trains, writes checkpoint and numbers, and measures the backbone by the neighbours of test images.

    With a process group every process trains on its share of each batch; the first one measures and writes.

    Args:
        images: to train on; labels are looked at by a strategy that needs them, and to measure.
        method: one of `tempplug_adapters.vision.recipe.METHODS`.
        temperature: which strategy and objective; SimSiam and Barlow Twins take none, or ``amcl``.
        settings: how.
        output_dir: folder for checkpoint and numbers.
        test: images of the same classes; None, or images without labels, measures nothing.
        about: what else decides which images these are, as numbers and words: part of checkpoint and numbers.
        resume_from_checkpoint: ``auto`` goes on with the checkpoint of the folder where there is one; or a file.
        save_epochs: epochs between two checkpoints, at least 1; the last epoch always writes one.
        evaluate_epochs: measure also after every so many epochs, at least 1; None: at the end only.
        workers: processes that read images beside the training.
        device: where to train, e.g. ``cpu`` or ``cuda``.
        begin: called with the resolved specs of strategy and objective.
        progress: called after every epoch with the number of epochs done and the mean loss of the epoch.

    Returns:
        ``method``, ``dataset`` (the set's name), ``images``, all of ``about``, ``strategy`` and ``objective`` (resolved specs,
        None where the method has none), ``settings``, ``loss`` of the last epoch, ``seconds_per_epoch`` of those trained in
        this call, evaluation apart (None for no epoch), ``knn`` (``accuracy`` in percent by the weighted vote of ``k``
        neighbours among the training images, with ``temperature`` of the vote; None where it was not measured), and
        ``history``, see `History`. Also written as ``metrics.json``.

    Raises:
        ConfigError: options do not fit, or the folder holds the checkpoint of another run.
        DataError: images cannot be read or miss labels, the sets have other classes, or the checkpoint is damaged.
        NonFiniteError: the training diverged.
        UnknownNameError: no such strategy, objective, augmentation or backbone.
        MissingDependencyError: the backbone is of a package that is not installed.
    """
    _check(images, test, settings, save_epochs, evaluate_epochs)
    device = torch.device(device)
    output = Path(output_dir)
    point = resume_point(output, resume_from_checkpoint)
    _warn_of_slow_products(settings, device)
    rank, world = processes.rank(), processes.world()
    augmentation = create_augmentation(settings.augmentation, settings.image_size)
    batches = Batches(images, settings.batch_size, settings.seed, rank=rank, world=world, workers=workers)
    torch.manual_seed(settings.seed)
    module = create_method(method, images, temperature, settings, gather=world > 1).to(device)
    if settings.channels_last:
        _refuse_broken_convolutions(module, device)
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    resolved = specs(module)
    if begin is not None:
        begin(resolved)
    optimizer, history = create_optimizer(module, settings), History()
    origin = {"method": method, "dataset": images.name, "images": len(images), **(about or {}), **resolved}
    state = {"settings": Settings({**origin, **asdict(settings)}), "model": module, "optimizer": optimizer, "history": history}
    start = load_checkpoint(point, **state)
    trained = processes.distribute(
        module,
        sync_batch_norm=settings.sync_batch_norm,
        find_unused=settings.backbone not in BACKBONES,
        device=device,
    )

    def measure() -> float | None:
        return None if rank else _knn(module, images, test, settings, device)

    def save(done: int) -> None:
        if not rank:
            save_checkpoint(output / CHECKPOINT, done, **state)
        processes.wait()

    seconds = 0.0
    for epoch in range(start, settings.epochs):
        began = time.perf_counter()
        loss = _epoch(trained, module, optimizer, augmentation, batches, settings, epoch, device)
        seconds += time.perf_counter() - began
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"loss={loss} after epoch {epoch + 1}: the training diverged. Lower the learning rate, or raise the "
                "temperature, and begin again in another folder."
            )
        history.epochs.append({"epoch": epoch + 1, "loss": loss, "temperature": _temperature(module)})
        if evaluate_epochs is not None and (epoch + 1) % evaluate_epochs == 0:
            history.epochs[-1]["knn"] = measure()
        if (epoch + 1) % save_epochs == 0 or epoch + 1 == settings.epochs:
            save(epoch + 1)
        if progress is not None:
            progress(epoch + 1, loss)
    if not settings.epochs:
        save(0)
    last = history.epochs[-1] if history.epochs else {}
    found = last.get("knn")
    accuracy = measure() if found is None else found
    done = settings.epochs - start
    results = {
        **origin,
        "settings": asdict(settings),
        "loss": last.get("loss"),
        "seconds_per_epoch": seconds / done if done else None,
        "knn": None
        if accuracy is None
        else {"accuracy": accuracy, "k": min(NEIGHBOURS, len(images)), "temperature": VOTE_TEMPERATURE},
        "history": history.epochs,
    }
    if not rank:
        write_metrics(output / METRICS_FILE, results)
    return results


def _epoch(
    trained: nn.Module,
    module: StepModule,
    optimizer: torch.optim.Optimizer,
    augmentation: nn.Module,
    batches: Batches,
    settings: VisionSettings,
    epoch: int,
    device: torch.device,
) -> float:
    """Trains one epoch and returns its mean loss, over all processes."""
    torch.manual_seed(seed_of(settings.seed, epoch, processes.rank()))
    module.train()
    if module.loss_fn is not None:
        module.loss_fn.set_progress(epoch + 1)
    labels = batches.images.labels
    steps = len(batches)
    total = torch.zeros((), device=device)
    for step, (index, pixels) in enumerate(batches.epoch(epoch), start=epoch * steps):
        factor = learning_rate_factor(
            step, settings.epochs * steps, settings.warmup_epochs * steps, settings.learning_rate_schedule
        )
        set_learning_rates(optimizer, factor)
        view_a, view_b = _views(pixels.to(device, non_blocking=True), augmentation, settings.channels_last)
        given = {"index": index.to(device), "labels": None if labels is None else labels[index].to(device)}
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            loss = trained(view_a, view_b, **given)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(processes.mean(total / steps))


def _views(pixels: Tensor, augmentation: nn.Module, channels_last: bool) -> tuple[Tensor, Tensor]:
    """Returns two views of every image; drawn together, which costs less than one after the other."""
    images = pixels.float() / 255
    views: Tensor = augmentation(torch.cat([images, images]))
    if channels_last:
        views = views.contiguous(memory_format=torch.channels_last)
    view_a, view_b = views.chunk(2)
    return view_a, view_b


def _temperature(module: StepModule) -> float | None:
    return None if module.loss_fn is None else float(module.loss_fn.record.temperature_mean)


def _knn(
    module: StepModule, images: ImageSet, test: ImageSet | None, settings: VisionSettings, device: torch.device
) -> float | None:
    if test is None or test.labels is None or images.labels is None:
        return None
    bank, queries = (
        represent(module.backbone, each, size=settings.image_size, device=device).to(device) for each in (images, test)
    )
    return knn_accuracy(
        bank,
        images.labels.to(device),
        queries,
        test.labels.to(device),
        k=NEIGHBOURS,
        temperature=VOTE_TEMPERATURE,
        classes=len(images.classes),
    )


def _check(
    images: ImageSet, test: ImageSet | None, settings: VisionSettings, save_epochs: int, evaluate_epochs: int | None
) -> None:
    for name, value in (("save_epochs", save_epochs), ("evaluate_epochs", evaluate_epochs)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value} must be at least 1.")
    if test is not None and test.labels is not None and images.labels is not None and test.classes != images.classes:
        raise DataError(f"the sets '{images.name}' and '{test.name}' must have the same classes, in the same order.")


def _refuse_broken_convolutions(module: nn.Module, device: torch.device) -> None:
    """Raises where PyTorch 2.13 writes past the end of a tensor: found on processors with AVX2, in the backward pass."""
    for each in module.modules():
        if (
            device.type == "cpu"
            and isinstance(each, nn.Conv2d)
            and each.kernel_size == (1, 1)
            and max(each.stride) > 1
            and each.in_channels < 8
        ):
            raise ConfigError(
                f"channels_last=True breaks 1x1 convolutions of {each.in_channels} channels and stride {each.stride[0]} in "
                "PyTorch on the CPU: leave it out (--no-channels-last), or give the backbone at least 8 channels (--width 8)."
            )


def _warn_of_slow_products(settings: VisionSettings, device: torch.device) -> None:
    if settings.precision == "bf16" and device.type == "cpu" and torch.backends.cpu.get_cpu_capability() in _WITHOUT_BF16:
        warnings.warn(
            "precision='bf16' on a processor without bfloat16 instructions is several times slower than float32, not faster.",
            stacklevel=3,
        )


_WITHOUT_BF16 = ("DEFAULT", "NO AVX", "AVX2")
