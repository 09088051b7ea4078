"""``tempplug eval bias MODEL``: the stereotypes that a masked language model prefers, as a table and as a JSON file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tempplug_adapters.sentence_evaluation.model_command import model_parser, report

if TYPE_CHECKING:
    import argparse

    from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel

TASKS = {
    "stereoset": "StereoSet, intrasentence, the gender rows of its test set",
    "crows-pairs": "CrowS-Pairs of gender as MABEL and Meade et al. 2022 compute it: tokens that differ are masked",
    "crows-pairs-original": "all of CrowS-Pairs as Nangia et al. 2020 do: tokens that both sentences have are masked",
}


def main(arguments: list[str]) -> int:
    """Runs the command, given the words after its name: prints the table, writes the JSON file, returns 0."""
    options = _parser().parse_args(arguments)

    def load() -> MaskedLanguageModel:
        # Imported here, so that --help and a mistyped option answer at once.
        from tempplug_adapters.bias_evaluation.masked_language_model import load_masked_language_model

        return load_masked_language_model(options.model, options.device, options.batch_size)

    report(options, load, lambda model: _measured(options, model), lambda found: list(_table(found)))
    return 0


def _measured(options: argparse.Namespace, model: MaskedLanguageModel) -> dict[str, Any]:
    from tempplug_adapters.bias_evaluation.crows_pairs import evaluate_crows_pairs, read_crows_pairs
    from tempplug_adapters.bias_evaluation.stereoset import evaluate_stereoset, read_stereoset

    def of_gender() -> dict[str, Any]:
        pairs = [pair for pair in read_crows_pairs(options.data_dir) if pair.bias_type == "gender"]
        return evaluate_crows_pairs(model, pairs, "differing").to_dict()

    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "stereoset": lambda: evaluate_stereoset(model, read_stereoset(options.data_dir)).to_dict(),
        "crows-pairs": of_gender,
        "crows-pairs-original": lambda: evaluate_crows_pairs(model, read_crows_pairs(options.data_dir), "shared").to_dict(),
    }
    found: dict[str, Any] = {"model": options.model, "data_dir": options.data_dir}
    for task in options.tasks:
        print(f"{task} …", file=sys.stderr)
        found[task] = measures[task]()
    return found


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        "eval bias",
        description="StereoSet and CrowS-Pairs of a masked language model whose checkpoint holds its head.",
        epilog=f"{'; '.join(f'{name}: {what}' for name, what in TASKS.items())}. 50 is no preference, but of LM and ICAT.",
        model="folder of a transformers masked language model, or its name on the hub",
        data="folder with the data sets (default: TEMPPLUG_DATA)",
        batch=64,
        batched="sentences of a forward pass",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        choices=TASKS,
        default=list(TASKS),
        help=f"out of {', '.join(TASKS)} (default: all)",
    )
    return parser


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield f"model    {found['model']}"
    yield f"data     {found['data_dir']}"
    yield ""
    yield f"{'task':<22} {'score':<12} {'value':>7}"
    for task in (name for name in TASKS if name in found):
        scores = found[task]
        named = (
            {"lm": "LM", "ss": "SS", "icat": "ICAT"}
            if task == "stereoset"
            else dict.fromkeys(("score", "stereo", "antistereo"))
        )
        for key, name in named.items():
            value = "-" if scores[key] is None else f"{scores[key]:.2f}"
            yield f"{task:<22} {name or key:<12} {value:>7}"
    yield ""
    for task in (name for name in TASKS if name in found):
        scores = found[task]
        if task == "stereoset":
            yield f"{task}: {scores['rows']} sentences, {scores['targets']} targets, {scores['ties']} ties"
        else:
            yield f"{task}: {scores['pairs']} pairs, {scores['neutral']} neutral, {scores['skipped']} skipped"
    yield f"{found['seconds']:.1f} s"
