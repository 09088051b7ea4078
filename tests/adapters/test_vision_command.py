"""``tempplug train simclr`` and its siblings: flags, recipes, data, what is written and printed, and faults in one line."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from image_toys import write_image
from vision_train_toys import SIDE, saved, tiny  # noqa: F401

from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.images.long_tail import long_tail_indices
from tempplug_adapters.vision import command, methods, processes
from tempplug_adapters.vision.checkpoint_backbone import load_backbone
from tempplug_adapters.vision.command import build_parser, main
from tempplug_adapters.vision.evaluation.command import main as main_evaluation
from tempplug_adapters.vision.recipe import METHODS, VisionSettings

SMALL = {
    "simclr": (),
    "moco": ("--queue-size", "11"),
    "nnclr": ("--queue-size", "11", "--hidden-dimension", "12"),
    "simsiam": (),
    "barlow-twins": (),
}


def words(method: str, output: Path, *more: str) -> list[str]:
    return [
        *("--dataset", "digits", "--output-dir", str(output), "--device", "cpu", "--image-size", str(SIDE), "--epochs", "1"),
        *("--batch-size", "8", "--count", "20", "--embedding-dimension", "8", *SMALL[method], *more),
    ]


def metrics(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return content


@pytest.fixture
def backbones(monkeypatch: pytest.MonkeyPatch, tiny: None) -> list[dict[str, Any]]:  # noqa: F811
    """What each backbone was asked to be; each is a tiny one."""
    asked: list[dict[str, Any]] = []
    create: Any = methods.create_backbone

    def watch(name: str, **options: Any) -> Any:
        asked.append({"name": name, **options})
        return create(name, **options)

    monkeypatch.setattr(methods, "create_backbone", watch)
    return asked


SPECS = {
    "simclr": ("fixed:temperature=0.1", "infonce"),
    "moco": ("fixed:temperature=0.1", "infonce"),
    "nnclr": ("fixed:temperature=0.1", "infonce"),
    "simsiam": (None, None),
    "barlow-twins": (None, None),
}


@pytest.mark.usefixtures("backbones")
@pytest.mark.parametrize("method", METHODS)
def test_each_method_trains_and_says_with_what(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry: partial[int] = getattr(command, f"main_{method.replace('-', '_')}")
    assert entry(words(method, tmp_path)) == 0
    found, out = metrics(tmp_path), capsys.readouterr().out
    strategy, objective = SPECS[method]
    assert (found["strategy"], found["objective"]) == (strategy, objective)
    assert f"strategy {strategy or 'none'}\nobjective {objective or 'none'}\ndigits train: 20 images, recipe" in out
    assert f"kNN accuracy {found['knn']['accuracy']:.2f} (k=20)" in out
    assert (found["method"], found["images"], found["count"], found["load_size"]) == (method, 20, 20, SIDE)
    assert found["settings"]["embedding_dimension"] == 8
    assert found["seconds_per_epoch"] > 0
    assert saved(tmp_path)["settings"]["method"] == method


def test_the_checkpoint_of_a_resnet_can_be_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--width", "8", "--temperature-strategy", "amcl", "--optimizer", "lars", "--momentum", "0.5", "--symmetric")
    assert main("moco", words("moco", tmp_path, *more)) == 0
    found = metrics(tmp_path)
    assert found["strategy"].startswith("amcl:dimension=8,")
    assert found["objective"] == "dcl"
    settings = found["settings"]
    assert (settings["heads"], settings["optimizer"], settings["momentum"], settings["symmetric"]) == (3, "lars", 0.5, True)
    assert load_backbone(tmp_path / "checkpoint.pt").dimension == 64
    where = ["--checkpoint", str(tmp_path / "checkpoint.pt"), "--dataset", "digits", "--size", str(SIDE)]
    assert main_evaluation([*where, "--evaluations", "knn", "--device", "cpu"]) == 0
    assert "knn" in capsys.readouterr().out


@pytest.mark.usefixtures("backbones")
def test_settings_that_are_not_given_come_from_the_recipe(tmp_path: Path, backbones: list[dict[str, Any]]) -> None:
    assert main("simclr", words("simclr", tmp_path / "a", "--recipe", "google", "--width", "9", "--no-evaluate")) == 0
    found = metrics(tmp_path / "a")["settings"]
    assert (found["recipe"], found["optimizer"], found["warmup_epochs"], found["epochs"]) == ("google", "lars", 10, 1)
    assert found["learning_rate_scaling"] == "linear"
    expected = {"name": "resnet50", "stem": "imagenet", "width": 9, "zero_init_residual": True, "image_size": None}
    assert backbones[-1] == expected
    more = ("--backbone", "vit-tiny", "--no-channels-last", "--spare-norms")
    assert main("simclr", words("simclr", tmp_path / "b", *more)) == 0
    found = metrics(tmp_path / "b")["settings"]
    assert (found["channels_last"], found["spare_norms"], found["stem"]) == (False, True, None)
    assert backbones[-1]["image_size"] == SIDE


def test_flags_are_those_that_the_method_has() -> None:
    own = {
        "queue_size": {"moco", "nnclr"},
        "encoder_momentum": {"moco"},
        "symmetric": {"moco"},
        "redundancy_weight": {"barlow-twins"},
        "head_layers": {"simclr", "moco", "simsiam"},
        "hidden_dimension": set(METHODS) - {"barlow-twins"},
    }
    for method in METHODS:
        known = {action.dest for action in build_parser(method)._actions}
        for name in VisionSettings.__dataclass_fields__:
            assert (name in known) == (method in own.get(name, METHODS)), (method, name)


@pytest.mark.parametrize("method", METHODS)
def test_help_names_recipes_and_defaults(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser(method).parse_args(["--help"])
    assert ended.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"tempplug train {method}" in out
    default = {"simclr": "dystress-cifar", "nnclr": "cifar", "simsiam": "cifar"}.get(method, "amcl")
    assert f"(default: {default})" in out
    assert "--resume-from-checkpoint auto|FILE" in out


@pytest.mark.usefixtures("backbones")
def test_a_killed_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--epochs", "3", "--save-epochs", "1")
    assert main("simclr", words("simclr", tmp_path / "whole", *more)) == 0
    bar = command.tqdm

    class Killed(Exception):
        pass

    class Deadly(bar):  # type: ignore[misc, valid-type]
        calls = 0

        def update(self, count: float = 1) -> None:
            self.calls += 1
            if self.calls == 2:
                raise Killed

    monkeypatch.setattr(command, "tqdm", Deadly)
    with pytest.raises(Killed):
        main("simclr", words("simclr", tmp_path / "killed", *more))
    monkeypatch.setattr(command, "tqdm", bar)
    assert saved(tmp_path / "killed")["epoch"] == 2
    assert main("simclr", words("simclr", tmp_path / "killed", *more)) == 2
    assert "pass --resume-from-checkpoint auto" in capsys.readouterr().err
    again = words("simclr", tmp_path / "killed", *more, "--resume-from-checkpoint", "auto")
    assert main("simclr", again) == 0
    first, second = (metrics(tmp_path / name) for name in ("whole", "killed"))
    assert first["history"] == second["history"]
    assert first["knn"] == second["knn"]
    assert main("simclr", [*again, "--split-seed", "1"]) == 2
    assert "split_seed=1 differs from the checkpoint's 0" in capsys.readouterr().err


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The sets that the training gets, which does not run."""
    sets: list[tuple[Any, Any]] = []

    def stand_in(images: Any, *given: Any, **named: Any) -> dict[str, Any]:
        sets.append((images, named))
        return {"knn": None}

    monkeypatch.setattr(command, "train_vision", stand_in)
    return sets


