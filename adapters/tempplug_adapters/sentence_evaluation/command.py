"""What ``tempplug eval sts`` and ``tempplug eval transfer`` share: the flags of an encoder, and the report as table and file.

Knows no protocol. Models are loaded in `encoder`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.training.flags import add_device

if TYPE_CHECKING:
    from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
    from tempplug_adapters.sentence_evaluation.library_encoder import LibraryEncoder


def encoder_parser(command: str, description: str, epilog: str, data_help: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags that say which model encodes, how, and where the result goes.

    Args:
        command: the words after ``tempplug``.
        description: of the command.
        epilog: below the flags.
        data_help: of ``--data-dir``.
    """
    parser = argparse.ArgumentParser(prog=f"tempplug {command}", description=description, epilog=epilog)
    parser.add_argument("model", help="folder of a transformers or sentence-transformers model, or its name on the hub")
    parser.add_argument("--data-dir", default=os.environ.get("TEMPPLUG_DATA") or None, help=data_help)
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="pool the transformer so, without what else the model has (default: as the model says, else cls_before_pooler)",
    )
    parser.add_argument(
        "--prompt-name", help="which of the model's prompts stands before sentences (default: as the model says)"
    )
    parser.add_argument("--batch-size", type=int, default=512, help="sentences handed to the encoder at once (default: 512)")
    parser.add_argument("--max-length", type=int, help="longest sentence in tokens (default: as the model says)")
    add_device(parser)
    parser.add_argument("--output", type=Path, help="JSON file to write the result to")
    return parser


def report(
    options: argparse.Namespace,
    measure: Callable[[SentenceEncoder | LibraryEncoder], dict[str, Any]],
    lines: Callable[[dict[str, Any]], list[str]],
) -> None:
    """Loads the encoder, measures it, prints the table and writes the JSON file.

    Args:
        options: of a parser that `encoder_parser` made.
        measure: from the encoder to what was measured, ``sentences`` (their number) among it.
        lines: from that to the lines of the table.

    Raises:
        ConfigError: the file cannot be written where ``--output`` says, or an option does not fit the model.
    """
    if options.output is not None and not options.output.resolve().parent.is_dir():
        raise ConfigError(f"--output={options.output} lies in a folder that does not exist; create it first.")
    # Imported here, so that --help and a mistyped option answer at once.
    from tempplug_adapters.sentence_evaluation.encoder import load_encoder

    encoder = load_encoder(options.model, options.pooling, options.max_length, options.device, options.prompt_name)
    started = time.perf_counter()
    found = {
        "model": options.model,
        "pooling": encoder.pooling,
        "pooling_source": encoder.pooling_source,
        "max_length": encoder.max_length,
        **measure(encoder),
    }
    found["seconds"] = round(time.perf_counter() - started, 2)
    length = "any length" if encoder.max_length is None else f"at most {encoder.max_length} tokens"
    head = [f"model    {found['model']}", f"pooling  {encoder.pooling} ({encoder.pooling_source}), {length}"]
    print("\n".join([*head, *lines(found), "", f"{found['sentences']} sentences in {found['seconds']:.1f} s"]))
    if options.output is not None:
        write_json(options.output, found)
