"""Images in memory: batches and subsets by position, and the faults of indexes, pixels and labels."""

from __future__ import annotations

import pytest
import torch
from image_toys import noise
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.image_set import ImageArray

IMAGES = noise(5, 4, 6)


def toy(labels: Tensor | None = None) -> ImageArray:
    return ImageArray(IMAGES, labels, ("cat", "dog", "emu"), "toy")


def test_an_index_may_be_booleans_or_any_integers_and_may_be_empty() -> None:
    some = torch.tensor([False, True, False, True, True])
    assert torch.equal(toy().batch(torch.tensor([3, 0, 3])), torch.stack([IMAGES[3], IMAGES[0], IMAGES[3]]))
    assert torch.equal(toy().batch(some), IMAGES[[1, 3, 4]])
    assert torch.equal(toy().batch(torch.tensor([4, 1], dtype=torch.int32)), IMAGES[[4, 1]])
    # 8-bit integers are positions, not the booleans that PyTorch once took them for
    assert torch.equal(toy().batch(torch.tensor([1, 1, 0, 0, 0], dtype=torch.uint8)), IMAGES[[1, 1, 0, 0, 0]])
    assert toy().batch(torch.empty(0, dtype=torch.int64)).shape == (0, 3, 4, 6)


def test_a_subset_keeps_labels_and_all_classes() -> None:
    subset = toy(torch.tensor([0, 1, 1, 0, 1])).subset(torch.tensor([4, 0]))
    assert len(subset) == 2
    assert subset.labels.tolist() == [1, 0]
    assert subset.classes == ("cat", "dog", "emu")
    assert subset.name == "toy"
    assert torch.equal(subset.batch(torch.tensor([1])), IMAGES[:1])
    assert toy().subset(torch.tensor([2])).labels is None


def test_faults_are_named() -> None:
    for call, error, message in [
        (lambda: toy().batch(torch.tensor([0, 5])), ConfigError, "index from 0 to 5 must lie in 0 to 4: the set has 5 images"),
        (lambda: toy().subset(torch.tensor([-1])), ConfigError, "index from -1 to -1 must lie in 0 to 4"),
        (lambda: toy().batch(torch.tensor([0.0])), ShapeError, r"index \[1\] torch.float32 must hold positions"),
        (lambda: toy().subset(torch.tensor(2)), ShapeError, r"index \[\] torch.int64"),
        (lambda: toy().batch(torch.tensor([True, False])), ShapeError, r"index \[2\] torch.bool .* or \[5\] booleans"),
        (lambda: ImageArray(IMAGES.float(), None, (), "toy"), ShapeError, r"images \[5, 3, 4, 6\] torch.float32 of the set"),
        (lambda: ImageArray(IMAGES[:, :1], None, (), "toy"), ShapeError, r"images \[5, 1, 4, 6\]"),
        (lambda: toy(torch.tensor([0, 0, 0, 0])), ShapeError, r"labels \[4\] torch.int64 .* must be \[5\]"),
        (lambda: toy(torch.tensor([0, 1, 2, 3, 0])), DataError, "labels 0 to 3 of 'toy' must lie in 0 to 2"),
        (lambda: toy(torch.tensor([0, -1, 2, 0, 0])), DataError, "labels -1 to 2"),
    ]:
        with pytest.raises(error, match=message):
            call()
