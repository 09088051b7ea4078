"""A small training of every method whose output folder can be opened."""

from __future__ import annotations

import shutil
from pathlib import Path

from recommendation_toys import walks

from tempplug.cli import main

VISION = "--dataset digits --backbone resnet18 --width 8 --image-size 8 --augmentation simclr-cifar --count 200"
VISION += " --per-device-train-batch-size 50 --num-train-epochs 1 --embedding-dimension 8 --neighbours 5"
ITEMS = "--dataset {own}/items.csv --columns who what when --num-train-epochs 3 --hidden 16 --inner 16 --eval-strategy no"
COMMANDS = {
    "simcse": "--dataset {toys}/pairs.tsv --model-name-or-path {models}/encoder --eval-strategy no --tasks STSB",
    "retrieval": "--dataset {toys}/pairs.tsv --model-name-or-path {models}/encoder --held-out 0.2"
    " --max-length 32 --eval-strategy no",
    "mabel": "--dataset {toys}/gendered/pairs.tsv --model-name-or-path {models}/masked --num-train-epochs 1",
    "grace": "--dataset {toys}/node.pt --num-train-epochs 4 --protocols 10/10/80 --splits 1",
    "graphcl": "--dataset {toys}/graphs.pt --num-train-epochs 2 --folds 2",
    "molecule": "--dataset {toys}/one.csv --pretrain-file {toys}/unlabelled.smi --layers 2 --width 32 --num-train-epochs 1"
    " --finetune-epochs 2",
    **dict.fromkeys(("simclr", "simsiam", "barlow-twins", "supcon"), VISION),
    **dict.fromkeys(("moco", "nnclr"), f"{VISION} --queue-size 64"),
    "clip": "--dataset digits --model-name-or-path {models}/clip --count 100 --per-device-train-batch-size 25"
    " --num-train-epochs 1 --learning-rate 3e-3",
    "msc": "--dataset cifar10-lossless4k --normal-class cat --recipe cpu --image-size 32 --train-images 16 --test-images 20"
    " --weights {models}/mobilenet_v2_imagenet.pth --num-train-epochs 1",
    **dict.fromkeys(("sasrec", "dcrec"), f"{ITEMS} --learning-rate 0.01"),
}
"""A small training of every method, on toys or on digits; that of msc on the data of TEMPPLUG_DATA."""
DATA = {"simcse": "sts", "mabel": "gendered"}
"""Folders of the toys that have the data for an evaluation."""


def forgotten(method: str, folder: Path, toys: Path, data: Path) -> Path:
    """Trains with copies of the pretrained models, removes these, and returns the output folder at another place."""
    models = folder / "models"
    models.mkdir()
    if method == "msc":
        shutil.copy(data / "vision" / "mobilenet_v2_imagenet.pth", models)
    for name in ("encoder", "masked", "clip"):
        shutil.copytree(toys / name, models / name)
    rows = [f"user-{user},item-{item},{time}\n" for user, items in enumerate(walks()) for time, item in enumerate(items)]
    (folder / "items.csv").write_text("".join(["who,what,when\n", *rows]))
    words = [each.format(toys=toys, own=folder, models=models) for each in COMMANDS[method].split()]
    where = ["--data-dir", str(data), "--output-dir", str(folder / "out"), "--save-strategy", "no"]
    assert main(["train", method, *words, *where]) == 0
    shutil.rmtree(models)
    return (folder / "out").rename(folder / "moved")