def test_a_long_tailed_part_is_drawn(tmp_path: Path, trained_on: list[tuple[Any, Any]]) -> None:
    base = ["--dataset", "digits", "--output-dir", str(tmp_path), "--device", "cpu", "--image-size", "8"]
    whole = load_images("digits", "train", None)
    assert whole.labels is not None
    largest = int(0.9 * int(whole.labels.bincount().min()))
    for more, expected in [
        ((), (5.0, largest, 0)),
        (("--largest-class", "50", "--split-seed", "3"), (5.0, 50, 3)),
    ]:
        assert main("simclr", [*base, "--imbalance-ratio", "5", *more]) == 0
        images, named = trained_on[-1]
        part = long_tail_indices(whole.labels, *expected)
        assert torch.equal(images.images, whole.subset(part).images)  # type: ignore[attr-defined]
        assert torch.equal(images.labels, whole.labels[part])
        about = {"load_size": 8, "count": None, "imbalance_ratio": expected[0], "largest_class": expected[1]}
        assert named["about"] == {**about, "split_seed": expected[2]}
        assert len(named["test"]) == 360


def test_the_split_seed_draws_and_the_training_seed_does_not(tmp_path: Path, trained_on: list[tuple[Any, Any]]) -> None:
    for more in ((), ("--seed", "5"), ("--split-seed", "1")):
        assert main("simclr", words("simclr", tmp_path, *more)) == 0
    first, same, other = (images.images for images, _ in trained_on)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    expected = load_images("digits", "train", None, size=SIDE, count=20, seed=1)
    assert torch.equal(other, expected.images)  # type: ignore[attr-defined]


