"""``tempplug score``: how anomalous images are, a threshold that is chosen on normal images, and a picture of the highest."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tempplug.errors import ConfigError
from tempplug_adapters.ending import ending, number
from tempplug_adapters.quoting import shell_line
from tempplug_adapters.storage.files import make_folder, write_file, write_text
from tempplug_adapters.training.use_command import SPLIT, open_folder, read_inputs, trained_parser

if TYPE_CHECKING:
    from torch import Tensor

    from tempplug_adapters.images.image_set import ImageSet

HIGHEST = 12
"""Images in the picture."""
_SIDE, _ACROSS, _CAPTION = 160, 4, 14
_SHOWN = 6
"""Images whose scores are printed."""


def main(arguments: list[str]) -> int:
    """Runs the command on the words after ``tempplug score``, and returns its exit status."""
    validation = "normal images that were not trained on, to choose the threshold (default: each normal training image, scored "
    parser = trained_parser(
        "score",
        "Score how anomalous images are: the sum of squared distances to the nearest normal training images.",
        ("images", {"help": "image file, folder of image files, or data set of images"}),
        ("--output", {"type": Path, "default": Path("scores.csv"), "metavar": "FILE", "help": "CSV (default: scores.csv)"}),
        ("--validation", {"metavar": "IMAGES", "help": f"{validation}by the others)"}),
        (
            "--false-alarms",
            {
                "type": float,
                "default": 0.05,
                "metavar": "SHARE",
                "help": "of normal images above the threshold (default: 0.05)",
            },
        ),
        SPLIT,
    )
    options = parser.parse_args(arguments)
    if options.output.suffix != ".csv":
        raise ConfigError(f"output={options.output} must end in .csv; the picture beside it ends in .png.")
    if not 0 < options.false_alarms < 1:
        raise ConfigError(f"false_alarms={options.false_alarms} must be greater than 0 and less than 1.")
    make_folder(options.output.resolve().parent, "output")
    from tempplug_adapters.images.image_data import as_images  # these import torch, which --help does not need
    from tempplug_adapters.training.command_line import quietly

    with quietly():
        trained = open_folder(options, "score")
        inputs = read_inputs(trained, options.images, options)
        scores, notes = trained.run("score", inputs.given), [*inputs.notes]
        if options.validation is None:
            normal, source = trained.run("normal_scores"), "normal training images, each scored by the others"
        else:
            validation_inputs = read_inputs(trained, options.validation, options)
            normal = trained.run("score", validation_inputs.given)
            notes += validation_inputs.notes
            source = f"normal images of {options.validation}"
        threshold = float(normal.quantile(1 - options.false_alarms))
        names = [str(row) for row in range(len(scores))] if inputs.names is None else list(inputs.names)
        order = scores.argsort(descending=True).tolist()
        picture = options.output.with_suffix(".png")
        draw_highest(as_images(inputs.given, _SIDE), scores, order[:HIGHEST], threshold, names, picture)
    text = io.StringIO()
    rows = [(names[row], f"{float(scores[row]):.6g}", int(scores[row] > threshold)) for row in order]
    csv.writer(text, lineterminator="\n").writerows([("image", "score", "anomaly"), *rows])
    write_text(options.output, text.getvalue())
    above = int((scores > threshold).sum())
    said = [
        f"threshold {number(threshold)}: {100 * options.false_alarms:g} % of {len(normal)} {source}",
        *notes,
        f"{above} of {len(scores)} images are above it; the highest:",
        *(f"{number(float(scores[row])):>10}  {names[row][-66:]}" for row in order[:_SHOWN]),
        f"wrote {options.output} and {picture}",
    ]
    better = shell_line("tempplug", "score", options.folder, options.images, "--validation", "NORMAL_IMAGES")
    vectors = shell_line("tempplug", "embed", options.folder, options.images, "--output", "vectors.npy")
    print(ending(said, {}, better if options.validation is None else vectors))
    return 0


def draw_highest(
    images: ImageSet, scores: Tensor, rows: Sequence[int], threshold: float, names: Sequence[str], path: Path
) -> None:
    """Writes a picture of some images with their scores; those above the threshold have red captions."""
    import torch
    from PIL import Image, ImageDraw

    across = min(_ACROSS, len(rows))
    sheet = Image.new("RGB", (across * _SIDE, math.ceil(len(rows) / across) * (_SIDE + _CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for place, row in enumerate(rows):
        left, top = place % across * _SIDE, place // across * (_SIDE + _CAPTION)
        pixels = images.batch(torch.tensor([row]))[0].permute(1, 2, 0).contiguous().numpy()
        sheet.paste(Image.fromarray(pixels).resize((_SIDE, _SIDE)), (left, top))
        caption = f"{number(float(scores[row]))}  {Path(names[row]).name}"[: _SIDE // 6]
        draw.text((left + 2, top + _SIDE), caption, fill="red" if scores[row] > threshold else "black")
    write_file(path, lambda temporary: sheet.save(temporary, format="PNG"))
