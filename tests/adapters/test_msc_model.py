"""MSC's parts: the loss is the formula's, blocks are frozen, scores are distances, one class becomes the normal one."""

from __future__ import annotations

import pytest
import torch
from msc_toys import toy_backbone, toy_images, toy_network
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

import tempplug
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.msc.method import anomaly_scores, represent, roc_auc
from tempplug_adapters.msc.model import MSC, blocks_of, centre_of, default_frozen_blocks, freeze_blocks, unit_representations
from tempplug_adapters.msc.one_class import class_number, one_class
from tempplug_adapters.parameter_groups import spared_by_decay


def loss_of(strategy: str = "fixed:temperature=0.25") -> tempplug.ContrastiveLoss:
    return tempplug.ContrastiveLoss(strategy, layout="two-view")


def formula(first: Tensor, second: Tensor, centre: Tensor, temperature: float, angular: bool) -> Tensor:
    """MSC's loss from raw features, in float64, one anchor after the other."""
    shifted = [F.normalize(each.double(), dim=1) - centre.double() for each in (first, second)]
    points = F.normalize(torch.cat(shifted), dim=1)
    count, total = len(first), torch.zeros((), dtype=torch.float64)
    for anchor in range(2 * count):
        powers = (points @ points[anchor] / temperature).exp()
        total = total - (powers[(anchor + count) % (2 * count)] / (powers.sum() - powers[anchor])).log()
    return total / (2 * count) + angular * sum((each**2).sum() / count for each in shifted)


@pytest.mark.parametrize("angular", [False, True])
def test_the_loss_is_the_formulas_and_the_backbone_keeps_its_statistics(angular: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.rand(7, 3, 12, 12, generator=generator) for _ in range(2))
    backbone = toy_backbone().eval()
    before = {name: value.clone() for name, value in backbone.named_buffers()}
    with torch.no_grad():
        a, b = backbone(first), backbone(second)
    centre = 0.9 * F.normalize(a, dim=1).mean(0)
    model = MSC(backbone.train(), centre, loss_of("learnable:initial_temperature=0.25"), angular=angular)
    assert model.train().loss_fn.training
    assert not any(each.training for each in backbone.modules())
    loss = model(first, second)
    torch.testing.assert_close(loss.double(), formula(a, b, centre, 0.25, angular), rtol=1e-5, atol=1e-5)
    loss.backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in backbone.parameters())
    assert all(torch.equal(value, before[name]) for name, value in backbone.named_buffers())
    assert not model.eval().loss_fn.training
    assert torch.equal(model.state_dict()["centre"], centre)
    assert spared_by_decay(model) == {name for name, _ in model.named_parameters() if name.startswith("loss_fn.")} != set()


