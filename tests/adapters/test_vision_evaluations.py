"""What evaluations of images require of sets and labels, told before images are represented, and the vote that validates."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError, NonFiniteError, UnknownNameError
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.vision.evaluation import evaluations
from tempplug_adapters.vision.evaluation.classifiers import knn_votes
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, EvaluationSettings


class Constant(nn.Module):
    """A collapsed backbone, or one that has diverged."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.value = value

    def forward(self, images: Tensor) -> Tensor:
        return torch.full((len(images), 4), self.value)


def images(count: int, seed: int) -> ImageArray:
    """Returns images of three classes, each brighter in one channel."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 200, (count, 3, 2, 2), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(count), labels] += 55
    return ImageArray(pixels, labels, ("red", "green", "blue"), f"toy {seed}")


def measured(backbone: nn.Module, train: ImageArray, test: ImageArray, **settings: Any) -> Evaluation:
    return Evaluation(backbone, train, test, EvaluationSettings(**settings), torch.device("cpu"))


def test_a_collapsed_backbone_is_as_good_as_chance_where_k_is_above_the_bank() -> None:
    """Where the whole bank votes, its largest class wins, of which the validation images have the fewest."""
    train, test = images(90, 0), images(30, 1)
    shares = [measured(Constant(), train, test, split_seed=seed).measure("knn")["validation"] for seed in range(40)]
    assert 25 < sum(shares) / len(shares) < 42


@pytest.mark.parametrize(("count", "k", "used"), [(90, 200, 27), (90, 28, 27), (90, 27, 27), (90, 5, 5), (10, 200, 3)])
def test_as_many_vote_as_a_class_has_images(count: int, k: int, used: int, caplog: pytest.LogCaptureFixture) -> None:
    evaluation = measured(nn.Flatten(), images(count, 0), images(30, 1), neighbours=k)
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        found = evaluation.measure("knn")
    asked = torch.zeros(count, dtype=torch.bool)
    asked[torch.randperm(count, generator=torch.Generator().manual_seed(0))[: count // 10]] = True
    bank, labels = evaluation.bank, evaluation.bank_labels
    voted = knn_votes(bank[~asked], labels[~asked], bank[asked], k=used, temperature=0.1).argmax(1)
    assert found["validation"] == pytest.approx(100 * (voted == labels[asked]).double().mean().item())
    assert found["k"] == min(k, count), "of the test images, whose bank is another"
    assert found.get("validation_k") == (None if used == k else used)
    message = f"knn validation of 'toy 0' has a bank of {count - count // 10} images of 3 classes, too few for k={k}"
    assert [record.getMessage() for record in caplog.records] == ([] if used == k else [f"{message}: k={used} is used there."])


def test_labels_that_allow_no_evaluation_are_told_before_images_are_represented() -> None:
    def sets(classes: int, train: list[int], test: list[int]) -> Evaluation:
        both = (
            ImageArray(torch.zeros(len(each), 3, 8, 8, dtype=torch.uint8), torch.tensor(each), tuple("abcd"[:classes]), name)
            for each, name in ((train, "learned"), (test, "asked"))
        )
        return measured(nn.Identity(), *both, imbalance_ratio=2)

    enough = sets(3, [0, 1, 2] * 5, [0, 1, 2, 2])
    assert set(evaluations.MEASURES) == set(EVALUATIONS)
    for name in evaluations.MEASURES.keys() - {"top-5"}:
        enough.check(name)
    for faulty, name, message in [
        (sets(3, [0, 1, 1] * 5, [0, 1, 2]), "long-tail", "class 'c' has no image, so that a long-tailed part"),
        (sets(3, [0, 1, 2] * 5, [0, 2]), "long-tail", "the set 'asked' has no image of class 'b': 'long-tail' measures every"),
        (sets(2, [0, 1] * 5, [0, 1]), "long-tail", "there must be at least 3"),
        (sets(3, [0, 1, 2], [0, 1, 2]), "long-tail", "largest_class=0, nine tenths of the smallest class, must be at least"),
        (sets(3, [0, 1, 2], [1, 1]), "report", "the set 'asked' has 2 images of 1 classes: 'report' needs"),
        (sets(3, [0, 1, 2], [0, 1, 2]), "report", "the set 'asked' has 3 images of 3 classes: 'report' needs"),
        (sets(3, [1, 1], [0, 1]), "svc-probe", "the set 'learned' has images of one class only"),
        (sets(3, [1, 1], [0, 1]), "few-labels", "the set 'learned' has images of one class only"),
        (enough, "top-5", "the set 'learned' has 3 classes: 'top-5' needs more than five"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            faulty.check(name)


def test_sets_and_backbones_that_allow_no_evaluation_are_refused() -> None:
    train, again = images(20, 0), images(20, 0)
    for test, error, message in [
        (train, ConfigError, "the set 'toy 0' must not be both the training and the test set"),
        (replace(again, labels=None), DataError, "must both have labels"),
        (replace(again, classes=train.classes[::-1]), DataError, "must have the same classes, in the same order"),
    ]:
        with pytest.raises(error, match=message):
            measured(nn.Flatten(), train, test)
    with pytest.raises(ConfigError, match="queries are the representations of bank"):
        measured(nn.Flatten(), train, again, neighbours=3).measure("knn")
    for name in ("report", "knn"):
        with pytest.raises(
            NonFiniteError, match=r"of 'toy \d' hold NaN or infinite values in (20 of 20|12 of 12) rows, first in row 0"
        ):
            measured(Constant(torch.nan), train, images(12, 1)).measure(name)
    with pytest.raises(UnknownNameError, match="unknown augmentation 'simclr-cifer'"):
        EvaluationSettings(augmentation="simclr-cifer")
    with pytest.raises(ConfigError, match="probe=moco must be one of lightly, macl-cifar10"):
        EvaluationSettings(probe="moco")
