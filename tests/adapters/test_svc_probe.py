"""Linear support vector machines: scikit-learn's on rows of unit length, few images of each class, and what is refused."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC
from torch import Tensor

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.evaluation.classifiers import few_shot_indices, svc_probe


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load_digits()
    pixels, labels = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return pixels[train], labels[train], pixels[test], labels[test]


def unit(rows: Tensor) -> Tensor:
    return rows.double() / rows.double().norm(dim=1, keepdim=True)


def test_it_is_scikit_learns_machine_on_rows_of_unit_length() -> None:
    train, labels, test, truth = digits()
    machine = LinearSVC(C=1.0, random_state=42).fit(unit(train).numpy(), labels.numpy())
    found = svc_probe(train, labels, test)
    assert found.dtype == torch.int64
    assert (found.numpy() == machine.predict(unit(test).numpy())).mean() > 0.997, "float32 rows may turn a close call"
    assert (found == truth).double().mean() > 0.93
    scaled = svc_probe(train.half() / 512, labels.int(), 100 * test)
    assert torch.equal(scaled, found), "the length of rows does not count"


def test_few_images_of_each_class_are_enough_for_some() -> None:
    train, labels, test, truth = digits()
    shares = []
    for per_class in (1, 20):
        chosen = few_shot_indices(labels, per_class)
        shares.append(float((svc_probe(train[chosen], labels[chosen], test) == truth).double().mean()))
    assert 0.4 < shares[0] < shares[1] < 0.97


def test_a_class_that_was_never_seen_is_never_predicted() -> None:
    train, labels, test, _ = digits()
    seen = labels % 3 == 1
    assert set(svc_probe(train[seen], labels[seen], test, classes=10).tolist()) == {1, 4, 7}


def test_few_images_are_drawn_from_each_class_alike() -> None:
    labels = torch.tensor([2] * 50 + [0] * 7 + [5] * 300)[torch.randperm(357, generator=torch.Generator().manual_seed(3))]
    before = torch.get_rng_state()
    chosen = few_shot_indices(labels, 7)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.bincount(labels[chosen]), torch.tensor([7, 0, 7, 0, 0, 7]))
    assert torch.equal(chosen, chosen.unique()), "in ascending order, none twice"
    assert torch.equal(chosen, few_shot_indices(labels, 7, seed=42))
    draws = torch.cat([few_shot_indices(labels, 1, seed) for seed in range(200)])
    drawn = draws[labels[draws] == 2]
    assert len(drawn.unique()) > 40, "every image has its chance"
    with pytest.raises(ConfigError, match="class 0 has 7 images, too few for per_class=8"):
        few_shot_indices(labels, 8)
    with pytest.raises(ConfigError, match="per_class=0 images must be an integer, at least 1"):
        few_shot_indices(labels, 0)


def test_faults_are_named() -> None:
    train, labels, test, _ = digits()
    with pytest.raises(ConfigError, match="train_labels hold class 4 only: there is nothing to tell apart"):
        svc_probe(train, torch.full_like(labels, 4), test)
    with pytest.raises(ConfigError, match="test are the representations of train"):
        svc_probe(train, labels, train.clone())
    with pytest.raises(ShapeError, match=r"train_labels of shape \[3\] must be \[1437\]"):
        svc_probe(train, labels[:3], test)
    with pytest.raises(ConfigError, match="train_labels 0 to 9 must be in 0 to 4"):
        svc_probe(train, labels, test, classes=5)
    with pytest.raises(NonFiniteError, match="test hold NaN"):
        svc_probe(train, labels, test / 0)
