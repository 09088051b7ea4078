"""Images with captions: pairs from a folder or the hub, or images with classes, whose names become captions.

It must not depend on models, tokenizers or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from tempplug.errors import ConfigError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.images import image_data
from tempplug_adapters.images.class_folders import split_folders
from tempplug_adapters.images.image_data import DATASETS, Split, load_images
from tempplug_adapters.images.image_set import ImageFiles, ImageSet
from tempplug_adapters.images.image_tables import TABLES, Captions, load_captioned, table_of_paths


@dataclass(frozen=True)
class CaptionedImages:
    """Images, each with one or several captions; its length is the number of images.

    Attributes:
        images: read by position.
        texts: the different captions.
        captions: positions in ``texts`` of each image's captions.
        prompts: positions in ``texts`` of each class's captions; empty without classes.
        assigned: the columns of the table with the captions; None without a table.
    """

    images: ImageSet
    texts: tuple[str, ...]
    captions: Sequence[tuple[int, ...]]
    prompts: tuple[tuple[int, ...], ...] = ()
    assigned: Assigned | None = None

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def pairs(self) -> torch.Tensor:
        """Image and text of every pair, [P, 2] int64."""
        counts = torch.tensor([len(each) for each in self.captions])
        texts = torch.tensor([text for each in self.captions for text in each], dtype=torch.int64)
        return torch.stack([torch.arange(len(counts)).repeat_interleave(counts), texts], 1)

    @cached_property
    def keys(self) -> np.ndarray:
        """A number for each caption of each image, equal for equal captions, [n, K]."""
        widest = max(map(len, self.captions))
        return np.array([each + each[:1] * (widest - len(each)) for each in self.captions], np.int64)


def load_pairs(
    dataset: str,
    split: Split,
    data_dir: Path | None,
    *,
    size: int,
    templates: Sequence[str],
    column: str | None = None,
    count: int | None = None,
    seed: int = 0,
) -> CaptionedImages | None:
    """Returns images with captions, or None if there is no test set.

    Args:
        dataset: a name of `tempplug_adapters.images.image_data.DATASETS`, a folder, or a name on the hub, see `load_captioned`.
        split: ``train`` or ``test``.
        data_dir: folder of real data, for the names; None loads some of them from the hub.
        size: pixels of each side of images of different sizes.
        templates: captions of classes, ``{}`` for the name.
        column: of captions in a table.
        count: number of images, drawn at random; None: all.
        seed: of that draw.

    Raises:
        TempplugError: the data are missing or malformed, or a template has no place for a name.
    """
    # A name that is no path and has no owner is a misspelled data set, for which `load_images` suggests the nearest name.
    named = dataset in DATASETS or ("/" not in dataset and not Path(dataset).exists() and not dataset.endswith(TABLES))
    if named or _has_class_folders(Path(dataset)):
        for each in templates:
            if each.count("{}") != 1:
                raise ConfigError(f"templates='{each}' must have one {{}}, the place of a class's name.")
        return _of_classes(load_images(dataset, split, data_dir, count=count, seed=seed), templates)
    found = load_captioned(dataset, split, f"{dataset} {split}", column)
    if found is None:
        return None
    encoded, captions, assigned = found
    if count is not None and count < len(encoded):
        chosen = torch.randperm(len(encoded), generator=torch.Generator().manual_seed(seed))[:count]
        encoded, captions = encoded.subset(chosen), [captions[position] for position in chosen.tolist()]
    return replace(_of_captions(ImageFiles(encoded, size), captions), assigned=assigned)


def files_of(images: ImageSet, dataset: str, split: Split, data_dir: Path | None) -> dict[str, Path | str]:
    """Returns the files of the images that `load_pairs` has returned, with the table that names them, if there is one."""
    table = table_of_paths(Path(dataset), split)
    return {**({} if table is None else {table.name: table}), **image_data.files_of(images, dataset, split, data_dir)}


def _has_class_folders(folder: Path) -> bool:
    return folder.is_dir() and bool(split_folders(folder)) and not any(folder.rglob("metadata.*"))


def _of_classes(images: ImageSet, templates: Sequence[str]) -> CaptionedImages:
    if images.labels is None:
        raise ConfigError(f"the set '{images.name}' has no classes, whose names would be the captions.")
    # folder names have underscores for spaces, WordNet classes list synonyms
    names = [name.replace("_", " ").partition(",")[0] for name in images.classes]
    texts: dict[str, int] = {}
    prompts = tuple(
        tuple(texts.setdefault(each.replace("{}", name), len(texts)) for each in dict.fromkeys(templates)) for name in names
    )
    return CaptionedImages(images, tuple(texts), [prompts[label] for label in images.labels.tolist()], prompts)


def _of_captions(images: ImageSet, captions: Captions) -> CaptionedImages:
    texts: dict[str, int] = {}
    found = [tuple(dict.fromkeys(texts.setdefault(text, len(texts)) for text in each)) for each in captions]
    return CaptionedImages(images, tuple(texts), found)
