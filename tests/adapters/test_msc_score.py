"""Anomaly scores are distances to the nearest normal images, ROC-AUC counts pairs, and one class becomes the normal one."""

from __future__ import annotations

import pytest
import torch
from msc_toys import toy_backbone, toy_images
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.msc.method import anomaly_scores, represent, roc_auc
from tempplug_adapters.msc.one_class import class_number, one_class


def slow_scores(train: Tensor, test: Tensor, neighbours: int) -> list[float]:
    distances = ((test.double()[:, None] - train.double()) ** 2).sum(2)
    found: list[float] = distances.sort(1).values[:, :neighbours].sum(1).tolist()
    return found


@pytest.mark.parametrize("neighbours", [1, 2, 5])
def test_scores_are_sums_of_squared_distances(neighbours: int) -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randn(40, 6, generator=generator), torch.randn(30, 6, generator=generator)
    scores = anomaly_scores(train, test, neighbours)
    assert scores.tolist() == pytest.approx(slow_scores(train, test, neighbours), rel=1e-5)
    assert torch.equal(anomaly_scores(train, test), anomaly_scores(train, test, 2))


def test_many_rows_are_scored_like_few() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = (F.normalize(torch.randn(rows, 8, generator=generator), dim=1) for rows in (300, 1100))
    scores = anomaly_scores(train, test)
    assert scores.tolist() == pytest.approx(slow_scores(train, test, 2), rel=1e-4)
    assert anomaly_scores(train, test[:0]).shape == (0,)


def test_rows_that_nearly_coincide_lose_no_digits() -> None:
    train = torch.tensor([[100.0, 0.0], [0.0, 90.0]])
    test = train[:1] + torch.tensor([[0.001, 0.0]])
    expected = float(test[0, 0].double() - 100) ** 2
    assert anomaly_scores(train, test, 1).item() == pytest.approx(expected, rel=1e-3)
    assert anomaly_scores(train, train, 1).tolist() == [0.0, 0.0]


def test_scores_refuse_what_does_not_fit() -> None:
    rows = torch.randn(3, 2)
    with pytest.raises(ShapeError, match=r"train \[3, 2\] and test \[3, 4\] must be"):
        anomaly_scores(rows, torch.randn(3, 4))
    for neighbours in (0, 4):
        with pytest.raises(ConfigError, match=f"neighbours={neighbours} must be from 1 to 3"):
            anomaly_scores(rows, rows, neighbours)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(DataError, match="must be finite"):
            anomaly_scores(rows, torch.full((1, 2), bad))
        with pytest.raises(DataError, match="must be finite"):
            anomaly_scores(torch.full((2, 2), bad), rows)


def test_roc_auc_counts_pairs_in_the_right_order() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (40,), generator=generator).float()
    anomalous = torch.rand(40, generator=generator) < 0.4
    wins = 0.0
    for high in scores[anomalous]:
        for low in scores[~anomalous]:
            wins += 1.0 if high > low else 0.5 if high == low else 0.0
    pairs = int(anomalous.sum()) * int((~anomalous).sum())
    assert roc_auc(scores, anomalous) == pytest.approx(100 * wins / pairs)
    for same in (torch.zeros(40, dtype=torch.bool), torch.ones(40, dtype=torch.bool)):
        with pytest.raises(DataError, match="needs normal and anomalous images"):
            roc_auc(scores, same)


def test_representations_of_a_set() -> None:
    images, backbone = toy_images(10), toy_backbone().eval()
    found = represent(backbone, images, 12, batch_size=3)
    assert found.shape == (10, 8)
    assert not found.requires_grad
    with torch.no_grad():
        expected = F.normalize(backbone(images.images.float() / 255), dim=1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(represent(backbone, images, 12), expected)
    larger = F.interpolate(images.images.float() / 255, (24, 24), mode="bicubic", antialias=True).clamp(0, 1)
    with torch.no_grad():
        torch.testing.assert_close(represent(backbone, images, 24), F.normalize(backbone(larger), dim=1))


def test_a_class_is_found_by_name_or_number() -> None:
    assert [class_number(("cat", "dog", "0"), each) for each in ("dog", "1", "0", "cat")] == [1, 1, 2, 0]
    for wanted in ("3", "-1", "²", "", "dgo"):
        with pytest.raises(
            ConfigError, match=f"normal_class='{wanted}' is no class.*Known: cat, dog, 0, or their numbers 0 to 2"
        ):
            class_number(("cat", "dog", "0"), wanted)
    with pytest.raises(ConfigError, match="Did you mean 'dog'"):
        class_number(("cat", "dog"), "dgo")


def numbered(labels: list[int], name: str = "toys") -> ImageArray:
    """Images whose first pixel is their position."""
    images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(len(labels))
    return ImageArray(images, torch.tensor(labels), ("a", "b", "c"), name)


def places(images: ImageArray) -> list[int]:
    return [int(each) for each in images.batch(torch.arange(len(images)))[:, 0, 0, 0]]


def test_one_class_is_normal_and_all_others_are_anomalies() -> None:
    train, test = numbered([0, 1, 1, 2, 1, 0, 1, 1]), numbered([2, 1, 0, 1])
    data = one_class(train, test, "b")
    assert data.normal_class == "b"
    assert places(data.train) == [1, 2, 4, 6, 7]
    assert places(data.test) == [0, 1, 2, 3]
    assert data.anomalous.tolist() == [True, False, True, False]
    assert one_class(train, test, "0").anomalous.tolist() == [True, True, False, True]


def test_fewer_images_are_spread_evenly() -> None:
    train, test = numbered([1] * 10 + [0] * 3), numbered([0] * 4 + [1] * 6 + [2] * 2)
    data = one_class(train, test, "b", train_images=4, test_images=10)
    assert places(data.train) == [0, 2, 5, 7]
    assert places(data.test) == [0, 1, 2, 4, 6, 8, 10, 11], "three of each class, of the last both"
    assert data.anomalous.tolist() == [True] * 3 + [False] * 3 + [True] * 2
    assert len(one_class(train, test, "b", train_images=99, test_images=99).train) == 10
    assert len(one_class(train, test, "b", test_images=3).test) == 3


def test_data_that_do_not_fit_are_named() -> None:
    train, test = numbered([0, 1, 1, 2]), numbered([0, 1, 2])
    blind = ImageArray(train.images, None, train.classes, "blind")
    other = ImageArray(test.images, test.labels, ("a", "b", "d"), "other")
    cases: list[tuple[ImageArray, ImageArray, str, str]] = [
        (blind, test, "b", "the set 'blind' has no labels"),
        (train, blind, "b", "the set 'blind' has no labels"),
        (train, other, "b", "the sets 'toys' and 'other' must have the same classes"),
        (train, test, "a", "the set 'toys' has 1 images of class 'a': wanted at least 2"),
        (train, numbered([0, 2, 2]), "b", "the set 'toys' needs images of class 'b' and of others"),
        (train, numbered([1, 1]), "b", "the set 'toys' needs images of class 'b' and of others"),
    ]
    for first, second, normal, message in cases:
        with pytest.raises(DataError, match=message):
            one_class(first, second, normal)
    with pytest.raises(ConfigError, match="train_images=1 must be at least 2"):
        one_class(train, test, "b", train_images=1)
    with pytest.raises(ConfigError, match="test_images=2 must be at least 3, one a class"):
        one_class(train, test, "b", test_images=2)
