"""MobileNetV2 of torchvision's layout computes its formula with TensorFlow's padding, and other files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.msc.model import blocks_of, default_frozen_blocks, load_backbone, load_mobilenet

# Sandler et al. 2018, table 2: expansion, channels, repeats, stride of the first.
TABLE = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
IMAGENETTE = [0, 217, 482, 491, 497, 566, 569, 571, 574, 701]
"""Where Imagenette's classes stand among ImageNet's thousand, sorted by WordNet id."""

Layer = tuple[str, str, int, int, tuple[int, ...]]  # convolution, normalisation, stride, groups, shape of the kernel


def layers() -> list[tuple[list[Layer], bool]]:
    """The convolutions of each block by torchvision's names, and whether the block adds its input."""
    blocks: list[tuple[list[Layer], bool]] = [([("features.0.0", "features.0.1", 2, 1, (32, 3, 3, 3))], False)]
    width, place = 32, 1
    for expansion, channels, repeats, first_stride in TABLE:
        for repeat in range(repeats):
            stride, hidden, inner = (first_stride if repeat == 0 else 1), width * expansion, []
            name, at = f"features.{place}.conv", int(expansion > 1)
            if expansion > 1:
                inner.append((f"{name}.0.0", f"{name}.0.1", 1, 1, (hidden, width, 1, 1)))
            inner.append((f"{name}.{at}.0", f"{name}.{at}.1", stride, hidden, (hidden, 1, 3, 3)))
            inner.append((f"{name}.{at + 1}", f"{name}.{at + 2}", 1, 1, (channels, hidden, 1, 1)))
            blocks.append((inner, stride == 1 and width == channels))
            width, place = channels, place + 1
    return [*blocks, ([("features.18.0", "features.18.1", 1, 1, (1280, 320, 1, 1))], False)]


