"""From images to representations: a backbone run over a whole set, without its projection head and without gradient.

It must not know how the backbone was trained, nor what the representations are for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.image_set import ImageSet


@torch.no_grad()
def represent(
    backbone: nn.Module,
    images: ImageSet,
    *,
    batch_size: int = 256,
    size: int | None = None,
    augmentation: Callable[[Tensor], Tensor] | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Tensor:
    """Returns the representations of all images, [N, F] in at least float32, on the CPU.

    The backbone runs in evaluation mode; afterwards each of its modules is in the mode it was in.

    Args:
        backbone: [B, 3, H, W] in [0, 1] to [B, F]; normalisation is its own business.
        images: in the order of the result, at least one.
        batch_size: images at once, at least 1.
        size: side to which images are resized (bilinear, antialiased); None leaves them as they are.
        augmentation: applied to each batch of [0, 1] images after that, on its device, for a random view of every image. It
            draws from torch's global generator.
        device: of the batches; the backbone is moved there. None: where the backbone is.
        progress: called with the fraction done.

    Raises:
        ConfigError: ``batch_size`` or ``size`` is less than 1.
        DataError: there is no image.
        ShapeError: the backbone returns something else than a matrix with one row per image.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} must be at least 1.")
    if size is not None and size < 1:
        raise ConfigError(f"size={size} must be at least 1.")
    if not len(images):
        raise DataError(f"the set '{images.name}' has no images to represent.")
    if device is None:
        device = next((each.device for each in backbone.parameters()), torch.device("cpu"))
    backbone.to(device)
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    found = torch.empty(0)
    try:
        for index in torch.split(torch.arange(len(images)), batch_size):
            batch = images.batch(index).to(device).float() / 255
            if size is not None and batch.shape[-2:] != (size, size):
                batch = F.interpolate(batch, (size, size), mode="bilinear", antialias=True)
            rows = backbone(batch if augmentation is None else augmentation(batch))
            if rows.ndim != 2 or len(rows) != len(batch):
                raise ShapeError(f"the backbone returned {list(rows.shape)} for {len(batch)} images, not [{len(batch)}, F].")
            if not len(found):
                # Filled in place: a list of parts would need the memory of a large set twice.
                found = torch.empty(len(images), rows.shape[1], dtype=torch.promote_types(rows.dtype, torch.float32))
            found[index] = rows.to("cpu", found.dtype)
            progress((int(index[-1]) + 1) / len(images))
    finally:
        for module, training in modes:
            module.training = training
    return found
