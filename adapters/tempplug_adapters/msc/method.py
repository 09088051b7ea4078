"""MSC as a method: anomaly detection with a pretrained network, trained on normal images of one class.

Source: Reiss & Hoshen 2023: an image's score is the sum of its squared distances to the two nearest normal training images.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.images import representations
from tempplug_adapters.images.augmentation import UNCHANGED, create_augmentation
from tempplug_adapters.images.backbones import Backbone, is_own
from tempplug_adapters.images.image_data import (
    DEFAULT_SIZE,
    Split,
    as_images,
    files_of,
    find_images,
    load_images,
    notes_of,
    tables_of,
)
from tempplug_adapters.images.image_set import ImageFiles, ImageSet
from tempplug_adapters.images.trained_backbone import how_to_open, load_backbone as load_trained, save_backbone
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.msc.model import MSC, centre_of, default_frozen_blocks, freeze_blocks, load_backbone
from tempplug_adapters.msc.one_class import OneClassData, one_class
from tempplug_adapters.msc.recipe import AUGMENTATION, MOBILENET, MSCRecipe
from tempplug_adapters.quoting import code
from tempplug_adapters.storage.fingerprint import grouped
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.checkpoints import weights_checksum
from tempplug_adapters.training.method import FOLDER, Card, Inputs, Method, Restored, Run, Source

NORMAL_FILE: Final = "normal.pt"
"""In the output folder: representations of the normal training images, [N, F], which scores are measured from."""


@dataclass(frozen=True)
class Anomalies:
    """The data of MSC; ``len`` is the number of normal training images.

    Attributes:
        images: images of one normal class, and a test set. Labels are not used for training.
        backbone: the pretrained network, which is not changed. If it was trained with labels of the test classes, results are
            biased.
    """

    images: OneClassData
    backbone: Backbone

    def __len__(self) -> int:
        return len(self.images.train)


class MSCModule(MSC):
    """Maps images to the loss; views are computed on the images' device.

    Attributes:
        augment: maps images to one view of each.
        roc_auc_before: ROC-AUC of the pretrained network, × 100; None before `MSCMethod.prepare`. Part of the state.
    """

    def __init__(self, recipe: MSCRecipe, backbone: Backbone, loss_fn: ContrastiveLoss) -> None:
        super().__init__(backbone, torch.zeros(backbone.dimension), loss_fn, angular=recipe.angular)
        self.augment = create_augmentation(AUGMENTATION, recipe.image_size)
        self.roc_auc_before: float | None = None
        self.normal: Tensor | None = None  # representations of the normal images once the training has ended

    @property
    def encoder(self) -> nn.Module:
        """The network that is saved."""
        return self.backbone

    def forward(self, images: Tensor, index: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the loss in nats, [], of images [B, 3, H, W] bytes at positions ``index`` [B]."""
        images = images / 255
        return super().forward(self.augment(images), self.augment(images), index=index)

    def get_extra_state(self) -> dict[str, float | None]:
        """Returns the state that is not a tensor."""
        return {"roc_auc_before": self.roc_auc_before}

    def set_extra_state(self, state: dict[str, float | None]) -> None:
        """Restores the state that is not a tensor."""
        self.roc_auc_before = state["roc_auc_before"]


