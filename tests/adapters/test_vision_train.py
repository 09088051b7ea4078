"""`train_vision` on tiny images: runs resume exactly, strategies learn what they need, optimizers do what their papers say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from image_toys import BROKEN, write_image
from torch import nn
from vision_train_toys import SIDE, TinyBackbone, differences, flags, images, saved, small, tiny, watched_steps  # noqa: F401

from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.images.class_folders import list_folder
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_files import ImageFiles
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.images.representations import represent
from tempplug_adapters.vision import methods, train
from tempplug_adapters.vision.batches import Batches
from tempplug_adapters.vision.checkpoint_backbone import load_backbone
from tempplug_adapters.vision.evaluation.knn import knn_accuracy
from tempplug_adapters.vision.methods import create_method
from tempplug_adapters.vision.recipe import METHODS
from tempplug_adapters.vision.recipes import recipe_settings
from tempplug_adapters.vision.train import train_vision

pytestmark = pytest.mark.usefixtures("tiny")

SCHEDULE = "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=4"


class Killed(Exception):
    """Stands for a run that ends in the middle."""


@pytest.mark.parametrize(
    ("method", "strategy", "changes"),
    [
        ("simclr", SCHEDULE, {"optimizer": "lars", "warmup_epochs": 2, "augmentation": "simclr"}),
        ("simclr", "individual", {"optimizer": "adam"}),
        ("simclr", "head-tail", {"heads": 2}),
        ("moco", "macl", {"heads": 2}),
        ("nnclr", "learnable", {}),
        ("simsiam", "amcl", {"heads": 2}),
        ("barlow-twins", "amcl", {}),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_bits(
    tmp_path: Path, method: str, strategy: str, changes: dict[str, Any]
) -> None:
    settings, given = small(method, **changes), flags(strategy)
    whole = train_vision(images(), method, given, settings, tmp_path / "whole", save_epochs=2)

    def die(done: int, loss: float) -> None:
        if done == 3:
            raise Killed

    with pytest.raises(Killed):
        train_vision(images(), method, given, settings, tmp_path / "killed", save_epochs=2, progress=die)
    assert saved(tmp_path / "killed")["epoch"] == 2
    torch.manual_seed(99)
    resumed: list[int] = []
    again = train_vision(
        images(),
        method,
        given,
        settings,
        tmp_path / "killed",
        save_epochs=2,
        resume_from_checkpoint="auto",
        progress=lambda done, _: resumed.append(done),
    )
    assert resumed == [3, 4, 5]
    assert again["history"] == whole["history"]
    assert len({row["loss"] for row in whole["history"]}) == 5
    expected, found = saved(tmp_path / "whole"), saved(tmp_path / "killed")
    for part in ("epoch", "settings", "model", "optimizer", "history"):
        assert differences(expected[part], found[part]) == []


def test_the_state_of_every_method_is_in_the_checkpoint(tmp_path: Path) -> None:
    """What the test above compares holds queues, temperatures and the momentum encoder."""
    for method, strategy, names in [
        ("moco", "macl", ("queues.0.rows", "queues.0.position", "momentum_encoder.backbone.module.0.weight")),
        ("nnclr", "learnable", ("support_sets.0.rows", "support_sets.0.position", "loss_fn.strategy.log_scale")),
        ("simclr", "individual", ("loss_fn.strategy.temperatures", "loss_fn.strategy.velocities")),
        ("simsiam", "amcl", ("strategy.phi.weight",)),
    ]:
        train_vision(images(), method, flags(strategy), small(method, epochs=1), tmp_path / method)
        assert set(names) <= saved(tmp_path / method)["model"].keys()
    assert int(saved(tmp_path / "moco")["model"]["queues.0.position"]) == 3 * 8 % 11


def test_a_finished_run_only_measures_again(tmp_path: Path) -> None:
    given: tuple[Any, ...] = (images(), "simclr", flags("fixed"), small("simclr", epochs=2), tmp_path)
    first = train_vision(*given, test=images(12, seed=1))
    again = train_vision(*given, test=images(12, seed=1), resume_from_checkpoint="auto")
    assert again["knn"] == first["knn"] is not None
    assert again["loss"] == first["loss"]
    assert again["seconds_per_epoch"] is None
    with pytest.raises(ConfigError, match="holds the checkpoint of an earlier run"):
        train_vision(*given)
    for changed, message in [
        ({"settings": small("simclr", epochs=2, learning_rate=0.5)}, "learning_rate=0.5 differs from the checkpoint's 0.06"),
        ({"temperature": flags("macl")}, "strategy=macl:.* differs from the checkpoint's fixed:temperature=0.1"),
        ({"images": images(27)}, "images=27 differs from the checkpoint's 26"),
        ({"about": {"count": 3}}, "count=3 differs from the checkpoint's None"),
    ]:
        names = dict(zip(("images", "method", "temperature", "settings", "output_dir"), given, strict=True))
        with pytest.raises(ConfigError, match=message):
            train_vision(**{**names, **changed}, resume_from_checkpoint="auto")


def test_schedules_are_told_whole_epochs_from_one(tmp_path: Path) -> None:
    results = train_vision(images(), "simclr", flags(SCHEDULE), small("simclr"), tmp_path)
    # epochs 1 to 5 of a triangle with period 4: a quarter, half, three quarters, the top, a quarter
    expected = [0.55, 0.2, 0.55, 0.9, 0.55]
    assert [row["temperature"] for row in results["history"]] == pytest.approx(expected)
    assert [row["epoch"] for row in results["history"]] == [1, 2, 3, 4, 5]


def test_each_step_gets_views_index_and_labels_of_one_batch(tmp_path: Path, seen: list[dict[str, Any]]) -> None:
    data = images(26)
    train_vision(data, "simclr", flags("head-tail"), small("simclr", augmentation="none", epochs=2), tmp_path)
    assert len(seen) == 2 * 3
    for call in seen:
        pixels = data.batch(call["index"]).float() / 255
        assert all(torch.equal(view, pixels) for view in call["views"])
        assert torch.equal(call["labels"], data.labels[call["index"]])
    orders = [torch.cat([call["index"] for call in seen[start : start + 3]]).tolist() for start in (0, 3)]
    assert all(len(set(order)) == 24 for order in orders)
    assert orders[0] != orders[1]


def test_each_image_of_each_step_has_two_views_of_its_own(tmp_path: Path, seen: list[dict[str, Any]]) -> None:
    one = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
    one[0, 0, :3], one[0, 1, :, :2] = 200, 90
    same = ImageArray(one.repeat(8, 1, 1, 1), None, (), "copies")
    train_vision(same, "simclr", flags("fixed"), small("simclr", epochs=2, augmentation="simclr-cifar"), tmp_path)
    views = torch.cat([view for call in seen for view in call["views"]])
    assert len(torch.unique(views.flatten(1), dim=0)) == len(views) == 32
    assert seen[0]["labels"] is None


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(hash(name))
        train_vision(images(), "moco", flags("fixed"), small("moco", epochs=1, seed=seed), tmp_path / name)
    first, same, other = (saved(tmp_path / name)["model"] for name in "abc")
    assert differences(first, same) == []
    assert "module.0.weight" in str(differences(first, other))
    assert "queues.0.rows" in str(differences(first, other))


@pytest.mark.parametrize("method", METHODS)
def test_training_learns(tmp_path: Path, method: str) -> None:
    changes = {"learning_rate": 0.02, "epochs": 12}
    results = train_vision(images(), method, flags(None), small(method, **changes), tmp_path)
    losses = [row["loss"] for row in results["history"]]
    assert sum(losses[-3:]) < sum(losses[:3])


def test_shares_of_processes_join_to_the_batch_of_one() -> None:
    data = images(26)
    one = Batches(data, 8, seed=3).positions(5)
    shares = [Batches(data, 8, seed=3, rank=rank, world=4).positions(5) for rank in range(4)]
    assert [len(part) for part in shares[0]] == [2, 2, 2]
    for step, whole in enumerate(one):
        assert torch.equal(torch.cat([part[step] for part in shares]), whole)
    assert len(torch.cat(one).unique()) == 24
    others = [Batches(data, 8, seed=3).positions(4), Batches(data, 8, seed=4).positions(5)]
    assert all(not torch.equal(torch.cat(one), torch.cat(each)) for each in others)


def test_workers_change_nothing_but_who_reads() -> None:
    data = images(10)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches = Batches(data, 4, seed=0, workers=1)
    for epoch in (0, 1):
        alone, helped = list(Batches(data, 4, seed=0).epoch(epoch)), list(batches.epoch(epoch))
        assert differences(alone, helped) == []
        assert torch.equal(helped[0][1], data.batch(helped[0][0]))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_broken_image_in_the_middle_ends_nothing(tmp_path: Path) -> None:
    for place in range(12):
        write_image(tmp_path / "data" / "train" / f"class{place % 2}" / f"{place:02}.png", 20 * place, (SIDE, SIDE))
    (tmp_path / "data" / "train" / "class1" / "07.png").write_bytes(BROKEN)
    data = ImageFiles(list_folder(tmp_path / "data" / "train", "toys"), SIDE)
    with pytest.warns(UserWarning, match="07.png"):
        results = train_vision(data, "simclr", flags("fixed"), small("simclr", epochs=3, batch_size=4), tmp_path / "run")
    assert math.isfinite(results["loss"])
    assert len(results["history"]) == 3


def test_neighbours_measure_the_trained_backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    data, test = (load_images("digits", split, None) for split in ("train", "test"))
    data, test = data.subset(torch.arange(64)), test.subset(torch.arange(40))
    settings = recipe_settings("simclr", width=8, image_size=8, batch_size=32, epochs=2, augmentation="amcl-a")
    results = train_vision(data, "simclr", flags("fixed"), settings, tmp_path, test=test, evaluate_epochs=1)
    backbone = load_backbone(tmp_path / "checkpoint.pt")
    bank, queries = represent(backbone, data), represent(backbone, test)
    assert data.labels is not None
    assert test.labels is not None
    accuracy = knn_accuracy(bank, data.labels, queries, test.labels, k=200, temperature=0.1)
    assert results["knn"] == {"accuracy": accuracy, "k": 64, "temperature": 0.1}
    assert [row["knn"] for row in results["history"]][-1] == accuracy
    assert all(isinstance(row["knn"], float) for row in results["history"])
    assert json.loads((tmp_path / "metrics.json").read_text()) == json.loads(json.dumps(results))


@pytest.mark.parametrize("place", ["images", "test", "no test"])
def test_without_labels_nothing_is_measured(tmp_path: Path, place: str) -> None:
    data, test = images(labelled=place != "images"), images(12, seed=1, labelled=place != "test")
    given = None if place == "no test" else test
    results = train_vision(data, "simclr", flags("fixed"), small("simclr", epochs=1), tmp_path, test=given)
    assert results["knn"] is None
    assert math.isfinite(results["loss"])


def test_no_epochs_leave_the_backbone_untrained(tmp_path: Path) -> None:
    settings = small("simclr", epochs=0)
    results = train_vision(images(), "simclr", flags("schedule"), settings, tmp_path, test=images(12, seed=1))
    torch.manual_seed(settings.seed)
    fresh = create_method("simclr", images(), flags("schedule"), settings)
    assert differences(dict(fresh.state_dict()), saved(tmp_path)["model"]) == []
    assert results["knn"]["accuracy"] > 0
    assert (results["loss"], results["history"]) == (None, [])


@pytest.mark.filterwarnings("ignore:precision='bf16' on a processor")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_precision_is_that_of_the_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    found: list[torch.dtype] = []

    def create(name: str, **options: Any) -> nn.Module:
        backbone = TinyBackbone()
        backbone.module[0].register_forward_hook(lambda _, __, output: found.append(output.dtype))
        return backbone

    monkeypatch.setattr(methods, "create_backbone", create)
    results = train_vision(images(), "simclr", flags("fixed"), small("simclr", epochs=1, precision=precision), tmp_path)
    assert set(found) == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert {each.dtype for each in saved(tmp_path)["model"].values()} == {torch.float32, torch.int64}
    assert math.isfinite(results["loss"])


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_slow_bf16_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    run: Callable[[], Any] = lambda: train_vision(  # noqa: E731
        images(), "simclr", flags("fixed"), small("simclr", epochs=0, precision="bf16"), tmp_path
    )
    if capability == "AVX512":
        run()
    else:
        with pytest.warns(UserWarning, match="precision='bf16' on a processor without bfloat16 instructions"):
            run()


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_have_the_memory_format_asked_for(tmp_path: Path, seen: list[dict[str, Any]], channels_last: bool) -> None:
    settings = small("simclr", epochs=1, channels_last=channels_last)
    train_vision(images(), "simclr", flags("fixed"), settings, tmp_path)
    kept = torch.channels_last if channels_last else torch.contiguous_format
    kernel = seen[0]["module"].backbone.module[0].weight
    assert all(view.is_contiguous(memory_format=kept) for view in (*seen[0]["views"], kernel))
    assert any(view.is_contiguous() for view in seen[0]["views"]) != channels_last


def test_convolutions_that_break_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    settings = small("simclr", backbone="resnet18", width=4, epochs=0)
    with pytest.raises(ConfigError, match="1x1 convolutions of 4 channels and stride 2"):
        train_vision(images(), "simclr", flags("fixed"), settings, tmp_path)
    for changes in ({"channels_last": False}, {"width": 8}):
        settings = small("simclr", **{"backbone": "resnet18", "width": 4, "epochs": 0, **changes})
        train_vision(images(), "simclr", flags("fixed"), settings, tmp_path / str(changes))


def test_a_training_that_diverges_stops_and_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = train._epoch
    monkeypatch.setattr(train, "_epoch", lambda *given: math.nan if given[6] == 2 else original(*given))
    with pytest.raises(NonFiniteError, match="loss=nan after epoch 3: the training diverged"):
        train_vision(images(), "simclr", flags("fixed"), small("simclr"), tmp_path, save_epochs=1)
    assert saved(tmp_path)["epoch"] == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_worker_says_what_is_wrong_as_the_process_itself_does(tmp_path: Path, workers: int) -> None:
    for place in range(4):
        write_image(tmp_path / "class0" / f"{place}.png", 20, (SIDE, SIDE))
        (tmp_path / "class0" / f"{place}.png").write_bytes(BROKEN)
    batches = Batches(ImageFiles(list_folder(tmp_path, "broken ones"), SIDE), 2, seed=0, workers=workers)
    with pytest.raises(DataError) as raised:
        list(batches.epoch(0))
    assert "of 'broken ones' can be decoded." in str(raised.value)
    assert "\n" not in str(raised.value)
