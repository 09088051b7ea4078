"""Representations of a set of images: their computation by a backbone, checks, and normalisation to unit length.

This module must not depend on trainings or evaluations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug import embeddings
from tempplug.errors import ConfigError, DataError, NonFiniteError, ShapeError
from tempplug.options import Number
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.modes import Progress, evaluating, silent


@torch.no_grad()
def represent(
    backbone: nn.Module,
    images: ImageSet,
    *,
    batch_size: int = 256,
    size: int | None = None,
    augmentation: Callable[[Tensor], Tensor] | None = None,
    device: torch.device | str | None = None,
    progress: Progress = silent,
) -> Tensor:
    """Returns the representations of all images, [N, F] in at least float32, on the CPU.

    The backbone runs in evaluation mode; afterwards the mode of each of its modules is restored.

    Args:
        backbone: [B, 3, H, W] in [0, 1] to [B, F]; it normalises images itself.
        images: in the order of the result, at least one.
        batch_size: images at once, at least 1.
        size: side to which images are resized (bilinear, antialiased); None: not resized.
        augmentation: then applied to each batch of [0, 1] images, on its device, for a random view of every image. It draws
            from torch's global generator.
        device: of the batches; the backbone is moved there. None: that of the backbone.
        progress: called with the fraction done.

    Raises:
        ConfigError: ``batch_size`` or ``size`` is less than 1.
        DataError: there is no image.
        ShapeError: the backbone does not return a matrix with one row per image.
        NonFiniteError: a representation is not finite.
    """
    for name, value in (("batch_size", batch_size), ("size", size)):
        Number(at_least=1, integer=True, optional=name == "size").check(f"{name}={value}", value)
    if not len(images):
        raise DataError(f"the set '{images.name}' has no images to represent.")
    if device is None:
        device = next((each.device for each in backbone.parameters()), torch.device("cpu"))
    backbone.to(device)
    found = torch.empty(0)
    with evaluating(backbone):
        for index in torch.split(torch.arange(len(images)), batch_size):
            batch = images.batch(index).to(device).float() / 255
            if size is not None and batch.shape[-2:] != (size, size):
                batch = F.interpolate(batch, (size, size), mode="bilinear", antialias=True)
            rows = backbone(batch if augmentation is None else augmentation(batch))
            if rows.ndim != 2 or len(rows) != len(batch):
                raise ShapeError(f"the backbone returned {list(rows.shape)} for {len(batch)} images, not [{len(batch)}, F].")
            if not len(found):
                # Filled in place: a list of parts would need twice the memory.
                found = torch.empty(len(images), rows.shape[1], dtype=torch.promote_types(rows.dtype, torch.float32))
            found[index] = rows.to("cpu", found.dtype)
            progress((int(index[-1]) + 1) / len(images))
    check_finite_rows(found, f"the representations of the images of '{images.name}'")
    return found


def check_representations(representations: Tensor, name: str) -> None:
    """Raises unless representations are a matrix [N, F] of finite floating-point numbers, N and F at least 1."""
    if representations.ndim != 2 or not representations.numel():
        raise ShapeError(f"{name} of shape {list(representations.shape)} must be [N, F] with N and F at least 1.")
    if not representations.is_floating_point():
        raise ConfigError(f"{name} of dtype {representations.dtype} must be floating point.")
    if not torch.isfinite(representations).all():
        raise NonFiniteError(f"{name} hold NaN or infinite values: the model that made them has diverged or overflowed.")


def check_labels(labels: Tensor, representations: Tensor, name: str, classes: int | None = None) -> int:
    """Checks that labels fit their representations, and returns the number of classes.

    Args:
        labels: [N] integers, at least 0.
        representations: [N, F].
        name: of the argument, for the message.
        classes: their number; None: the highest label plus 1.

    Raises:
        ShapeError: another shape.
        ConfigError: not integers, or a label outside 0 … classes - 1.
    """
    if labels.shape != representations.shape[:1]:
        raise ShapeError(f"{name} of shape {list(labels.shape)} must be [{len(representations)}], one per representation.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ConfigError(f"{name} of dtype {labels.dtype} must be integers.")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or (classes is not None and highest >= classes):
        wanted = "at least 0" if classes is None else f"in 0 to {classes - 1}: there are {classes} classes"
        raise ConfigError(f"{name} {lowest} to {highest} must be {wanted}.")
    return highest + 1 if classes is None else classes


def check_held_out(bank: Tensor, queries: Tensor, names: tuple[str, str] = ("bank", "queries")) -> None:
    """Checks that test representations are not the training representations.

    Args:
        bank: [N, F] of training images.
        queries: [M, F] of test images.
        names: of the two arguments, for the message.

    Raises:
        ShapeError: the two have different F.
        ConfigError: both are the same representations, and their rows differ.
    """
    if bank.shape[1] != queries.shape[1]:
        raise ShapeError(f"{names[1]} of shape {list(queries.shape)} must be [M, {bank.shape[1]}], as wide as {names[0]}.")
    if bank.shape == queries.shape and torch.equal(bank.to(queries), queries) and not bool((bank == bank[0]).all()):
        remedy = "Learn from the training split and measure on the test split"
        raise ConfigError(f"{names[1]} are the representations of {names[0]}: each would be its own neighbour. {remedy}.")


def unit_rows(representations: Tensor) -> Tensor:
    """Returns rows of length 1 in at least float32, detached; rows shorter than 1e-12 become zero.

    Args:
        representations: [N, F], finite.

    >>> unit_rows(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return embeddings.unit_rows(representations.detach())[0]
