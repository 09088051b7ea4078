"""Backbones over whole sets: values, order, modes, views, devices' sake, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.images.representations import represent


def images(count: int = 23, side: int = 6) -> ImageArray:
    pixels = torch.randint(256, (count, 3, side, side), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return ImageArray(pixels, None, (), "toys")


class Network(nn.Module):
    """Means of the channels through a layer whose result depends on the mode, with a part that training has frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(5).eval()
        self.sides: list[int] = []

    def forward(self, batch: Tensor) -> Tensor:
        self.sides.append(batch.shape[-1])
        assert float(batch.min()) >= 0
        assert float(batch.max()) <= 1
        found: Tensor = self.norm(self.dropout(self.layer(batch.mean(dim=(2, 3)))))
        return found


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_rows_are_the_backbones_in_evaluation_mode(batch_size: int) -> None:
    torch.manual_seed(0)
    network, toys = Network(), images()
    network.norm.running_mean = torch.randn(5)
    told: list[float] = []
    found = represent(network, toys, batch_size=batch_size, progress=told.append)
    means = toys.images.double().mean(dim=(2, 3)) / 255
    values = means @ network.layer.weight.double().T + network.layer.bias.double() - network.norm.running_mean
    torch.testing.assert_close(found.double(), values.detach() / (1 + 1e-5) ** 0.5, rtol=1e-5, atol=1e-6)
    assert not found.requires_grad
    assert told == pytest.approx([min(end, 23) / 23 for end in range(batch_size, 23 + batch_size, batch_size)])
    assert [network.training, network.dropout.training, network.norm.training] == [True, True, False]


def test_a_set_is_resized_and_augmented_image_by_image() -> None:
    torch.manual_seed(0)
    network, toys = Network().eval(), images()
    assert represent(network, toys, size=9).shape == (23, 5)
    assert set(network.sides) == {9}
    mirrored = represent(network, toys, augmentation=lambda batch: 1 - batch)
    flipped = represent(network, ImageArray(255 - toys.images, None, (), "negatives"))
    torch.testing.assert_close(mirrored, flipped)
    augmentation = create_augmentation("simclr-cifar", 6)
    torch.manual_seed(1)
    first = represent(network, toys, augmentation=augmentation)
    second = represent(network, toys, augmentation=augmentation)
    torch.manual_seed(1)
    assert torch.equal(represent(network, toys, augmentation=augmentation), first)
    assert not torch.allclose(first, second)


def test_half_precision_is_widened_double_kept_and_a_backbone_needs_no_parameters() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert represent(Network(), images()).dtype == torch.float32
    double = Network().double()
    double.register_forward_pre_hook(lambda _, given: given[0].double())
    assert represent(double, images()).dtype == torch.float64
    assert torch.equal(represent(nn.Flatten(), images(3)), images(3).images.flatten(1) / 255)


def test_faults_are_named_and_modes_come_back() -> None:
    network, folded = Network(), nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 54)))
    for backbone, count, given, error, message in [
        (network, 0, {}, DataError, "the set 'toys' has no images"),
        (network, 23, {"batch_size": 0}, ConfigError, "batch_size=0 must be an integer, at least 1"),
        (network, 23, {"size": 0}, ConfigError, "size=0 must be an integer, at least 1"),
        (nn.Identity(), 23, {"batch_size": 4}, ShapeError, r"the backbone returned \[4, 3, 6, 6\] for 4 images, not \[4, F\]"),
        (folded, 4, {}, ShapeError, r"the backbone returned \[8, 54\] for 4 images"),
    ]:
        with pytest.raises(error, match=message):
            represent(backbone, images(count), **given)
    network.layer = nn.Linear(4, 5)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        represent(network, images())
    assert (network.training, network.norm.training) == (True, False)
