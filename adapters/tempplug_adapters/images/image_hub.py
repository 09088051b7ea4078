"""Image data sets of the Hugging Face hub, at pinned revisions.

This module must not know folders of data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import torch

from tempplug.errors import DataError, MissingDependencyError
from tempplug_adapters.images.encoded_set import EncodedSet


@dataclass(frozen=True)
class HubImages:
    """Where the hub has a data set.

    Attributes:
        repository: of the data set.
        revision: the commit of that repository.
        image: the column of images.
        label: the column of class numbers.
        test: the split that serves as test set.
    """

    repository: str
    revision: str
    image: str
    label: str
    test: str


HUB: Final = {
    "cifar10": HubImages("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2", "img", "label", "test"),
    "cifar100": HubImages("uoft-cs/cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", "img", "fine_label", "test"),
    "tiny-imagenet": HubImages("zh-plus/tiny-imagenet", "5a77092c28e51558c5586e9c5eb71a7e17a5e43f", "image", "label", "valid"),
    "imagenet": HubImages("ILSVRC/imagenet-1k", "49e2ee26f3810fb5a7536bbf732a7b07389a47b5", "image", "label", "validation"),
}
"""By the names of `image_data.DATASETS`."""


def load_from_hub(dataset: str, split: str, name: str) -> EncodedSet:
    """Returns a data set of the hub, which is downloaded where it is not there yet.

    Args:
        dataset: of `HUB`.
        split: ``train`` or ``test``.
        name: of the set.

    Raises:
        MissingDependencyError: the library ``datasets`` is not installed.
        DataError: it cannot be loaded, or has other columns.
    """
    source = HUB[dataset]
    remedy = "Pass the folder that holds it as data_dir (--data-dir or TEMPPLUG_DATA)."
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            f"{dataset} of the Hugging Face hub is read with datasets, which is not installed: pip install datasets. {remedy}"
        ) from error
    try:
        rows = datasets.load_dataset(
            source.repository, revision=source.revision, split=source.test if split == "test" else split
        )
        missing = {source.image, source.label} - set(rows.features)
        if missing:
            raise KeyError(f"it has no column {', '.join(sorted(missing))}")
        classes = tuple(str(word) for word in rows.features[source.label].names)
        labels = torch.tensor(list(rows[source.label]), dtype=torch.int64)
        rows = rows.cast_column(source.image, datasets.Image(decode=False))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        offline = " HF_HUB_OFFLINE is set, which allows no download." if os.environ.get("HF_HUB_OFFLINE") else ""
        raise DataError(
            f"{source.repository} at {source.revision} cannot be loaded from the Hugging Face hub: {error}.{offline} {remedy}"
        ) from error
    return EncodedSet(_Rows(rows, source.image, source.repository), labels, classes, name)


@dataclass(frozen=True)
class _Rows:
    rows: Any
    column: str
    repository: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, position: int) -> bytes:
        content: bytes | None = self.rows[position][self.column]["bytes"]
        if content is None:
            raise DataError(f"{self.file_name(position)} holds no bytes.")
        return content

    def file_name(self, position: int) -> str:
        return f"row {position} of {self.repository}"
