"""What a training leaves is enough: another process that has the folder and the data computes the same figures and vectors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clip_toys import WORDS, save_clip
from msc_toys import save_tiny_resnet

import tempplug_adapters
from tempplug.cli import main
from tempplug_adapters.recommendation.interaction_files import load_sequences

VISION = "--dataset digits --backbone resnet18 --width 8 --image-size 8 --augmentation simclr-cifar --count 200"
VISION += " --per-device-train-batch-size 50 --num-train-epochs 1 --embedding-dimension 8"
ITEMS = "--dataset {items} --columns who what when --num-train-epochs 1 --hidden 16 --inner 16 --eval-strategy no"
REAL = {
    "simcse": "--dataset {data}/text/nli/nli_pairs.tsv.gz --columns premise hypothesis --where label=entailment --model-name-or-path {model}"
    " --max-train-samples 256 --max-length 16 --eval-strategy no --save-strategy no --tasks STSB",
    "mabel": "--dataset {data}/text/nli/gender_entailment.tsv.gz --model-name-or-path {model} --max-train-samples 64"
    " --num-train-epochs 1",
    "grace": "--dataset Cora --num-train-epochs 10 --protocols 10/10/80 --splits 1",
    "graphcl": "--dataset MUTAG --num-train-epochs 2",
    "molecule": "--dataset BBBP --pretrain-file {data}/graph/smiles/zinc_druglike_100k.smi.gz --max-pretrain-molecules 256"
    " --layers 2 --width 32 --num-train-epochs 1 --finetune-epochs 2",
    "simclr": VISION,
    "moco": f"{VISION} --queue-size 64",
    "nnclr": f"{VISION} --queue-size 64",
    "simsiam": VISION,
    "barlow-twins": VISION,
    "supcon": f"{VISION} --backbone vit-tiny --no-channels-last",
    "clip": "--dataset digits --model-name-or-path {clip} --count 100 --per-device-train-batch-size 25 --num-train-epochs 1"
    " --learning-rate 3e-3",
    "msc": "--dataset cifar10-lossless4k --normal-class automobile --recipe cpu --train-images 48 --test-images 60"
    " --num-train-epochs 1",
    "sasrec": ITEMS,
    "dcrec": ITEMS,
}
"""A small training of every method, on the data of TEMPPLUG_DATA or on digits."""


def forgotten(method: str, folder: Path, data_dir: Path) -> Path:
    """Trains with copies of the pretrained models, removes these, and returns the output folder at another place."""
    models = folder / "models"
    shutil.copytree(data_dir / "text" / "bert-wiki-mini", models / "bert")
    save_clip(models / "clip", [*WORDS, *map(str, range(10))])
    items = shopping(folder / "items.csv", data_dir) if "{items}" in REAL[method] else None
    words = REAL[method].format(data=data_dir, model=models / "bert", clip=models / "clip", items=items).split()
    where = ["--data-dir", str(data_dir), "--output-dir", str(folder / "out"), "--save-strategy", "no"]
    assert main(["train", method, *words, *where]) == 0
    shutil.rmtree(models)
    return (folder / "out").rename(folder / "moved")


def shopping(file: Path, data_dir: Path) -> Path:
    """Writes what the first users of Amazon Beauty bought, with names of users and items that are no numbers."""
    found = load_sequences("beauty", data_dir, ())
    histories = zip(found.users[:300], found.histories, strict=False)
    rows = [f"user-{user},item-{item},{time}" for user, items in histories for time, item in enumerate(items)]
    file.write_text("\n".join(["who,what,when", *rows]) + "\n")
    return file


def evaluated(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "metrics.json").read_text())["evaluation"]
    return found


FRESH = """
import json, sys, tempplug_adapters
folder, data = sys.argv[1:]
print(json.dumps(tempplug_adapters.load(folder).evaluate(data)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", REAL)
def test_a_fresh_process_that_has_folder_and_data_finds_the_same_figures(method: str, tmp_path: Path, data_dir: Path) -> None:
    folder = forgotten(method, tmp_path, data_dir)
    words = [sys.executable, "-c", FRESH, str(folder), str(data_dir)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found, before = json.loads(done.stdout.splitlines()[-1]), evaluated(folder)
    assert found == before
    assert len(found) > 0
