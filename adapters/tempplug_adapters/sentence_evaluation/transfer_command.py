"""``tempplug eval transfer MODEL``: what linear classifiers learn from a model's vectors, as a table and as a JSON file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError
from tempplug_adapters.sentence_evaluation.command import encoder_parser, report
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS

if TYPE_CHECKING:
    from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, SentenceEncoder


def main(arguments: list[str]) -> int:
    """Runs the command, given the words after its name: prints the table, writes the JSON file, returns 0."""
    options = _parser().parse_args(arguments)
    if options.data_dir is None:
        raise ConfigError("--data-dir is missing: name the folder with MR.tsv.gz and the other tasks, or set TEMPPLUG_DATA.")

    def measure(encoder: SentenceEncoder | LibraryEncoder) -> dict[str, Any]:
        from tempplug_adapters.sentence_evaluation.transfer import FAST, REPORTED, evaluate_transfer

        return evaluate_transfer(
            encoder,
            options.data_dir,
            options.tasks,
            protocol=FAST if options.fast else REPORTED,
            backend=options.backend,
            batch_size=options.batch_size,
            device=next(encoder.model.parameters()).device,
            progress=lambda task: print(f"{task} …", file=sys.stderr),
        ).to_dict()

    report(options, measure, lambda found: _table(found, options.data_dir))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = encoder_parser(
        "eval transfer",
        description="Accuracy of a linear classifier on a sentence encoder's vectors, by SentEval's protocol.",
        epilog="accuracy: of rows that chose nothing. dev: of the rows that chose the strength of the weight decay.",
        data_help="folder with the data sets, or SentEval's (default: TEMPPLUG_DATA)",
    )
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", choices=TRANSFER_TASKS, help=f"out of {', '.join(TRANSFER_TASKS)} (default: all)"
    )
    parser.add_argument(
        "--backend",
        choices=("tempplug", "senteval"),
        default="tempplug",
        help="trainer of the classifiers: tempplug, or an installed senteval, with the same vectors (default: tempplug)",
    )
    parser.add_argument("--fast", action="store_true", help="five folds and short fits, for the dev accuracy during training")
    return parser


def _table(found: dict[str, Any], data_dir: str) -> list[str]:
    lines = [
        f"data     {data_dir}, {found['folds']} folds, classifiers by {found['backend']}",
        "",
        f"{'task':<8} {'rows':>6} {'accuracy':>9} {'dev':>7} {'F1':>7}",
    ]
    for task, value in found["accuracy"].items():
        f1 = f"{found['f1'][task]:>7.2f}" if task in found["f1"] else ""
        lines.append(f"{task:<8} {found['rows'][task]:>6} {value:>9.2f} {found['dev'][task]:>7.2f} {f1}".rstrip())
    if found["average"] is not None:
        lines.append(f"{'average':<8} {'':>6} {found['average']:>9.2f}")
    return lines