def random_state(classes: int = 7) -> dict[str, Tensor]:
    """A state dict in torchvision's layout whose activations stay alive through all layers."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    state: dict[str, Tensor] = {}
    for inner, _ in layers():
        for convolution, norm, _, _, shape in inner:
            state[f"{convolution}.weight"] = draw(*shape) * (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
            state[f"{norm}.weight"], state[f"{norm}.bias"] = 1 + 0.2 * draw(shape[0]), 0.3 * draw(shape[0])
            state[f"{norm}.running_mean"] = 0.3 * draw(shape[0])
            state[f"{norm}.running_var"] = 0.5 + draw(shape[0]).abs()
            state[f"{norm}.num_batches_tracked"] = torch.tensor(5)
    state["classifier.1.weight"], state["classifier.1.bias"] = draw(classes, 1280), draw(classes)
    return state


def same(images: Tensor, stride: int) -> Tensor:
    """TensorFlow's "same" padding for a kernel of 3: ceil(n/stride) outputs, what is left over goes to the right and bottom."""
    amounts = []
    for size in (images.shape[3], images.shape[2]):
        total = max((-(-size // stride) - 1) * stride + 3 - size, 0)
        amounts += [total // 2, total - total // 2]
    return F.pad(images, amounts)


def reference(state: dict[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """Pooled features and logits in float64, from the formulas."""
    state = {name: value.double() for name, value in state.items()}
    x = images.double()
    for inner, residual in layers():
        entered = x
        for position, (convolution, norm, stride, groups, _) in enumerate(inner):
            weight = state[f"{convolution}.weight"]
            if weight.shape[2] == 3:
                x = same(x, stride)
            x = F.conv2d(x, weight, stride=stride, groups=groups)
            mean, variance = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
            scale = state[f"{norm}.weight"] / (variance + 1e-5).sqrt()
            x = (x - mean[:, None, None]) * scale[:, None, None] + state[f"{norm}.bias"][:, None, None]
            if len(inner) == 1 or position < len(inner) - 1:
                x = x.clamp(0, 6)
        x = x + entered if residual else x
    pooled = x.mean((2, 3))
    return pooled, pooled @ state["classifier.1.weight"].T + state["classifier.1.bias"]


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return random_state()


@pytest.fixture
def file(state: dict[str, Tensor], tmp_path: Path) -> Path:
    torch.save(state, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_outputs_are_those_of_the_formula(file: Path, state: dict[str, Tensor]) -> None:
    images = torch.randn(2, 3, 33, 46, generator=torch.Generator().manual_seed(1))
    before = torch.get_rng_state()
    model = load_mobilenet(file)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    pooled, logits = reference(state, images)
    model.double()
    with torch.no_grad():
        torch.testing.assert_close(model.mobilenet_v2(images.double()).pooler_output, pooled, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(model(images.double()).logits, logits, rtol=1e-6, atol=1e-6)


def test_faulty_files_are_named(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    with pytest.raises(DataError, match=r"weights='.*none\.pth' does not exist"):
        load_mobilenet(tmp_path / "none.pth")
    bad = tmp_path / "bad.pth"
    for content in (file.read_bytes()[:5000], b"this is a text", b""):
        bad.write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.pth cannot be read as a state dict") as raised:
            load_mobilenet(bad)
        assert "\n" not in str(raised.value)
    torch.save([1, 2], bad)
    with pytest.raises(DataError, match=r"bad\.pth holds no state dict"):
        load_mobilenet(bad)
    for change, message in [
        ({"features.4.conv.2.weight": None}, r"bad\.pth does not fit .* it lacks weights: .*layer\.2\.reduce_1x1\.convolution"),
        (
            {"fc.weight": torch.zeros(3)},
            r"bad\.pth does not fit .* its settings have no place for: fc\.weight",
        ),
        ({"features.18.0.weight": torch.zeros(640, 320, 1, 1)}, r"bad\.pth does not fit .* has the shape \[640, 320, 1, 1\]"),
    ]:
        changed = {name: value for name, value in {**state, **change}.items() if value is not None}
        torch.save(changed, bad)
        with pytest.raises(DataError, match=message):
            load_mobilenet(bad)


def test_a_backbone_by_name(tmp_path: Path, file: Path, state: dict[str, Tensor]) -> None:
    backbone = load_backbone("mobilenet-v2", file)
    assert backbone.dimension == 1280
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected, _ = reference(state, (images - mean[:, None, None]) / std[:, None, None])
    torch.testing.assert_close(backbone.double()(images.double()), expected, rtol=1e-5, atol=1e-5)
    assert len(blocks_of(backbone)) == 18
    assert default_frozen_blocks(backbone.module) == 6
    (tmp_path / "vision").mkdir()
    with pytest.raises(ConfigError, match="backbone 'mobilenet-v2' needs weights: pass --weights FILE, or a data folder"):
        load_backbone("mobilenet-v2", data_dir=tmp_path)
    file.rename(tmp_path / "vision" / "mobilenet_v2_imagenet.pth")
    found = load_backbone("mobilenet-v2", data_dir=tmp_path)
    assert all(torch.equal(value, backbone.state_dict()[name]) for name, value in found.state_dict().items())
    with pytest.raises(ConfigError, match=r"weights='x\.pth' belong to backbone 'mobilenet-v2', but backbone='resnet'"):
        load_backbone("resnet", "x.pth")


def test_the_real_weights_classify_imagenette(data_dir: Path) -> None:
    images = load_images("imagenette", "test", data_dir, count=24)
    model = load_mobilenet(data_dir / "vision" / "mobilenet_v2_imagenet.pth")
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = images.batch(torch.arange(24)) / 255
    with torch.no_grad():
        logits = torch.cat([model((part - mean[:, None, None]) / std[:, None, None]).logits for part in pixels.split(4)])
    assert (logits[:, IMAGENETTE].argmax(1) == images.labels).sum() >= 23, "99.1 % of all 1,000"
    assert (logits.argmax(1) == torch.tensor(IMAGENETTE)[images.labels]).sum() >= 13, "74.9 % of all 1,000"
