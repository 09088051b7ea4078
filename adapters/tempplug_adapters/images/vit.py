"""Vision transformers for images: transformers' ViT in the usual three sizes, with patches that fit the size of the images.

It must not know any training method.
"""

from __future__ import annotations

from transformers import ViTConfig, ViTModel

from tempplug.errors import ConfigError

VITS: dict[str, tuple[int, int]] = {"vit-tiny": (192, 3), "vit-small": (384, 6), "vit-base": (768, 12)}
"""Names of vision transformers of 12 layers: the width of a token, and the attention heads."""


def create_vit(name: str, *, image_size: int = 224, patch_size: int | None = None) -> ViTModel:
    """Returns a vision transformer with random weights and without a pooler: its class token is the representation.

    The pooler of transformers' ViT (a linear layer and tanh over the class token) serves its pre-training; untrained, it would
    only be a random layer more.

    Args:
        name: one of `VITS`.
        image_size: height and width of the images, a multiple of the patch size.
        patch_size: height and width of a patch; None: an eighth of the image, but at most 16 (4 for images of 32 pixels, 8 for
            64, 16 for 224), so that small images have 64 patches, too.

    Raises:
        ConfigError: the image cannot be cut into such patches.

    Source: Dosovitskiy et al. 2021 (base); Touvron et al. 2021 (DeiT) for tiny and small.

    >>> create_vit("vit-tiny", image_size=32).config.patch_size
    4
    """
    patch = max(1, min(16, image_size // 8)) if patch_size is None else patch_size
    if image_size < 1 or patch < 1 or image_size % patch:
        raise ConfigError(
            f"image_size={image_size} cannot be cut into patches of patch_size={patch}: choose a multiple of it, or another "
            "patch_size."
        )
    width, heads = VITS[name]
    config = ViTConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=image_size,
        patch_size=patch,
    )
    return ViTModel(config, add_pooling_layer=False)
