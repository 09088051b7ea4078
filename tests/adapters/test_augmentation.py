"""Augmentations against the papers' numbers: each change alone is measured on images that show nothing but it."""

from __future__ import annotations

import colorsys
import math
import pickle
import random
import sys

import numpy as np
import pytest
import torch
from covering import every_pair
from kornia import augmentation as kornia
from torch import Tensor
from torch.nn import functional

from tempplug.errors import ConfigError, MissingDependencyError, ShapeError, UnknownNameError
from tempplug_adapters.images.augmentation import RECIPES, ColorJitter, create_augmentation, create_small_crops

ALL = (*RECIPES, "none")


def views(recipe: str, images: Tensor, size: int, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    found: Tensor = create_augmentation(recipe, size)(images)
    return found


def ramp(count: int, height: int, width: int) -> Tensor:
    """Images whose red is the column and whose green is the row, so that a crop tells where it was taken."""
    columns = torch.arange(width).expand(height, width) / 256
    rows = torch.arange(height)[:, None].expand(height, width) / 256
    return torch.stack([columns, rows, torch.zeros(height, width)]).expand(count, -1, -1, -1).contiguous()


def boxes(crops: Tensor) -> np.ndarray:
    """Left, top, width and height in pixels of the crops of a ramp, which must not have been made smaller."""
    pixels = (crops[:, :2].double() * 256).flatten(2)
    first, last = pixels.amin(2).round(), pixels.amax(2).round()
    return torch.cat([first, last - first + 1], 1).numpy()


def enlarged(image: np.ndarray, size: int) -> np.ndarray:
    """Bilinear, a pixel an area: the float64 oracle of one crop, [H, W] to [size, size]."""

    def matrix(length: int) -> np.ndarray:
        place = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        return np.clip(1 - np.abs(place[:, None] - np.arange(length)[None]), 0, None)

    return matrix(image.shape[0]) @ image @ matrix(image.shape[1]).T


def test_a_crop_is_a_box_enlarged() -> None:
    noise = torch.rand(64, 3, 30, 40, generator=torch.Generator().manual_seed(1))
    crops = views("amcl-a", noise, 64)
    for image, crop, (left, top, width, height) in zip(
        noise.double().numpy(), crops.numpy(), boxes(views("amcl-a", ramp(64, 30, 40), 64)).astype(int), strict=True
    ):
        for channel in range(3):
            box = image[channel, top : top + height, left : left + width]
            np.testing.assert_allclose(crop[channel], enlarged(box, 64), atol=2e-6)


@pytest.mark.parametrize(("recipe", "smallest"), [("amcl-a", 0.08), ("moco-v2", 0.2), ("long-tail", 0.1), ("crop", 0.3)])
def test_crops_are_as_large_as_the_paper_says(recipe: str, smallest: float) -> None:
    torch.manual_seed(0)
    # bicubic crops overshoot their first and last pixel, so the box is read to about a pixel there
    found = boxes(create_augmentation(recipe, 60).steps[0](ramp(600, 60, 60)))  # type: ignore[index, operator]
    areas, ratios = found[:, 2] * found[:, 3] / 60**2, found[:, 2] / found[:, 3]
    assert areas.min() == pytest.approx(smallest, abs=0.04)
    assert areas.max() > 0.9
    assert (ratios.min(), ratios.max()) == (pytest.approx(3 / 4, abs=0.08), pytest.approx(4 / 3, abs=0.12))
    free = 60 - found[:, 2] > 10
    assert (found[free, 0] / (60 - found[free, 2])).mean() == pytest.approx(0.5, abs=0.08)


JITTERED = {"simclr", "simclr-cifar", "moco-v2", "msc", "long-tail", "amcl-abcd", "amcl-abcde"}
GREYED = JITTERED | {"amcl-abc"}


@pytest.mark.parametrize("recipe", ALL)
def test_views_are_flipped_and_change_colour_as_often_as_the_recipe_says(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of one colour shows neither crop, flip nor blur."""
    colour = torch.tensor([0.3, 0.5, 0.6])[:, None, None]
    found = views(recipe, colour.expand(1000, 3, 4, 4), 4)
    grey = (found - found[:, :1]).abs().amax((1, 2, 3)) < 1e-4
    untouched = (found - colour).abs().amax((1, 2, 3)) < 1e-4
    assert float(grey.float().mean()) == (pytest.approx(0.2, abs=0.04) if recipe in GREYED else 0)
    expected = (0.8 if recipe in GREYED else 1) * (0.2 if recipe in JITTERED else 1)
    assert float(untouched.float().mean()) == pytest.approx(expected, abs=0.04)
    if recipe == "amcl-abc":  # grey is the luma of what it was made from
        torch.testing.assert_close(found[grey], torch.tensor(0.299 * 0.3 + 0.587 * 0.5 + 0.114 * 0.6).expand_as(found[grey]))
    for change in (ColorJitter, kornia.RandomGrayscale):
        monkeypatch.setattr(change, "forward", lambda self, images: images)
    found = views(recipe, ramp(400, 16, 16), 16)[:, 0]
    flipped = float((found[:, :, -1].mean(1) < found[:, :, 0].mean(1)).float().mean())
    never = recipe in ("none", "crop", "amcl-a", "amcl-ab", "amcl-abc", "amcl-abcd")
    assert flipped == (0.0 if never else pytest.approx(0.5, abs=0.08))


def gaussian(sigma: float, taps: int) -> np.ndarray:
    weights = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def spreads(recipe: str, size: int) -> np.ndarray:
    """Standard deviation along a row of what the recipe's blur makes of one bright pixel, for each of 400 images."""
    point = torch.zeros(400, 3, 31, 31)
    point[:, :, 15, 15] = 1
    torch.manual_seed(0)
    for step in create_augmentation(recipe, size).steps:
        if isinstance(step, kornia.RandomGaussianBlur):
            point = step(point)
    row = point[:, 0].sum(1)
    return np.asarray((row * (torch.arange(31) - 15.0) ** 2).sum(1).sqrt())


@pytest.mark.parametrize("recipe", [name for name, numbers in RECIPES.items() if numbers.blur])
def test_only_simclrs_blur_is_cut_to_a_tenth_of_the_image(recipe: str) -> None:
    for size, pixels in ((1, 0), (2, 0), (3, 0), (8, 0), (19, 0), (20, 1), (32, 1), (40, 2), (224, 11)):
        widest = spreads(recipe, size).max()
        reach = pixels if recipe == "simclr" else min(6, (size - 1) // 2)
        weights = gaussian(2.0, 2 * reach + 1)
        cut = math.sqrt((weights * (np.arange(2 * reach + 1) - reach) ** 2).sum())
        assert widest == pytest.approx(cut, rel=0.03)
    if recipe != "simclr":
        found = spreads(recipe, 32)
        assert found.max() > 1.85  # of a deviation of at most 2, nearly all
        blurred = found[found > 0.01]
        assert len(blurred) / len(found) == pytest.approx(0.5, abs=0.1)
        assert blurred.mean() == pytest.approx(1.1, abs=0.1)  # from 0.1 to 2, those below 0.3 leave a pixel alone


def changed_by_hand(image: np.ndarray, kind: int, amount: float) -> np.ndarray:
    """One colour change in float64, from its definition; the image is [3, H, W]."""
    luma = np.tensordot([0.299, 0.587, 0.114], image, 1)
    if kind == 3:
        turned = [
            colorsys.hsv_to_rgb((hue + amount) % 1, saturation, value)
            for hue, saturation, value in map(lambda pixel: colorsys.rgb_to_hsv(*pixel), image.reshape(3, -1).T)
        ]
        return np.array(turned).T.reshape(image.shape)
    other = (0 * luma, np.full_like(luma, luma.mean()), luma)[kind]
    return np.clip(amount * image + (1 - amount) * other, 0, 1)


def test_each_image_is_changed_in_its_own_order() -> None:
    images = torch.rand(40, 3, 5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.manual_seed(11)
    found = ColorJitter(0.4, 0.3, 0.2, 0.1, probability=0.7)(images)
    torch.manual_seed(11)
    changed = torch.rand(40) < 0.7
    order = torch.rand(40, 4).argsort(1)
    amounts = [torch.empty(40).uniform_(1 - reach, 1 + reach) for reach in (0.4, 0.3, 0.2)]
    amounts.append(torch.empty(40).uniform_(-0.1, 0.1))
    assert 15 < int(changed.sum()) < 40
    assert len({tuple(row) for row in order.tolist()}) > 12
    for row, image in enumerate(images.numpy()):
        expected = image
        for kind in order[row].tolist() if changed[row] else []:
            expected = changed_by_hand(expected, kind, float(amounts[kind][row]))
        np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("recipe", ALL)
def test_a_view_is_a_draw_of_the_global_generator_alone_in_any_precision(recipe: str) -> None:
    image = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0))
    images = image.expand(8, -1, -1, -1).clone()
    random.seed(1)
    np.random.seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    expected, other = views(recipe, images, 40), views(recipe, images, 40, seed=1)
    assert torch.equal(expected, other) is (recipe == "none")
    assert states == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index,union-attr]
    if recipe != "none":
        assert float(functional.pdist(torch.cat([expected, other]).flatten(1)).min()) > 1e-3, "each image has its own draw"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(views(recipe, images, 40), expected)
    found = views(recipe, images.to(memory_format=torch.channels_last).requires_grad_(), 40)
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert torch.equal(views(recipe, images.double(), 40), expected)
    half = views(recipe, images.half(), 40)
    assert half.dtype == expected.dtype == torch.float32
    # hue is steep where an image is nearly grey, so rounded pixels may move some far: most must not
    assert float((half - expected).abs().median()) < 2e-3
    augmentation = create_augmentation(recipe, 40)
    assert augmentation.state_dict() == {}
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(pickle.loads(pickle.dumps(augmentation))(images), expected)
    assert torch.equal(torch.get_rng_state(), before) is (recipe == "none")


def test_any_shape_gives_squares_in_range_and_leaves_the_images() -> None:
    for (count, height, width), size, recipe in every_pair([(3, 1, 1), (1, 2, 1), (3, 3, 70), (0, 8, 8)], (1, 7, 40), ALL):
        images = torch.rand(count, 3, height, width)
        images[:1], images[1:2] = 0, 1
        before = images.clone()
        found = views(recipe, images, size)
        assert found.shape == (count, 3, size, size)
        assert found.dtype == torch.float32
        assert bool(((found >= 0) & (found <= 1)).all())
        assert torch.equal(images, before)


def test_none_is_the_middle_square() -> None:
    images = torch.rand(2, 3, 9, 5)
    assert torch.equal(views("none", images, 5), images[:, :, 2:7])
    assert torch.equal(views("none", images.transpose(2, 3), 5), images.transpose(2, 3)[:, :, :, 2:7])
    # half the size: the mean of a straight ramp stays, every new pixel lies in the middle of four old ones
    small = views("none", ramp(1, 16, 16), 8)[0, 0, 4] * 256
    np.testing.assert_allclose(small[2:6].numpy(), 2 * np.arange(2, 6) + 0.5, atol=1e-4)
    step = torch.zeros(1, 3, 8, 8)
    step[..., 4:] = 1
    found = views("none", step, 32)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1


@pytest.mark.parametrize("recipe", ["simclr", "none"])
@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(2, 1, 8, 8), ShapeError, r"images \[2, 1, 8, 8\] torch.float32 must be float \[B, 3, H, W\]"),
        (torch.zeros(3, 8, 8), ShapeError, r"images \[3, 8, 8\]"),
        (torch.zeros(2, 3, 0, 8), ShapeError, r"images \[2, 3, 0, 8\]"),
        (torch.zeros(2, 3, 8, 8).byte(), ShapeError, r"torch.uint8 must be .* 8-bit images are divided by 255"),
        (torch.zeros(2, 3, 8, 8).index_fill(0, torch.tensor(1), 255), ConfigError, "from 0 to 255 must lie in"),
        (torch.zeros(2, 3, 8, 8).index_fill(2, torch.tensor(1), -1.5), ConfigError, "from -1.5 to 0"),
        (torch.zeros(2, 3, 8, 8).index_fill(3, torch.tensor(1), math.nan), ConfigError, "from nan to nan"),
    ],
)
def test_images_of_another_kind_are_named(recipe: str, images: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        views(recipe, images, 8)


def test_faults_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe, error, message in [
        ("simclr-cifar10", UnknownNameError, r"'simclr-cifar10'\. Did you mean 'simclr-cifar'\? Known: simclr, "),
        ("simclr:small=0", ConfigError, "small=0 of small crops must be an integer, at least 1"),
        ("simclr:small=2,size=1.5", ConfigError, "size=1.5 of small crops must be an integer"),
        ("simclr:small=2,scale=1", ConfigError, "scale=1 of small crops must be greater than 0.05 and less than 1"),
        ("simclr:smal=2", ConfigError, "augmentation 'simclr' has no option 'smal'. Did you mean 'small'"),
        ("none:small=2", ConfigError, "augmentation 'none' has no option 'small'"),
    ]:
        for create in (create_augmentation, create_small_crops):
            with pytest.raises(error, match=message):
                create(recipe, 32)
    for size in (0, -1, 2.5, True):
        with pytest.raises(ConfigError, match=f"size={size} of the augmentation 'none' must be a whole number of pixels"):
            create_augmentation("none", size)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(
        MissingDependencyError, match=r"needs kornia, which is not installed: pip install -c \S+ -e '\.\[vision\]'"
    ):
        create_augmentation("simclr", 32)
    create_augmentation("none", 32)


def test_small_crops_are_smaller_parts_than_large_ones() -> None:
    ramp = torch.arange(40.0) / 40
    images = torch.stack([ramp.expand(40, 40), ramp[:, None].expand(40, 40), torch.zeros(40, 40)]).expand(60, 3, 40, 40)
    parts = {}
    count, crop = create_small_crops("crop:small=2,size=9,scale=0.2", 21)  # type: ignore[misc]
    for name, module, side in (("small", crop, 9), ("large", create_augmentation("crop:small=2,scale=0.2", 21), 21)):
        found = module(images)
        assert found.shape == (60, 3, side, side)
        spans = [found[:, channel].amax((1, 2)) - found[:, channel].amin((1, 2)) for channel in (0, 1)]
        parts[name] = spans[0] * spans[1]
    assert count == 2
    assert parts["small"].max() < 0.2 < parts["large"].min() * 1.4
    assert create_small_crops("crop", 21) is None
    assert create_small_crops("simclr:small=1", 224)[1].size == 96  # type: ignore[index, union-attr]


def test_the_numbers_of_the_recipes_are_the_papers() -> None:
    for recipe, jitter in [
        ("simclr", (0.8, 0.8, 0.8, 0.2)),
        *((recipe, (0.4, 0.4, 0.4, 0.1)) for recipe in ("simclr-cifar", "moco-v2", "msc", "long-tail", "amcl-abcde")),
    ]:
        steps = create_augmentation(recipe, 32).steps
        (found,) = [step for step in steps if isinstance(step, ColorJitter)]  # type: ignore[union-attr]
        assert (*(high - 1 for _, high in found.factors), found.turns) == pytest.approx(jitter)
        assert [low for low, _ in found.factors] == pytest.approx([1 - reach for reach in jitter[:3]])
        assert found.probability == 0.8
