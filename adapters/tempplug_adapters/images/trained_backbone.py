"""The trained backbone in the folder of a training: written for other programs, and loaded again.

It must not depend on the training method: an output folder contains the weights of the encoder, and a checkpoint those of the
step module, which include the backbone. A network that `transformers.AutoModel` opens is written in its own format, too, so
that the folder needs no other.
"""

from __future__ import annotations

import json
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from tempplug.errors import DataError, MissingDependencyError, NonFiniteError, TempplugError
from tempplug_adapters.encoder_checks import check_finite_weights, load_state
from tempplug_adapters.images.backbones import Backbone, create_backbone, is_own
from tempplug_adapters.images.networks import CLASSIFIERS, RESNETS, VITS
from tempplug_adapters.quoting import fenced
from tempplug_adapters.storage.files import one_line, write_into
from tempplug_adapters.storage.manifest import MANIFEST, verify
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.checkpoints import SETTINGS_FILE, STATE_FILE
from tempplug_adapters.training.method import ENCODER_FILE, FOLDER

CONFIG_FILE, PROCESSOR_FILE = "config.json", "preprocessor_config.json"
_PREFIX = "step.backbone."
_PLACES = {
    "timm": ("timm", "timm.create_model({name!r}, num_classes=0)"),
    "torchvision": ("torchvision", "torchvision.models.get_model({name!r})"),
    "lightly": ("lightly.models", "lightly.models.ResNetGenerator({name!r})"),
}
"""How to make the networks of packages: what to import, and the call."""
_STATE = f"""weights = torch.load({FOLDER} + "/{ENCODER_FILE}", weights_only=True)
network.load_state_dict({{name[7:]: value for name, value in weights.items() if name[:7] == "module."}}, strict=True)"""
_EXPORT = f"tempplug export --checkpoint {FOLDER} --output resnet.pth"
_STEM = "network.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)\nnetwork.maxpool = torch.nn.Identity()\n"
_WIDTH = 64
"""Channels of the first stage of torchvision's ResNets."""


def save_backbone(backbone: nn.Module, folder: Path, image_size: int) -> None:
    """Writes `ENCODER_FILE`, and for `transformers.AutoModel` configuration, weights and preprocessing, if it opens them."""
    state = {name: value.cpu() for name, value in backbone.state_dict().items()}
    write_tensors(folder / ENCODER_FILE, state)
    network: Any = backbone.module
    if not opens_with_auto_model(network):
        return
    size = {"height": image_size, "width": image_size}
    mean, std = (state[name].flatten().tolist() for name in ("mean", "std"))
    processor = {"image_processor_type": "ViTImageProcessor", "size": size, "image_mean": mean, "image_std": std}

    def write(place: Path) -> None:
        # safetensors refuses tensors in channels_last
        network.save_pretrained(
            place, state_dict={name: value.cpu().contiguous() for name, value in network.state_dict().items()}
        )
        (place / PROCESSOR_FILE).write_text(json.dumps(processor, indent=2) + "\n", encoding="utf-8")

    write_into(folder, write)


def opens_with_auto_model(network: nn.Module) -> bool:
    """Returns whether a network is one of transformers as its configuration says; our ResNets for small images are not."""
    if not isinstance(network, PreTrainedModel):
        return False
    try:
        with torch.device("meta"):
            plain: Any = AutoModel.from_config(network.config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except ValueError:  # a configuration without an AutoModel
        return False
    shapes, own = ({name: value.shape for name, value in each.state_dict().items()} for each in (plain, network))
    return all(shapes.get(name) == shape for name, shape in own.items())


def how_to_open(name: str, backbone: Any, stem: str | None = None) -> str:
    """Returns how to open a saved backbone without tempplug, in Markdown with `FOLDER`; empty where no package opens it."""
    library, _, model = name.partition(":")
    network: Any = backbone.module
    if opens_with_auto_model(network):
        lines = f"from transformers import AutoModel\n\nnetwork = AutoModel.from_pretrained({FOLDER})"
        return f"transformers opens it, too; images are normalised as in `{PROCESSOR_FILE}`:\n\n{fenced('python', lines)}"
    if name in RESNETS and isinstance(network, PreTrainedModel) and network.config.embedding_size == _WIDTH:
        lines = f"import torch\nimport torchvision\n\nnetwork = torchvision.models.{name}()\nnetwork.fc = torch.nn.Identity()\n"
        lines += _STEM if stem == "cifar" else ""
        lines += 'network.load_state_dict(torch.load("resnet.pth", weights_only=True), strict=True)'
        return f"torchvision opens what is exported:\n\n{fenced('bash', _EXPORT)}\n\n{fenced('python', lines)}"
    if library in _PLACES:
        module, call = _PLACES[library]
        lines = f"import {module}\nimport torch\n\nnetwork = {call.format(name=model)}\n"
        for attribute in CLASSIFIERS if library != "timm" else ():
            if isinstance(kept := getattr(network, attribute, None), nn.Sequential):
                cut = f"network.{attribute}[:{len(kept)}]" if len(kept) else "torch.nn.Identity()"
                lines += f"network.{attribute} = {cut}\n"
                break
        return f"{library} opens it, too:\n\n{fenced('python', lines + _STATE)}"
    return ""


def weights_file(checkpoint: str | Path) -> Path:
    """Returns the weights file in a training's output folder or in a checkpoint; raises DataError if there is none."""
    folder = Path(checkpoint)
    found = [folder / name for name in (ENCODER_FILE, STATE_FILE) if (folder / name).is_file()]
    if not found or not (folder / SETTINGS_FILE).is_file():
        wanted = f"{SETTINGS_FILE} and {ENCODER_FILE}, or {STATE_FILE} if it is one of its checkpoints (checkpoint-40)"
        raise DataError(f"checkpoint '{folder}' is no folder of a training: it must hold {wanted}.")
    return found[0]


def read_backbone(checkpoint: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the settings of a training, its recipe's among them, and the state of its `Backbone`, without building it.

    Args:
        checkpoint: the output folder of a training command, or one of its checkpoints.

    Raises:
        DataError: it cannot be read, or is not of a vision training.
        NonFiniteError: its weights are not finite.
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
    try:
        check_finite_weights(content)
    except NonFiniteError as error:
        raise NonFiniteError(f"{file} cannot be used: {error}") from error
    return settings, content


def load_backbone(checkpoint: str | Path, own: str | None = None) -> Backbone:
    """Returns the trained backbone of a folder, on the CPU and in training mode.

    Args:
        checkpoint: the output folder of a training command, or one of its checkpoints; its settings name the ``backbone`` and,
            of a ResNet, ``stem`` and ``width``.
        own: the ``backbone`` of these settings, where it is a module of the user: nothing is imported because a file names it.

    Raises:
        DataError: it cannot be read, is not of a vision training, or its settings and weights do not fit.
        NonFiniteError: its weights are not finite.
        MissingDependencyError: the backbone is of a package that is not installed.
    """
    settings, state = read_backbone(checkpoint)
    name = settings["backbone"]
    if is_own(name) and own != name:
        remedy = f"pass --backbone {name} if you trust it"
        raise DataError(f"checkpoint '{checkpoint}' has the backbone '{name}', whose import runs code: {remedy}.")
    try:
        by_name = name in RESNETS or name in VITS or is_own(name) or not (Path(checkpoint) / CONFIG_FILE).is_file()
        backbone = create_backbone(name if by_name else f"transformers:{checkpoint}", **_options(name, settings, state))
        load_state(backbone, state)
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