def test_images_are_loaded_larger_where_asked(tmp_path: Path, trained_on: list[tuple[Any, Any]]) -> None:
    assert main("simclr", words("simclr", tmp_path, "--load-size", "11")) == 0
    images, named = trained_on[-1]
    assert images.images.shape[2:] == named["test"].images.shape[2:] == (11, 11)
    assert named["about"]["load_size"] == 11


@pytest.mark.usefixtures("backbones")
def test_a_folder_without_test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in range(12):
        write_image(tmp_path / "data" / "train" / f"class{place % 2}" / f"{place:02}.png", 20 * place, (SIDE, SIDE))
    given = [*words("simclr", tmp_path / "run"), "--dataset", str(tmp_path / "data"), "--count", "12"]
    assert main("simclr", given) == 2
    assert "Or pass --no-evaluate to train without measuring." in capsys.readouterr().err
    assert main("simclr", [*given, "--no-evaluate"]) == 0
    assert metrics(tmp_path / "run")["knn"] is None
    assert "kNN" not in capsys.readouterr().out


@pytest.mark.usefixtures("backbones")
def test_images_without_labels_train_and_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.randint(256, (20, 3, SIDE, SIDE), dtype=torch.uint8)
    asked: list[str] = []

    def load(dataset: str, split: str, *given: Any, **named: Any) -> ImageArray:
        asked.append(split)
        return ImageArray(pixels, None, (), "unlabelled")

    monkeypatch.setattr(command, "load_images", load)
    assert main("simclr", words("simclr", tmp_path)) == 0
    assert metrics(tmp_path)["knn"] is None
    assert asked == ["train"]


@pytest.mark.usefixtures("backbones")
def test_only_the_first_process_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "rank", lambda: 1)
    monkeypatch.setattr(processes, "world", lambda: 2)
    assert main("simclr", words("simclr", tmp_path)) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert not tmp_path.joinpath("checkpoint.pt").exists()


