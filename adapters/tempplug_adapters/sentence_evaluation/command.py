"""What ``tempplug eval sts`` and ``tempplug eval transfer`` share: the flags of an encoder, and the report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.sentence_evaluation import model_command

if TYPE_CHECKING:
    from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, SentenceEncoder


def encoder_parser(command: str, description: str, epilog: str, data_help: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags that say which model encodes, how, and where the result goes.

    Args:
        command: the words after ``tempplug``.
        description: of the command.
        epilog: below the flags.
        data_help: of ``--data-dir``.
    """
    parser = model_command.model_parser(
        command,
        description,
        epilog,
        model="folder of a transformers or sentence-transformers model, or its name on the hub",
        data=data_help,
        batch=512,
        batched="sentences handed to the encoder at once",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="pool the transformer so, without what else the model has (default: as the model says, else cls_before_pooler)",
    )
    parser.add_argument(
        "--prompt-name", help="which of the model's prompts stands before sentences (default: as the model says)"
    )
    parser.add_argument("--max-length", type=int, help="longest sentence in tokens (default: as the model says)")
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

    def load() -> SentenceEncoder | LibraryEncoder:
        # Imported here, so that --help and a mistyped option answer at once.
        from tempplug_adapters.sentence_evaluation.encoder import load_encoder

        return load_encoder(options.model, options.pooling, options.max_length, options.device, options.prompt_name)

    def measured(encoder: SentenceEncoder | LibraryEncoder) -> dict[str, Any]:
        return {
            "model": options.model,
            "pooling": encoder.pooling,
            "pooling_source": encoder.pooling_source,
            "max_length": encoder.max_length,
            **measure(encoder),
        }

    def shown(found: dict[str, Any]) -> list[str]:
        length = "any length" if found["max_length"] is None else f"at most {found['max_length']} tokens"
        head = [f"model    {found['model']}", f"pooling  {found['pooling']} ({found['pooling_source']}), {length}"]
        return [*head, *lines(found), "", f"{found['sentences']} sentences in {found['seconds']:.1f} s"]

    model_command.report(options, load, measured, shown)
