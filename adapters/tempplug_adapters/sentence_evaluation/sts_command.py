"""``tempplug eval sts MODEL``: a model's Spearman correlations as a table, and as a JSON file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tempplug_adapters.sentence_evaluation.command import encoder_parser, report

if TYPE_CHECKING:
    from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, SentenceEncoder

HUB_NOTE = (
    "note     the hub's texts are not tokenised as in SentEval, and its SICK-R is all of SICK: "
    "compare with the literature by --data-dir"
)


def main(arguments: list[str]) -> int:
    """Runs the command, given the words after its name: prints the table, writes the JSON file, returns 0."""
    options = _parser().parse_args(arguments)

    def measure(encoder: SentenceEncoder | LibraryEncoder) -> dict[str, Any]:
        from tempplug_adapters.sentence_evaluation.sts import evaluate_sts

        return evaluate_sts(
            encoder, options.data_dir, split=options.split, batch_size=options.batch_size, backend=options.backend
        ).to_dict()

    report(options, measure, lambda found: _table(found, options.data_dir))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = encoder_parser(
        "eval sts",
        description="Spearman correlation x 100 of a sentence encoder on STS12-16, STS-B and SICK-R.",
        epilog="STS12-16: subsets of a year concatenated, one correlation. The average is over all seven.",
        data_help="folder with the data sets, or SentEval's (default: TEMPPLUG_DATA, else the Hugging Face hub)",
    )
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="dev: STS-B and SICK-R only (default: test)")
    parser.add_argument(
        "--backend",
        choices=("tempplug", "mteb"),
        default="tempplug",
        help="correlations by tempplug, or by the task classes of an installed mteb on the same pairs (default: tempplug)",
    )
    return parser


def _table(found: dict[str, Any], data_dir: str | None) -> list[str]:
    lines = [
        f"data     {data_dir or 'Hugging Face hub'}, {found['split']}, correlations by {found['backend']}",
        *([HUB_NOTE] if found["source"] == "hub" else []),
        "",
        f"{'task':<8} {'pairs':>6} {'Spearman x 100':>15}",
    ]
    lines += [f"{task:<8} {found['pairs'][task]:>6} {value:>15.2f}" for task, value in found["spearman"].items()]
    if found["average"] is not None:
        lines.append(f"{'average':<8} {'':>6} {found['average']:>15.2f}")
    return lines