def test_representations_are_unit_rows_in_float32_and_the_centre_is_their_mean() -> None:
    backbone, images = toy_backbone(), torch.rand(3, 3, 12, 12)
    found, rows = unit_representations(backbone, images), backbone(images)
    torch.testing.assert_close(found, rows / rows.norm(dim=1, keepdim=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert backbone(images).dtype == torch.bfloat16
        half = unit_representations(backbone, images)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(half, found, rtol=0.1, atol=0.03)
    assert unit_representations(backbone.double(), images.double()).dtype == torch.float64
    centre = centre_of(found)
    torch.testing.assert_close(centre, found.sum(0) / 3)
    torch.testing.assert_close(centre_of(found, unit=True), centre / centre.square().sum().sqrt())


def test_blocks_of_networks() -> None:
    network = toy_network()
    assert [type(each).__name__ for each in blocks_of(network)] == ["Conv2d", "BatchNorm2d"] * 3
    assert blocks_of(toy_backbone())[0].weight.shape == (6, 3, 3, 3)
    assert blocks_of(nn.Linear(2, 2))[0].weight.shape == (2, 2)
    assert blocks_of(nn.ReLU()) == []
    found = blocks_of(resnet := create_backbone("resnet18", width=4))
    assert len(found) == 9
    assert {type(each).__name__ for each in found[1:]} == {"ResNetBasicLayer"}
    assert default_frozen_blocks(resnet.module) == 5
    assert default_frozen_blocks(create_backbone("resnet50", width=4).module) == 8
    vit = create_backbone("vit-tiny", image_size=32)
    assert [type(each).__name__ for each in blocks_of(vit)] == ["ViTEmbeddings", *["ViTLayer"] * 12, "LayerNorm"]
    assert default_frozen_blocks(vit.module) == default_frozen_blocks(network) == 0


class TorchvisionNames(nn.Module):
    """A ResNet with the names that torchvision gives its parts, and stages of one and two blocks."""

    def __init__(self, stem: nn.Module) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu, self.maxpool = stem, nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)
        for stage, blocks in enumerate((1, 2, 2, 1), 1):
            parts = [
                {"conv1": nn.Conv2d(3, 3, 1), "bn1": nn.BatchNorm2d(3), "conv2": nn.Conv2d(3, 3, 1)} for _ in range(blocks)
            ]
            setattr(self, f"layer{stage}", nn.Sequential(*map(nn.ModuleDict, parts)))
        self.fc = nn.Sequential()


@pytest.mark.parametrize("stem", [nn.Conv2d(3, 3, 1), nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))])
def test_the_stem_and_two_stages_of_torchvisions_resnets_are_frozen(stem: nn.Module) -> None:
    backbone = Backbone(TorchvisionNames(stem), dimension=3)
    freeze_blocks(backbone, default_frozen_blocks(backbone.module))
    parts = {(name.split(".")[1], each.requires_grad) for name, each in backbone.named_parameters()}
    frozen = {(name, False) for name in ("conv1", "bn1", "layer1", "layer2")}
    assert parts == {*frozen, ("layer3", True), ("layer4", True)}
    del backbone.module.layer2  # type: ignore[union-attr]
    assert default_frozen_blocks(backbone.module) == 0


class WithToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(3))
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)


def test_frozen_blocks_have_no_gradient() -> None:
    for network, count, frozen, left in [
        (toy_network(), 3, 6, 6),
        (toy_network(), 0, 0, 12),
        (toy_network().requires_grad_(False), 5, 10, 2),
        (WithToken(), 1, 3, 2),  # a parameter outside of the blocks is frozen with the first
        (WithToken(), 0, 0, 5),
    ]:
        freeze_blocks(network, count)
        assert [each.requires_grad for each in network.parameters()] == [False] * frozen + [True] * left
    for count in (-1, 6):
        with pytest.raises(ConfigError, match=f"frozen_blocks={count} must be from 0 to 5: one block"):
            freeze_blocks(toy_network(), count)


def test_scores_are_sums_of_squared_distances_also_of_rows_that_nearly_coincide() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randn(100, 6, generator=generator), torch.randn(300, 6, generator=generator)
    distances = ((test.double()[:, None] - train.double()) ** 2).sum(2).sort(1).values
    for neighbours in (1, 2, 5):
        expected = distances[:, :neighbours].sum(1)
        assert anomaly_scores(train, test, neighbours).tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert torch.equal(anomaly_scores(train, test), anomaly_scores(train, test, 2))
    train = torch.tensor([[100.0, 0.0], [0.0, 90.0]])
    test = train[:1] + torch.tensor([[0.001, 0.0]])
    expected = float(test[0, 0].double() - 100) ** 2
    assert anomaly_scores(train, test, 1).item() == pytest.approx(expected, rel=1e-3)
    assert anomaly_scores(train, train, 1).tolist() == [0.0, 0.0]
    for neighbours in (0, 3):
        with pytest.raises(ConfigError, match=f"neighbours={neighbours} must be from 1 to 2"):
            anomaly_scores(train, test, neighbours)
    for given in ((train / 0, test), (train, test * torch.nan)):
        with pytest.raises(DataError, match="must be finite"):
            anomaly_scores(*given)
    scores, anomalous = torch.tensor([0.1, 0.7, 0.7, 0.9]), torch.tensor([False, False, True, True])
    assert roc_auc(scores, anomalous) == pytest.approx(100 * roc_auc_score(anomalous, scores)) == 87.5


