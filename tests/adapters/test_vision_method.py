"""Training on tiny images: a plain loop to the bit, exact after a kill, every method's state kept, views and rates as said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from image_toys import BROKEN, write_image
from method_toys import Kill, Killed, plain_loop, weights, without_seconds
from torch import Tensor
from vision_method_toys import assert_states_equal
from vision_train_toys import SIDE, TinyBackbone, built, flags, images, measured, run, seen, small, tiny  # noqa: F401

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.class_folders import list_folder
from tempplug_adapters.images.image_set import ImageArray, ImageFiles
from tempplug_adapters.training.optimizer import parameter_groups
from tempplug_adapters.vision.recipes import METHODS
from tempplug_adapters.vision.vision_images import VisionImages
from tempplug_adapters.vision.vision_method import TwoViews

pytestmark = pytest.mark.usefixtures("tiny")

SCHEDULE = "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=4"


CONSTANT = {"lr_scheduler_type": "constant", "warmup_steps": 0.0}
CASES: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
    ("simclr", SCHEDULE, {"optimizer": "lars", "augmentation": "simclr", "seed": 3, **CONSTANT}, ()),
    (
        "moco",
        "macl",
        {"heads": 2, "symmetric": True, **CONSTANT},
        ("queues.1.rows", "momentum_encoder.backbone.module.0.weight"),
    ),
    ("simsiam", "amcl", {"optimizer": "adam", "heads": 2, **CONSTANT}, ("strategy.phi.weight",)),
    ("supcon", "head-tail", {"heads": 2, **CONSTANT}, ()),
    ("simclr", "individual", {"optimizer": "adam", "warmup_steps": 0.4}, ("loss_fn.strategy.temperatures",)),
    ("nnclr", "learnable", {}, ("support_sets.0.rows", "support_sets.0.position", "loss_fn.strategy.log_scale")),
    ("barlow-twins", "amcl", {}, ("strategy.phi.weight",)),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*nearly all temperatures lie on a bound:RuntimeWarning")  # of AMCL, in so short a training
@pytest.mark.parametrize(("method", "strategy", "changes", "kept"), CASES, ids=[f"{case[0]}-{case[1][:10]}" for case in CASES])
def test_a_training_is_a_plain_loop_to_the_bit_and_a_killed_one_ends_alike(
    tmp_path: Path, method: str, strategy: str, changes: dict[str, Any], kept: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"data": measured(), "num_train_epochs": 3, **changes}
    whole = run(tmp_path / "whole", method, strategy, training={"save_steps": 2}, **given)
    assert len({entry["loss"] for entry in whole["history"] if "loss" in entry}) == 3
    state = weights(tmp_path / "whole")
    assert {f"step.{name}" for name in kept} <= state.keys()
    if "lr_scheduler_type" in changes:
        trained: Any = METHODS[method].load()
        recipe = trained.recipe_of(small(method, num_train_epochs=3, **changes), strategy.partition(":")[0], "")
        plain = plain_loop(trained, recipe, measured(), strategy).state_dict()
        assert_states_equal(state, {name: value for name, value in plain.items() if isinstance(value, Tensor)})
    with pytest.raises(Killed):
        run(tmp_path / "killed", method, strategy, training={"save_steps": 2}, callbacks=[Kill(5)], **given)
    torch.manual_seed(99)
    again = run(tmp_path / "killed", method, strategy, training={"save_steps": 2}, resume_from_checkpoint="auto", **given)
    assert without_seconds(again) == without_seconds(whole)
    assert_states_equal(state, weights(tmp_path / "killed"))


@pytest.mark.filterwarnings("ignore:bf16 on a processor")
@pytest.mark.parametrize(("channels_last", "bf16"), [(True, False), (False, True)])
def test_each_step_gets_views_index_and_labels_of_one_batch_in_the_format_asked_for(
    tmp_path: Path,
    seen: list[dict[str, Any]],  # noqa: F811
    channels_last: bool,
    bf16: bool,
) -> None:
    data, kept = images(26), torch.channels_last if channels_last else torch.contiguous_format
    results = run(
        tmp_path,
        "simclr",
        "head-tail",
        data=data,
        augmentation="none",
        num_train_epochs=2,
        channels_last=channels_last,
        bf16=bf16,
    )
    assert len(seen) == 2 * 3
    for call in seen:
        pixels = data.batch(call["index"]).float() / 255
        assert all(torch.equal(view, pixels) and view.is_contiguous(memory_format=kept) for view in call["views"])
        assert any(view.is_contiguous() for view in call["views"]) != channels_last
        assert torch.equal(call["labels"], data.labels[call["index"]])
        assert call["output"].dtype == (torch.bfloat16 if bf16 else torch.float32)
    assert seen[0]["module"].backbone.module[0].weight.is_contiguous(memory_format=kept)
    orders = [torch.cat([call["index"] for call in seen[start : start + 3]]).tolist() for start in (0, 3)]
    assert all(len(set(order)) == 24 for order in orders)
    assert orders[0] != orders[1]
    assert {each.dtype for each in weights(tmp_path).values()} == {torch.float32, torch.int64}
    assert math.isfinite(results["loss"])


def test_each_image_of_each_step_has_two_views_of_its_own(tmp_path: Path, seen: list[dict[str, Any]]) -> None:  # noqa: F811
    one = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
    one[0, 0, :3], one[0, 1, :, :2] = 200, 90
    same = ImageArray(one.repeat(8, 1, 1, 1), None, (), "copies")
    run(tmp_path, data=same, num_train_epochs=2, augmentation="simclr-cifar")
    views = torch.cat([view for call in seen for view in call["views"]])
    assert len(torch.unique(views.flatten(1), dim=0)) == len(views) == 32
    assert seen[0]["labels"] is None


def test_broken_images_are_replaced_and_where_none_can_be_read_the_error_names_the_set(tmp_path: Path) -> None:
    for place in range(12):
        write_image(tmp_path / "data" / f"class{place % 2}" / f"{place:02}.png", 20 * place, (SIDE, SIDE))
    (tmp_path / "data" / "class1" / "07.png").write_bytes(BROKEN)
    data = VisionImages(ImageFiles(list_folder(tmp_path / "data", "toys"), SIDE))
    with pytest.warns(UserWarning, match=r"07\.png"):
        results = run(tmp_path / "run", data=data, num_train_epochs=2, per_device_train_batch_size=4)
    assert math.isfinite(results["loss"])
    for file in (tmp_path / "data").rglob("*.png"):
        file.write_bytes(BROKEN)
    data = VisionImages(ImageFiles(list_folder(tmp_path / "data", "broken ones"), SIDE))
    for workers in (0, 1):
        more = {"per_device_train_batch_size": 2, "training": {"dataloader_num_workers": workers}}
        with pytest.raises(DataError, match="of 'broken ones' can be decoded") as raised:
            run(tmp_path / f"run{workers}", data=data, **more)
        assert "\n" not in str(raised.value)


def test_no_epochs_leave_the_backbone_untrained_as_its_seed_draws_it(tmp_path: Path) -> None:
    results = run(tmp_path, "moco", "schedule", data=measured(), num_train_epochs=0)
    fresh, other = (built("moco", "schedule", num_train_epochs=0, seed=seed).state_dict() for seed in (0, 1))
    kept = {name.removeprefix("step.backbone."): value for name, value in fresh.items() if name.startswith("step.backbone.")}
    assert_states_equal(torch.load(tmp_path / "encoder.pt", weights_only=True), kept)
    for name in ("step.backbone.module.0.weight", "step.queues.0.rows"):
        assert not torch.equal(fresh[name], other[name])
    assert results["evaluation"]["knn"] > 0
    assert results["loss"] is None


def test_slow_bf16_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    built("simclr", bf16=True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with pytest.warns(UserWarning, match="bf16 on a processor without bfloat16 instructions"):
        built("simclr", bf16=True)


def test_convolutions_that_break_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="1x1 convolutions of 4 channels and stride 2"):
        built("simclr", width=4)
    built("simclr", width=4, channels_last=False)
    built("simclr", width=8)


def groups_of(module: TwoViews, method: str, **changes: Any) -> list[dict[str, Any]]:
    trained: Any = METHODS[method].load()
    recipe = small(method, **changes)
    return parameter_groups(module, recipe, recipe.learning_rate, lambda name, each: trained.treatment(recipe, name, each))


@pytest.mark.parametrize(
    ("changes", "decayed"),
    [
        ({}, {"weight", "norm"}),
        ({"spare_norms": True}, {"weight"}),
        ({"optimizer": "lars"}, {"weight"}),
        ({"optimizer": "adam"}, {"weight", "norm"}),
    ],
)
def test_weight_decay_spares_what_the_recipe_says_and_temperatures(changes: dict[str, Any], decayed: set[str]) -> None:
    given: dict[str, Any] = {"weight_decay": 0.1, "bias_learning_rate": 0.5, "learning_rate": 0.25, **changes}
    for strategy, temperatures in (("learnable", {"log_scale"}), ("amcl", {"phi.weight", "phi.bias"})):
        module = built("simclr", strategy, **given)
        groups = groups_of(module, "simclr", **given)
        kinds = {}
        for name, parameter in module.named_parameters():
            (group,) = [group for group in groups if any(parameter is each for each in group["params"])]
            temperature = name.removeprefix("step.loss_fn.strategy.") in temperatures
            kind = "temperature" if temperature else "weight" if parameter.ndim > 1 else "norm"
            kinds[name] = kind
            assert group["weight_decay"] == (0.1 if kind in decayed else 0)
            own = {"norm": 0.5, "temperature": 0.01 if strategy == "learnable" else 0.25}
            assert group["lr"] == own.get(kind, 0.25)
            assert group["adapt"] == (kind == "weight")
        assert sorted(kinds.values()).count("temperature") == len(temperatures)
        assert {"weight", "norm"} <= set(kinds.values())


def test_the_prediction_head_of_simsiam_keeps_its_rate_and_momentum_encoders_are_not_optimized() -> None:
    module: Any = built("simsiam")
    heads = {id(each) for each in module.step.prediction_head.parameters()}
    found = [group for group in groups_of(module, "simsiam") if group["constant"]]
    assert {id(each) for group in found for each in group["params"]} == heads
    module = built("moco", augmentation="simclr")
    optimized = {id(each) for group in groups_of(module, "moco") for each in group["params"]}
    assert not optimized & {id(each) for each in module.step.momentum_encoder.parameters()}
    assert optimized == {id(each) for each in module.parameters() if each.requires_grad}
    assert {name.partition(".")[0] for name in module.state_dict()} == {"step"}


@pytest.mark.parametrize(
    ("method", "given", "kind", "message"),
    [
        ("simclr", {"strategy": "head-tail", "labelled": False}, DataError, "strategy 'head-tail' needs the class of every"),
        ("simsiam", {"strategy": flags(None, None, ["beta=1"])}, ConfigError, "temperature_args=beta=1 are options of no"),
        ("supcon", {"strategy": flags("fixed", "reweighted")}, ConfigError, "reweighted"),
    ],
)
def test_faults_are_named(tmp_path: Path, method: str, given: dict[str, Any], kind: type[Exception], message: str) -> None:
    data = images(labelled=given.pop("labelled", True))
    with pytest.raises(kind, match=message):
        run(tmp_path, method, given.pop("strategy", None), data=data, num_train_epochs=1, **given)
    assert not list(tmp_path.glob("checkpoint-*"))
