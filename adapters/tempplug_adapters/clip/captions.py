"""Images with captions: pairs from a folder or the hub, or images with classes, whose names become captions.

It must not depend on models, tokenizers or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from tempplug.errors import ConfigError, DataError, quoted
from tempplug_adapters.data_files.roles import TEXT, TEXTS, Role
from tempplug_adapters.data_files.text_roles import texts_of
from tempplug_adapters.images.image_data import DATASETS, Split, load_images
from tempplug_adapters.images.image_set import EncodedSet, ImageFiles, ImageSet
from tempplug_adapters.images.image_tables import ROLES, read_split, table_files

_CAPTION = Role("caption", (TEXT, TEXTS), ("caption", "text", "captions", "sentences", "txt", "title"), flag="--caption-column")


@dataclass(frozen=True)
class CaptionedImages:
    """Images, each with one or several captions; its length is the number of images.

    Attributes:
        images: read by position.
        texts: the different captions.
        captions: positions in ``texts`` of each image's captions.
        prompts: positions in ``texts`` of each class's captions; empty without classes.
    """

    images: ImageSet
    texts: tuple[str, ...]
    captions: Sequence[tuple[int, ...]]
    prompts: tuple[tuple[int, ...], ...] = ()

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
    columns: Sequence[str] = (),
    count: int | None = None,
    seed: int = 0,
) -> CaptionedImages | None:
    """Returns images with captions, or None if there is no test set.

    Args:
        dataset: a name of `tempplug_adapters.images.image_data.DATASETS`, a folder, or a name on the hub, see `read_split`.
        split: ``train`` or ``test``.
        data_dir: folder of real data, for the names; None loads some of them from the hub.
        size: pixels of each side of images of different sizes.
        templates: captions of classes, ``{}`` for the name.
        columns: of a table, ``role=column``, role one of those of `image_tables.ROLES` or caption.
        count: number of images, drawn at random; None: all.
        seed: of that draw.

    Raises:
        TempplugError: the data are missing or malformed, or a template has no place for a name.
    """
    place = Path(dataset)
    # A name that is no path and has no owner is a misspelled data set, for which `load_images` suggests the nearest name.
    named = dataset in DATASETS or ("/" not in dataset and not place.exists())
    if named or (place.exists() and not table_files(place)):
        for each in templates:
            if each.count("{}") != 1:
                raise ConfigError(f"templates='{each}' must have one {{}}, the place of a class's name.")
        return _of_classes(load_images(dataset, split, data_dir, count=count, seed=seed), templates)
    encoded = read_split(dataset, split, f"{dataset} {split}", columns, (_CAPTION, *ROLES))
    if encoded is None:
        return None
    captions = _captions(encoded)
    if count is not None and count < len(captions):
        chosen = torch.randperm(len(captions), generator=torch.Generator().manual_seed(seed))[:count]
        captions = [captions[position] for position in chosen.tolist()]
    encoded, of_image = encoded.subset(torch.tensor([row for row, _ in captions])), [each for _, each in captions]
    texts: dict[str, int] = {}
    numbers = [_numbers(each, texts) for each in of_image]
    return CaptionedImages(ImageFiles(encoded, size), tuple(texts), numbers)


def _captions(encoded: EncodedSet) -> list[tuple[int, list[str]]]:
    """Returns the first position of each image, and its captions of all rows; raises `DataError` for a row without one."""
    [assigned] = encoded.tables
    table, column = assigned.table, assigned.column("caption")
    texts = [list(texts_of(value)) for value in table.values(column)]
    captions: dict[str, tuple[int, list[str]]] = {}
    for position in range(len(encoded)):
        row, name = encoded.row(position), encoded.file_name(position)
        if not texts[row]:
            raise DataError(f"{table.place(row)}: column {quoted(column)} is empty, the caption of {name}.")
        captions.setdefault(name, (position, []))[1].extend(texts[row])
    return list(captions.values())


def _of_classes(images: ImageSet, templates: Sequence[str]) -> CaptionedImages:
    if images.labels is None:
        raise ConfigError(f"the set '{images.name}' has no classes, whose names would be the captions.")
    # folder names have underscores for spaces, WordNet classes list synonyms
    names = [name.replace("_", " ").partition(",")[0] for name in images.classes]
    texts: dict[str, int] = {}
    prompts = tuple(_numbers([each.replace("{}", name) for each in templates], texts) for name in names)
    return CaptionedImages(images, tuple(texts), [prompts[label] for label in images.labels.tolist()], prompts)


def _numbers(captions: Sequence[str], texts: dict[str, int]) -> tuple[int, ...]:
    """Returns the numbers of captions among ``texts``, each once; new ones are added."""
    return tuple(dict.fromkeys(texts.setdefault(each, len(texts)) for each in captions))
