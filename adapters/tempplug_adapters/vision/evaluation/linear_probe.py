"""How well a linear classifier tells classes apart by frozen representations, trained by SGD.

The classifier learns from representations that were computed once, so that its images are not augmented while it learns,
unlike in the papers, whose random crops and flips run through the frozen backbone in every epoch. What is reported is the
classifier after its last epoch: test labels never enter training and choose nothing. DySTreSS (as lightly's callback does)
reports the best epoch on the test set instead, which can only be higher. scikit-learn has no such learner (SGD with momentum
and a cosine schedule); its logistic regression, 13 times as fast, is another protocol. This module must not know images
or models.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.errors import NonFiniteError
from tempplug_adapters.images.representations import check_held_out, check_labels, check_representations
from tempplug_adapters.vision.evaluation.accuracy import accuracy
from tempplug_adapters.vision.evaluation.settings import LinearProbeSettings


def fit_linear_probe(
    train: Tensor,
    train_labels: Tensor,
    settings: LinearProbeSettings | None = None,
    *,
    classes: int | None = None,
    progress: Callable[[int, float], None] = lambda epoch, loss: None,
) -> nn.Linear:
    """Returns a classifier of representations after its last epoch, in float32, on the device of ``train``.

    Args:
        train: [N, F] raw representations of the training images.
        train_labels: [N] their classes, from 0.
        settings: of the training; None takes `LinearProbeSettings`.
        classes: how many there are; None takes the highest label plus 1.
        progress: called after each epoch with its number and its mean loss, nats.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: a label is no class.
        NonFiniteError: representations that are not finite, or a classifier that has diverged.
    """
    settings = settings or LinearProbeSettings()
    check_representations(train, "train")
    classes = check_labels(train_labels, train, "train_labels", classes)
    rows, labels = train.detach().float(), train_labels.to(train.device).long()
    generator = torch.Generator().manual_seed(settings.seed)
    model = _new_classifier(rows.shape[1], classes, generator).to(rows.device)
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    steps = settings.epochs * math.ceil(len(rows) / settings.batch_size)
    step = 0
    # The classifier is measured in full precision, whatever surrounds the call; and gradients are its own matter.
    with torch.enable_grad(), torch.autocast(rows.device.type, enabled=False):
        for epoch in range(1, settings.epochs + 1):
            total = torch.zeros((), device=rows.device)
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            for index in torch.split(order, settings.batch_size):
                if settings.schedule == "cosine":
                    optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
                loss = F.cross_entropy(model(rows[index]), labels[index])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach() * len(index)
                step += 1
            progress(epoch, total.item() / len(rows))
    if not all(bool(torch.isfinite(each).all()) for each in model.parameters()):
        raise NonFiniteError(
            f"the linear probe has diverged at learning_rate={settings.learning_rate:g}: lower it or scale the representations."
        )
    return model


def linear_probe(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    settings: LinearProbeSettings | None = None,
    *,
    classes: int | None = None,
    progress: Callable[[int, float], None] = lambda epoch, loss: None,
) -> Tensor:
    """Returns the class of each test representation by `fit_linear_probe`, [M] int64.

    Args:
        train: as there, like all but ``test``.
        train_labels: likewise.
        test: [M, F] raw representations of other images, on the device of ``train``.
        settings: likewise.
        classes: likewise.
        progress: likewise.

    Raises:
        TempplugError: as there, or train and test are the same.
    """
    check_representations(train, "train")
    check_representations(test, "test")
    check_held_out(train, test, ("train", "test"))
    model = fit_linear_probe(train, train_labels, settings, classes=classes, progress=progress)
    return linear_scores(model, train, test).argmax(dim=1)


def linear_scores(model: nn.Linear, train: Tensor, test: Tensor) -> Tensor:
    """Returns the scores of each class, [M, classes] float32.

    Args:
        model: of `fit_linear_probe`.
        train: what it learned from.
        test: [M, F] raw representations of other images, on the device of ``train``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: train and test are the same.
        NonFiniteError: NaN or infinite representations.
    """
    check_representations(test, "test")
    check_held_out(train, test, ("train", "test"))
    with torch.no_grad(), torch.autocast(test.device.type, enabled=False):
        scores: Tensor = torch.cat([model(rows.float()) for rows in torch.split(test, 8192)])
    return scores


def linear_probe_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    settings: LinearProbeSettings | None = None,
    *,
    classes: int | None = None,
    progress: Callable[[int, float], None] = lambda epoch, loss: None,
) -> float:
    """Returns how many test representations `linear_probe` gives their class, 0 to 100.

    Args:
        train: as there, like all but ``test_labels``.
        train_labels: likewise.
        test: likewise.
        test_labels: [M] classes of the test images, from 0; they are compared with, and nothing else.
        settings: likewise.
        classes: likewise.
        progress: likewise.

    Raises:
        TempplugError: as there.
    """
    check_representations(test, "test")
    check_labels(test_labels, test, "test_labels")
    return accuracy(test_labels, linear_probe(train, train_labels, test, settings, classes=classes, progress=progress))


def _new_classifier(width: int, classes: int, generator: torch.Generator) -> nn.Linear:
    """Returns a layer with the initial weights of torch's, drawn from the generator given."""
    model: nn.Linear = nn.utils.skip_init(nn.Linear, width, classes)  # type: ignore[no-untyped-call]
    bound = 1 / math.sqrt(width)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return model
