"""The evaluations of a trained backbone by name: two sets of images in, numbers and plots out.

Classifiers learn from the training set and predict the test set, which must differ. Representations of each set are computed
once, on first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tempplug import metrics
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.long_tail import head_mid_tail, long_tail_part
from tempplug_adapters.images.representations import check_labels, check_representations, represent
from tempplug_adapters.vision.evaluation.classifiers import (
    accuracy,
    accuracy_within,
    class_accuracies,
    few_label_accuracies,
    few_shot_indices,
    fit_linear_probe,
    knn_votes,
    linear_scores,
    long_tail_score,
    svc_probe,
)
from tempplug_adapters.vision.evaluation.plots import (
    draw_embedding_plot,
    draw_similarity_histogram,
    embed_in_plane,
    similarity_histogram,
)
from tempplug_adapters.vision.evaluation.settings import PROBES, EvaluationSettings, LinearProbeSettings

logger = logging.getLogger(__name__)

NEIGHBOURS = (1, 10)
"""Numbers of neighbours that vote in ``long-tail``."""
PLOTTED_IMAGES = 2000
PLOTTED_CLASSES = 20
VALIDATED_IMAGES = 10_000
"""Most images of the validation by nearest neighbours, a tenth of the training images, by which temperatures are chosen."""


class Evaluation:
    """The evaluations of a backbone, with the sets of images that they share.

    Args:
        backbone: [B, 3, H, W] in [0, 1] to [B, F]; moved to ``device``.
        train: labelled images that classifiers learn from.
        test: labelled images of the same classes that are predicted.
        settings: of the evaluations.
        device: of all computations.
        progress: called with the fraction of a stage that is done, and the name of the stage.
        held_out: further labelled images that ``long-tail`` predicts for validation, or None.

    Raises:
        ConfigError: both sets are the same object.
        DataError: labels are missing, or the classes differ.
    """

    def __init__(
        self,
        backbone: nn.Module,
        train: ImageSet,
        test: ImageSet,
        settings: EvaluationSettings,
        device: torch.device,
        progress: Callable[[float, str], None] = lambda fraction, stage: None,
        held_out: ImageSet | None = None,
    ) -> None:
        if train is test:
            raise ConfigError(f"the set '{test.name}' must not be both the training and the test set: pass another test set.")
        if train.labels is None or test.labels is None:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must both have labels for an evaluation.")
        if train.classes != test.classes:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must have the same classes, in the same order.")
        self.backbone, self.train, self.test, self.settings, self.device = backbone, train, test, settings, device
        self.bank_labels, self.query_labels = train.labels.to(device), test.labels.to(device)
        self.progress, self.held_out = progress, held_out

    def check(self, name: str) -> None:
        """Raises TempplugError, before images are processed, if the labels do not allow the evaluation ``name``."""
        train, test, learned = self.train, self.test, self.bank_labels
        if name == "top-5" and len(train.classes) < 6:
            raise DataError(f"the set '{train.name}' has {len(train.classes)} classes: 'top-5' needs more than five.")
        if name in ("svc-probe", "few-labels") and len(torch.unique(learned)) < 2:
            raise DataError(f"the set '{train.name}' has images of one class only, but a classifier needs two classes.")
        tested = torch.bincount(self.query_labels, minlength=len(test.classes))
        if name == "long-tail":
            counts = torch.bincount(learned.cpu()[self.long_tail[0]], minlength=len(train.classes))
            head_mid_tail(counts, head_above=self.settings.head_above, tail_below=self.settings.tail_below)
            if not bool((tested > 0).all()):
                empty = test.classes[int((tested == 0).nonzero()[0, 0])]
                raise DataError(f"the set '{test.name}' has no image of class '{empty}': 'long-tail' measures every class.")
        if name == "report" and (int((tested > 0).sum()) < 2 or int(tested.max()) < 2):
            raise DataError(
                f"the set '{test.name}' has {len(test)} images of {int((tested > 0).sum())} classes: 'report' needs two images "
                "of one class, and images of another."
            )

    def measure(self, name: str) -> dict[str, Any]:
        """Returns the numbers of one of `settings.EVALUATIONS`, and the settings used."""
        return MEASURES[name](self)

    @cached_property
    def long_tail(self) -> tuple[Tensor, int]:
        """Positions of the long-tailed bank among the training images, and the size of its largest class."""
        given, labels = self.settings, self.bank_labels.cpu()
        if given.imbalance_ratio is None:
            return torch.arange(len(labels)), int(torch.bincount(labels).max())
        drawn = (given.imbalance_ratio, given.largest_class, given.split_seed, given.held_out)
        return long_tail_part(labels, self.train.classes, *drawn)

    @cached_property
    def bank(self) -> Tensor:
        """Representations of the training images, [N, F]."""
        return self._represent(self.train, "train images")

    @cached_property
    def queries(self) -> Tensor:
        """Representations of the test images, [M, F]."""
        return self._represent(self.test, "test images")

    @cached_property
    def votes(self) -> Tensor:
        """Votes of the nearest training images for the classes of the test images, [M, C]."""
        given, classes = self.settings, len(self.train.classes)
        return knn_votes(
            self.bank, self.bank_labels, self.queries, k=given.neighbours, temperature=given.vote_temperature, classes=classes
        )

    @property
    def probe(self) -> LinearProbeSettings:
        """The settings of the linear probe."""
        return replace(PROBES[self.settings.probe], seed=self.settings.seed)

    @cached_property
    def linear(self) -> Tensor:
        """Scores of the test images by the linear probe, [M, C]."""
        settings = self.probe
        model = fit_linear_probe(
            self.bank,
            self.bank_labels,
            settings,
            classes=len(self.train.classes),
            progress=lambda epoch, loss: self.progress(epoch / settings.epochs, "linear probe"),
        )
        return linear_scores(model, self.bank, self.queries)

    @cached_property
    def viewed(self) -> Tensor:
        """Positions of the test images used for views, [M] or as many as the settings allow, drawn once."""
        if self.settings.view_images is None or self.settings.view_images >= len(self.test):
            return torch.arange(len(self.test))
        generator = torch.Generator().manual_seed(self.settings.split_seed)
        return torch.randperm(len(self.test), generator=generator)[: self.settings.view_images]

    @cached_property
    def views(self) -> tuple[Tensor, Tensor]:
        """Representations of two random views of each test image that is `viewed`, [M, F] each."""
        images = self.test.subset(self.viewed)
        side = self.settings.image_size or int(images.batch(torch.tensor([0])).shape[-1])
        augmentation = create_augmentation(self.settings.augmentation, side)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            return self._represent(images, "view a", augmentation), self._represent(images, "view b", augmentation)

    def _represent(self, images: ImageSet, name: str, augmentation: nn.Module | None = None) -> Tensor:
        rows = represent(
            self.backbone,
            images,
            batch_size=self.settings.batch_size,
            # views are cropped from the full image and already have the right size
            size=None if augmentation else self.settings.image_size,
            augmentation=augmentation,
            device=self.device,
            progress=lambda fraction: self.progress(fraction, name),
        )
        return rows.to(self.device)

    def draw(self, folder: Path) -> list[Path]:
        """Writes the drawings of the test images' representations and returns their files.

        ``similarity_histogram.svg`` compares the two views of the images; ``embedding_plot.svg`` shows at most 2,000 images of
        the first 20 classes.
        """
        histogram, plot = folder / "similarity_histogram.svg", folder / "embedding_plot.svg"
        title = f"Similarity of pairs: {self.test.name}, views by {self.settings.augmentation}"
        labels = self.query_labels[self.viewed.to(self.device)]
        draw_similarity_histogram(similarity_histogram(*self.views, labels), histogram, title)
        shown = torch.unique(self.query_labels)[:PLOTTED_CLASSES]
        candidates = torch.isin(self.query_labels, shown).nonzero()[:, 0]
        order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(self.settings.seed))
        chosen = candidates[order[:PLOTTED_IMAGES].to(self.device)]
        method = self.settings.plot_method
        title = f"{self.test.name}: {len(chosen)} images of {len(shown)} classes, {method}"
        points = embed_in_plane(self.queries[chosen], method=method)
        draw_embedding_plot(points, self.query_labels[chosen], self.test.classes, plot, title)
        return [histogram, plot]


def _knn(it: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {"accuracy": accuracy(it.query_labels, it.votes.argmax(dim=1))}
    if len(it.bank) >= 10:
        found |= _knn_validation(it)
    return found | {"k": min(it.settings.neighbours, len(it.bank)), "temperature": it.settings.vote_temperature}


def _knn_validation(it: Evaluation) -> dict[str, Any]:
    """Returns the accuracy of the same vote on a tenth of the training images, the others being the bank."""
    # At most as many neighbours vote as a class has images. If nearly the whole bank votes, its largest class wins, which
    # is the rarest in the tenth: even useful representations would have an accuracy of 0 %.
    chosen = torch.zeros(len(it.bank), dtype=torch.bool)
    order = torch.randperm(len(it.bank), generator=torch.Generator().manual_seed(it.settings.split_seed))
    chosen[order[: min(VALIDATED_IMAGES, len(order) // 10)]] = True
    chosen = chosen.to(it.device)
    bank, classes, wanted = it.bank[~chosen], len(it.train.classes), it.settings.neighbours
    k = min(wanted, max(1, len(bank) // classes))
    found: dict[str, Any] = {}
    if k < wanted:
        found["validation_k"] = k
        logger.warning(
            f"knn validation of '{it.train.name}' has a bank of {len(bank)} images of {classes} classes, too few for "
            f"k={wanted}: k={k} is used there."
        )
    temperature = it.settings.vote_temperature
    votes = knn_votes(bank, it.bank_labels[~chosen], it.bank[chosen], k=k, temperature=temperature, classes=classes)
    return {"validation": accuracy(it.bank_labels[chosen], votes.argmax(dim=1)), **found}


def _long_tail(it: Evaluation) -> dict[str, Any]:
    given, (part, largest) = it.settings, it.long_tail
    chosen = part.to(it.device)
    groups = {"head_above": given.head_above, "tail_below": given.tail_below}
    bank, bank_labels = it.bank[chosen], it.bank_labels[chosen]
    scores = long_tail_evaluation(bank, bank_labels, it.queries, it.query_labels, **groups)
    validation = {}
    if it.held_out is not None and it.held_out.labels is not None:
        rows, labels = it._represent(it.held_out, "held-out images"), it.held_out.labels.to(it.device)
        for k in NEIGHBOURS:
            voted = knn_votes(bank, bank_labels, rows, k=k).argmax(dim=1)
            validation[f"validation knn@{k}"] = class_accuracies(labels, voted, len(it.train.classes)).mean().item()
    draw = {"imbalance_ratio": given.imbalance_ratio, "largest_class": largest, "split_seed": given.split_seed}
    return {"bank": len(chosen), **draw, **validation, **scores}


def long_tail_evaluation(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, query_labels: Tensor, **groups: int | None
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the temperature-schedule paper: ``knn@1``, ``knn@10``, ``few-shot`` and ``long-tail``.

    ``knn@k`` is the majority of `knn_votes` with the whole bank. ``few-shot`` (FS LP) and ``long-tail`` (LT LP) are linear
    machines trained on as many images of each class as the smallest has, drawn from the bank, and on all of it.

    Args:
        bank: [N, F] raw representations of the long-tailed training set.
        bank_labels: [N] their classes, from 0, at least one image of each.
        queries: [M, F] raw representations of the test set, on the device of ``bank``.
        query_labels: [M] their classes, at least one image of each.
        **groups: thresholds of `long_tail_score`.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: a class is missing on one side, the thresholds cross, or bank and queries are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Kukleva et al. 2023. They represent the CIFAR bank by randomly cropped and flipped images, as `represent` does with
    an ``augmentation``. For ImageNet-100-LT they fit FS LP on a fixed list of 12 images a class, most of which are not in the
    long-tailed set; with such a list call `svc_probe` and `long_tail_score`.
    """
    classes = max(int(bank_labels.max()) + 1, check_labels(query_labels, queries, "query_labels"))
    counts = torch.bincount(bank_labels.cpu(), minlength=classes)
    if not bool((counts > 0).all()):
        missing = int((counts == 0).nonzero()[0, 0])
        raise ConfigError(f"bank_labels hold no image of class {missing} of {classes}: it could never be predicted.")
    shots = few_shot_indices(bank_labels, int(counts.min()))
    predicted = {f"knn@{k}": knn_votes(bank, bank_labels, queries, k=k).argmax(dim=1) for k in NEIGHBOURS}
    predicted["few-shot"] = svc_probe(bank[shots], bank_labels[shots], queries)
    predicted["long-tail"] = svc_probe(bank, bank_labels, queries)
    return {name: long_tail_score(query_labels, found, counts, **groups) for name, found in predicted.items()}


