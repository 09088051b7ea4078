"""``tempplug eval sts MODEL``: a model's Spearman correlations as a table, and as a JSON file where one is asked for.

Holds the command line and its report. The protocol is in `sts`, models are loaded in `encoder`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.storage.files import write_text
from tempplug_adapters.training.flags import add_device

HUB_NOTE = (
    "note     the hub's texts are not tokenised as in SentEval, and its SICK-R is all of SICK: "
    "compare with the literature by --data-dir"
)


def main(arguments: list[str]) -> int:
    """Runs the command: prints the table, writes the JSON file.

    Args:
        arguments: the command line after ``tempplug eval sts``.

    Returns:
        0.

    Raises:
        TempplugError: the input is at fault.
    """
    _run(_parser().parse_args(arguments))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tempplug eval sts",
        description="Spearman correlation x 100 of a sentence encoder on STS12-16, STS-B and SICK-R.",
        epilog="STS12-16: subsets of a year concatenated, one correlation. The average is over all seven.",
    )
    parser.add_argument("model", help="folder of a transformers or sentence-transformers model, or its name on the hub")
    parser.add_argument("--data-dir", help="folder with the data sets (default: TEMPPLUG_DATA, else the Hugging Face hub)")
    parser.add_argument(
        "--pooling", choices=POOLINGS, help="token vectors to one vector (default: as the model says, else cls)"
    )
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="dev: STS-B and SICK-R only (default: test)")
    parser.add_argument("--batch-size", type=int, default=512, help="sentences handed to the encoder at once (default: 512)")
    parser.add_argument("--max-length", type=int, help="longest sentence in tokens (default: as the model says)")
    add_device(parser)
    parser.add_argument("--output", type=Path, help="JSON file to write the result to")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.output is not None and not options.output.resolve().parent.is_dir():
        raise ConfigError(f"--output={options.output} lies in a folder that does not exist; create it first.")
    # Imported here, so that --help and a mistyped option answer at once.
    from tempplug_adapters.sentence_evaluation.encoder import load_encoder
    from tempplug_adapters.sentence_evaluation.sts import evaluate_sts

    data_dir = options.data_dir or os.environ.get("TEMPPLUG_DATA") or None
    encoder = load_encoder(options.model, options.pooling, options.max_length, options.device)
    started = time.perf_counter()
    result = evaluate_sts(encoder, data_dir, split=options.split, batch_size=options.batch_size)
    report = {
        "model": options.model,
        "pooling": encoder.pooling,
        "pooling_source": encoder.pooling_source,
        "max_length": encoder.max_length,
        **result.to_dict(),
        "seconds": round(time.perf_counter() - started, 2),
    }
    print(_table(report, data_dir))
    if options.output is not None:
        write_text(options.output, json.dumps(report, indent=2, allow_nan=False) + "\n")


def _table(report: dict[str, Any], data_dir: str | None) -> str:
    """Returns the report as aligned text."""
    lines = [
        f"model    {report['model']}",
        f"pooling  {report['pooling']} ({report['pooling_source']}), at most {report['max_length']} tokens",
        f"data     {data_dir or 'Hugging Face hub'}, {report['split']}",
        *([HUB_NOTE] if report["source"] == "hub" else []),
        "",
        f"{'task':<8} {'pairs':>6} {'Spearman x 100':>15}",
    ]
    lines += [f"{task:<8} {report['pairs'][task]:>6} {value:>15.2f}" for task, value in report["spearman"].items()]
    if report["average"] is not None:
        lines.append(f"{'average':<8} {'':>6} {report['average']:>15.2f}")
    lines += ["", f"{report['sentences']} sentences in {report['seconds']:.1f} s"]
    return "\n".join(lines)
