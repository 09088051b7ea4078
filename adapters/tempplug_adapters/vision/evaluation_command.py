"""``tempplug eval vision``: evaluates a trained backbone on a data set and writes figures, JSON and optional plots.

`evaluations` does the work. Frameworks are imported only when it starts, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tempplug.cli import printable
from tempplug.errors import ConfigError, TempplugError, UnknownNameError, listed, nearest
from tempplug.options import options_of
from tempplug_adapters.ending import ending
from tempplug_adapters.evaluation.command import EvalCommand, shown_progress
from tempplug_adapters.quoting import shell_word
from tempplug_adapters.training.flags import device_flag
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, EvaluationSettings

DEFAULTS = ("knn", "linear-probe", "report")
FROM_TRAINING = {name: name for name in ("load_size", "image_size", "augmentation")}
"""Options that follow the training where they are not given, with their names in its settings."""
FROM_ITS_IMAGES = {
    "train_images": "count",
    "imbalance_ratio": "imbalance_ratio",
    "largest_class": "largest_class",
    "held_out": "held_out",
    "split_seed": "split_seed",
}
"""Those that do so where the data set is the training's: the long-tailed bank is what it was trained on."""


def run(options: argparse.Namespace, progress: Callable[[float, str], None]) -> dict[str, Any]:
    """Runs the evaluations, writes metrics and plots, and returns the contents of the JSON file.

    The file is written after each evaluation. A failed evaluation does not stop the others; its name and the reason are listed
    under ``failed``, which is present only in that case.

    Raises:
        TempplugError: flags, data or checkpoint are invalid, and nothing was evaluated.
    """
    from tempplug_adapters.images.trained_backbone import load_backbone, read_backbone
    from tempplug_adapters.storage.files import make_folder, write_json
    from tempplug_adapters.training.command_line import choose_device, data_folder
    from tempplug_adapters.vision.evaluation.evaluations import Evaluation
    from tempplug_adapters.vision.vision_images import read_images

    checkpoint = Path(options.checkpoint)
    output = Path(options.output or checkpoint / f"evaluation_{Path(options.dataset).name}.json")
    if output.is_dir() or output.suffix != ".json":
        raise ConfigError(f"output={output} must be a file that ends in .json.")
    for name in options.evaluations:
        if name not in EVALUATIONS:
            raise UnknownNameError(f"no evaluation '{name}'.{nearest(name, EVALUATIONS)} Known: {listed(EVALUATIONS)}.")
    trained, _ = read_backbone(checkpoint)
    make_folder(output.parent, "output")
    if options.plots:
        make_folder(options.plots, "plots")
    same = trained.get("dataset") == options.dataset
    for option, name in (FROM_TRAINING | (FROM_ITS_IMAGES if same else {})).items():
        if getattr(options, option) is None:
            setattr(options, option, trained.get(name))
    given = {each.name: getattr(options, each.name) for each in options_of(EvaluationSettings)}
    settings = EvaluationSettings(**{name: value for name, value in given.items() if value is not None})
    device, folder = choose_device(options.device), data_folder(options.data_dir)
    backbone = load_backbone(checkpoint, options.backbone)
    drawn = {"image_size": settings.image_size, "load_size": options.load_size, "seed": settings.split_seed}
    drawn["columns"] = tuple(trained.get("columns", ())) if same else ()
    train = read_images(options.dataset, "train", folder, count=options.train_images, **drawn)
    test = read_images(options.dataset, "test", folder, count=options.test_images, **drawn)
    started = time.perf_counter()
    evaluation = Evaluation(backbone, train, test, settings, device, progress)
    for name in options.evaluations:
        evaluation.check(name)
    found: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "dataset": options.dataset,
        "bank": len(train),
        "queries": len(test),
        "classes": len(train.classes),
        "dimension": evaluation.queries.shape[1],
        "seed": settings.seed,
    }
    work: dict[str, Callable[[], Any]] = {name: partial(evaluation.measure, name) for name in options.evaluations}
    if options.plots:
        work["plots"] = lambda: [str(path) for path in evaluation.draw(Path(options.plots))]
    for name, measure in work.items():
        try:
            found[name] = measure()
        except TempplugError as error:
            found.setdefault("failed", {})[name] = str(error)
        found["seconds"] = round(time.perf_counter() - started, 3)
        write_json(output, found)
    return found


def evaluation_table(found: dict[str, Any]) -> str:
    """Returns the last lines of the command: all figures by their names in ``metrics.json``, and the next command."""
    from tempplug_adapters.vision.vision_method import figures

    flat = {name: value for each in EVALUATIONS if each in found for name, value in figures(each, found[each]).items()}
    said = [
        f"checkpoint  {found['checkpoint']}",
        f"data        {found['dataset']}: bank of {found['bank']} train images, {found['queries']} test images as queries",
        f"            {found['classes']} classes, representations of {found['dimension']} numbers, {found['seconds']:.1f} s",
        *(f"wrote {path}" for path in found.get("plots", [])),
    ]
    return ending(said, flat, f"tempplug export --checkpoint {shell_word(found['checkpoint'])} --output backbone.pth")


def _main(options: argparse.Namespace) -> int:
    """Returns 2 if an evaluation failed."""
    from tempplug_adapters.training.command_line import quietly

    with quietly(), shown_progress() as progress:
        found = run(options, progress)
    print(evaluation_table(found))
    for name, reason in found.get("failed", {}).items():
        print(printable(f"error: {name}: {reason}"), file=sys.stderr)
    return 2 if "failed" in found else 0


VISION = EvalCommand(
    name="vision",
    description="Measure the representations of a trained backbone. Neighbours and linear classifiers learn from the training "
    "split and predict the test split, by which neither epochs nor settings are chosen.",
    flags={
        "--checkpoint": {"required": True, "metavar": "DIR", "help": "output folder of a vision training"},
        "--backbone": {
            "metavar": "MODULE:NAME",
            "help": "the training's backbone, if a module of your own: it is imported",
        },
        "--dataset": {
            "required": True,
            "metavar": "NAME",
            "help": "name of a data set, folder of class folders, or table of images",
        },
        "--data-dir": {"metavar": "DIR", "help": "folder of real data (default: TEMPPLUG_DATA)"},
        "--load-size": {"type": int, "help": "side in pixels to which images are resized when read (default: the training's)"},
        "--train-images": {
            "type": int,
            "metavar": "N",
            "help": "images to learn from, drawn (default: the training's, else all)",
        },
        "--test-images": {"type": int, "metavar": "N", "help": "images drawn from the test split (default: all)"},
        "--evaluations": {
            "nargs": "+",
            "default": list(DEFAULTS),
            "metavar": "NAME",
            "help": f"of {', '.join(EVALUATIONS)} (default: {', '.join(DEFAULTS)})",
        },
        "--plots": {"metavar": "DIR", "help": "folder for plots of similarities and of representations in two dimensions"},
        "--output": {
            "metavar": "FILE",
            "help": "JSON of all figures (default: evaluation_DATASET.json in the checkpoint)",
        },
        "--device": device_flag(),
    },
    settings=EvaluationSettings,
    settings_note="Settings of views that are not given are those of the training; on its images, also those of the long tail.",
    run=_main,
)
