"""``tempplug train msc``: runs resume bit for bit, frozen blocks stay, recipes fill flags, faults are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from image_toys import write_image
from msc_toys import save_tiny_resnet, toy_backbone, toy_data, toy_images
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.msc import command
from tempplug_adapters.msc.command import main
from tempplug_adapters.msc.model import MSC
from tempplug_adapters.msc.one_class import OneClassData, one_class
from tempplug_adapters.msc.pretrained import load_backbone
from tempplug_adapters.msc.recipe import RECIPES, MSCSettings
from tempplug_adapters.msc.score import anomaly_scores, represent, roc_auc
from tempplug_adapters.msc.train import batches_of, create_loss, train_msc

SETTINGS = MSCSettings(epochs=4, batch_size=16, learning_rate=0.01, momentum=0.9, image_size=12, frozen_blocks=2)


def weights(output: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = torch.load(output / "backbone.pt", weights_only=True)
    return found


def run(output: Path, strategy: str = "fixed", settings: MSCSettings = SETTINGS, **more: object) -> dict[str, object]:
    return train_msc(toy_backbone(), toy_data(), TemperatureArguments(strategy), settings, output, **more)  # type: ignore[arg-type]


def test_a_run_trains_what_is_not_frozen(tmp_path: Path) -> None:
    losses: list[float] = []
    told: list[dict[str, str]] = []
    results = run(tmp_path, progress=lambda _, mean: losses.append(mean), begin=told.append)
    assert json.loads((tmp_path / "metrics.json").read_text()) == results
    assert told == [{"strategy": "fixed:temperature=0.25", "objective": "infonce"}]
    assert results["strategy"] == "fixed:temperature=0.25"
    assert [results[name] for name in ("normal_class", "train_images", "test_images", "anomalous_images")] == [
        "green",
        33,
        30,
        20,
    ]
    assert results["loss"] == losses[-1] < losses[0]
    assert len(losses) == 4
    before, after = toy_backbone().state_dict(), weights(tmp_path)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    # Running statistics (of the module's place 1, 4 and 7) and the first convolution with its normalisation stay.
    assert moved == {f"module.{place}.{kind}" for place in (3, 4, 6, 7) for kind in ("weight", "bias")}


def test_scores_before_and_after_are_those_of_the_networks(tmp_path: Path) -> None:
    results = run(tmp_path)
    data, expected = toy_data(), []
    for backbone in (toy_backbone(), toy_backbone()):
        if expected:
            backbone.load_state_dict(weights(tmp_path))
        backbone.eval()
        normal, tested = (represent(backbone, each, 12) for each in (data.train, data.test))
        expected.append(roc_auc(anomaly_scores(normal, tested), data.anomalous))
    assert [results["roc_auc_before"], results["roc_auc_after"]] == pytest.approx(expected)
    assert expected[0] != expected[1]


def test_the_step_is_the_models(tmp_path: Path) -> None:
    """One step of plain gradient descent, done by hand: same centre, same views, same weights."""
    settings = MSCSettings(epochs=1, batch_size=64, learning_rate=0.1, weight_decay=0.01, image_size=12, frozen_blocks=0)
    for angular in (False, True):
        run(tmp_path / str(angular), settings=replace(settings, angular=angular))
        data, backbone = toy_data(), toy_backbone().eval()
        centre = represent(backbone, data.train, 12).mean(0)
        torch.manual_seed(0)
        loss_fn = create_loss(TemperatureArguments("fixed"), settings, 33, 8)
        model = MSC(backbone, centre / centre.norm() if angular else centre, loss_fn, angular=angular)
        index, augment = torch.randperm(33), create_augmentation("msc", 12)
        images = data.train.batch(index).float() / 255
        model(augment(images), augment(images)).backward()
        for name, value in backbone.named_parameters():
            assert value.grad is not None
            stepped = value.detach() - 0.1 * (value.grad + 0.01 * value.detach())
            torch.testing.assert_close(weights(tmp_path / str(angular))[name], stepped, rtol=1e-4, atol=1e-5)


def test_the_test_set_does_not_reach_training(tmp_path: Path) -> None:
    run(tmp_path / "one")
    other = one_class(toy_images(99), toy_images(60, seed=5), "green")
    train_msc(toy_backbone(), other, TemperatureArguments("fixed"), SETTINGS, tmp_path / "two")
    assert all(torch.equal(value, weights(tmp_path / "two")[name]) for name, value in weights(tmp_path / "one").items())


@pytest.mark.parametrize("strategy", ["macl", "learnable", "schedule:shape=random,period=2", "temperature-free", "individual"])
def test_an_interrupted_run_ends_with_the_same_weights(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", strategy)
    forward, steps = MSC.forward, 0

    def stopping(self: MSC, *args: Tensor, **kwargs: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 2 * 2 + 2:  # in the middle of the third epoch
            raise KeyboardInterrupt
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(MSC, "forward", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", strategy)
    monkeypatch.undo()
    torch.manual_seed(99)
    epochs: list[int] = []
    resumed = run(tmp_path / "part", strategy, resume_from_checkpoint="auto", progress=lambda epoch, _: epochs.append(epoch))
    assert epochs == [3, 4]
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "part")[name]), name
    states = [torch.load(tmp_path / part / "checkpoint.pt", weights_only=True)["model"] for part in ("whole", "part")]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0, msg="temperatures and centre, too")
    assert {**whole, "seconds_per_epoch": 0} == {**resumed, "seconds_per_epoch": 0}


def test_other_settings_and_data_do_not_go_on(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="holds the checkpoint of an earlier run: pass --resume-from-checkpoint auto"):
        run(tmp_path)
    with pytest.raises(ConfigError, match=r"learning_rate=0\.02 differs from the checkpoint's 0\.01"):
        run(tmp_path, settings=replace(SETTINGS, learning_rate=0.02), resume_from_checkpoint="auto")
    with pytest.raises(ConfigError, match=r"strategy=macl.* differs from the checkpoint's fixed"):
        run(tmp_path, "macl", resume_from_checkpoint="auto")
    red = one_class(toy_images(99), toy_images(30, seed=1), "red")
    with pytest.raises(ConfigError, match="normal_class=red differs from the checkpoint's green"):
        train_msc(toy_backbone(), red, TemperatureArguments(), SETTINGS, tmp_path, resume_from_checkpoint="auto")
    other = toy_backbone()
    other.module[6].weight.data[0, 0] += 1e-3  # type: ignore[union-attr, index, operator]
    with pytest.raises(ConfigError, match=r"initial_weights=\w{16} differs from the checkpoint's \w{16}"):
        train_msc(other, toy_data(), TemperatureArguments(), SETTINGS, tmp_path, resume_from_checkpoint="auto")
    with pytest.raises(ConfigError, match="backbone=toy differs from the checkpoint's None"):
        run(tmp_path, about={"backbone": "toy"}, resume_from_checkpoint="auto")
    done = run(tmp_path, resume_from_checkpoint="auto")
    assert done["loss"] is done["seconds_per_epoch"] is None
    assert done["roc_auc_after"] != done["roc_auc_before"]


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    torch.manual_seed(1)
    run(tmp_path / "a")
    torch.manual_seed(2)
    run(tmp_path / "b")
    run(tmp_path / "c", settings=replace(SETTINGS, seed=1))
    a, b, c = (weights(tmp_path / name)["module.6.weight"] for name in "abc")
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_a_learnable_temperature_learns_without_decay(tmp_path: Path) -> None:
    def temperature(folder: str, **changes: float) -> Tensor:
        settings = replace(SETTINGS, frozen_blocks=5, **changes)  # type: ignore[arg-type]
        run(tmp_path / folder, "learnable", settings)
        state = torch.load(tmp_path / folder / "checkpoint.pt", weights_only=True)
        assert state["optimizer"]["param_groups"][1]["weight_decay"] == 0.0
        assert state["optimizer"]["param_groups"][0]["weight_decay"] == settings.weight_decay
        found: Tensor = next(value for name, value in state["model"].items() if name.startswith("loss_fn."))
        return found

    learned = temperature("plain")
    initial = next(iter(create_loss(TemperatureArguments("learnable"), SETTINGS, 33, 8).parameters()))
    assert (learned - initial).abs() > 1e-4


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_bfloat16_and_optimizers_train(tmp_path: Path, optimizer: str) -> None:
    settings = replace(SETTINGS, bf16=True, optimizer=optimizer, momentum=0.0)
    results = run(tmp_path / "half", "macl", settings)
    full = run(tmp_path / "full", "macl", replace(settings, bf16=False))
    assert results["loss"] == pytest.approx(full["loss"], rel=0.05)
    assert results["loss"] != full["loss"]
    assert weights(tmp_path / "half")["module.6.weight"].dtype == torch.float32


def test_training_that_diverges_says_so(tmp_path: Path) -> None:
    backbone = toy_backbone()
    backbone.module[6].weight.data.fill_(torch.nan)  # type: ignore[union-attr, operator]
    with pytest.raises(DataError, match="representations must be finite"):
        train_msc(backbone, toy_data(), TemperatureArguments(), SETTINGS, tmp_path)


def test_batches_divide_the_images_and_leave_none_alone() -> None:
    torch.manual_seed(0)
    batches = batches_of(33, 16)
    assert [len(each) for each in batches] == [16, 17]
    assert torch.cat(batches).sort().values.tolist() == list(range(33))
    assert not torch.equal(torch.cat(batches), torch.cat(batches_of(33, 16)))
    assert [len(each) for each in batches_of(35, 16)] == [16, 16, 3]
    assert [len(each) for each in batches_of(2, 64)] == [2]


def test_the_recipe_fills_what_the_flags_leave_out() -> None:
    for given, expected in [
        ("fixed", "fixed:temperature=0.25"),
        ("fixed:temperature=0.5", "fixed:temperature=0.5"),
        ("temperature-free", "temperature-free:eps=0.0001"),
        ("macl:alpha=1", "macl:base_temperature=0.25,alpha=1,threshold=0,floor_ratio=0.1,strict=false"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.125,temperature_max=0.5,period=5,seed=0"),
    ]:
        assert create_loss(TemperatureArguments(given), MSCSettings(), 100, 8).strategy.spec() == expected
    for given in ("learnable", "dystress", "individual", "amcl"):
        assert create_loss(TemperatureArguments(given), MSCSettings(), 100, 8).strategy.spec().startswith(given)
    with pytest.raises(ConfigError, match="strategy 'uncertainty' needs an uncertainty for each image, which MSC has not"):
        create_loss(TemperatureArguments("uncertainty"), MSCSettings(), 100, 8)
    paper = RECIPES["paper"]
    assert (paper.epochs, paper.batch_size, paper.learning_rate, paper.weight_decay) == (25, 32, 1e-5, 5e-5)
    assert (paper.momentum, paper.optimizer, paper.image_size, paper.neighbours, paper.angular) == (0.0, "sgd", 224, 2, False)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"batch_size": 1}, "batch_size=1 must be at least 2"),
        ({"image_size": 0}, "image_size=0 must be at least 1"),
        ({"neighbours": 0}, "neighbours=0 must be at least 1"),
        ({"seed": -1}, "seed=-1 must be from 0 to 9223372036854775807"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be from 0 to 9223372036854775807"),
        ({"learning_rate": float("inf")}, "learning_rate=inf must be finite"),
        ({"weight_decay": float("inf")}, "weight_decay=inf must be finite"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be greater than 0"),
        ({"momentum": 1.0}, r"momentum=1.0 must be in \[0, 1\)"),
        ({"optimizer": "lars"}, "optimizer='lars' must be one of sgd, adamw"),
        ({"optimizer": "adamw", "momentum": 0.9}, "momentum=0.9 is of optimizer 'sgd', not of 'adamw'"),
    ],
)
def test_settings_are_checked(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MSCSettings(**setting)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_resnet(tmp_path_factory.mktemp("resnet"))


def words(resnet: Path, output: Path, *more: str) -> list[str]:
    fixed = ["--dataset", "digits", "--normal-class", "3", "--backbone", str(resnet), "--image-size", "16", "--epochs", "3"]
    small = ["--train-images", "40", "--test-images", "50", "--learning-rate", "0.01", "--frozen-blocks", "1"]
    return [*fixed, *small, "--output-dir", str(output), *more]


def test_a_command_writes_network_and_numbers(resnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(resnet, tmp_path, "--temperature-strategy", "temperature-free", "--angular")) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    out = capsys.readouterr().out
    assert out == (
        "strategy temperature-free:eps=0.0001\nobjective infonce\n"
        "digits: 40 training images of class 3, 50 test images of which 45 are anomalies\n"
        f"ROC-AUC    {metrics['roc_auc_before']:.2f} before fine-tuning, {metrics['roc_auc_after']:.2f} after\n"
    )
    assert metrics["dataset"] == "digits"
    assert metrics["backbone"] == str(resnet)
    assert metrics["settings"] == {
        **RECIPES["paper"].values(),
        **{"epochs": 3, "image_size": 16, "learning_rate": 0.01, "frozen_blocks": 1, "angular": True},
        **{"train_images": 40, "test_images": 50},
    }
    assert (tmp_path / "backbone.pt").exists()


def test_a_killed_command_goes_on_to_the_same_network(resnet: Path, tmp_path: Path) -> None:
    more = ("--resume-from-checkpoint", "auto", "--temperature-strategy", "macl", "--recipe", "cpu")
    assert main(words(resnet, tmp_path / "whole", *more)) == 0
    program = (
        "import os, signal, sys\n"
        "import tempplug_adapters.msc.train as train\n"
        "save = train.save_checkpoint\n"
        "def kill(path, epoch, **state):\n"
        "    save(path, epoch, **state)\n"
        "    if epoch == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train.save_checkpoint = kill\n"
        "from tempplug_adapters.msc.command import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, *words(resnet, tmp_path / "killed", *more)]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "backbone.pt").exists()
    assert main(words(resnet, tmp_path / "killed", *more)) == 0
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (["--temperature-args", "temperature=-1"], "temperature=-1 of strategy 'fixed' must be greater than 0."),
        (["--normal-class", "33"], "normal_class='33' is no class. Did you mean '3'? Known: 0, 1, 2"),
        (["--dataset", "digitz"], "no data set 'digitz'. Did you mean 'digits'?"),
        (["--backbone", "mobilenet-v2"], "backbone 'mobilenet-v2' needs weights: pass --weights FILE"),
        (["--weights", "x.pth"], "weights='x.pth' are of backbone 'mobilenet-v2'"),
        (["--backbone", "timm:resnet18"], "need the package 'timm': pip install timm"),
        (["--data-dir", "nowhere"], "--data-dir nowhere is not a folder."),
        (["--epochs", "0"], "epochs=0 must be at least 1."),
        (["--frozen-blocks", "5"], "frozen_blocks=5 must be at least 0 and less than 5"),
        (["--neighbours", "41"], "neighbours=41 must be from 1 to 40"),
        (["--train-images", "1"], "train_images=1 must be at least 2"),
        (["--device", "abacus"], "device='abacus' must be auto, cpu, cuda or cuda:N."),
        (["--device", "mps"], "device='mps' must be auto, cpu, cuda or cuda:N."),
        (["--output-dir", __file__], f"output_dir='{__file__}' cannot be written: it, or a folder above it, is a file."),
        (["--resume-from-checkpoint", "nowhere.pt"], "resume_from_checkpoint='nowhere.pt' does not exist"),
    ],
)
def test_faults_end_with_one_line(
    resnet: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    extra: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    assert main(words(resnet, tmp_path / "run", *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    # transformers shows a bar while it loads weights
    assert err.rstrip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in err


def test_mobilenet_tells_cars_from_other_things(tmp_path: Path, data_dir: Path) -> None:
    flags = ["--dataset", "cifar10-lossless4k", "--normal-class", "automobile", "--data-dir", str(data_dir), "--recipe", "cpu"]
    small = ["--train-images", "32", "--test-images", "40", "--epochs", "1", "--output-dir", str(tmp_path)]
    assert main([*flags, *small, "--temperature-strategy", "temperature-free"]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["roc_auc_before"] > 80
    assert metrics["roc_auc_after"] > 80
    assert metrics["settings"]["image_size"] == 128


def test_images_on_disk_are_not_made_smaller_than_what_the_network_sees(
    resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    shown: list[str] = []

    def stand_in(backbone: object, data: OneClassData, *given: object, **named: object) -> dict[str, float]:
        seen.append((data.train.batch(torch.tensor([0])).shape[-1], data.test.batch(torch.tensor([0])).shape[-1]))
        shown.append(warnings.formatwarning("a.png is broken", UserWarning, "code.py", 3))
        return {"roc_auc_before": 0.0, "roc_auc_after": 0.0}

    monkeypatch.setattr(command, "train_msc", stand_in)
    for split in ("train", "test"):
        for place in range(6):
            write_image(tmp_path / "data" / split / "ab"[place % 2] / f"{place}.png", 20 * place, (400, 400))
    for dataset, size, expected in [(tmp_path / "data", 16, 224), (tmp_path / "data", 320, 320), ("digits", 320, 8)]:
        normal = "a" if dataset != "digits" else "3"
        flags = ["--dataset", str(dataset), "--normal-class", normal, "--image-size", str(size), "--test-images", "10"]
        assert main([*words(resnet, tmp_path / "run"), *flags]) == 0
        assert seen[-1] == (expected, expected)
    assert set(shown) == {"warning: a.png is broken\n"}


def test_help_names_the_defaults_of_both_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for line in (
        "passes over the normal images (default: paper: 25; cpu: 2)",
        "the same in all epochs (default: paper: 1e-05; cpu: 0.0003)",
        "temperatures are spared (default: 5e-05)",
        "left as they are (default: paper: those up to an eighth of the image's side, as in the paper; cpu: 11)",
        "everything random follows from it (default: 0)",
        "normal images at most (default: paper: all; cpu: 1000)",
        "--resume-from-checkpoint auto|FILE",
    ):
        assert line in out


def test_a_folders_own_mean_and_deviation_are_used(tmp_path: Path) -> None:
    folder = save_tiny_resnet(tmp_path / "network")
    assert load_backbone(str(folder)).mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    about = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "image_processor_type": "ConvNextImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    backbone = load_backbone(str(folder))
    assert backbone.mean.flatten().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert backbone.std.flatten().tolist() == pytest.approx([0.2, 0.3, 0.4])
