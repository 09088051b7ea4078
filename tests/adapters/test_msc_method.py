"""``tempplug train msc``: a step is the formula's, frozen blocks stay, what does not go on is refused, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from image_toys import write_image
from msc_toys import recipe, run, save_tiny_resnet, toy_backbone, toy_data
from torch import Tensor

from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.msc.method import Anomalies, MSCMethod, anomaly_scores, represent, roc_auc
from tempplug_adapters.msc.model import MSC, load_backbone
from tempplug_adapters.msc.recipe import METHOD
from tempplug_adapters.training.batches import BatchOrder, seed_of
from tempplug_adapters.training.checkpoints import weights_checksum
from tempplug_adapters.training.method import Source


def encoder(output: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = torch.load(output / "encoder.pt", weights_only=True)
    return found


def toys() -> Anomalies:
    return Anomalies(toy_data(), toy_backbone())


def test_a_run_trains_what_is_not_frozen_and_other_data_are_refused_when_resuming(tmp_path: Path) -> None:
    data = toys()
    results = run(tmp_path, data=data, normal_class="green")
    assert json.loads((tmp_path / "metrics.json").read_text()) == results
    assert (results["strategy"], results["objective"], results["items"]) == ("fixed:temperature=0.25", "infonce", 33)
    losses = [entry["loss"] for entry in results["history"] if "loss" in entry]
    assert results["loss"] == losses[-1] < losses[0]
    before, after = toy_backbone().state_dict(), encoder(tmp_path)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    # Running statistics (of the module's place 1, 4 and 7) and the first convolution with its normalisation stay.
    assert moved == {f"module.{place}.{kind}" for place in (3, 4, 6, 7) for kind in ("weight", "bias")}
    assert weights_checksum(data.backbone.state_dict()) == results["initial_weights"], "what was loaded is not trained"
    described = MSCMethod(METHOD).describe(data)
    assert described == "33 training images of class green, 30 test images of which 20 are anomalies"
    with pytest.raises(ConfigError, match="normal_class=red differs from the checkpoint's green"):
        run(tmp_path, normal_class="red", resume_from_checkpoint="auto")
    data.backbone.module[6].weight.data[0, 0] += 1e-3  # type: ignore[index, union-attr, operator]
    with pytest.raises(ConfigError, match=r"initial_weights=\w{16} differs from the checkpoint's \w{16}"):
        run(tmp_path, data=data, normal_class="green", resume_from_checkpoint="auto")


def test_scores_before_and_after_are_those_of_the_networks(tmp_path: Path) -> None:
    results = run(tmp_path, learning_rate=0.01, num_train_epochs=3, training={"eval_strategy": "epoch"})
    data, expected = toy_data(), []
    for backbone in (toy_backbone(), toy_backbone()):
        if expected:
            backbone.load_state_dict(encoder(tmp_path))
        normal, tested = (represent(backbone, each, 12) for each in (data.train, data.test))
        expected.append(roc_auc(anomaly_scores(normal, tested), data.anomalous))
    before, after = expected
    assert results["evaluation"] == pytest.approx({"roc_auc_before": before, "roc_auc": after, "gain": after - before})
    assert abs(after - before) > 1
    assert [entry["eval_roc_auc_before"] for entry in results["history"] if "eval_gain" in entry] == [before] * 4


@pytest.mark.parametrize("angular", [False, True])
def test_the_step_is_the_models(tmp_path: Path, angular: bool) -> None:
    """One step of plain gradient descent, done by hand: same centre, same views, same weights."""
    step = {"num_train_epochs": 1, "per_device_train_batch_size": 64, "learning_rate": 0.1, "weight_decay": 0.01}
    changes: dict[str, Any] = {**step, "optimizer": "sgd", "momentum": 0.0, "frozen_blocks": 0, "angular": angular}
    run(tmp_path, **changes)
    data, backbone = toy_data(), toy_backbone()
    centre = represent(backbone, data.train, 12).mean(0)
    loss_fn = MSCMethod(METHOD).create_loss(recipe(**changes), toys(), TemperatureArguments("fixed"))
    model = MSC(backbone, centre / centre.norm() if angular else centre, loss_fn, angular=angular)
    (draw,), augment = list(BatchOrder(33, 64, 0)), create_augmentation("msc", 12)
    images = data.train.batch(draw.index).float() / 255
    torch.manual_seed(seed_of(0, "step", 0, 0, 0))
    model(augment(images), augment(images)).backward()
    for name, value in backbone.named_parameters():
        stepped = value.detach() - 0.1 * (value.grad + 0.01 * value.detach())  # type: ignore[operator]
        torch.testing.assert_close(encoder(tmp_path)[name], stepped, rtol=1e-4, atol=1e-5)


def test_a_checksum_tells_weights_apart() -> None:
    state = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(1)}
    found = weights_checksum(state)
    assert found == weights_checksum({name: values.clone() for name, values in state.items()})
    assert found == weights_checksum({**state, "a": state["a"].T.contiguous().T}), "the order in memory is no matter"
    flipped = state["a"].clone()
    flipped[1, 2] = torch.nextafter(flipped[1, 2], torch.tensor(9.0))
    others = [{**state, "a": state["a"].view(3, 2)}, {**state, "a": flipped}, {"c": state["a"], "b": state["b"]}]
    others += [{**state, "b": torch.tensor(1, dtype=torch.int32)}, {**state, "a": state["a"].bfloat16()}]
    assert len({found, *map(weights_checksum, others)}) == 6


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_resnet(tmp_path_factory.mktemp("resnet"))


def words(resnet: Path, output: Path, *more: str) -> list[str]:
    fixed = ["--dataset", "digits", "--normal-class", "3", "--backbone", str(resnet), "--image-size", "16"]
    small = ["--train-images", "40", "--test-images", "50", "--learning-rate", "0.01", "--frozen-blocks", "1"]
    return ["train", "msc", *fixed, *small, "--num-train-epochs", "3", "--output-dir", str(output), *more]


def test_the_pretrained_network_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    measured = MSCMethod._measured
    monkeypatch.setattr(MSCMethod, "_measured", lambda *given: calls.append(None) or measured(*given))
    results = run(tmp_path, num_train_epochs=1, training={"eval_on_start": True})
    assert len(calls) == 2, "before and after the training"
    assert results["history"][0]["eval_roc_auc"] == results["evaluation"]["roc_auc_before"]


def test_a_command_writes_network_and_numbers(resnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(resnet, tmp_path, "--temperature-strategy", "temperature-free", "--angular")) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    out = capsys.readouterr().out
    assert out.startswith(
        "strategy temperature-free:eps=0.0001\nobjective infonce\nlayout two-view\n"
        "digits: 40 training images of class 3, 50 test images of which 45 are anomalies\nepoch 1 of 3  loss "
    )
    figures = [[name, f"{metrics['evaluation'][name]:.4g}"] for name in ("roc_auc", "roc_auc_before", "gain")]
    assert [line.split() for line in out.splitlines()[-4:-1]] == figures
    assert (metrics["method"], metrics["dataset"], metrics["items"]) == ("msc", "digits", 40)
    changed = {"num_train_epochs": 3, "image_size": 16, "learning_rate": 0.01, "frozen_blocks": 1, "angular": True}
    chosen = {"normal_class": "3", "backbone": str(resnet), "train_images": 40, "test_images": 50}
    assert metrics["recipe"] == {**METHOD.recipe().values(), **changed, **chosen}
    load_backbone(str(resnet)).load_state_dict(encoder(tmp_path))


def test_a_folder_of_normal_images_trains_and_a_class_of_the_tests_measures(
    resnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in range(6):
        write_image(tmp_path / "data" / "train" / f"{place}.png", 30 * place, (16, 16))
        write_image(tmp_path / "data" / "test" / ("good" if place % 2 else "cracked") / f"{place}.png", 20 * place, (16, 16))
    small = "--image-size 16 --frozen-blocks 1 --num-train-epochs 1 --per-device-train-batch-size 3"
    common = ["train", "msc", "--backbone", str(resnet), *small.split()]
    data = ["--dataset", str(tmp_path / "data"), "--normal-class", "good"]
    assert main([*common, *data, "--output-dir", str(tmp_path / "measured")]) == 0
    assert "6 training images of class good, 6 test images of which 3 are anomalies" in capsys.readouterr().out
    assert main([*common, "--dataset", str(tmp_path / "data" / "train"), "--output-dir", str(tmp_path / "out")]) == 0
    assert "6 training images without classes, all normal; no test" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluation"] == {}
    assert set(encoder(tmp_path / "out")) == set(encoder(tmp_path / "measured"))


@pytest.mark.slow
def test_mobilenet_tells_cars_from_other_things(tmp_path: Path, data_dir: Path) -> None:
    flags = ["--dataset", "cifar10-lossless4k", "--normal-class", "automobile", "--data-dir", str(data_dir), "--recipe", "cpu"]
    small = ["--train-images", "16", "--test-images", "20", "--num-train-epochs", "1", "--output-dir", str(tmp_path)]
    assert main(["train", "msc", *flags, *small, "--temperature-strategy", "temperature-free"]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["evaluation"]["roc_auc_before"] > 80
    assert metrics["evaluation"]["roc_auc"] > 80
    assert metrics["recipe"]["image_size"] == 128


def test_images_on_disk_are_not_made_smaller_than_what_the_network_sees(resnet: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        for place in range(6):
            write_image(tmp_path / split / "ab"[place % 2] / f"{place}.png", 20 * place, (400, 400))
    for dataset, normal, size, expected in [
        (str(tmp_path), "a", 16, 224),
        (str(tmp_path), "a", 320, 320),
        ("digits", "3", 320, 8),
    ]:
        settings = recipe(normal_class=normal, backbone=str(resnet), image_size=size)
        images = MSCMethod(METHOD).load(settings, Source(dataset, None, tmp_path)).images
        assert {each.batch(torch.tensor([0])).shape[-1] for each in (images.train, images.test)} == {expected}
