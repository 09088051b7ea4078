"""Linear support vector machines on frozen representations: the "linear classifier" of the temperature-schedule paper.

This module must not know images or models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tempplug.errors import ConfigError, MissingDependencyError
from tempplug.options import Number
from tempplug_adapters.images.representations import check_held_out, check_labels, check_representations, unit_rows

SEED = 42
"""Of the machine and of the few-shot draw in the paper's notebooks."""


def svc_probe(train: Tensor, train_labels: Tensor, test: Tensor, *, classes: int | None = None) -> Tensor:
    """Returns the class of each test representation by a linear support vector machine, [M] int64.

    scikit-learn's ``LinearSVC(random_state=42)``, so C = 1 and one machine a class against the rest, on rows of unit length.
    What it is trained on makes the protocol: all training images (linear probe), all of a long-tailed set (LT LP), or as many
    of each class (FS LP, see `few_shot_indices`).

    Args:
        train: [N, F] raw representations of the training images.
        train_labels: [N] their classes, from 0, at least two different ones.
        test: [M, F] raw representations of other images.
        classes: how many there are; None takes the highest label plus 1. One without a training image is never predicted.

    Returns:
        [M] on the device of ``test``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: one class only, a label that is no class, or train and test are the same.
        NonFiniteError: NaN or infinite representations.
        MissingDependencyError: scikit-learn is not installed.

    Source: Kukleva et al. 2023, whose text says "linear classifier" where the released notebooks have this machine.

    >>> svc_probe(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2, 0]), torch.tensor([[3.0, 1.0], [1.0, 3.0]]))
    tensor([2, 0])
    """
    try:
        from sklearn.svm import LinearSVC
    except ImportError as error:
        raise MissingDependencyError(f"the linear machine needs scikit-learn: pip install scikit-learn ({error}).") from error
    check_representations(train, "train")
    check_representations(test, "test")
    check_held_out(train, test, ("train", "test"))
    check_labels(train_labels, train, "train_labels", classes)
    codes = train_labels.cpu().numpy()
    if len(set(codes.tolist())) < 2:
        raise ConfigError(f"train_labels hold class {codes[0]} only: there is nothing to tell apart.")
    machine = LinearSVC(random_state=SEED).fit(unit_rows(train).cpu().double().numpy(), codes)
    predicted = machine.predict(unit_rows(test).cpu().double().numpy())
    return torch.from_numpy(predicted).long().to(test.device)


def few_shot_indices(labels: Tensor, per_class: int, seed: int = SEED) -> Tensor:
    """Returns the positions of as many images of each class, drawn at random, in ascending order, [classes · per_class].

    Args:
        labels: [N] classes; every class that occurs is drawn from.
        per_class: images of each, at least 1; in the paper the size of the smallest class of a long-tailed set.
        seed: of the draw; no other generator is touched.

    Raises:
        ConfigError: ``per_class`` is out of range, or a class has fewer images.

    Source: Kukleva et al. 2023. They draw with NumPy's seed 42; the same seed gives other images here.

    >>> few_shot_indices(torch.tensor([0, 1, 0, 1, 1]), 2)[[0, 2]].shape
    torch.Size([2])
    """
    Number(at_least=1, integer=True).check(f"per_class={per_class} images", per_class)
    generator = torch.Generator().manual_seed(seed)
    codes, chosen = labels.cpu(), []
    for code in torch.unique(codes).tolist():
        members = (codes == code).nonzero()[:, 0]
        if len(members) < per_class:
            raise ConfigError(f"class {code} has {len(members)} images, too few for per_class={per_class}.")
        chosen.append(members[torch.randperm(len(members), generator=generator)[:per_class]])
    return torch.cat(chosen).sort().values.to(labels.device)
