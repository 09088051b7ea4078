"""``tempplug train simcse``: flags to `train_simcse`, and a table of what came out."""

from __future__ import annotations

import os
import sys
from typing import Any

from transformers import HfArgumentParser

from tempplug.errors import TempplugError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse.arguments import DataArguments, ModelArguments, SimCSETrainingArguments
from tempplug_adapters.simcse.train import train_simcse

DESCRIPTION = (
    "Train a sentence encoder with SimCSE and any temperature strategy. Every flag of transformers' TrainingArguments works; "
    "options that are not given come from SimCSE's recipe, temperatures included."
)


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        arguments: the words after ``tempplug train simcse``.
    """
    records: list[Any] = [ModelArguments, DataArguments, TemperatureArguments, SimCSETrainingArguments]
    parser = HfArgumentParser(
        records,
        prog="tempplug train simcse",
        description=DESCRIPTION,
    )
    try:
        given = parser.parse_args_into_dataclasses(arguments)
    except (TempplugError, ValueError) as error:  # ValueError: what TrainingArguments refuses
        return _fault(error)
    try:
        results = train_simcse(*given)
    except TempplugError as error:
        return _fault(error)
    if int(os.environ.get("RANK", "0")) == 0:
        _print(results)
    return 0


def _fault(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


def _print(results: dict[str, Any]) -> None:
    if "stsb_dev" in results:
        print(f"STS-B dev  {results['stsb_dev']:6.2f}")
    for task, value in results.get("sts", {}).get("spearman", {}).items():
        print(f"{task:<10} {value:6.2f}")
    if "sts" in results:
        print(f"average    {results['sts']['average']:6.2f}")
