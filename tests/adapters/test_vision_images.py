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

from tempplug import metrics
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray, ImageFiles, ImageSet
from tempplug_adapters.images.long_tail import hold_out, long_tail_indices
from tempplug_adapters.images.representations import represent
from tempplug_adapters.training.method import Source
from tempplug_adapters.vision import vision_images
from tempplug_adapters.vision.checkpoint_backbone import load_backbone
from tempplug_adapters.vision.evaluation.classifiers import LABELS, fit_linear_probe, knn_votes
from tempplug_adapters.vision.evaluation.evaluations import long_tail_evaluation
from tempplug_adapters.vision.evaluation.scores import accuracy
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, PROBES
from tempplug_adapters.vision.recipes import METHODS
from tempplug_adapters.vision.vision_images import VisionImages, load_vision


def folder_of(tmp_path: Path, train: tuple[str, ...], test: tuple[str, ...], size: tuple[int, int] = (9, 7)) -> Path:
    for split, classes in (("train", train), ("test", test)):
        for place in range(12 if classes else 0):
            write_image(tmp_path / "data" / split / classes[place % len(classes)] / f"{place:02}.png", 20 * place, size)
    return tmp_path / "data"


def labels_of(images: ImageSet) -> Tensor:
    assert images.labels is not None
    return images.labels


def pixels(images: ImageSet) -> Tensor:
    return images.batch(torch.arange(len(images)))


def test_images_are_as_large_as_their_views_want_them(tmp_path: Path) -> None:
    sizes = {}
    for name, given in [("own", {}), ("asked", {"load_size": 11}), ("views", {"image_size": 28})]:
        digits = load_vision(small("simclr", evaluations=("knn",), **given), "digits", None)
        assert digits.test is not None
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
    labels = labels_of(whole)
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
        assert torch.equal(labels_of(found.train), labels[part])
        assert not set(part.tolist()) & set(held.tolist())
        assert found.bank is found.train
        assert found.test is not None
        assert len(found.test) == 360


