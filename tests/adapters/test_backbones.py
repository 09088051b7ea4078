"""Backbones: the networks that the papers train, normalisation inside, and representations [B, F] of whatever is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tempplug.errors import ConfigError, ShapeError, UnknownNameError
from tempplug_adapters.images.backbones import BACKBONES, IMAGENET_MEAN, IMAGENET_STD, Backbone, create_backbone
from tempplug_adapters.images.networks import VITS, create_resnet, create_vit

PARAMETERS = {
    # torchvision's and timm's (DeiT) published numbers, less the classifier of 1,000 classes
    "resnet18": 11_689_512 - 513_000,
    "resnet34": 21_797_672 - 513_000,
    "resnet50": 25_557_032 - 2_049_000,
    "resnet101": 44_549_160 - 2_049_000,
    "resnet152": 60_192_808 - 2_049_000,
    "vit-tiny": 5_717_416 - 193_000,
    "vit-small": 22_050_664 - 385_000,
    "vit-base": 86_567_656 - 769_000,
}
# billions of multiplications for 224 x 224 pixels, from torchvision's table of models
MULTIPLICATIONS = {"resnet18": 1.81, "resnet50": 4.09}


class Returns(nn.Module):
    """A network that returns what a function makes of its images."""

    def __init__(self, make: Callable[[Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.make = make
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, images: Tensor) -> Any:
        return self.make(images)


def plain(module: nn.Module, **options: Any) -> Backbone:
    """A backbone that does not normalise."""
    return Backbone(module, mean=(0, 0, 0), std=(1, 1, 1), **options)


@pytest.mark.parametrize("name", BACKBONES)
def test_networks_have_the_published_numbers_of_parameters_and_multiplications(name: str) -> None:
    with torch.device("meta"):
        network: Any = create_vit(name) if name in VITS else create_resnet(name)
        if name in MULTIPLICATIONS:
            with FlopCounterMode(display=False) as counter:
                network(torch.zeros(1, 3, 224, 224))
            assert counter.get_total_flops() / 2e9 == pytest.approx(MULTIPLICATIONS[name], abs=0.0055), "strides are elsewhere"
    assert sum(each.numel() for each in network.parameters()) == PARAMETERS[name]
    if name in VITS:
        assert network.config.hidden_size == 64 * network.config.num_attention_heads
        assert network.config.num_hidden_layers == 12


@pytest.mark.parametrize(("stem", "pixels", "places"), [("imagenet", 224, 7), ("imagenet", 32, 1), ("cifar", 32, 4)])
def test_stems_reduce_images_32_and_8_times(stem: str, pixels: int, places: int) -> None:
    network = create_resnet("resnet18", stem=stem, width=4).eval()
    with torch.no_grad():
        assert network(torch.rand(1, 3, pixels, pixels)).last_hidden_state.shape == (1, 32, places, places)


@pytest.mark.parametrize(
    ("name", "options", "dimension"),
    [("resnet18", {"width": 8}, 64), ("resnet50", {"stem": "cifar", "width": 8}, 256), ("vit-tiny", {"image_size": 16}, 192)],
)
def test_dimensions_and_gradients_of_every_weight(name: str, options: dict[str, Any], dimension: int) -> None:
    backbone = create_backbone(name, **options)
    found = backbone(torch.rand(2, 3, 16, 16))
    assert (backbone.dimension, found.shape) == (dimension, (2, dimension))
    found.square().sum().backward()
    assert all(each.grad is not None for each in backbone.parameters()), "DistributedDataParallel would wait for it"


def test_the_small_stem_starts_like_every_other_convolution_and_as_the_seed_says() -> None:
    weights = []
    for seed, width in ((0, 4), (0, 4), (1, 4), (0, 64)):
        torch.manual_seed(seed)
        weights.append(create_resnet("resnet18", stem="cifar", width=width).embedder.embedder.convolution.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[3].shape == (64, 3, 3, 3)
    assert weights[3].std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.05), "He et al., fan out"


def test_zero_init_residual_makes_each_block_begin_as_the_identity() -> None:
    network = create_resnet("resnet50", width=4, zero_init_residual=True).eval()
    scales = {name: each for name, each in network.named_parameters() if name.endswith("normalization.weight")}
    zero = {name for name, each in scales.items() if not each.any()}
    assert len(zero) == 3 + 4 + 6 + 3
    assert all(".layer.2." in name for name in zero)
    assert all(bool((each == 1).all()) for name, each in scales.items() if name not in zero)
    block = network.encoder.stages[0].layers[1]
    images = torch.rand(2, 16, 5, 5)
    torch.testing.assert_close(block(images.clone()), images)


def test_patches_fit_the_size_of_the_images() -> None:
    with torch.device("meta"):
        found = [create_vit("vit-tiny", image_size=pixels).config.patch_size for pixels in (8, 32, 64, 96, 224)]
    assert found == [1, 4, 8, 12, 16]


def test_vision_transformers_give_their_class_token() -> None:
    backbone = create_backbone("vit-tiny", image_size=16, patch_size=8).eval()
    images = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        normalised = (images - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
        expected = backbone.module(normalised).last_hidden_state
        assert expected.shape == (2, 1 + 4, 192)
        torch.testing.assert_close(backbone(images), expected[:, 0])
    assert backbone.dimension == 192


def test_images_are_normalised_inside() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 2.0, 4.0)
    images = torch.rand(5, 3, 4, 4, dtype=torch.float64)
    expected = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], 1).mean((2, 3))
    backbone = Backbone(nn.Identity(), mean, std).double()
    torch.testing.assert_close(backbone(images), expected, rtol=1e-6, atol=1e-6)
    assert not list(backbone.parameters())
    assert set(backbone.state_dict()) == {"mean", "std"}, "a checkpoint brings its own normalisation"
    default = Backbone(nn.Identity())
    torch.testing.assert_close(default(torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)), torch.zeros(1, 3))
    torch.testing.assert_close(default(torch.ones(1, 3, 1, 1))[0, 0].item(), (1 - 0.485) / 0.229)


def test_vectors_pass_maps_are_averaged_and_grey_images_have_one_channel() -> None:
    images = torch.rand(2, 3, 4, 6)
    torch.testing.assert_close(plain(nn.Identity())(images), images.flatten(2).mean(2))
    torch.testing.assert_close(plain(nn.Flatten(), dimension=72)(images), images.flatten(1))
    assert Backbone(nn.Conv2d(1, 4, 3), mean=[0.5], std=[0.25])(torch.rand(2, 1, 5, 5)).shape == (2, 4)


def test_outputs_of_transformers_are_pooled() -> None:
    tokens, pooled, maps = torch.arange(24.0).view(2, 3, 4), torch.rand(2, 5), torch.rand(2, 5, 3, 3)
    cls, dense = SimpleNamespace(cls_token=torch.zeros(1)), SimpleNamespace(dense=nn.Linear(1, 1))
    for output, attributes, expected in [
        ({"last_hidden_state": tokens}, {}, tokens.mean(1)),
        ({"last_hidden_state": tokens, "pooler_output": None}, {}, tokens.mean(1)),
        ({"last_hidden_state": tokens, "pooler_output": pooled}, {}, pooled),
        ({"last_hidden_state": tokens, "pooler_output": pooled}, {"embeddings": cls}, pooled),
        ({"last_hidden_state": tokens}, {"embeddings": cls}, tokens[:, 0]),
        ({"last_hidden_state": tokens, "pooler_output": pooled}, {"embeddings": cls, "pooler": dense}, tokens[:, 0]),
        ({"last_hidden_state": maps}, {}, maps.mean((2, 3))),
        ({"pooler_output": pooled[:, :, None, None]}, {}, pooled),
    ]:
        module = Returns(lambda _, output=output: SimpleNamespace(**output), **attributes)
        torch.testing.assert_close(plain(module, dimension=1)(torch.rand(2, 3, 8, 8)), expected)


def test_other_outputs_are_refused() -> None:
    for make, message in [
        (lambda x: x.flatten(2), r"gave output of shape \(1, 3, 1024\)"),
        (lambda x: x.mean((1, 2, 3)), r"gave output of shape \(1,\)"),
        (lambda x: (x, x), "gave a tuple"),
        (lambda x: {"a": x}, "gave a dict"),
        (lambda x: SimpleNamespace(last_hidden_state=x[None]), "gave last_hidden_state of shape"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plain(Returns(make))


def test_finding_the_dimension_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5), nn.ReLU())
    module[1].eval()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.get_rng_state()
    backbone = Backbone(module)
    assert backbone.dimension == 6
    assert torch.equal(torch.get_rng_state(), expected)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert [each.training for each in (backbone, module, *module)] == [True, True, True, False, True, True]
    assert all(each.grad is None for each in module.parameters())


def only(*sizes: int) -> Callable[[Tensor], Tensor]:
    def make(images: Tensor) -> Tensor:
        if images.shape[2] not in sizes:
            raise ValueError("wrong size")
        return images[:, :, 0, :7].flatten(1)

    return make


def test_the_dimension_is_found_with_an_image_that_the_module_takes() -> None:
    assert plain(Returns(only(32))).dimension == 21
    assert plain(Returns(only(224))).dimension == 21
    assert plain(Returns(only(48), config=SimpleNamespace(image_size=48))).dimension == 21
    assert plain(Returns(only(48), config=SimpleNamespace(image_size=[48, 7]))).dimension == 21
    assert plain(Returns(only(50)), dimension=21).dimension == 21
    with pytest.raises(
        ConfigError, match=r"Returns cannot run on an image of 224 x 224 pixels \(wrong size\): pass dimension="
    ):
        plain(Returns(only(50)))


def normalised(**options: Any) -> Backbone:
    return Backbone(nn.Identity(), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: normalised(mean=(0.5,), std=(1, 1)), ConfigError, "one number for each channel"),
        (lambda: normalised(std=(1, 1, 0)), ConfigError, r"std=\(1, 1, 0\) of a backbone must be greater than 0"),
        (lambda: normalised(dimension=0), ConfigError, "dimension=0 of a backbone must be at least 1"),
        (lambda: normalised()(torch.rand(3, 8, 8)), ShapeError, r"shape \(3, 8, 8\), but the backbone takes \[B, 3, H"),
        (lambda: normalised()(torch.zeros(2, 3, 8, 8).byte()), ShapeError, "dtype torch.uint8.*divide bytes by 255"),
        (lambda: create_backbone("resnet18", stem="stl"), ConfigError, "stem='stl' must be imagenet or cifar"),
        (lambda: create_backbone("resnet18", width=0), ConfigError, "width=0 of resnet18 must be at least 1"),
        (lambda: create_backbone("resnet18", image_size=32), ConfigError, "=32 is .* of 'resnet18', which takes stem"),
        (lambda: create_backbone("vit-tiny", stem="cifar"), ConfigError, "stem=cifar is .*'vit-tiny', which takes image_size"),
        (lambda: create_vit("vit-tiny", image_size=30, patch_size=4), ConfigError, "image_size=30 cannot be cut .*size=4"),
        (lambda: create_backbone("lightly:resnet-18", pretrained=True), ConfigError, "'lightly:resnet-18', which takes none"),
        (lambda: create_backbone("timm:resnet18", width=32), ConfigError, "width=32 is no .*, which takes pretrained"),
        (lambda: create_backbone("timm"), UnknownNameError, "'timm'.*Known: resnet18, .*timm:NAME"),
        (lambda: create_backbone("keras:resnet50"), ConfigError, "cannot be imported: .* 'keras'. Known: resnet18"),
        (lambda: create_backbone("resnet-50"), UnknownNameError, "no backbone 'resnet-50'.*Did you mean 'resnet50'.*Known"),
        (
            lambda: create_backbone("vit-tiny", image_size=32)(torch.rand(2, 3, 48, 40)),
            ConfigError,
            r"image_size=48x40 does not fit ViTModel, which takes images of 32x32 pixels \(Input image size .*=32",
        ),
    ],
)
def test_faults_are_named(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_other_faults_of_a_network_stay_what_they_are() -> None:
    def fail(images: Tensor) -> Tensor:
        raise ValueError("no such thing")

    for module in (Returns(fail), Returns(fail, config=SimpleNamespace(image_size=[8, 6]))):
        with pytest.raises(ValueError, match=r"^no such thing$"):
            plain(module, dimension=3)(torch.rand(1, 3, 8, 6))
