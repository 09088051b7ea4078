"""Classifiers trained on representations of training images and evaluated on those of test images, and their accuracies.

Nearest neighbours, a linear probe trained by SGD, a linear support vector machine, and logistic regression on few labels. Test
labels are used neither for training nor to choose settings or epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug.options import Number
from tempplug_adapters.images.long_tail import head_mid_tail
from tempplug_adapters.images.representations import check_held_out, check_labels, check_representations, unit_rows
from tempplug_adapters.vision.evaluation.settings import LinearProbeSettings

LABELS = (10, 20, 50, 100, 200, 500)
"""Images of each class that logistic regression learns from."""
SEED = 42
"""Seed of the support vector machine and of the few-shot draw in the notebooks of Kukleva et al. 2023."""
_SIMILARITIES = 2**22


def knn_votes(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int, temperature: float = math.inf, classes: int | None = None
) -> Tensor:
    """Returns the votes of each query's k most similar neighbours for each class, [M, classes] float64 on the CPU.

    A neighbour of cosine similarity s has weight exp((s - s₁)/τ), where s₁ is that of the nearest. The search is exact. It is
    written by hand because it is as short as a call of scikit-learn's ``KNeighborsClassifier``, runs on the device of the
    backbone, and takes half the time on a CPU (50,000 x 1,280 in the bank).

    Args:
        bank: [N, F] raw representations of the training images.
        bank_labels: [N] their classes, from 0.
        queries: [M, F] raw representations of other images, on the device of ``bank``.
        k: neighbours, at least 1; all of a smaller bank. 200 for CIFAR, 20 for ImageNet-100 (DySTreSS).
        temperature: τ of the vote, greater than 0, not that of training; infinite for a plain majority.
        classes: their number; None: the highest label plus 1.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: an option is out of range, or bank and queries are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Wu et al. 2018 (instance discrimination), in lightly's settings; Kukleva et al. 2023 for the majority.

    >>> bank, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]), torch.tensor([1, 0, 0])
    >>> knn_votes(bank, labels, torch.tensor([[5.0, 1.0], [1.0, 5.0]]), k=3, temperature=0.1).argmax(1)
    tensor([1, 0])
    """
    if not temperature > 0:
        raise ConfigError(f"temperature={temperature:g} of the vote must be greater than 0.")
    Number(at_least=1, integer=True).check(f"k={k} neighbours", k)
    classes = _check(bank, bank_labels, queries, ("bank", "queries"), classes)
    points, labels, votes = unit_rows(bank), bank_labels.cpu().long(), []
    # Autocast would round the products to 8 bits and change the order of the neighbours.
    with torch.autocast(points.device.type, enabled=False):
        for rows in torch.split(unit_rows(queries).to(points.dtype), max(1, _SIMILARITIES // len(points))):
            similarity, index = (rows @ points.T).topk(min(k, len(points)), dim=1)
            weight = ((similarity - similarity[:, :1]).double() / temperature).exp().cpu()
            votes.append(weight.new_zeros(len(rows), classes).scatter_add_(1, labels[index.cpu()], weight))
    return torch.cat(votes)


def fit_linear_probe(
    train: Tensor,
    train_labels: Tensor,
    settings: LinearProbeSettings | None = None,
    *,
    classes: int | None = None,
    progress: Callable[[int, float], None] = lambda epoch, loss: None,
) -> nn.Linear:
    """Returns a linear classifier of representations after its last epoch, in float32, on the device of ``train``.

    The representations are computed once, so images are not augmented, unlike in the papers. It is written by hand because
    scikit-learn has no SGD with momentum and a cosine schedule; its logistic regression is another protocol.

    Args:
        train: [N, F] raw representations of the training images.
        train_labels: [N] their classes, from 0.
        settings: of the training; None: `LinearProbeSettings()`.
        classes: their number; None: the highest label plus 1.
        progress: called after each epoch with its number and its mean loss, nats.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: a label is not a class.
        NonFiniteError: the representations are not finite, or the classifier has diverged.
    """
    settings = settings or LinearProbeSettings()
    check_representations(train, "train")
    classes = check_labels(train_labels, train, "train_labels", classes)
    rows, labels = train.detach().float(), train_labels.to(train.device).long()
    generator = torch.Generator().manual_seed(settings.seed)
    # The initial weights of torch's layer, drawn from the generator.
    model: nn.Linear = nn.utils.skip_init(nn.Linear, rows.shape[1], classes)  # type: ignore[no-untyped-call]
    bound = 1 / math.sqrt(rows.shape[1])
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    model = model.to(rows.device)
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    step, steps = 0, settings.epochs * math.ceil(len(rows) / settings.batch_size)
    # In full precision and with gradients, also inside other contexts.
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


def linear_scores(model: nn.Linear, train: Tensor, test: Tensor) -> Tensor:
    """Returns the scores of each class for ``test`` [M, F], [M, classes] float32; the model was fitted to ``train``."""
    check_representations(test, "test")
    check_held_out(train, test, ("train", "test"))
    with torch.no_grad(), torch.autocast(test.device.type, enabled=False):
        scores: Tensor = torch.cat([model(rows.float()) for rows in torch.split(test, 8192)])
    return scores


def svc_probe(train: Tensor, train_labels: Tensor, test: Tensor, *, classes: int | None = None) -> Tensor:
    """Returns the class of each test representation by a linear support vector machine, [M] int64 on the device of ``test``.

    scikit-learn's ``LinearSVC(random_state=42)``: C = 1 and one machine for each class, on rows of unit length.

    Args:
        train: [N, F] raw representations of the training images: all of them (linear probe), a long-tailed set (LT LP), or as
            many of each class (FS LP, see `few_shot_indices`).
        train_labels: [N] their classes, from 0, at least two different ones.
        test: [M, F] raw representations of other images.
        classes: their number; None: the highest label plus 1. One without a training image is never predicted.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: one class only, a label that is not a class, or train and test are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Kukleva et al. 2023, whose text says "linear classifier" where the released notebooks have this machine.

    >>> svc_probe(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2, 0]), torch.tensor([[3.0, 1.0], [1.0, 3.0]]))
    tensor([2, 0])
    """
    from sklearn.svm import LinearSVC

    _check(train, train_labels, test, ("train", "test"), classes, several=True)
    machine = LinearSVC(random_state=SEED).fit(unit_rows(train).cpu().double().numpy(), train_labels.cpu().numpy())
    predicted = machine.predict(unit_rows(test).cpu().double().numpy())
    return torch.from_numpy(predicted).long().to(test.device)


def few_shot_indices(labels: Tensor, per_class: int, seed: int = SEED) -> Tensor:
    """Returns the positions of the same number of random images of each class, ascending, [classes · per_class].

    Args:
        labels: [N] classes.
        per_class: images of each, at least 1; in the paper the size of the smallest class of a long-tailed set.
        seed: of the draw, which uses no global generator.

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