def test_the_split_seed_draws_and_the_training_seed_does_not() -> None:
    first, same, other = (
        pixels(load_vision(small("simclr", count=20, **given), "digits", None).train)
        for given in ({}, {"seed": 5}, {"split_seed": 1})
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(other, pixels(load_images("digits", "train", None, count=20, seed=1)))


def test_other_images_may_be_measured_with(tmp_path: Path) -> None:
    recipe = small("simclr", evaluation_dataset="digits", count=12, image_size=8, load_size=8)
    found = load_vision(recipe, str(folder_of(tmp_path, ("a", "b"), ())), None)
    assert found.bank is not None
    assert found.test is not None
    assert (len(found.train), len(found.bank), len(found.test)) == (12, 1437, 360)


def test_what_is_not_measured_needs_no_test_images(tmp_path: Path) -> None:
    data = str(folder_of(tmp_path, ("a", "b"), ()))
    with pytest.raises(DataError, match="Or pass --no-evaluate to train without measuring"):
        load_vision(small("simclr"), data, None)
    assert load_vision(small("simclr"), data, None, evaluated=False).test is None
    assert load_vision(small("simclr", evaluations=()), data, None).test is None


@pytest.mark.parametrize(
    ("train", "test", "given", "message"),
    [
        (("cat", "dog"), ("cat", "dog", "eel"), {"imbalance_ratio": 2}, "class 'eel' has no image"),
        (("a", "b"), ("a", "b"), {"evaluations": ("long-tail",)}, "there must be at least 3"),
        (("a",), ("a",), {"evaluations": ("svc-probe",)}, "has images of one class only"),
        (("a", "b"), ("a", "b"), {"largest_class": 5}, "largest_class=5 belongs to a long-tailed part: give imbalance_ratio"),
        (("a", "b"), ("a", "b"), {"held_out": 2}, "held_out=2 belongs to a long-tailed part: give imbalance_ratio"),
        (
            ("a", "b"),
            ("a", "b"),
            {"imbalance_ratio": 9},
            "largest_class=5, nine tenths of the smallest",
        ),
        (("a", "b"), ("a", "b"), {"imbalance_ratio": 2, "held_out": 3}, "count=3 of images held out must be a multiple"),
    ],
)
def test_faults_of_the_images_are_told_before_the_training(
    tmp_path: Path, train: tuple[str, ...], test: tuple[str, ...], given: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        load_vision(small("simclr", **given), str(folder_of(tmp_path, train, test)), None)


def test_a_broken_test_set_is_found_before_the_training(tmp_path: Path) -> None:
    data = folder_of(tmp_path, ("a", "b"), ("a", "b"))
    for file in (data / "test").rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"can be decoded.*pass --no-evaluate to train without measuring"):
        load_vision(small("simclr"), str(data), None)


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


def test_figures_are_those_of_the_parts(tmp_path: Path) -> None:
    train = load_images("digits", "train", None, count=300)
    test = load_images("digits", "test", None)
    given: dict[str, Any] = {"width": 8, "image_size": 10, "augmentation": "simclr-cifar", "neighbours": 7}
    given |= {"channels_last": False, "num_train_epochs": 1, "seed": 3, "evaluations": EVALUATIONS, "probe": "macl-cifar10"}
    groups = {"head_above": 33, "tail_below": 27}
    told: list[float] = []
    results = run(tmp_path, data=VisionImages(train, train, test), evaluation_progress=told.append, **given, **groups)
    found = results["evaluation"]
    backbone = load_backbone(tmp_path)
    bank, queries = (represent(backbone, each, size=10) for each in (train, test))
    labels, truth = labels_of(train), labels_of(test)
    assert found["knn"] == accuracy(truth, knn_votes(bank, labels, queries, k=7, temperature=0.1).argmax(1))
    probe = fit_linear_probe(bank, labels, replace(PROBES["macl-cifar10"], seed=3))
    assert found["linear"] == accuracy(truth, probe(queries).argmax(1))
    geometry = {"uniformity": (queries,), "tolerance": (queries, truth), "interclass_uniformity": (queries, truth)}
    for name, given_rows in geometry.items():
        assert found[name] == pytest.approx(getattr(metrics, name)(*given_rows).item(), rel=1e-5)
    torch.manual_seed(3)
    views = [represent(backbone, test, augmentation=create_augmentation("simclr-cifar", 10)) for _ in "ab"]
    assert found["alignment"] == pytest.approx(metrics.alignment(*views).item(), rel=1e-5)
    scores = long_tail_evaluation(bank, labels, queries, truth, **groups)
    for name, score in scores.items():
        assert (found[name], found[f"{name} head"], found[f"{name} tail"]) == tuple(
            score[group] for group in ("overall", "head", "tail")
        )
    assert found.keys() == {
        *("knn", "knn validation", "linear", "svc", "alignment", "uniformity", "tolerance", "interclass_uniformity"),
        *("knn top-5", "linear top-5", *(f"{count} labels" for count in LABELS)),
        *(f"{name}{group}" for name in scores for group in ("", " head", " middle", " tail")),
    }
    assert told == sorted(told)
    assert (told[-1], told[0] < 0.3) == (1.0, True)


def test_images_held_out_of_a_long_tail_are_asked_to_choose_by(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"imbalance_ratio": 8, "held_out": 100, "largest_class": 80, "split_seed": 2}
    given = {"width": 8, "image_size": 8, "channels_last": False, "num_train_epochs": 0, "evaluations": ("long-tail",), **drawn}
    data = load_vision(small("simclr", **given), "digits", None)
    every = load_images("digits", "train", None)
    kept, left = hold_out(labels_of(every), 100, 2)
    part = kept[long_tail_indices(labels_of(every)[kept], 8, 80, 2)]
    assert data.held_out is not None
    assert torch.equal(pixels(data.held_out), pixels(every.subset(left)))
    found = run(tmp_path, data=data, **given)["evaluation"]
    rows = normalize(represent(load_backbone(tmp_path), every, size=8), dim=1)
    for k in (1, 10):
        voters = KNeighborsClassifier(k).fit(rows[part], labels_of(every)[part])
        expected = 100 * balanced_accuracy_score(labels_of(every)[left], voters.predict(rows[left]))
        assert found[f"validation knn@{k}"] == pytest.approx(expected, abs=1e-6)
    assert load_vision(small("simclr", **{**given, "held_out": 0}), "digits", None).held_out is None


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("place", ["images", "test", "no test"])
def test_without_labels_nothing_is_measured(tmp_path: Path, place: str) -> None:
    data = VisionImages(images(labelled=place != "images"))
    results = run(tmp_path, data=data, num_train_epochs=1)
    assert results["evaluation"] == {}


@pytest.mark.usefixtures("tiny")
def test_an_epoch_may_be_measured(tmp_path: Path) -> None:
    results = run(tmp_path, data=measured(), num_train_epochs=2, training={"eval_strategy": "epoch"})
    shares = [entry["eval_knn"] for entry in results["history"] if "eval_knn" in entry]
    assert len(shares) == 3
    assert shares[-1] == shares[-2] == results["evaluation"]["knn"]


def test_images_of_one_class_set_are_one_bank(tmp_path: Path) -> None:
    other = images(12)
    test = ImageArray(other.images, other.labels, ("a", "b", "c"), "letters")
    recipe = small("simclr")
    with pytest.raises(DataError, match="'colours-0' and 'letters' must have the same classes"):
        vision_images.check_evaluations(recipe, VisionImages(images(), images(), test))
    assert pixels(images()).shape[-1] == SIDE
