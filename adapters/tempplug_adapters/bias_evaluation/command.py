"""``tempplug eval bias MODEL``: the stereotypes that a masked language model prefers, as a table and as a JSON file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tempplug_adapters.evaluation.command import Progress, tasks_flag, text_command

if TYPE_CHECKING:
    from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel

TASKS = {
    "stereoset": "StereoSet, intrasentence, the gender rows of its test set",
    "crows-pairs": "CrowS-Pairs of gender as MABEL and Meade et al. 2022 compute it: tokens that differ are masked",
    "crows-pairs-original": "all of CrowS-Pairs as Nangia et al. 2020 do: tokens that both sentences have are masked",
}


def _load(options: Namespace) -> MaskedLanguageModel:
    # imported here, so that --help and a mistyped option answer at once
    from tempplug_adapters.bias_evaluation.masked_language_model import load_masked_language_model

    return load_masked_language_model(options.model, options.device, options.batch_size)


def _rows(task: str, data_dir: str | None) -> Any:
    """Returns the data of a task."""
    from tempplug_adapters.bias_evaluation.crows_pairs import read_crows_pairs
    from tempplug_adapters.bias_evaluation.stereoset import read_stereoset

    if task == "stereoset":
        return read_stereoset(data_dir)
    pairs = read_crows_pairs(data_dir)
    return [pair for pair in pairs if pair.bias_type == "gender"] if task == "crows-pairs" else pairs


def _check(options: Namespace) -> None:
    for task in options.tasks:
        _rows(task, options.data_dir)


def _measured(options: Namespace, model: MaskedLanguageModel, progress: Progress) -> dict[str, Any]:
    from tempplug_adapters.bias_evaluation.crows_pairs import evaluate_crows_pairs
    from tempplug_adapters.bias_evaluation.stereoset import evaluate_stereoset

    measures: dict[str, Callable[[Any], Any]] = {
        "stereoset": lambda rows: evaluate_stereoset(model, rows),
        "crows-pairs": lambda pairs: evaluate_crows_pairs(model, pairs, "differing"),
        "crows-pairs-original": lambda pairs: evaluate_crows_pairs(model, pairs, "shared"),
    }
    found: dict[str, Any] = {"model": options.model, "data_dir": options.data_dir}
    for number, task in enumerate(options.tasks):

        def parts(fraction: float, number: int = number, task: str = task) -> None:
            progress((number + fraction) / len(options.tasks), task)

        parts(0.0)
        model.progress = parts
        found[task] = asdict(measures[task](_rows(task, options.data_dir)))
    return found


def _table(options: Namespace, found: dict[str, Any]) -> list[str]:
    lines = [f"model    {found['model']}", f"data     {found['data_dir']}; {found['seconds']:.1f} s"]
    for task in (name for name in TASKS if name in found):
        scores = found[task]
        if task == "stereoset":
            names = {"lm": "LM", "ss": "SS", "icat": "ICAT"}
            counts = f"{task}: {scores['rows']} sentences, {scores['targets']} targets, {scores['ties']} ties"
        else:
            names = {name: name for name in ("score", "stereo", "antistereo")}
            counts = f"{task}: {scores['pairs']} pairs, {scores['neutral']} neutral, {scores['skipped']} skipped"
        values = (f"{name} {'-' if scores[key] is None else f'{scores[key]:.2f}'}" for key, name in names.items())
        lines += [counts, f"  {'  '.join(values)}"]
    return lines


BIAS = text_command(
    name="bias",
    then="tempplug train mabel --model-name-or-path {model} --dataset PAIRS --output-dir out",
    description="StereoSet and CrowS-Pairs of a masked language model whose checkpoint holds its head.",
    epilog="; ".join(f"{name}: {what}" for name, what in TASKS.items())
    + ". 50 means no preference, except for LM and ICAT, of which 100 is best.",
    model="folder of a transformers masked language model, or its name on the hub",
    data="folder with the data sets (default: TEMPPLUG_DATA)",
    batch=(64, "sentences of a forward pass"),
    flags={"--tasks": tasks_flag(TASKS, default=list(TASKS))},
    check=_check,
    load=_load,
    measure=_measured,
    table=_table,
)
