"""Image files decoded to upright RGB pixels.

`datasets` decodes with Pillow, too, in 1.1 times the time, but stops at a damaged image without naming its file.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Final

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from tempplug.errors import ConfigError, DataError

Image.init()
FORMATS: Final = tuple(form for form in Image.OPEN if form not in {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"})
"""Formats that Pillow decodes, without those for which it runs another program or needs another library."""
SUFFIXES: Final = frozenset(suffix for suffix, form in Image.registered_extensions().items() if form in FORMATS)
"""Suffixes of their files, in lower case; files may have upper case."""


class UndecodableImageError(DataError):
    """One image is not readable, while others may be: its file is missing, locked or damaged, or it has too many pixels."""


def decode_image(encoded: bytes, name: str, size: int | None = None) -> Tensor:
    """Returns the pixels of an image file, [3, H, W] uint8: upright by its EXIF tag, RGB, without transparency.

    Grey becomes three equal channels; 16-bit grey loses its lower eight bits. 32-bit integers or floats are rejected, because
    their range is unknown.

    Args:
        encoded: contents of the file.
        name: name of the file, for messages.
        size: as in `resize_and_crop`; None keeps the size.

    Raises:
        UndecodableImageError: the bytes are not a complete image, or it has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``.
    """
    image = _opened(encoded, name)
    return to_pixels(image if size is None else resize_and_crop(image, size))


def to_pixels(image: Image.Image) -> Tensor:
    """Returns the pixels of a Pillow image in RGB, [3, H, W] uint8."""
    return torch.from_numpy(np.array(_rgb(image))).permute(2, 0, 1)


def resize_and_crop(image: Image.Image, size: int) -> Image.Image:
    """Returns the middle square of an image, its shorter side resized to ``size`` pixels, bicubically and smoothed."""
    if image.size == (size, size):
        return image
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))


def _opened(encoded: bytes, name: str) -> Image.Image:
    if not encoded:
        raise UndecodableImageError(f"{name} cannot be decoded as an image: it is empty")
    limit = Image.MAX_IMAGE_PIXELS
    try:
        # such an image is refused below, with its name
        with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
            image = Image.open(io.BytesIO(encoded), formats=FORMATS)
        with image:
            if limit is not None and image.width * image.height > limit:
                raise Image.DecompressionBombError
            image.load()
            with contextlib.suppress(Exception):  # a damaged tag does not affect the pixels
                ImageOps.exif_transpose(image, in_place=True)
            return _rgb(image)
    except Image.DecompressionBombError as error:
        raise UndecodableImageError(f"{name} is too large to be decoded safely: it has more than {limit} pixels") from error
    except UnidentifiedImageError as error:
        raise UndecodableImageError(f"{name} cannot be decoded as an image: its bytes are no image") from error
    except MemoryError:
        raise
    # Pillow does not document which errors its decoders raise for damaged bytes
    except Exception as error:
        raise UndecodableImageError(f"{name} cannot be decoded as an image: {error}") from error


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):  # 65535 is white
        values = np.asarray(image)
        if 0xFF < values.max() < 0x1000:
            remedy = "are read as nearly black: if their values have 12 bits, multiply them by 16"
            warnings.warn(f"16-bit images have no value above 4095, of 65535, and {remedy}.", stacklevel=2)
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        kind = "integers" if image.mode == "I" else "floats"
        raise ValueError(f"its pixels are 32-bit {kind} (Pillow's mode {image.mode}), whose white value is unknown")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def resize_all(images: Tensor, size: int | None) -> Tensor:
    """Returns images [N, 3, H, W] uint8 resized and cropped as `resize_and_crop` does; None leaves them as they are."""
    if size is None or images.shape[2:] == (size, size):
        return images
    resized = torch.empty((len(images), 3, size, size), dtype=torch.uint8)
    for row, image in zip(resized, images, strict=True):
        row.copy_(to_pixels(resize_and_crop(Image.fromarray(image.permute(1, 2, 0).numpy()), size)))
    return resized


def check_size(size: int) -> None:
    """Raises `ConfigError` unless a size is a whole number of at least 1."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f"size={size} must be a whole number of pixels, at least 1.")
