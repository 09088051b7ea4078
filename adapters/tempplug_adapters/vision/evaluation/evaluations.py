"""The evaluations of a trained backbone by name: from two sets of images to numbers and drawings.

What is learned from is the training set, what is asked about is the test set, and the two must not be one. Each set is
represented once, when first needed. The protocols are in the modules beside this one, which know neither images nor models; it
must not know the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from tempplug import metrics
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.images.long_tail import head_mid_tail, long_tail_part
from tempplug_adapters.images.representations import represent
from tempplug_adapters.vision.evaluation.accuracy import accuracy, accuracy_within, class_accuracies
from tempplug_adapters.vision.evaluation.embedding_plot import embedding_plot
from tempplug_adapters.vision.evaluation.few_labels import few_label_accuracies
from tempplug_adapters.vision.evaluation.knn import knn_accuracy, majority_knn, weighted_votes
from tempplug_adapters.vision.evaluation.linear_probe import fit_linear_probe, linear_scores
from tempplug_adapters.vision.evaluation.long_tail import NEIGHBOURS, long_tail_evaluation
from tempplug_adapters.vision.evaluation.report import representation_report
from tempplug_adapters.vision.evaluation.settings import PROBES, EvaluationSettings
from tempplug_adapters.vision.evaluation.similarity_histogram import draw_similarity_histogram, similarity_histogram
from tempplug_adapters.vision.evaluation.svc_probe import svc_probe

logger = logging.getLogger(__name__)

PLOTTED_IMAGES = 2000
PLOTTED_CLASSES = 20
VALIDATED_IMAGES = 10_000
"""At most: a tenth of the training images asks the others for their classes, which is what temperatures are chosen by."""


class Evaluation:
    """A backbone, what it is measured on, and how.

    Args:
        backbone: [B, 3, H, W] in [0, 1] to [B, F]; moved to ``device``.
        train: labelled images to learn from.
        test: labelled images of the same classes to be asked about.
        settings: of the evaluations.
        device: on which everything runs.
        progress: called with what is being done and the fraction done; None shows a bar.
        held_out: further labelled images, which ``long-tail`` also asks about, to choose by; None where there are none.

    Raises:
        ConfigError: both sets are one.
        DataError: labels are missing, or the classes are not the same.
    """

    def __init__(
        self,
        backbone: nn.Module,
        train: ImageSet,
        test: ImageSet,
        settings: EvaluationSettings,
        device: torch.device,
        progress: Callable[[str, float], None] | None = None,
        held_out: ImageSet | None = None,
    ) -> None:
        if train is test:
            raise ConfigError(f"the set '{test.name}' must not be both learned from and asked about: pass a test set.")
        if train.labels is None or test.labels is None:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must both have labels to be measured with.")
        if train.classes != test.classes:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must have the same classes, in the same order.")
        self.backbone, self.train, self.test, self.settings, self.device = backbone, train, test, settings, device
        self.bank_labels, self.query_labels = train.labels.to(device), test.labels.to(device)
        self.told = _Bar() if progress is None else progress
        self.held_out = held_out

    def check(self, name: str) -> None:
        """Makes sure that the labels allow an evaluation, which takes no time, before images are represented.

        Args:
            name: one of `settings.EVALUATIONS`.

        Raises:
            TempplugError: they do not.
        """
        if name in _NEEDS:
            _NEEDS[name](self)

    def measure(self, name: str) -> dict[str, Any]:
        """Returns the numbers of one evaluation, and what they were measured with.

        Args:
            name: one of `settings.EVALUATIONS`.

        Raises:
            TempplugError: the representations or the sets do not allow it.
        """
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
    def linear(self) -> Tensor:
        """Scores of the test images by the linear probe, [M, C]."""
        settings = replace(PROBES[self.settings.probe], seed=self.settings.seed)
        model = fit_linear_probe(
            self.bank,
            self.bank_labels,
            settings,
            classes=len(self.train.classes),
            progress=lambda epoch, loss: self.told("linear probe", epoch / settings.epochs),
        )
        return linear_scores(model, self.bank, self.queries)

    @cached_property
    def viewed(self) -> Tensor:
        """Positions of the test images of which views are made, [M] or as many as the settings allow, drawn once for all."""
        if self.settings.view_images is None or self.settings.view_images >= len(self.test):
            return torch.arange(len(self.test))
        generator = torch.Generator().manual_seed(self.settings.split_seed)
        return torch.randperm(len(self.test), generator=generator)[: self.settings.view_images]

    @cached_property
    def views(self) -> tuple[Tensor, Tensor]:
        """Representations of two random views of each test image that is `viewed`, [M, F] each."""
        images = self.test.subset(self.viewed)
        side = self.settings.image_size or int(images.batch(torch.tensor([0])).shape[-1])
        augmentation = create_augmentation(self.settings.views, side)
        with _seeded(self.settings.seed):
            return self._represent(images, "view a", augmentation), self._represent(images, "view b", augmentation)

    def _represent(self, images: ImageSet, name: str, augmentation: nn.Module | None = None) -> Tensor:
        rows = represent(
            self.backbone,
            images,
            batch_size=self.settings.batch_size,
            # a view has the size already, and is cropped from all that there is
            size=None if augmentation else self.settings.image_size,
            augmentation=augmentation,
            device=self.device,
            progress=lambda fraction: self.told(name, fraction),
        )
        return rows.to(self.device)

    def draw(self, folder: Path) -> list[Path]:
        """Writes the drawings of the test images' representations and returns their files.

        ``similarity_histogram.svg`` compares the two views of all of them; ``embedding_plot.svg`` shows at most 2,000 images of
        the first 20 classes.

        Args:
            folder: made where it is missing.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        histogram, plot = folder / "similarity_histogram.svg", folder / "embedding_plot.svg"
        title = f"Similarity of pairs: {self.test.name}, views by {self.settings.views}"
        labels = self.query_labels[self.viewed.to(self.device)]
        draw_similarity_histogram(similarity_histogram(*self.views, labels), histogram, title)
        shown = torch.unique(self.query_labels)[:PLOTTED_CLASSES]
        candidates = torch.isin(self.query_labels, shown).nonzero()[:, 0]
        order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(self.settings.seed))
        chosen = candidates[order[:PLOTTED_IMAGES].to(self.device)]
        method = self.settings.plot_method
        embedding_plot(
            self.queries[chosen],
            self.query_labels[chosen],
            self.test.classes,
            plot,
            method=method,
            title=f"{self.test.name}: {len(chosen)} images of {len(shown)} classes, {method}",
        )
        return [histogram, plot]


