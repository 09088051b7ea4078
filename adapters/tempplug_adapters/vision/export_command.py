"""``tempplug export``: writes the backbone of a checkpoint as a file of plain weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from tempplug_adapters.vision.export import FORMATS, export_backbone

DESCRIPTION = "Write a trained backbone in torchvision's layout, for detection toolkits and other programs."


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's flags."""
    parser = argparse.ArgumentParser(prog="tempplug export", description=DESCRIPTION)
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="output folder of a vision training")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write; .safetensors for that format, else torch.save",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="names of the weights: torchvision's (of a ResNet; others keep their own), or the trained module's own "
        "(default: %(default)s)",
    )
    return parser


def main(arguments: list[str]) -> int:
    """Runs the command on the words after ``tempplug export``, and returns its exit status."""
    given = build_parser().parse_args(arguments)
    about = export_backbone(given.checkpoint, given.output, names=given.format)
    print(f"{given.output}: {about}.")
    return 0
