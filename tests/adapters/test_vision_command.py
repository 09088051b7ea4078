"""``tempplug train simclr`` and its siblings: real runs, what is written and printed, faults in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vision_train_toys import SIDE, TinyBackbone, tiny  # noqa: F401

from tempplug.cli import main
from tempplug_adapters.images.trained_backbone import load_backbone
from tempplug_adapters.vision import vision_method
from tempplug_adapters.vision.recipes import METHODS

SMALL = {"moco": ("--queue-size", "11"), "nnclr": ("--queue-size", "11", "--hidden-dimension", "12")}
LAYOUTS = {"simclr": "two-view", "moco": "queue", "nnclr": "cross-view", "supcon": "labels"}
TERMS = {name: "false-negatives:margin=-0.3,weight=0.5" + ("" if name == "moco" else "+same-key+log-q") for name in LAYOUTS}


def words(method: str, output: Path, *more: str) -> list[str]:
    sizes = ("--image-size", str(SIDE), "--num-train-epochs", "1", "--per-device-train-batch-size", "8", "--count", "20")
    given = ("--output-dir", str(output), *sizes, "--embedding-dimension", "8", "--backbone", "resnet18")
    return ["train", method, "--dataset", "digits", *given, *SMALL.get(method, ()), *more]


def last_checkpoint(folder: Path) -> Path:
    return max(folder.glob("checkpoint-*"), key=lambda each: int(each.name.split("-")[1]))


def metrics(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return content


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("method", METHODS)
def test_each_method_trains_with_terms_on_negatives_and_says_with_what(method: str, tmp_path: Path, capsys: Any) -> None:
    layout, term = LAYOUTS.get(method), TERMS.get(method)
    more = ("--contrastive-negatives", term, "--logging-steps", "1") if term else ()
    assert main(words(method, tmp_path, *more)) == 0
    found, out = metrics(tmp_path), capsys.readouterr().out
    strategy, objective = ("fixed:temperature=0.1", "infonce") if layout else (None, None)
    assert (found["method"], found["strategy"], found["objective"], found["items"]) == (method, strategy, objective, 20)
    spec = (term or "").replace("weight=0.5", "rule=absolute,weight=0.5,blocks=none").replace("log-q", "log-q:size=20")
    said = f"negatives {spec}\nlayout {layout}\n" if layout else ""
    data = "digits: 20 images, 360 to be measured with"
    assert f"strategy {strategy or 'none'}\nobjective {objective or 'none'}\n{said}{data}" in out
    figures = [f"{name} {value:.4g}".split() for name, value in found["evaluation"].items()]
    assert [line.split() for line in out.splitlines()[-3:-1]] == figures
    assert [name for name, *_ in figures] == ["knn", "knn"]
    assert (found["recipe"]["count"], found["recipe"]["embedding_dimension"], found["recipe"]["heads"]) == (20, 8, 1)
    assert found["seconds_per_epoch"] > 0
    assert {"encoder.pt", "settings.json"} <= {file.name for file in tmp_path.iterdir()}
    if term:
        assert found["negatives"] == spec
        last = [entry for entry in found["history"] if "loss" in entry][-1]
        assert last["negative_weight"] != 1
        assert (last["negatives_left_out"] > 0) == (method in ("simclr", "nnclr"))


def test_what_was_trained_can_be_measured_exported_and_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--width", "8", "--temperature-strategy", "amcl", "--optimizer", "lars", "--momentum", "0.5", "--symmetric")
    assert main([*words("moco", tmp_path, *more), "--no-channels-last", "--split-seed", "3"]) == 0
    found = metrics(tmp_path)
    assert found["strategy"].startswith("amcl:dimension=8,")
    assert found["objective"] == "dcl"
    recipe = found["recipe"]
    assert (recipe["heads"], recipe["optimizer"], recipe["momentum"], recipe["symmetric"]) == (3, "lars", 0.5, True)
    last = last_checkpoint(tmp_path)
    first, second = (load_backbone(folder).state_dict() for folder in (tmp_path, last))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    where = ["--checkpoint", str(last), "--dataset", "digits", "--device", "cpu"]
    assert main(["eval", "vision", *where, "--evaluations", "knn"]) == 0
    again = json.loads((last / "evaluation_digits.json").read_text())
    assert again["bank"] == 20
    assert again["knn"]["accuracy"] == found["evaluation"]["knn"]
    assert main(["export", "--checkpoint", str(last), "--output", str(last / "weights.safetensors")]) == 0
    assert "120 weights of resnet18 under torchvision's names" in capsys.readouterr().out


def test_settings_that_are_not_given_come_from_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        vision_method, "create_backbone", lambda name, **given: asked.append({"name": name, **given}) or TinyBackbone()
    )
    given = [word for word in words("simclr", tmp_path / "a") if word not in ("--backbone", "resnet18")]
    assert main([*given, "--recipe", "google", "--width", "9", "--load-size", "8", "--no-evaluate"]) == 0
    found = metrics(tmp_path / "a")["recipe"]
    assert (found["optimizer"], found["warmup_steps"], found["num_train_epochs"]) == ("lars", 0.1, 1)
    assert (found["learning_rate_scaling"], found["load_size"]) == ("linear", 8)
    assert asked[-1] == {"name": "resnet50", "stem": "imagenet", "width": 9, "zero_init_residual": True, "image_size": None}
    assert main(words("simclr", tmp_path / "b", "--backbone", "vit-tiny", "--no-channels-last", "--spare-norms")) == 0
    found = metrics(tmp_path / "b")["recipe"]
    assert (found["channels_last"], found["spare_norms"], found["stem"]) == (False, True, None)
    assert asked[-1]["image_size"] == SIDE


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("simclr", "--dataset cifar11", "no data set 'cifar11'. Did you mean 'cifar10'?"),
        ("simclr", "--count 900 --imbalance-ratio 99", "nine tenths of the smallest class, must be at least"),
        ("barlow-twins", "--contrastive-negatives same-key", "negatives 'same-key' do not apply: Barlow Twins has no softmax"),
        ("moco", "--contrastive-negatives same-key", "'same-key' reads keys=, which `tempplug train moco` does not have"),
        ("barlow-twins", "--contrastive-objective dcl", "objective 'dcl' does not apply: Barlow Twins has no softmax"),
    ],
)
def test_faults_are_one_line(method: str, more: str, message: str, tmp_path: Path, capsys: Any) -> None:
    assert main([*words(method, tmp_path), *more.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.glob("checkpoint-*"))


def test_real_images_train(data_dir: Path, tmp_path: Path) -> None:
    more = ("--dataset", "cifar10-lossless4k", "--data-dir", str(data_dir), "--image-size", "32", "--stem", "imagenet")
    assert main([*words("simclr", tmp_path), *more, "--width", "8", "--temperature-strategy", "temperature-free"]) == 0
    found = metrics(tmp_path)
    assert found["dataset"] == "cifar10-lossless4k"
    assert 5 < found["evaluation"]["knn"] < 40


@pytest.mark.usefixtures("tiny")
def test_full_determinism_trains_to_the_same_numbers(tmp_path: Path) -> None:
    """With batches large enough that the loss sets single pairs of a tile to zero."""
    found = []
    for name, more in (("plain", ()), ("full", ("--full-determinism",))):
        size = ("--per-device-train-batch-size", "100", "--count", "100", "--max-steps", "2")
        try:
            assert main([*words("simclr", tmp_path / name), *size, *more]) == 0
        finally:
            torch.use_deterministic_algorithms(False)
        found.append(metrics(tmp_path / name)["loss"])
    assert found[0] == found[1]