def few_label_accuracies(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, seed: int = 0
) -> dict[str, float]:
    """Returns the accuracy of a logistic regression by the number of training images of each class, 0 to 100.

    scikit-learn's, with its L2 of 1, until convergence. All images of a class are used if it has fewer.

    Args:
        train: [N, F] raw representations of the training images.
        train_labels: [N] their classes, from 0, at least two different ones.
        test: [M, F] raw representations of other images.
        test_labels: [M] their classes.
        seed: of the draw; a larger number of images includes the smaller.

    Returns:
        By ``10 labels`` to ``500 labels``.

    Raises:
        ShapeError: shapes do not fit.
        ConfigError: one class only, or train and test are the same.
        NonFiniteError: NaN or infinite representations.

    Source: Wang et al. 2024 (AMCL), table 5, which specifies logistic regression and the numbers of images only.
    """
    from sklearn.linear_model import LogisticRegression

    _check(train, train_labels, test, ("train", "test"), several=True)
    codes = train_labels.cpu()
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
    members = [order[codes[order] == code] for code in torch.unique(codes).tolist()]
    rows, queries = train.cpu().double().numpy(), test.cpu().double().numpy()
    found = {}
    for count in LABELS:
        chosen = torch.cat([each[:count] for each in members]).numpy()
        learned = LogisticRegression(max_iter=10_000).fit(rows[chosen], codes.numpy()[chosen])
        found[f"{count} labels"] = accuracy(test_labels.cpu(), torch.from_numpy(learned.predict(queries)))
    return found


