"""The evaluations of a trained backbone by name: from two sets of images to numbers and drawings.

What is learned from is the training set, what is asked about is the test set, and the two must not be one. Each set is
represented once, when first needed. The protocols are in the modules beside this one, which know neither images nor models; it
must not know the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from tempplug import metrics
from tempplug.errors import ConfigError, DataError, UnknownNameError, nearest
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.image_set import ImageSet
from tempplug_adapters.training.seeds import check_seed
from tempplug_adapters.vision.accuracy import accuracy
from tempplug_adapters.vision.embedding_plot import METHODS, embedding_plot
from tempplug_adapters.vision.evaluation_needs import check_needs, long_tail_bank
from tempplug_adapters.vision.knn import knn_accuracy
from tempplug_adapters.vision.linear_probe import MACL_CIFAR10, lightly_settings, linear_probe_accuracy
from tempplug_adapters.vision.long_tail_evaluation import long_tail_evaluation
from tempplug_adapters.vision.represent import represent
from tempplug_adapters.vision.representation_report import representation_report
from tempplug_adapters.vision.similarity_histogram import draw_similarity_histogram, similarity_histogram
from tempplug_adapters.vision.svc_probe import svc_probe

PROBES = {"lightly": lightly_settings(), "macl-cifar10": MACL_CIFAR10}
PLOTTED_IMAGES = 2000
PLOTTED_CLASSES = 20


@dataclass(frozen=True)
class EvaluationSettings:
    """How representations are measured.

    Attributes:
        k: neighbours of the weighted vote, at least 1.
        vote_temperature: of that vote, greater than 0.
        probe: name of the linear probe's recipe, one of `PROBES`.
        imbalance_ratio: images of the largest class over those of the smallest, of the long-tailed bank.
        largest_class: images of its largest class; None: nine tenths of the smallest class there is, as training has it.
        split_seed: of its draw.
        views: recipe of the augmentation that makes two views of each test image.
        plot_method: ``tsne`` or ``pca``.
        batch_size: images at once.
        seed: of the views, of the probe and of the images in the plot.

    Raises:
        ConfigError: a number is out of range, or the plot's method is not known.
        UnknownNameError: there is no such probe or recipe.
    """

    k: int = 200
    vote_temperature: float = 0.1
    probe: str = "lightly"
    imbalance_ratio: float = 100.0
    largest_class: int | None = None
    split_seed: int = 0
    views: str = "simclr-cifar"
    plot_method: str = "tsne"
    batch_size: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        # Said before images are represented, which takes minutes.
        if self.k < 1:
            raise ConfigError(f"k={self.k} neighbours must be at least 1.")
        if not (math.isfinite(self.vote_temperature) and self.vote_temperature > 0):
            raise ConfigError(f"vote_temperature={self.vote_temperature:g} must be finite and greater than 0.")
        if self.probe not in PROBES:
            raise UnknownNameError(f"no probe '{self.probe}'.{nearest(self.probe, PROBES)} Known: {', '.join(PROBES)}.")
        if self.plot_method not in METHODS:
            raise ConfigError(f"plot_method='{self.plot_method}' must be one of {', '.join(METHODS)}.")
        for name in ("split_seed", "seed"):
            check_seed(name, getattr(self, name))
        create_augmentation(self.views, 32)


class Evaluation:
    """A backbone, what it is measured on, and how.

    Args:
        backbone: [B, 3, H, W] in [0, 1] to [B, F]; moved to ``device``.
        train: labelled images to learn from.
        test: labelled images of the same classes to be asked about.
        settings: of the evaluations.
        device: on which everything runs.

    Raises:
        ConfigError: both sets are one.
        DataError: labels are missing, or the classes are not the same.
    """

    def __init__(
        self, backbone: nn.Module, train: ImageSet, test: ImageSet, settings: EvaluationSettings, device: torch.device
    ) -> None:
        if train is test:
            raise ConfigError(f"the set '{test.name}' must not be both learned from and asked about: pass a test set.")
        if train.labels is None or test.labels is None:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must both have labels to be measured with.")
        if train.classes != test.classes:
            raise DataError(f"the sets '{train.name}' and '{test.name}' must have the same classes, in the same order.")
        self.backbone, self.train, self.test, self.settings, self.device = backbone, train, test, settings, device
        self.bank_labels, self.query_labels = train.labels.to(device), test.labels.to(device)

    def check(self, name: str) -> None:
        """Makes sure that the labels allow an evaluation, which takes no time, before images are represented.

        Args:
            name: one of `EVALUATIONS`.

        Raises:
            TempplugError: they do not.
        """
        check_needs(name, self)

    def measure(self, name: str) -> dict[str, Any]:
        """Returns the numbers of one evaluation, and what they were measured with.

        Args:
            name: one of `EVALUATIONS`.

        Raises:
            TempplugError: the representations or the sets do not allow it.
        """
        return EVALUATIONS[name](self)

    @cached_property
    def bank(self) -> Tensor:
        """Representations of the training images, [N, F]."""
        return self._represent(self.train, "train images")

    @cached_property
    def queries(self) -> Tensor:
        """Representations of the test images, [M, F]."""
        return self._represent(self.test, "test images")

    @cached_property
    def views(self) -> tuple[Tensor, Tensor]:
        """Representations of two random views of each test image, [M, F] each."""
        side = int(self.test.batch(torch.tensor([0])).shape[-1])
        augmentation = create_augmentation(self.settings.views, side)
        with _seeded(self.settings.seed):
            return self._represent(self.test, "view a", augmentation), self._represent(self.test, "view b", augmentation)

    def _represent(self, images: ImageSet, name: str, augmentation: nn.Module | None = None) -> Tensor:
        with tqdm(total=len(images), desc=name, unit="image", disable=None) as bar:
            rows = represent(
                self.backbone,
                images,
                batch_size=self.settings.batch_size,
                augmentation=augmentation,
                device=self.device,
                progress=lambda fraction: _advance(bar, round(fraction * len(images))),
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
        draw_similarity_histogram(similarity_histogram(*self.views, self.query_labels), histogram, title)
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
    return {"accuracy": share, "k": min(k, len(it.bank)), "temperature": temperature}


def _linear_probe(it: Evaluation) -> dict[str, Any]:
    settings = replace(PROBES[it.settings.probe], seed=it.settings.seed)
    with tqdm(total=settings.epochs, desc="linear probe", unit="epoch", disable=None) as bar:
        share = linear_probe_accuracy(
            it.bank,
            it.bank_labels,
            it.queries,
            it.query_labels,
            settings,
            classes=len(it.train.classes),
            progress=lambda epoch, loss: _advance(bar, epoch),
        )
    return {"accuracy": share, **asdict(settings)}


def _svc_probe(it: Evaluation) -> dict[str, Any]:
    return {"accuracy": accuracy(it.query_labels, svc_probe(it.bank, it.bank_labels, it.queries))}


def _long_tail(it: Evaluation) -> dict[str, Any]:
    ratio, seed = it.settings.imbalance_ratio, it.settings.split_seed
    part, largest = long_tail_bank(it)
    chosen = part.to(it.device)
    scores = long_tail_evaluation(it.bank[chosen], it.bank_labels[chosen], it.queries, it.query_labels)
    draw = {"imbalance_ratio": ratio, "largest_class": largest, "split_seed": seed}
    return {"bank": len(chosen), **draw, **{name: score.values() for name, score in scores.items()}}


def _report(it: Evaluation) -> dict[str, Any]:
    # The images as they are, but for the alignment, which is about views of them.
    found = {"alignment": metrics.alignment(*it.views).item(), **representation_report(it.queries, None, it.query_labels)}
    return {**found, "views": it.settings.views}


EVALUATIONS: dict[str, Callable[[Evaluation], dict[str, Any]]] = {
    "knn": _knn,
    "linear-probe": _linear_probe,
    "svc-probe": _svc_probe,
    "long-tail": _long_tail,
    "report": _report,
}
"""What `Evaluation.measure` knows."""


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generator for a while; afterwards it goes on where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _advance(bar: tqdm[Any], done: int) -> None:
    bar.update(done - bar.n)
