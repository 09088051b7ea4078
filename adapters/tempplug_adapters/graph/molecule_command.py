"""``tempplug train molecule``: flags to a pre-trained encoder of molecules, its ROC-AUC, and a folder with all of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import tempplug
from tempplug.arguments import parse_spec
from tempplug.errors import DataError, TempplugError
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_files import DATASETS, UNLABELLED, read_labelled, read_smiles
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_adapters.graph.molecule_recipe import LAYOUT, OBJECTIVE, OBJECTIVES, MoleculeSettings, known_options
from tempplug_adapters.graph.molecule_train import finetune, pretrain
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.checkpoint import resume_point
from tempplug_adapters.training.command_line import choose_device, data_folder, plain_warnings, write_metrics
from tempplug_adapters.training.files import make_folder

METRICS_FILE = "metrics.json"
ENCODER_FILE = "encoder.pt"
DESCRIPTION = (
    "Pre-train an encoder of molecules on unlabelled SMILES with any temperature strategy, and fine-tune it on MoleculeNet: "
    "scaffold split, mean ROC-AUC over the tasks. Options that are not given come from the recipe of GraphCL's code for "
    "molecules, temperatures and objective included."
)
Announce = Callable[[str, int, int, float], None]
"""Told the stage, its steps done, all its steps, and the loss."""


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 2 where the input is at fault.

    Args:
        arguments: the words after ``tempplug train molecule``.
    """
    options = _parser().parse_args(arguments)
    try:
        with plain_warnings(), _Bars(options.no_progress) as bars:
            metrics = run(options, bars.announce)
    except TempplugError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, found in metrics["datasets"].items():
        print(f"{name:<10} ROC-AUC {found['test_roc_auc']:6.2f} ({found['test']} test molecules, {found['tasks']} tasks)")
    return 0


def run(options: argparse.Namespace, announce: Announce) -> dict[str, Any]:
    """Trains and measures what the flags say, writes the folder, and returns what ``metrics.json`` holds.

    Raises:
        TempplugError: flags, data or checkpoint are at fault.
    """
    started = time.perf_counter()
    settings = MoleculeSettings(**{each.name: getattr(options, each.name) for each in fields(MoleculeSettings)})
    output = Path(options.output_dir)
    make_folder(output)
    device = choose_device(options.device)
    data_dir = data_folder(options.data_dir)
    # All data are read before the first step, so that a missing file does not end a day of training.
    labelled = {name: MoleculeSet(*read_labelled(name, data_dir, output / "data")) for name in options.dataset}
    encoder, about = _encoder(options, settings, data_dir, device, announce)
    metrics: dict[str, Any] = {**about, "settings": asdict(settings), "datasets": {}}
    for name, molecules in labelled.items():
        stem = Path(name).stem.lower()
        metrics["datasets"][name] = finetune(
            encoder,
            molecules,
            settings,
            resume_point(output / f"finetune-{stem}", options.resume_from_checkpoint),
            origin={**settings.pretraining(), **{key: about[key] for key in about if key != "pretrain_loss"}},
            device=device,
            progress=lambda done, total, loss, stem=stem: announce(f"fine-tune {stem}", done, total, loss),  # type: ignore[misc]
        )
        metrics["datasets"][name]["unreadable"] = molecules.unreadable
    metrics["seconds"] = round(time.perf_counter() - started, 2)
    write_metrics(output / METRICS_FILE, metrics)
    return metrics