def _check(
    train: Tensor, labels: Tensor, test: Tensor, names: tuple[str, str], classes: int | None = None, *, several: bool = False
) -> int:
    """Checks the arguments of a classifier, and returns the number of classes; ``several`` requires two classes."""
    check_representations(train, names[0])
    check_representations(test, names[1])
    check_held_out(train, test, names)
    found = check_labels(labels, train, f"{names[0]}_labels", classes)
    if several and len(torch.unique(labels)) < 2:
        raise ConfigError(f"{names[0]}_labels hold class {int(labels[0])} only, but a classifier needs two classes.")
    return found


def accuracy(labels: Tensor, predicted: Tensor) -> float:
    """Returns the percentage of correct predictions [M] for labels [M]; raises `ShapeError` for different lengths."""
    return 100 * _right(labels, predicted).double().mean().item()


def accuracy_within(labels: Tensor, scores: Tensor, first: int) -> float:
    """Returns the share of images whose class is among the first of highest score, 0 to 100; ties go to the lowest class.

    Written by hand because scikit-learn's ``top_k_accuracy_score`` prefers the highest class in ties, frequent in votes.

    Args:
        labels: [M] class of each image, M at least 1.
        scores: [M, C] of each class.
        first: number of classes, at least 1.

    >>> accuracy_within(torch.tensor([0, 1]), torch.tensor([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]), 2)
    50.0
    """
    labels = labels.to(scores.device).long()[:, None]
    own = scores.gather(1, labels)
    before = torch.arange(scores.shape[1], device=scores.device) < labels
    rank = ((scores > own) | ((scores == own) & before)).sum(dim=1)
    return 100 * (rank < first).double().mean().item()


def class_accuracies(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Returns the accuracy of each class, [classes] float64, 0 to 100, on the CPU.

    Args:
        labels: [M] class of each image, in 0 … classes - 1; every class must have one.
        predicted: [M] class that was predicted.
        classes: their number.

    Raises:
        ShapeError: labels and predictions are not vectors of one length, or empty.
        ConfigError: a class has no image, or a label is not a class.

    >>> class_accuracies(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0]), 2)
    tensor([100.0000,  66.6667], dtype=torch.float64)
    """
    right, labels = _right(labels, predicted).cpu(), labels.cpu()
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ConfigError(f"labels {int(labels.min())} to {int(labels.max())} must be in 0 to {classes - 1}.")
    total = torch.bincount(labels, minlength=classes)
    if not bool((total > 0).all()):
        missing = int((total == 0).nonzero()[0, 0])
        raise ConfigError(f"labels hold no image of class {missing}: an accuracy of each of {classes} classes needs one.")
    return 100 * torch.bincount(labels[right], minlength=classes).double() / total


def _right(labels: Tensor, predicted: Tensor) -> Tensor:
    if labels.ndim != 1 or labels.shape != predicted.shape or not len(labels):
        shapes = f"{list(labels.shape)} and {list(predicted.shape)}"
        raise ShapeError(f"labels and predicted of shapes {shapes} must both be [M] with M at least 1.")
    return labels == predicted.to(labels.device)


def long_tail_score(
    labels: Tensor, predicted: Tensor, counts: Tensor, *, head_above: int | None = None, tail_below: int | None = None
) -> dict[str, Any]:
    """Returns the mean accuracy over classes, ``overall``, of ``head``, ``middle`` and ``tail``, and that of each, ``classes``.

    A group without classes has None.

    Args:
        labels: [M] classes of the test images, from 0; every class must have one.
        predicted: [M] predicted classes.
        counts: [C] training images of each class, by which it is head, middle or tail; C at least 3.
        head_above: as in `head_mid_tail`: None: thirds; 100 for ImageNet-100-LT.
        tail_below: likewise; 20 for ImageNet-100-LT.

    Raises:
        ShapeError: labels and predictions do not fit.
        ConfigError: a class has no test image, or there are fewer than three.

    Source: Kukleva et al. 2023, Tables 1 and 7 to 9.
    """
    each = class_accuracies(labels, predicted, len(counts))
    groups = zip(("head", "middle", "tail"), head_mid_tail(counts, head_above=head_above, tail_below=tail_below), strict=True)
    means = {name: each[torch.tensor(group)].mean().item() if group else None for name, group in groups}
    return {"overall": each.mean().item(), **means, "classes": each.tolist()}
