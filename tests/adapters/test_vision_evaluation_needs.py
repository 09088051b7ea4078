"""What evaluations of images ask of the labels, said before images are represented."""

from __future__ import annotations

import pytest
import torch

from tempplug.errors import ConfigError, DataError, NonFiniteError
from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.vision.evaluation import evaluations
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.evaluation.settings import EvaluationSettings


def test_labels_that_allow_no_evaluation_are_said_before_images_are_represented() -> None:
    def sets(classes: int, train: list[int], test: list[int]) -> Evaluation:
        names = tuple("abcd"[:classes])
        images = (
            ImageArray(torch.zeros(len(each), 3, 8, 8, dtype=torch.uint8), torch.tensor(each), names, name)
            for each, name in ((train, "learned"), (test, "asked"))
        )
        return Evaluation(torch.nn.Identity(), *images, EvaluationSettings(imbalance_ratio=2), torch.device("cpu"))

    enough = sets(3, [0, 1, 2] * 5, [0, 1, 2, 2])
    for name in evaluations.MEASURES.keys() - {"top-5"}:
        enough.check(name)
    for faulty, name, message in [
        (sets(3, [0, 1, 1] * 5, [0, 1, 2]), "long-tail", "class 'c' has no image, so that a long-tailed part"),
        (sets(3, [0, 1, 2] * 5, [0, 2]), "long-tail", "the set 'asked' has no image of class 'b': 'long-tail' measures every"),
        (sets(2, [0, 1] * 5, [0, 1]), "long-tail", "there must be at least 3"),
        (sets(3, [0, 1, 2], [0, 1, 2]), "long-tail", "largest_class=0, nine tenths of the smallest class, must be at least"),
        (sets(3, [0, 1, 2], [1, 1]), "report", "the set 'asked' has 2 images of 1 classes: 'report' needs"),
        (sets(3, [0, 1, 2], [0, 1, 2]), "report", "the set 'asked' has 3 images of 3 classes: 'report' needs"),
        (sets(3, [1, 1], [0, 1]), "svc-probe", "the set 'learned' has images of one class only"),
        (sets(3, [1, 1], [0, 1]), "few-labels", "the set 'learned' has images of one class only"),
        (enough, "top-5", "the set 'learned' has 3 classes: 'top-5' needs more than five"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            faulty.check(name)


def test_the_report_of_a_diverged_backbone_is_refused() -> None:
    class Diverged(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.full((len(images), 4), torch.nan)

    labels, names = torch.tensor([0, 1] * 5), ("a", "b")
    sets = [ImageArray(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), labels, names, name) for name in ("learned", "asked")]
    evaluation = Evaluation(Diverged(), *sets, EvaluationSettings(), torch.device("cpu"), lambda name, done: None)
    for name in ("report", "knn"):
        with pytest.raises(NonFiniteError, match="hold NaN or infinite values: the model that made them has diverged"):
            evaluation.measure(name)