def _knn(it: Evaluation) -> dict[str, Any]:
    k, temperature = it.settings.k, it.settings.vote_temperature
    share = knn_accuracy(it.bank, it.bank_labels, it.queries, it.query_labels, k=k, temperature=temperature)
    validation = {} if len(it.bank) < 10 else _knn_validation(it)
    return {"accuracy": share, **validation, "k": min(k, len(it.bank)), "temperature": temperature}


def _knn_validation(it: Evaluation) -> dict[str, Any]:
    """Returns the accuracy of the same vote on a tenth of the training images, the others being the bank.

    At most as many vote as a class has images there. Where nearly the whole bank votes, the sizes of its classes decide, and
    the largest are those that the tenth has least of: even useful representations are then right in 0 %.
    """
    asked = torch.zeros(len(it.bank), dtype=torch.bool)
    order = torch.randperm(len(it.bank), generator=torch.Generator().manual_seed(it.settings.split_seed))
    asked[order[: min(VALIDATED_IMAGES, len(order) // 10)]] = True
    parts = [part.to(it.device) for part in (~asked, asked)]
    (bank, labels), (rows, truth) = ((it.bank[part], it.bank_labels[part]) for part in parts)
    classes, temperature = len(it.train.classes), it.settings.vote_temperature
    k = min(it.settings.k, max(1, len(bank) // classes))
    told = {}
    if k < it.settings.k:
        told = {"validation_k": k}
        logger.warning(
            "knn validation of '%s' has a bank of %d images of %d classes, too few for k=%d: k=%d is used there.",
            it.train.name,
            len(bank),
            classes,
            it.settings.k,
            k,
        )
    return {"validation": knn_accuracy(bank, labels, rows, truth, k=k, temperature=temperature, classes=classes), **told}


def _linear_probe(it: Evaluation) -> dict[str, Any]:
    settings = replace(PROBES[it.settings.probe], seed=it.settings.seed)
    return {"accuracy": accuracy(it.query_labels, it.linear.argmax(dim=1)), **asdict(settings)}


def _top_five(it: Evaluation) -> dict[str, Any]:
    k, temperature = it.settings.k, it.settings.vote_temperature
    votes = weighted_votes(it.bank, it.bank_labels, it.queries, k=k, temperature=temperature, classes=len(it.train.classes))
    scores = {"knn top-5": votes, "linear top-5": it.linear}
    return {name: accuracy_within(it.query_labels, each, 5) for name, each in scores.items()}


def _few_labels(it: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    found.update(few_label_accuracies(it.bank, it.bank_labels, it.queries, it.query_labels, seed=it.settings.seed))
    return found


def _svc_probe(it: Evaluation) -> dict[str, Any]:
    return {"accuracy": accuracy(it.query_labels, svc_probe(it.bank, it.bank_labels, it.queries))}


def _long_tail(it: Evaluation) -> dict[str, Any]:
    part, largest = it.long_tail
    chosen = part.to(it.device)
    groups = {"head_above": it.settings.head_above, "tail_below": it.settings.tail_below}
    bank, bank_labels = it.bank[chosen], it.bank_labels[chosen]
    scores = long_tail_evaluation(bank, bank_labels, it.queries, it.query_labels, **groups)
    validation = {}
    if it.held_out is not None and it.held_out.labels is not None:
        rows, labels = it._represent(it.held_out, "held-out images"), it.held_out.labels.to(it.device)
        for k in NEIGHBOURS:
            shares = class_accuracies(labels, majority_knn(bank, bank_labels, rows, k=k), len(it.train.classes))
            validation[f"validation knn@{k}"] = shares.mean().item()
    draw = {
        "imbalance_ratio": it.settings.imbalance_ratio,
        "largest_class": largest,
        "split_seed": it.settings.split_seed,
    }
    return {"bank": len(chosen), **draw, **validation, **{name: score.values() for name, score in scores.items()}}


def _report(it: Evaluation) -> dict[str, Any]:
    # The images as they are, but for the alignment, which is about views of them.
    found = {"alignment": metrics.alignment(*it.views).item(), **representation_report(it.queries, None, it.query_labels)}
    return {**found, "views": it.settings.views}


MEASURES: dict[str, Callable[[Evaluation], dict[str, Any]]] = {
    "knn": _knn,
    "linear-probe": _linear_probe,
    "top-5": _top_five,
    "svc-probe": _svc_probe,
    "few-labels": _few_labels,
    "long-tail": _long_tail,
    "report": _report,
}
"""By the names of `settings.EVALUATIONS`."""


def _long_tail_needs(it: Evaluation) -> None:
    counts = torch.bincount(it.bank_labels.cpu()[it.long_tail[0]], minlength=len(it.train.classes))
    head_mid_tail(counts, head_above=it.settings.head_above, tail_below=it.settings.tail_below)
    asked = torch.bincount(it.query_labels, minlength=len(it.test.classes))
    if not bool((asked > 0).all()):
        empty = it.test.classes[int((asked == 0).nonzero()[0, 0])]
        raise DataError(f"the set '{it.test.name}' has no image of class '{empty}': 'long-tail' measures every class.")


def _top_five_needs(it: Evaluation) -> None:
    if len(it.train.classes) < 6:
        raise DataError(f"the set '{it.train.name}' has {len(it.train.classes)} classes: 'top-5' needs more than five.")


def _svc_probe_needs(it: Evaluation) -> None:
    if len(torch.unique(it.bank_labels)) < 2:
        raise DataError(f"the set '{it.train.name}' has images of one class only: there is nothing to tell apart.")


def _report_needs(it: Evaluation) -> None:
    counts = torch.unique(it.query_labels, return_counts=True)[1]
    if len(counts) < 2 or int(counts.max()) < 2:
        raise DataError(
            f"the set '{it.test.name}' has {len(it.test)} images of {len(counts)} classes: 'report' needs two images of one "
            "class, and images of another."
        )


# What evaluations ask of the labels, said before images are represented, which takes minutes.
_NEEDS = {
    "top-5": _top_five_needs,
    "long-tail": _long_tail_needs,
    "svc-probe": _svc_probe_needs,
    "few-labels": _svc_probe_needs,
    "report": _report_needs,
}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generator for a while; afterwards it goes on where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class _Bar:
    """A bar on a terminal for each thing that is done."""

    def __init__(self) -> None:
        self.bar: Any = None

    def __call__(self, name: str, fraction: float) -> None:
        if self.bar is None:
            self.bar = tqdm(
                total=1, desc=name, disable=None, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
            )
        self.bar.update(fraction - self.bar.n)
        if fraction >= 1:
            self.bar.close()
            self.bar = None