class MSCMethod(Method[MSCRecipe, Anomalies]):
    """All views of normal images are anchors; the negatives of one are both views of all other images.

    Source: Reiss & Hoshen 2023, Mean-Shifted Contrastive Loss for Anomaly Detection.
    """

    def load(self, recipe: MSCRecipe, source: Source) -> Anomalies:
        """Returns the images of a labelled data set, one class being normal, and the network with its pretrained weights.

        Training images without classes are all normal. They are measured if ``normal_class`` names a class of the test images.
        """
        backbone = partial(load_backbone, recipe.backbone, recipe.weights, source.data_dir, recipe.image_size)
        return self._with(backbone, recipe, source)

    def evaluation_data(self, recipe: MSCRecipe, module: Any, source: Source) -> Anomalies:
        """Returns the same images; the pretrained network is not needed."""
        return self._with(lambda: module.backbone, recipe, source)

    def _with(self, backbone: Callable[[], Backbone], recipe: MSCRecipe, source: Source) -> Anomalies:
        train, normal = _images(recipe, source, "train"), recipe.normal_class
        if normal is None and train.labels is not None:
            raise ConfigError(
                f"normal_class is not given: name the class of '{train.name}' that is normal, by its name or its number, or "
                "give a folder of normal images without classes."
            )
        test = None if normal is None else _images(recipe, source, "test")
        numbers = {"train_images": recipe.train_images, "test_images": recipe.test_images}
        return Anomalies(one_class(train, test, normal or "", **numbers), backbone())

    def files(self, recipe: MSCRecipe, source: Source, data: Anomalies) -> dict[str, Path | str]:
        """Returns the files of the images of both splits."""
        files: dict[str, Path | str] = {}
        parts: dict[Split, ImageSet | None] = {"train": data.images.train, "test": data.images.test}
        for split, images in parts.items():
            if images is not None:
                files |= grouped(f"dataset {split}", files_of(images, source.dataset, split, source.data_dir))
        return files

    def describe(self, data: Anomalies) -> str:
        """Returns the numbers of images."""
        images, notes = data.images, notes_of(data.images.train)
        if images.test is None:
            return f"{len(data)} training images without classes, all normal; no test, which --normal-class begins" + notes
        return (
            f"{len(data)} training images of class {images.normal_class}, {len(images.test)} test images of which "
            f"{int(images.anomalous.sum())} are anomalies{notes}"
        )

    def tables(self, data: Anomalies) -> Sequence[Assigned]:
        """Returns the table of the training images, if there is one."""
        return tables_of(data.images.train)

    def known(self, recipe: MSCRecipe, data: Anomalies) -> dict[str, Any]:
        """Returns the number of images and the width of the representations."""
        return {"size": len(data), "dimension": data.backbone.dimension}

    def origin(self, recipe: MSCRecipe, data: Anomalies) -> dict[str, Any]:
        """Returns a checksum of the initial weights, because the weights behind a name may change."""
        return {"initial_weights": weights_checksum(data.backbone.state_dict())}

    def build(self, recipe: MSCRecipe, data: Anomalies, loss: Any) -> MSCModule:
        """Returns a copy of the network with its first blocks frozen."""
        backbone = copy.deepcopy(data.backbone)
        frozen = default_frozen_blocks(backbone.module) if recipe.frozen_blocks is None else recipe.frozen_blocks
        freeze_blocks(backbone, frozen)
        # Channels last is how convolutions run fastest; the values do not depend on it.
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return MSCModule(recipe, backbone, loss)

    def prepare(self, recipe: MSCRecipe, module: Any, data: Anomalies, run: Run) -> None:
        """Computes the centre of the normal class and the ROC-AUC of the pretrained network."""
        normal, module.roc_auc_before = self._measured(recipe, module, data, run)
        module.centre.copy_(centre_of(normal, unit=recipe.angular))

    def collate(self, recipe: MSCRecipe, data: Anomalies, index: Tensor) -> dict[str, Any]:
        """Returns the images as they are."""
        return {"images": data.images.train.batch(index), "index": index}

    def evaluate(self, recipe: MSCRecipe, module: Any, data: Anomalies, run: Run) -> dict[str, float]:
        """Returns the ROC-AUC × 100 of the network, that of the pretrained one, and by how much the first is higher."""
        if data.images.test is None:
            return {}
        if run.untrained:
            return {"roc_auc": module.roc_auc_before}
        before, (normal, after) = module.roc_auc_before, self._measured(recipe, module, data, run)
        module.normal = normal if run.final else None
        return {"roc_auc": after, "roc_auc_before": before, "gain": after - before}

    def _measured(self, recipe: MSCRecipe, module: Any, data: Anomalies, run: Run) -> tuple[Tensor, float]:
        """Returns the representations of the normal images and the ROC-AUC, NaN without a test."""
        images, size = data.images, recipe.image_size
        share = len(images.train) / (len(images.train) + len(images.anomalous))
        normal = represent(module.backbone, images.train, size, progress=lambda part: run.progress(share * part))
        if images.test is None:
            return normal, math.nan
        tested = represent(module.backbone, images.test, size, progress=lambda part: run.progress(share + (1 - share) * part))
        return normal, roc_auc(anomaly_scores(normal, tested, recipe.neighbours), images.anomalous)

    def save(self, recipe: MSCRecipe, module: Any, data: Anomalies, output_dir: Path) -> None:
        """Writes the network, and the representations of the normal images."""
        save_backbone(module.backbone, output_dir, recipe.image_size)
        if module.normal is None:
            module.normal = represent(module.backbone, data.images.train, recipe.image_size)
        write_tensors(output_dir / NORMAL_FILE, module.normal)

    def kept(self, recipe: MSCRecipe, module: Any, data: Anomalies) -> dict[str, Any]:
        """Returns what happens to images, the normal class among the others, and the ROC-AUC before the training."""
        mean, std = (getattr(module.backbone, name).flatten().tolist() for name in ("mean", "std"))
        return {
            "preprocessing": {"range": [0, 1], "image_size": recipe.image_size, "mean": mean, "std": std, "unit_length": True},
            "labels": [] if data.images.test is None else list(data.images.test.classes),
            "normal": data.images.normal_class,
            "roc_auc_before": module.roc_auc_before,
        }

    def named_module(self, recipe: MSCRecipe) -> str | None:
        """Returns the backbone if it is one of the user."""
        name: str = recipe.backbone
        return name if is_own(name) else None

    def restore(self, recipe: MSCRecipe, kept: Mapping[str, Any], folder: Path) -> Restored:
        """Returns the network of the folder with the representations of the normal images."""
        backbone = load_trained(folder, recipe.backbone).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            normal = read_tensors(folder / NORMAL_FILE)
            check_finite_rows(normal, "the representations")
        except (DataError, NonFiniteError) as error:
            raise DataError(f"{folder / NORMAL_FILE} cannot be read: {error}") from error
        return Restored(backbone, backbone=backbone, normal=normal, roc_auc_before=kept["roc_auc_before"])

    def read(self, recipe: MSCRecipe, source: Source, split: Any) -> Inputs:
        """Returns image files, or a split of a data set."""
        size = max(recipe.image_size, DEFAULT_SIZE)
        return Inputs(*find_images(source.dataset, size, lambda: _images(recipe, source, split)))

    def embed(self, recipe: MSCRecipe, module: Any, given: Any) -> Tensor:
        """Returns the representations of images, of length one, [n, F]."""
        return represent(module.backbone, as_images(given, max(recipe.image_size, DEFAULT_SIZE)), recipe.image_size)

    def score(self, recipe: MSCRecipe, module: Any, given: Any) -> Tensor:
        """Returns how anomalous images are, [n]; those of normal images are near 0."""
        return anomaly_scores(module.normal, self.embed(recipe, module, given), recipe.neighbours)

    def normal_scores(self, recipe: MSCRecipe, module: Any) -> Tensor:
        """Returns the score of each normal training image among the others, [N]: no image is its own neighbour."""
        # the nearest one of all is the image itself, at distance 0
        return anomaly_scores(module.normal, module.normal, recipe.neighbours + 1)

    def next_command(self, recipe: MSCRecipe, data: Anomalies, folder: str, dataset: str) -> str:
        """Returns the command that scores images."""
        return f"tempplug score {folder} {dataset} --output scores.csv"

    def card(self, recipe: MSCRecipe, module: Any, data: Anomalies, results: Mapping[str, Any]) -> Card:
        """Returns the text on anomaly detectors."""
        name = recipe.backbone if ":" in recipe.backbone else f"transformers:{recipe.backbone}"
        return Card(
            about=f"A detector of images that are not {code(data.images.normal_class)}: the further an image is from those of "
            "the training, the more anomalous it is.",
            example='["image.jpg"]',
            use="The anomaly score of each image, a threshold and a picture of the highest:\n\n"
            f"```bash\ntempplug score {FOLDER} IMAGES\n```\n\n{how_to_open(name, module.backbone)}",
            base=recipe.backbone,
            metadata={
                "pipeline_tag": "image-feature-extraction",
                "tags": ["anomaly-detection"],
                **({"base_model": None} if recipe.backbone == MOBILENET else {}),  # no name on the hub
            },
        )