@pytest.mark.usefixtures("backbones")
@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("simclr", ["--dataset", "cifar11"], "no data set 'cifar11'. Did you mean 'cifar10'?"),
        ("simclr", ["--recipe", "gogle"], "simclr has no recipe 'gogle'. Did you mean 'google'?"),
        ("simclr", ["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        ("simclr", ["--augmentation", "simclear"], "unknown augmentation 'simclear'. Did you mean 'simclr'?"),
        ("simclr", ["--epochs", "-1"], "epochs=-1 must be at least 0."),
        ("simclr", ["--batch-size", "21"], "batch_size=21 must be at most 20, the images of 'digits train'"),
        ("simclr", ["--device", "gpu"], "device='gpu' must be auto, cpu, cuda or cuda:N."),
        ("simclr", ["--data-dir", "/nowhere"], "--data-dir /nowhere is not a folder."),
        ("simclr", ["--resume-from-checkpoint", "nowhere"], "resume_from_checkpoint='nowhere' does not exist"),
        ("simclr", ["--largest-class", "5"], "largest_class=5 belongs to a long-tailed part: give imbalance_ratio, too."),
        ("simclr", ["--load-size", "0"], "size=0"),
        ("simclr", ["--device", "mps"], "device='mps' must be auto, cpu, cuda or cuda:N."),
        ("simclr", ["--device", "meta"], "device='meta' must be auto, cpu, cuda or cuda:N."),
        ("simclr", ["--seed", str(2**63)], "seed=9223372036854775808 must be at most 9223372036854775807."),
        ("simclr", ["--split-seed", str(2**64)], "split_seed=18446744073709551616 must be from 0 to 9223372036854775807"),
        ("simclr", ["--split-seed", "-1"], "split_seed=-1 must be from 0 to"),
        ("simclr", ["--count", "900", "--imbalance-ratio", "99"], "nine tenths of the smallest class, must be at least"),
        (
            "simclr",
            ["--count", "900", "--imbalance-ratio", "9", "--largest-class", "5"],
            "largest_class=5 must be at least imbalance_ratio=9",
        ),
        ("simclr", ["--no-evaluate", "--evaluate-epochs", "2"], "evaluate_epochs=2, but there is nothing to measure with"),
        ("simsiam", ["--temperature-strategy", "fixed"], "SimSiam has no softmax to put a temperature in. Only 'amcl'"),
        (
            "barlow-twins",
            ["--temperature-strategy", "macl"],
            "Barlow Twins has no softmax to put a temperature in. Only 'amcl'",
        ),
        ("barlow-twins", ["--contrastive-objective", "dcl"], "objective 'dcl' does not apply: Barlow Twins has no softmax"),
    ],
)
def test_faults_end_with_one_line(
    method: str, more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(method, words(method, tmp_path, *more)) == 2
    err = capsys.readouterr().err
    assert err.count("error: ") == 1
    assert message in err
    assert "Traceback" not in err
    assert not tmp_path.joinpath("checkpoint.pt").exists()


def test_real_images_train(data_dir: Path, tmp_path: Path) -> None:
    more = ("--dataset", "cifar10-lossless4k", "--data-dir", str(data_dir), "--image-size", "32", "--stem", "imagenet")
    assert main("simclr", words("simclr", tmp_path, *more, "--width", "8", "--temperature-strategy", "temperature-free")) == 0
    found = metrics(tmp_path)
    assert found["dataset"] == "cifar10-lossless4k train"
    assert 5 < found["knn"]["accuracy"] < 40


@pytest.mark.usefixtures("backbones")
def test_an_output_that_cannot_be_written_is_said_before_images_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main("simclr", words("simclr", folder, "--dataset", "not there")) == 2
        assert f"output_dir='{folder}' cannot be written: it, or a folder above it, is a file." in capsys.readouterr().err


def folder_of(tmp_path: Path, train: tuple[str, ...], test: tuple[str, ...]) -> Path:
    for split, classes in (("train", train), ("test", test)):
        for place in range(12):
            name = classes[place % len(classes)]
            write_image(tmp_path / "data" / split / name / f"{place:02}.png", 20 * place, (SIDE, SIDE))
    return tmp_path / "data"


@pytest.mark.usefixtures("backbones")
def test_a_broken_test_set_is_found_before_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder_of(tmp_path, ("a", "b"), ("a", "b"))
    for file in (data / "test").rglob("*.png"):
        file.write_bytes(b"no image")
    assert main("simclr", [*words("simclr", tmp_path / "run"), "--dataset", str(data), "--count", "12"]) == 2
    err = capsys.readouterr().err
    assert "can be decoded." in err
    assert "pass --no-evaluate to train without measuring" in err
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.usefixtures("backbones")
def test_a_long_tailed_part_names_an_empty_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder_of(tmp_path, ("cat", "dog"), ("cat", "dog", "eel"))
    flags = ["--dataset", str(data), "--count", "12", "--imbalance-ratio", "2"]
    for more in ([], ["--largest-class", "4"]):
        assert main("simclr", [*words("simclr", tmp_path / "run"), *flags, *more]) == 2
        assert "class 'eel' has no image" in capsys.readouterr().err


def test_warnings_are_shown_without_a_place_in_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def stand_in(*given: Any, **named: Any) -> dict[str, Any]:
        shown.append(warnings.formatwarning("a.png is broken", UserWarning, "code.py", 3))
        return {"knn": None}

    monkeypatch.setattr(command, "train_vision", stand_in)
    assert main("simclr", words("simclr", tmp_path)) == 0
    assert shown == ["warning: a.png is broken\n"]
