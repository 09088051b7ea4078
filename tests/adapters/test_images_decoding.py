"""Decoding: every kind of image becomes upright RGB, and whatever is no image is named and nothing worse."""

from __future__ import annotations

import io
import random
import warnings

import numpy as np
import pytest
import torch
from image_toys import BROKEN, encoded, noise
from PIL import Image

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.decoding import UndecodableImageError, check_size, decode_image, resize_all


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def colours(pixels: torch.Tensor) -> list[int]:
    assert pixels.dtype == torch.uint8
    assert bool((pixels == pixels[:, :1, :1]).all())
    return pixels[:, 0, 0].tolist()


PALETTE = Image.new("P", (6, 6), 1)
PALETTE.putpalette([1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encoded(90, mode="L"), [90, 90, 90]),
        (encoded((90, 10), mode="LA"), [90, 90, 90]),
        (encoded((10, 20, 30, 0), mode="RGBA"), [10, 20, 30]),
        (encoded(1, mode="1"), [255, 255, 255]),
        (encoded((0, 0, 0, 0), mode="CMYK", form="TIFF"), [255, 255, 255]),
        (encoded(0x80FF, mode="I;16"), [0x80, 0x80, 0x80]),
        (encoded((10, 200, 30), form="BMP"), [10, 200, 30]),
        (encoded((10, 200, 30), form="WEBP"), None),
        (saved(Image.new("RGB", (6, 6), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE), "GIF"), [10, 200, 30]),
        (saved(PALETTE, "PNG", transparency=b"\x00\x80"), [4, 5, 6]),
    ],
    ids=["grey", "grey-alpha", "rgba", "bits", "cmyk", "grey-16", "bmp", "webp", "gif", "palette-transparent"],
)
def test_every_mode_becomes_rgb(content: bytes, expected: list[int] | None) -> None:
    found = colours(decode_image(content, "a"))
    assert len(found) == 3
    if expected is not None:
        assert found == expected


def test_whites_of_wide_pixels() -> None:
    """Pillow opens a PGM of 16 bits with 32-bit pixels, the greatest value of the file at 65535."""
    for white, half in ((1000, 128), (65535, 127)):
        content = f"P5 2 1 {white} ".encode() + (white // 2).to_bytes(2, "big") + white.to_bytes(2, "big")
        assert decode_image(content, "a.pgm")[:, 0].tolist() == [[half, 255]] * 3
    for mode, kind in (("I", "integers"), ("F", "floats")):
        with pytest.raises(UndecodableImageError, match=f"a.tif cannot .*: its pixels are 32-bit {kind} .*mode {mode}"):
            decode_image(encoded(70000, mode=mode, form="TIFF"), "a.tif")


def test_an_image_is_turned_upright_and_a_damaged_tag_leaves_it() -> None:
    image = Image.new("RGB", (4, 2), (0, 0, 0))
    image.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise: the top left pixel goes to the top right
    pixels = decode_image(saved(image, "PNG", exif=exif), "a.png")
    assert pixels.shape == (3, 4, 2)
    assert pixels[0].nonzero().tolist() == [[0, 1]]
    damaged = saved(Image.new("RGB", (4, 2), (7, 8, 9)), "PNG", exif=b"Exif\x00\x00garbage!")
    assert colours(decode_image(damaged, "a.png")) == [7, 8, 9]


def test_the_middle_square_is_kept() -> None:
    wide = noise(1, 10, 30)[0].permute(1, 2, 0).numpy()
    for array, box, size in ((wide, (5, 0, 10, 5), (15, 5)), (wide.transpose(1, 0, 2), (0, 5, 5, 10), (5, 15))):
        image = Image.fromarray(array)
        expected = np.asarray(image.resize(size, Image.Resampling.BICUBIC).crop(box))
        assert np.array_equal(decode_image(saved(image, "PNG"), "a.png", 5).permute(1, 2, 0).numpy(), expected)


def test_any_shape_is_resized_and_pixels_in_memory_alike() -> None:
    for shape in ((1, 1), (1, 300), (2, 1), (7, 5), (64, 64)):
        for size in (1, 4, 32):
            assert colours(decode_image(encoded((10, 20, 30), shape), "a", size)) == [10, 20, 30]
    images = noise(3, 9, 14)
    files = [saved(Image.fromarray(image.permute(1, 2, 0).numpy()), "PNG") for image in images]
    assert torch.equal(decode_image(files[1], "a"), images[1])
    assert torch.equal(resize_all(images, 6), torch.stack([decode_image(file, "a", 6) for file in files]))
    assert resize_all(images, None) is images


@pytest.mark.parametrize("side", [12, 40])  # Pillow itself warns of the first and refuses the second
def test_a_bomb_is_named_without_a_warning(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded((0, 0, 0), (side, side))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UndecodableImageError, match=r"big\.png is too large .*: it has more than 100 pixels$"):
        decode_image(content, "big.png")


def test_what_is_no_image_is_named() -> None:
    for content, fault in ((b"", "it is empty"), (b"text", "its bytes are no image"), (BROKEN, "Truncated File Read")):
        with pytest.raises(UndecodableImageError, match=rf"^a\.png cannot be decoded as an image: {fault}$"):
            decode_image(content, "a.png")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_damaged_files_raise_nothing_else(form: str) -> None:
    whole = saved(Image.fromarray(noise(1, 16, 16)[0].permute(1, 2, 0).numpy()), form)
    chance = random.Random(0)
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of some damage that it can read over
        for attempt in range(120):
            damaged = bytearray(whole[: chance.randrange(len(whole))] if attempt % 2 else whole)
            for _ in range(3):
                if damaged:
                    damaged[chance.randrange(min(len(damaged), 80))] = chance.randrange(256)
            try:
                assert decode_image(bytes(damaged), "a", 8).shape == (3, 8, 8)
            except DataError:
                refused += 1
    assert refused > 40


def test_lack_of_memory_is_no_fault_of_the_image_and_a_wrong_size_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(MemoryError):
        decode_image(b"image", "a.png")
    for size in (0, -3, 2.0, True):
        with pytest.raises(ConfigError, match=f"size={size} must be a whole number of pixels, at least 1"):
            check_size(size)  # type: ignore[arg-type]