def test_representations_of_a_set() -> None:
    images, backbone = toy_images(10), toy_backbone().eval()
    pixels = images.images.float() / 255
    larger = F.interpolate(pixels, (24, 24), mode="bicubic", antialias=True).clamp(0, 1)
    for size, seen in ((12, pixels), (24, larger)):
        found = represent(backbone, images, size, batch_size=3)
        assert not found.requires_grad
        with torch.no_grad():
            torch.testing.assert_close(found, F.normalize(backbone(seen), dim=1))


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
    assert (data.normal_class, data.anomalous.tolist()) == ("b", [True, False, True, False])
    assert (places(data.train), places(data.test)) == ([1, 2, 4, 6, 7], [0, 1, 2, 3])
    assert one_class(train, test, "0").anomalous.tolist() == [True, True, False, True]
    assert [class_number(("cat", "dog", "0"), each) for each in ("dog", "1", "0", "cat")] == [1, 1, 2, 0]
    blind = ImageArray(train.images[:4], None, (), "blind")
    data = one_class(blind, test, "b", train_images=2)
    assert (places(data.train), data.anomalous.tolist(), data.normal_class) == ([0, 2], [True, False, True, False], "b")
    alone = one_class(blind, None, "")
    assert (places(alone.train), alone.test, len(alone.anomalous)) == ([0, 1, 2, 3], None, 0)


def test_fewer_images_are_spread_evenly() -> None:
    train, test = numbered([1] * 10 + [0] * 3), numbered([0] * 4 + [1] * 6 + [2] * 2)
    data = one_class(train, test, "b", train_images=4, test_images=10)
    assert places(data.train) == [0, 2, 5, 7]
    assert places(data.test) == [0, 1, 2, 4, 6, 8, 10, 11], "three of each class, of the last both"
    assert data.anomalous.tolist() == [True] * 3 + [False] * 3 + [True] * 2
    assert len(one_class(train, test, "b", train_images=99, test_images=99).train) == 10


def test_data_that_do_not_fit_are_named() -> None:
    train, test = numbered([0, 1, 1, 2]), numbered([0, 1, 2])
    blind = ImageArray(train.images, None, train.classes, "blind")
    other = ImageArray(test.images, test.labels, ("a", "b", "d"), "other")
    known = "Known: a, b, c, or their numbers 0 to 2"
    for first, second, normal, more, error, message in [
        (train, blind, "b", {}, DataError, "the set 'blind' has no labels"),
        (train, other, "b", {}, DataError, "the sets 'toys' and 'other' must have the same classes"),
        (train, test, "a", {}, DataError, "the set 'toys' has 1 images of class 'a': wanted at least 2"),
        (blind.subset(torch.tensor([0])), None, "", {}, DataError, "the set 'blind' has 1 images: wanted at least 2"),
        (train, numbered([0, 2, 2]), "b", {}, DataError, "the set 'toys' needs images of class 'b' and of others"),
        (train, numbered([1, 1]), "b", {}, DataError, "the set 'toys' needs images of class 'b' and of others"),
        (train, test, "b", {"train_images": 1}, ConfigError, "train_images=1 must be at least 2"),
        (train, test, "b", {"test_images": 2}, ConfigError, "test_images=2 must be at least 3, one a class"),
        *((train, test, each, {}, ConfigError, f"normal_class='{each}' is no class.*{known}") for each in ("3", "-1", "²", "")),
    ]:
        with pytest.raises(error, match=message):
            one_class(first, second, normal, **more)  # type: ignore[arg-type]
