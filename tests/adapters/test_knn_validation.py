"""The vote on a tenth of the training images where those are few: as many neighbours as a class has, and told."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug_adapters.images.image_set import ImageArray
from tempplug_adapters.vision.evaluation.classifiers import knn_votes
from tempplug_adapters.vision.evaluation.evaluations import Evaluation
from tempplug_adapters.vision.evaluation.settings import EvaluationSettings


class Constant(nn.Module):
    """A collapsed backbone."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.ones(len(images), 4)


def images(count: int, seed: int) -> ImageArray:
    """Returns images of three classes, each brighter in one channel."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 200, (count, 3, 2, 2), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(count), labels] += 55
    return ImageArray(pixels, labels, ("red", "green", "blue"), f"toy {seed}")


def measured(backbone: nn.Module, count: int, **settings: Any) -> tuple[dict[str, Any], Evaluation]:
    given = EvaluationSettings(**settings)
    found = Evaluation(backbone, images(count, 0), images(30, 1), given, torch.device("cpu"), lambda name, done: None)
    return found.measure("knn"), found


def test_a_collapsed_backbone_is_as_good_as_chance_where_k_is_above_the_bank() -> None:
    """Where the whole bank votes, its largest class wins, which the images that are asked about have least of."""
    shares = [measured(Constant(), 90, split_seed=seed)[0]["validation"] for seed in range(40)]
    assert 25 < sum(shares) / len(shares) < 42


@pytest.mark.parametrize(("count", "k", "used"), [(90, 200, 27), (90, 28, 27), (90, 27, 27), (90, 5, 5), (10, 200, 3)])
def test_as_many_vote_as_a_class_has_images_and_the_log_tells(
    count: int, k: int, used: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        found, evaluation = measured(nn.Flatten(), count, k=k)
    asked = torch.zeros(count, dtype=torch.bool)
    asked[torch.randperm(count, generator=torch.Generator().manual_seed(0))[: count // 10]] = True
    bank, labels = evaluation.bank, evaluation.bank_labels
    voted = knn_votes(bank[~asked], labels[~asked], bank[asked], k=used, temperature=0.1).argmax(1)
    assert found["validation"] == pytest.approx(100 * (voted == labels[asked]).double().mean().item())
    assert found["k"] == min(k, count), "of the test images, whose bank is another"
    if used == k:
        assert "validation_k" not in found
        assert not caplog.records
    else:
        assert found["validation_k"] == used
        message = (
            f"knn validation of 'toy 0' has a bank of {count - count // 10} images of 3 classes, too few for k={k}: k={used} is"
        )
        assert [record.getMessage() for record in caplog.records] == [f"{message} used there."]