def _report(it: Evaluation) -> dict[str, Any]:
    """Returns the geometry of unaugmented images, and the alignment of two views of them."""
    for rows, name in ((it.views[0], "views"), (it.views[1], "views"), (it.queries, "queries")):
        check_representations(rows, name)
    found = {
        "alignment": metrics.alignment(*it.views),
        "uniformity": metrics.uniformity(it.queries),
        "tolerance": metrics.tolerance(it.queries, it.query_labels),
        "interclass_uniformity": metrics.interclass_uniformity(it.queries, it.query_labels),
    }
    return {**{name: value.item() for name, value in found.items()}, "views": it.settings.augmentation}


MEASURES: dict[str, Callable[[Evaluation], dict[str, Any]]] = {
    "knn": _knn,
    "linear-probe": lambda it: {"accuracy": accuracy(it.query_labels, it.linear.argmax(dim=1)), **asdict(it.probe)},
    "top-5": lambda it: {
        name: accuracy_within(it.query_labels, scores, 5)
        for name, scores in (("knn top-5", it.votes), ("linear top-5", it.linear))
    },
    "svc-probe": lambda it: {"accuracy": accuracy(it.query_labels, svc_probe(it.bank, it.bank_labels, it.queries))},
    "few-labels": lambda it: {
        **few_label_accuracies(it.bank, it.bank_labels, it.queries, it.query_labels, seed=it.settings.seed)
    },
    "long-tail": _long_tail,
    "report": _report,
}
"""By the names of `settings.EVALUATIONS`."""
