"""Loads the trained backbone from the folder of a training.

It must not depend on the training method: an output folder contains the weights of the encoder, and a checkpoint those of the
step module, which include the backbone.
"""

from __future__ import annotations

import json
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from tempplug.errors import DataError, MissingDependencyError, TempplugError
from tempplug_adapters.images.backbones import Backbone, create_backbone, is_own
from tempplug_adapters.images.networks import RESNETS, VITS
from tempplug_adapters.storage.files import one_line
from tempplug_adapters.storage.manifest import MANIFEST, verify
from tempplug_adapters.storage.tensors import read_tensors
from tempplug_adapters.training.checkpoints import SETTINGS_FILE, STATE_FILE
from tempplug_adapters.training.method import ENCODER_FILE

_PREFIX = "step.backbone."


def weights_file(checkpoint: str | Path) -> Path:
    """Returns the weights file in a training's output folder or in a checkpoint; raises DataError if there is none."""
    folder = Path(checkpoint)
    found = [folder / name for name in (ENCODER_FILE, STATE_FILE) if (folder / name).is_file()]
    if not found or not (folder / SETTINGS_FILE).is_file():
        raise DataError(
            f"checkpoint '{folder}' is no folder of a training: it must hold {SETTINGS_FILE} and {ENCODER_FILE}, or "
            f"{STATE_FILE} if it is one of its checkpoints (checkpoint-40)."
        )
    return found[0]


def read_backbone(checkpoint: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the settings of a training, its recipe's among them, and the state of its `Backbone`, without building it.

    Args:
        checkpoint: the output folder of a training command, or one of its checkpoints.

    Raises:
        DataError: it cannot be read, or is not of a vision training.
    """
    file = weights_file(checkpoint)
    try:
        if (file.parent / MANIFEST).is_file():
            verify(file.parent)
        content = read_tensors(file)
        settings = json.loads((file.parent / SETTINGS_FILE).read_text(encoding="utf-8"))
        settings = {**settings, **settings["recipe"]}
    except DataError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file.parent / SETTINGS_FILE} is damaged: {one_line(error)}.") from error
    if not isinstance(settings.get("backbone"), str):
        raise DataError(f"checkpoint '{checkpoint}' is not of a vision training: its {SETTINGS_FILE} names no backbone.")
    if file.name == STATE_FILE:
        names = content if isinstance(content, dict) else {}
        content = {name.removeprefix(_PREFIX): values for name, values in names.items() if name.startswith(_PREFIX)}
    if not (isinstance(content, dict) and {"mean", "std"} <= content.keys()):
        raise DataError(f"{file} has no weights of a Backbone: it lacks 'mean' or 'std'.")
    return settings, content


def load_backbone(checkpoint: str | Path, own: str | None = None) -> Backbone:
    """Returns the trained backbone of a folder, on the CPU and in training mode.

    Args:
        checkpoint: the output folder of a training command, or one of its checkpoints; its settings name the ``backbone`` and,
            of a ResNet, ``stem`` and ``width``.
        own: the ``backbone`` of these settings, where it is a module of the user: a file does not choose what is imported.

    Raises:
        DataError: it cannot be read, is not of a vision training, or its settings and weights do not fit.
        MissingDependencyError: the backbone is of a package that is not installed.
    """
    settings, state = read_backbone(checkpoint)
    name = settings["backbone"]
    if is_own(name) and own != name:
        raise DataError(
            f"checkpoint '{checkpoint}' has the backbone '{name}', whose import runs code: pass --backbone {name} if you "
            "trust it."
        )
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
        # the shapes give the sizes: one position for each patch and one for the class token
        patch_size = state["module.embeddings.patch_embeddings.projection.weight"].shape[-1]
        patches = state["module.embeddings.position_embeddings"].shape[1] - 1
        return {"image_size": isqrt(patches) * patch_size, "patch_size": patch_size}
    return {"image_size": settings.get("image_size")} if is_own(name) else {}
