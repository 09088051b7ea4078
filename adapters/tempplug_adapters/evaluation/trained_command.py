"""``tempplug eval trained``: the figures of a training anew, from its folder and the data, beside those of the training."""

from __future__ import annotations

import shlex

from tempplug_adapters.ending import ending, number
from tempplug_adapters.evaluation.command import shown_progress
from tempplug_adapters.training.use_command import open_folder, trained_parser


def main(arguments: list[str]) -> int:
    """Runs ``tempplug eval trained`` on the words after it, and returns its exit status."""
    dataset = {"metavar": "DATASET", "help": "where the training's data are now (default: as in the training)"}
    parser = trained_parser(
        "eval trained", "Measure a trained folder anew, as at the end of its training, and compare.", ("--dataset", dataset)
    )
    options = parser.parse_args(arguments)
    from tempplug_adapters.training.command_line import data_folder, quietly  # these import torch, which --help does not need
    from tempplug_adapters.training.trained import METRICS_FILE, read_folder_file

    with quietly():
        trained = open_folder(options)
        with shown_progress() as progress:
            found = trained.evaluate(
                data_folder(options.data_dir), options.dataset, progress=lambda done: progress(done, "evaluate")
            )
        before = read_folder_file(trained.folder, METRICS_FILE)["evaluation"]
    apart = max((abs(found[name] - before[name]) for name in found.keys() & before.keys()), default=0.0)
    said = [f"{len(found)} figures; largest difference from {METRICS_FILE}: {number(apart)}"]
    then = f"tempplug embed {shlex.quote(options.folder)} DATA --output vectors.npy"
    print(ending(said, found, then, more=str(trained.folder / METRICS_FILE)))
    return 0