def _images(recipe: MSCRecipe, source: Source, split: Split) -> ImageSet:
    """Returns a split; image files, which are decoded for each batch, in no smaller size than the network's input."""
    images, size = load_images(source.dataset, split, source.data_dir, columns=recipe.columns), recipe.image_size
    return ImageFiles(images.encoded, size) if isinstance(images, ImageFiles) and images.size < size else images


def represent(backbone: nn.Module, images: ImageSet, size: int, *, batch_size: int = 16, progress: Progress = silent) -> Tensor:
    """Returns the representations of all images, of length one, [N, F] on the CPU.

    An image is seen as its middle square, resized bicubically. The authors resize its shorter side to 256 pixels, bilinearly,
    and take the middle 224 x 224.

    Args:
        backbone: images to representations.
        images: in the order of the result, at least one.
        size: side to which their middle squares are resized, bicubically.
        batch_size: images at once; small batches stay in a processor's cache.
        progress: called with the fraction done.
    """
    middle_square = create_augmentation(UNCHANGED, size)

    def seen(batch: Tensor) -> Tensor:
        # Channels last is how convolutions run fastest; the values do not depend on it.
        square: Tensor = middle_square(batch)
        return square.contiguous(memory_format=torch.channels_last)

    found = representations.represent(backbone, images, batch_size=batch_size, augmentation=seen, progress=progress)
    return representations.unit_rows(found)


def anomaly_scores(train: Tensor, test: Tensor, neighbours: int = 2) -> Tensor:
    """Returns how anomalous each test row is: the sum of its squared distances to the nearest training rows, [T].

    Args:
        train: [N, F] representations of normal images.
        test: [T, F], T at least 1.
        neighbours: how many, from 1 to N.

    Raises:
        ConfigError: there are fewer training rows than neighbours.
        DataError: a value is not finite.

    >>> anomaly_scores(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([[3.0]]))
    tensor([5.])
    """
    if not 1 <= neighbours <= len(train):
        raise ConfigError(f"neighbours={neighbours} must be from 1 to {len(train)}, the normal training images.")
    if not (train.isfinite().all() and test.isfinite().all()):
        raise DataError("representations must be finite, but hold NaN or infinite values: training may have diverged.")
    search = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(train.cpu().numpy())
    return torch.from_numpy(search.kneighbors(test.cpu().numpy())[0] ** 2).sum(1).to(test)


def roc_auc(scores: Tensor, anomalous: Tensor) -> float:
    """Returns the area under the ROC curve × 100 of scores [T] for ``anomalous`` [T], some true and some false."""
    return 100 * float(roc_auc_score(anomalous.cpu().numpy(), scores.cpu().numpy()))
