"""``tempplug export``: writes a trained backbone as plain weights under torchvision's names, for detection toolkits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug.parser import Parser
from tempplug_adapters.images.networks import RESNETS
from tempplug_adapters.images.trained_backbone import load_backbone, read_backbone, weights_file
from tempplug_adapters.storage.files import write_file
from tempplug_adapters.storage.tensors import write_tensors

FORMATS = ("torchvision", "module")
"""Names of weights: torchvision's for our ResNets, or those of the network as it was trained."""

_MODULE = "module."
_KINDS = {"convolution": ("conv", 0), "normalization": ("bn", 1)}
_NAME = re.compile(
    r"(?P<stem>embedder\.embedder)\.(?P<a>\w+)\.(?P<values>\w+)|encoder\.stages\.(?P<stage>\d+)\.layers\.(?P<block>\d+)\."
    r"(?:layer\.(?P<layer>\d+)|shortcut)\.(?P<b>convolution|normalization)\.(?P<of>\w+)"
)


def torchvision_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of a transformers ResNet under torchvision's names, without ``fc``; `DataError` for other names."""
    return {_torchvision_name(name): values for name, values in state.items()}


def _torchvision_name(name: str) -> str:
    found = _NAME.fullmatch(name)
    kind, place = _KINDS.get(found["a"] or found["b"], (None, 0)) if found else (None, 0)
    if found is None or kind is None:
        raise DataError(f"'{name}' is not a weight of a ResNet, so torchvision has no name for it.")
    if found["stem"]:
        return f"{kind}1.{found['values']}"
    layer = f"downsample.{place}" if found["layer"] is None else f"{kind}{int(found['layer']) + 1}"
    return f"layer{int(found['stage']) + 1}.{found['block']}.{layer}.{found['of']}"


def export_backbone(checkpoint: str | Path, output: str | Path, *, names: str = "torchvision") -> str:
    """Writes only the weights of a trained backbone, and returns a sentence that describes them.

    Mean and standard deviation of the images are not part of the weights; the sentence contains them.

    Args:
        checkpoint: the output folder of a training command, or one of its checkpoints.
        output: file to write, replaced when the new one is complete: safetensors if it ends in ``.safetensors``, else a file
            that `torch.load` reads with ``weights_only=True``. A missing folder is created.
        names: one of `FORMATS`. Other backbones than our ResNets keep their own names with both.

    Raises:
        ConfigError: ``names`` is unknown, or the output is the file of the checkpoint or a folder.
        DataError: the checkpoint cannot be read, is not of a vision training, or does not fit its backbone; or the output
            cannot be written.
    """
    if names not in FORMATS:
        raise ConfigError(f"names='{names}' must be {' or '.join(FORMATS)}.")
    file = Path(output)
    if file.is_dir() or file.resolve() == weights_file(checkpoint).resolve():
        what = "a folder" if file.is_dir() else "the file of the weights itself"
        raise ConfigError(f"output='{file}' is {what}: name another file.")
    settings, state = read_backbone(checkpoint)
    backbone = settings["backbone"]
    weights = {name.removeprefix(_MODULE): values for name, values in state.items() if name.startswith(_MODULE)}
    kind = f"weights of {backbone} under its own names"
    if names == "torchvision" and backbone in RESNETS:
        # building it shows that no weight is missing or of another shape
        weights = torchvision_state(load_backbone(checkpoint).module.state_dict())
        kind = f"weights of {backbone} under torchvision's names"
        if settings.get("stem") == "cifar":
            kind += " (conv1 is 3x3 of stride 1, without max pooling after it: torchvision's own network has another stem)"
    # own memory each, in the usual order of values: safetensors refuses shared and channels_last tensors
    plain = {name: values.detach().clone(memory_format=torch.contiguous_format) for name, values in weights.items()}
    if file.suffix == ".safetensors":
        write_file(file, lambda temporary: temporary.write_bytes(save(plain, metadata={"format": "pt"})))
    else:
        write_tensors(file, plain)
    mean, std = (tuple(round(value, 4) for value in state[each].flatten().tolist()) for each in ("mean", "std"))
    return f"{len(weights)} {kind}, for images with mean {mean} and standard deviation {std}"


def main(arguments: list[str]) -> int:
    """Runs the command on the words after ``tempplug export``, and returns its exit status."""
    parser = Parser(
        prog="tempplug export",
        description="Write a trained backbone in torchvision's layout, for detection toolkits and other programs.",
    )
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="output folder of a vision training")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="file to write; safetensors for that suffix, else torch.save"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="names of the weights: torchvision's (of a ResNet; others keep their own), or the trained module's own "
        "(default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    print(f"{given.output}: {export_backbone(given.checkpoint, given.output, names=given.format)}.")
    return 0
