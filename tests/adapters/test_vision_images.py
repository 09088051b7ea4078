"""The images of a vision training: as large as views want them, drawn as asked, measured by what the recipe names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from image_toys import write_image
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn.functional import normalize
from vision_train_toys import SIDE, images, measured, run, small, tiny  # noqa: F401

from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray, ImageFiles, ImageSet
from tempplug_adapters.images.long_tail import hold_out, long_tail_indices
from tempplug_adapters.images.representations import represent
from tempplug_adapters.images.trained_backbone import load_backbone
from tempplug_adapters.training.method import Source
from tempplug_adapters.vision import vision_images
from tempplug_adapters.vision.evaluation import classifiers, evaluations
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, MACL_CIFAR10, EvaluationSettings
from tempplug_adapters.vision.recipes import METHODS
from tempplug_adapters.vision.vision_images import VisionImages, load_vision


def folder_of(tmp_path: Path, train: tuple[str, ...], test: tuple[str, ...], size: tuple[int, int] = (9, 7)) -> Path:
    for split, classes in (("train", train), ("test", test)):
        for place in range(12 if classes else 0):
            write_image(tmp_path / "data" / split / classes[place % len(classes)] / f"{place:02}.png", 20 * place, size)
    return tmp_path / "data"


def pixels(images: ImageSet) -> Tensor:
    return images.batch(torch.arange(len(images)))


def test_images_are_as_large_as_their_views_want_them(tmp_path: Path) -> None:
    sizes = {}
    for name, given in [("own", {}), ("asked", {"load_size": 11}), ("views", {"image_size": 28})]:
        digits = load_vision(small("simclr", evaluations=("knn",), **given), "digits", None)
        sizes[name] = [pixels(each).shape[-1] for each in (digits.train, digits.test)]
    assert sizes == {"own": [8, 8], "asked": [11, 11], "views": [8, 8]}
    # in many sizes, as folders have them: what 256 pixels are to a view of 224
    data = str(folder_of(tmp_path, ("a", "b"), ("a", "b")))
    for given, side in [({"image_size": 28}, 32), ({"image_size": 28, "load_size": 30}, 30)]:
        found = load_vision(small("simclr", **given), data, None)
        assert isinstance(found.train, ImageFiles)
        assert pixels(found.train).shape[-1] == side


def test_a_long_tailed_part_is_drawn() -> None:
    whole = load_images("digits", "train", None)
    labels = whole.labels
    largest = int(0.9 * int(labels.bincount().min()))
    for given, expected in [
        ({}, (5.0, largest, 0)),
        ({"largest_class": 50, "split_seed": 3}, (5.0, 50, 3)),
        ({"largest_class": 50, "split_seed": 3, "held_out": 200}, (5.0, 50, 3)),
    ]:
        kept, held = hold_out(labels, given.get("held_out", 0), expected[2])
        part = kept[long_tail_indices(labels[kept], *expected)]
        found = load_vision(small("simclr", imbalance_ratio=5, **given), "digits", None)
        assert torch.equal(pixels(found.train), pixels(whole.subset(part)))
        assert torch.equal(found.train.labels, labels[part])
        assert not set(part.tolist()) & set(held.tolist())
        assert found.bank is found.train
        assert len(found.test) == 360


def test_the_split_seed_draws_and_the_training_seed_does_not() -> None:
    first, same, other = (
        pixels(load_vision(small("simclr", count=20, **given), "digits", None).train)
        for given in ({}, {"seed": 5}, {"split_seed": 1})
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(other, pixels(load_images("digits", "train", None, count=20, seed=1)))


def test_other_images_may_be_measured_with_and_what_is_not_measured_needs_none(tmp_path: Path) -> None:
    data = str(folder_of(tmp_path, ("a", "b"), ()))
    found = load_vision(small("simclr", evaluation_dataset="digits", count=12, image_size=8, load_size=8), data, None)
    assert (len(found.train), len(found.bank), len(found.test)) == (12, 1437, 360)
    assert load_vision(small("simclr"), data, None, evaluated=False).test is None
    assert load_vision(small("simclr", evaluations=()), data, None).test is None


@pytest.mark.parametrize(
    ("train", "test", "given", "message"),
    [
        ("ab", "", {}, "Or pass --no-evaluate to train without measuring"),
        ("ab", "abe", {"imbalance_ratio": 2}, "class 'e' has no image"),
        ("ab", "ab", {"evaluations": ("long-tail",)}, "there must be at least 3"),
        ("ab", "ab", {"largest_class": 5}, "largest_class=5 applies to long-tailed parts only: set imbalance_ratio"),
        ("ab", "ab", {"held_out": 2}, "held_out=2 applies to long-tailed parts only: set imbalance_ratio"),
        ("ab", "ab", {"imbalance_ratio": 2, "held_out": 3}, "count=3 of images held out must be a multiple"),
    ],
)
def test_faults_come_before_the_training(tmp_path: Path, train: str, test: str, given: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        load_vision(small("simclr", **given), str(folder_of(tmp_path, tuple(train), tuple(test))), None)


def test_a_broken_test_set_is_found_before_the_training(tmp_path: Path) -> None:
    data = folder_of(tmp_path, ("a", "b"), ("a", "b"))
    for file in (data / "test").rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"can be decoded.*pass --no-evaluate to train without measuring"):
        load_vision(small("simclr"), str(data), None)
    other = ImageArray(images(12).images, images(12).labels, ("a", "b", "c"), "letters")
    with pytest.raises(DataError, match="'colours-0' and 'letters' must have the same classes"):
        vision_images.check_evaluations(small("simclr"), images(), other)


def test_a_misspelled_augmentation_is_told_before_images_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(vision_images, "load_images")
    with pytest.raises(UnknownNameError, match="Did you mean 'simclr'"):
        METHODS["simclr"].load().load(small("simclr", augmentation="simclear"), Source("digits", None, Path()))


def test_supervision_needs_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision_images, "load_images", lambda *given, **more: images(labelled=False))
    source = Source("unlabelled", None, Path())
    assert METHODS["simclr"].load().load(small("simclr"), source).test is None
    with pytest.raises(DataError, match="SupCon needs the class of every image"):
        METHODS["supcon"].load().load(small("supcon"), source)
    with pytest.raises(DataError, match="imbalance_ratio needs the class of every image"):
        load_vision(small("simclr", imbalance_ratio=2), "unlabelled", None)


# Whether a probe of so few features converges depends on the processor; both sides stop at the same place.
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_figures_are_those_of_the_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "LABELS", (5,))
    monkeypatch.setitem(evaluations.PROBES, "macl-cifar10", replace(MACL_CIFAR10, epochs=4))
    train, test = (load_images("digits", split, None, count=120) for split in ("train", "test"))  # type: ignore[arg-type]
    recipe = small("simclr", width=4, image_size=10, augmentation="simclr-cifar", neighbours=7, channels_last=False).changed(
        num_train_epochs=1, seed=3, evaluations=EVALUATIONS, probe="macl-cifar10", head_above=13, tail_below=11
    )
    told: list[float] = []
    found = run(tmp_path, data=VisionImages(train, train, test), recipe=recipe, evaluation_progress=told.append)["evaluation"]
    settings = EvaluationSettings(
        7, probe="macl-cifar10", imbalance_ratio=None, head_above=13, tail_below=11, image_size=10, seed=3
    )
    evaluation = Evaluation(load_backbone(tmp_path), train, test, settings, torch.device("cpu"))
    expected = {name: evaluation.measure(name) for name in EVALUATIONS}
    figures = {"knn": expected["knn"]["accuracy"], "knn validation": expected["knn"]["validation"]}
    figures |= {"linear": expected["linear-probe"]["accuracy"], "svc": expected["svc-probe"]["accuracy"]}
    figures |= {name: value for name, value in expected["report"].items() if name != "views"}
    figures |= {**expected["top-5"], **expected["few-labels"]}
    for name in ("knn@1", "knn@10", "few-shot", "long-tail"):
        score = expected["long-tail"][name]
        figures |= {name: score["overall"], **{f"{name} {group}": score[group] for group in ("head", "middle", "tail")}}
    assert found == pytest.approx(figures, rel=1e-5)
    assert told == sorted(told)
    assert (told[-1], told[0] < 0.3) == (1.0, True)


def test_images_held_out_of_a_long_tail_are_asked_to_choose_by(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"imbalance_ratio": 8, "held_out": 100, "largest_class": 80, "split_seed": 2}
    given = {"width": 8, "image_size": 8, "channels_last": False, "num_train_epochs": 0, "evaluations": ("long-tail",), **drawn}
    data = load_vision(small("simclr", **given), "digits", None)
    every = load_images("digits", "train", None)
    kept, left = hold_out(every.labels, 100, 2)
    part = kept[long_tail_indices(every.labels[kept], 8, 80, 2)]
    assert torch.equal(pixels(data.held_out), pixels(every.subset(left)))
    found = run(tmp_path, data=data, **given)["evaluation"]
    rows = normalize(represent(load_backbone(tmp_path), every, size=8), dim=1)
    for k in (1, 10):
        voters = KNeighborsClassifier(k).fit(rows[part], every.labels[part])
        expected = 100 * balanced_accuracy_score(every.labels[left], voters.predict(rows[left]))
        assert found[f"validation knn@{k}"] == pytest.approx(expected, abs=1e-6)
    assert load_vision(small("simclr", **{**given, "held_out": 0}), "digits", None).held_out is None


@pytest.mark.usefixtures("tiny")
def test_without_labels_nothing_is_measured(tmp_path: Path) -> None:
    assert run(tmp_path, data=images(labelled=False), num_train_epochs=0)["evaluation"] == {}
