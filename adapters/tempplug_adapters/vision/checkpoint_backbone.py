"""The trained backbone of a checkpoint: its weights, and the network that they belong to.

It must not know the training method that wrote the checkpoint: only that the backbone's weights are under ``backbone``.
"""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from tempplug.errors import DataError, MissingDependencyError, TempplugError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.resnet import RESNETS
from tempplug_adapters.images.vit import VITS
from tempplug_adapters.training.files import one_line, read_tensors

_PREFIX = "backbone."


def read_backbone(checkpoint: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the settings of a training and the state of its `Backbone`, without building it.

    Args:
        checkpoint: file of a training command, ``checkpoint.pt``.

    Raises:
        DataError: it cannot be read, or is no checkpoint of a vision training.
    """
    file = Path(checkpoint)
    try:
        content = read_tensors(file)
    except DataError as error:
        raise DataError(f"checkpoint '{file}' cannot be read: {error}") from error
    model, settings = (content.get(key) if isinstance(content, dict) else None for key in ("model", "settings"))
    if not (isinstance(model, dict) and isinstance(settings, dict) and isinstance(settings.get("backbone"), str)):
        raise DataError(
            f"checkpoint '{file}' is not of a vision training: it must hold 'model', and in 'settings' the name of a backbone."
        )
    state = {name.removeprefix(_PREFIX): values for name, values in model.items() if name.startswith(_PREFIX)}
    if not {"mean", "std"} <= state.keys():
        raise DataError(f"checkpoint '{file}' has no weights of a Backbone: its model lacks '{_PREFIX}mean' or '{_PREFIX}std'.")
    return settings, state


def load_backbone(checkpoint: str | Path) -> Backbone:
    """Returns the trained backbone of a checkpoint, on the CPU and in training mode.

    Args:
        checkpoint: file of a training command, ``checkpoint.pt``; its settings name the ``backbone`` and, of a ResNet, ``stem``
            and ``width``.

    Raises:
        DataError: it cannot be read, is no checkpoint of a vision training, or its settings and weights do not fit.
        MissingDependencyError: the backbone is of a package that is not installed.
    """
    settings, state = read_backbone(checkpoint)
    name = settings["backbone"]
    try:
        backbone = create_backbone(name, **_options(name, settings, state))
        backbone.load_state_dict(state)
    except MissingDependencyError:
        raise
    except (TempplugError, RuntimeError, KeyError, TypeError) as error:
        raise DataError(f"checkpoint '{checkpoint}' does not fit its backbone '{name}': {one_line(error, lines=2)}") from error
    return backbone


def _options(name: str, settings: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Any]:
    if name in RESNETS:
        return {option: settings.get(option) for option in ("stem", "width")}
    if name in VITS:
        # how large images and patches were is in the shapes: one position for each patch and one for the class token
        patch_size = state["module.embeddings.patch_embeddings.projection.weight"].shape[-1]
        patches = state["module.embeddings.position_embeddings"].shape[1] - 1
        return {"image_size": isqrt(patches) * patch_size, "patch_size": patch_size}
    return {}