def _encoder(
    options: argparse.Namespace,
    settings: MoleculeSettings,
    data_dir: Path | None,
    device: torch.device,
    announce: Announce,
) -> tuple[MoleculeEncoder, dict[str, Any]]:
    """Returns the encoder to fine-tune, and where it comes from: a file, pre-training, or chance."""
    output = Path(options.output_dir)
    if options.encoder is not None:
        print(f"encoder {options.encoder}", flush=True)
        return MoleculeEncoder.load(Path(options.encoder)), {"encoder": str(options.encoder)}
    if settings.pretrain_epochs == 0:
        print("no pre-training", flush=True)
        torch.manual_seed(settings.seed)
        return MoleculeEncoder(settings.layers, settings.width), {"encoder": "untrained"}
    molecules = MoleculeSet(read_smiles(_pretrain_file(options.pretrain_file, data_dir), options.max_pretrain_molecules))
    loss = create_loss(options, settings, len(molecules))
    specs = {"strategy": loss.strategy.spec(), "objective": loss.objective.spec()}
    print(f"strategy {specs['strategy']}\nobjective {specs['objective']}\n{len(molecules)} molecules", flush=True)
    encoder, history = pretrain(
        molecules,
        loss,
        settings,
        resume_point(output / "pretrain", options.resume_from_checkpoint),
        device=device,
        progress=lambda done, total, value: announce("pre-train", done, total, value),
    )
    encoder.save(output / ENCODER_FILE)
    about = {**specs, "encoder": ENCODER_FILE, "pretrain_molecules": len(molecules), "unreadable": molecules.unreadable}
    return encoder, {**about, "pretrain_loss": history[-1] if history else None}


def create_loss(options: argparse.Namespace, settings: MoleculeSettings, molecules: int) -> tempplug.ContrastiveLoss:
    """Returns the loss that the flags and, where they are silent, the recipe describe.

    Args:
        options: with ``temperature_strategy``, ``temperature_args`` and ``contrastive_objective``, the first and the last
            None where they were not given.
        settings: of the training.
        molecules: that are pre-trained on.

    Raises:
        TempplugError: a spec names an unknown strategy, objective or option, or a value out of range.
    """
    strategy = options.temperature_strategy or "fixed"
    name, _ = parse_spec(strategy)
    objective = options.contrastive_objective or OBJECTIVES.get(name, OBJECTIVE)
    flags = TemperatureArguments(strategy, options.temperature_args, objective)
    known = known_options(name, settings.pretrain_epochs, molecules, settings.width)
    return flags.create_loss(LAYOUT, gather=False, **known)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tempplug train molecule", description=DESCRIPTION)
    parser.add_argument(
        "--dataset",
        nargs="*",
        default=[],
        metavar="NAME",
        help=f"fine-tune on these, one after the other: {', '.join(DATASETS)}, or a .csv with a column smiles and one of 0 and "
        "1 for each task; none: pre-train only",
    )
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="for checkpoints, encoder.pt and metrics.json")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="has graph/moleculenet and graph/smiles (default: TEMPPLUG_DATA, else a download)"
    )
    parser.add_argument(
        "--pretrain-file", metavar="FILE", help=f"unlabelled SMILES, one a line (default: {UNLABELLED} of the data folder)"
    )
    parser.add_argument("--max-pretrain-molecules", type=int, metavar="N", help="the first so many only")
    parser.add_argument("--encoder", metavar="FILE", help="encoder.pt of an earlier run, in place of pre-training")
    for each in fields(MoleculeSettings):
        flag = f"--{each.name.replace('_', '-')}"
        kind: dict[str, Any] = {"action": "store_true"} if each.default is False else {"type": type(each.default)}
        parser.add_argument(flag, default=each.default, help=f"{each.metadata['help']} (default: %(default)s)", **kind)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument("--resume-from-checkpoint", choices=["auto"], help="go on where a killed run of the folder stopped")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    tempplug.add_temperature_arguments(parser, default=None)
    # None tells "not given" from "given", so that the recipe can fill it
    parser.set_defaults(contrastive_objective=None)
    return parser


class _Bars:
    """A progress bar for each stage, one after the other."""

    def __init__(self, hidden: bool) -> None:
        self._hidden = hidden
        self._stage = ""
        self._bar: Any = None

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *fault: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def announce(self, stage: str, done: int, total: int, loss: float) -> None:
        if stage != self._stage:
            self.__exit__()
            self._stage, self._bar = stage, tqdm(total=total, desc=stage, unit="step", disable=self._hidden or None)
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update(done - self._bar.n)


def _pretrain_file(given: str | None, data_dir: Path | None) -> Path:
    if given is not None:
        return Path(given)
    if data_dir is None:
        raise DataError("pre-training needs unlabelled molecules: pass --pretrain-file, --data-dir or set TEMPPLUG_DATA.")
    return data_dir / UNLABELLED
