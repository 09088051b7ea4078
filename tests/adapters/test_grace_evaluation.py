"""Classification of nodes: scores against scikit-learn's, fits against torch's, splits that are partitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.evaluation import PROTOCOLS, Split, evaluate_nodes, f1_scores, split
from tempplug_adapters.training.batches import seed_of


def hot(labels: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(labels, 7).bool()  # classes 4 to 6 are never there, class 4 is predicted alone


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (60,), generator=generator)
    predicted = torch.where(torch.rand(60, generator=generator) < 0.5, labels, torch.randint(5, (60,), generator=generator))
    several, guessed = (torch.rand(60, 5, generator=generator) < 0.3 for _ in range(2))
    for truth, found, scores in [
        (labels, predicted, f1_scores(hot(labels), hot(predicted))),
        (several, guessed, f1_scores(several, guessed)),
    ]:
        assert scores.micro == pytest.approx(100 * f1_score(truth, found, average="micro"))
        assert scores.macro == pytest.approx(100 * f1_score(truth, found, average="macro", zero_division=0))


@pytest.mark.parametrize(("protocol", "sizes"), [("10/80/10", (332, 2661, 334)), ("10/10/80", (332, 332, 2663))])
def test_splits_are_partitions_of_the_protocols_sizes(protocol: str, sizes: tuple[int, ...]) -> None:
    found = split(3327, protocol, torch.Generator().manual_seed(0))
    parts = (found.train, found.valid, found.test)
    assert tuple(map(len, parts)) == sizes
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(3327))
    assert not torch.equal(found.train, split(3327, protocol, torch.Generator().manual_seed(1)).train)


def by_torch(rows: Tensor, targets: Tensor, parts: Split, generator: torch.Generator, steps: int, l2: float = 0.0) -> Any:
    """PyGCL's evaluator with torch's own layer, loss and optimizer: best validation score, its test score, and the last one."""
    several = targets.is_floating_point()
    model = torch.nn.Linear(rows.shape[1], targets.shape[1] if several else int(targets.max()) + 1)
    torch.nn.init.xavier_uniform_(model.weight, generator=generator)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=l2)
    loss = torch.nn.functional.binary_cross_entropy_with_logits if several else torch.nn.functional.cross_entropy
    best, tested, last = -1.0, 0.0, 0.0
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(model(rows[parts.train]), targets[parts.train]).backward()
        optimizer.step()
        if step % 20 == 0:
            predicted = model(rows) > 0 if several else model(rows).argmax(1)
            score, last = (100 * f1_score(targets[of], predicted[of], average="micro") for of in (parts.valid, parts.test))
            if score > best:
                best, tested = score, last
    return best, tested, last


def vague_rows() -> tuple[Tensor, Tensor]:
    labels = torch.arange(300) % 3
    return torch.randn(300, 60, generator=torch.Generator().manual_seed(3)) + 0.7 * torch.eye(60)[labels], labels


def test_the_best_validation_score_decides_of_each_protocol_by_itself() -> None:
    """With steps that overfit 30 training nodes, both protocols in one training, and classes that do not count from 0."""
    rows, labels = vague_rows()
    before = torch.get_rng_state()
    found = evaluate_nodes(rows, torch.tensor([2, 7, 30])[labels], tuple(PROTOCOLS), 0, steps=300)
    assert torch.equal(torch.get_rng_state(), before)
    lasts = []
    for protocol, scores in found.items():
        generator = torch.Generator().manual_seed(0)
        parts = split(300, protocol, generator)
        best, tested, last = by_torch(rows, labels, parts, generator, 300)
        lasts.append(last == tested)
        assert (scores.micro, scores.validation) == (pytest.approx(tested, abs=1e-4), pytest.approx(best, abs=1e-4))
    assert not all(lasts), "the case must tell the best from the last"


def test_splits_and_strengths_together_are_each_by_itself() -> None:
    rows, labels = vague_rows()
    strengths = (0.0, 0.03, 0.3)
    found = evaluate_nodes(rows, labels, ("10/10/80",), 5, splits=3, strengths=strengths, steps=200)["10/10/80"]
    expected, chosen = [], []
    for seed in (5, seed_of(5, 1), seed_of(5, 2)):
        each = []
        for l2 in strengths:
            generator = torch.Generator().manual_seed(seed)
            each.append(by_torch(rows, labels, split(300, "10/10/80", generator), generator, 200, l2))
        chosen.append(max(range(3), key=lambda place, each=each: each[place][0]))
        expected.append(each[chosen[-1]][:2])
    assert set(chosen) != {0}, "the case must need a strength"
    best, tested = (pytest.approx(sum(each) / 3, abs=1e-4) for each in zip(*expected, strict=True))
    assert (found.validation, found.micro) == (best, tested)


def test_several_classes_a_node_have_a_regression_each_and_unlabelled_nodes_are_left_out() -> None:
    rows, labels = vague_rows()
    both = torch.stack([labels != 0, labels != 1, labels == 2], 1).long()
    generator = torch.Generator().manual_seed(0)
    best, tested, _ = by_torch(rows, both.float(), split(300, "10/80/10", generator), generator, 200)
    found = evaluate_nodes(rows, both, ("10/80/10",), steps=200)["10/80/10"]
    assert (found.validation, found.micro) == (pytest.approx(best, abs=1e-4), pytest.approx(tested, abs=1e-4))
    noise = torch.cat([rows, torch.full_like(rows, 1e6)])
    for known, missing in ((labels, torch.full((300,), -1)), (both, both * torch.tensor([1, 0, 1]) - torch.tensor([0, 1, 0]))):
        assert evaluate_nodes(noise, torch.cat([known, missing]), steps=60) == evaluate_nodes(rows, known, steps=60)


def test_public_masks_are_splits_one_or_several() -> None:
    rows, labels = vague_rows()
    labels = labels.clone()
    labels[7] = -1  # masks count all nodes, splits the labelled ones
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    masks = [torch.zeros(300, 2, dtype=torch.bool) for _ in range(3)]
    for column in range(2):
        for mask, part in zip(masks, order.roll(40 * column).split([50 + 9 * column, 90, 160 - 9 * column]), strict=True):
            mask[part, column] = True
    generator, kept = torch.Generator().manual_seed(0), labels >= 0
    parts = [Split(*(each[kept, column].nonzero().flatten() for each in masks)) for column in range(2)]
    tested = [by_torch(rows[kept], labels[kept], each, generator, 100)[1] for each in parts]
    first = [each[:, 0] for each in masks]
    for given, expected in ((masks, sum(tested) / 2), (first, tested[0])):
        found = evaluate_nodes(rows, labels, ("public",), masks=given, steps=100)["public"]
        assert found.micro == pytest.approx(expected, abs=1e-4)
    one = evaluate_nodes(rows, labels, ("public",), masks=[*masks[:2], first[2]], steps=20)
    assert one.keys() == {"public"}, "a mask may be one for all splits"


def test_what_cannot_be_evaluated_is_named() -> None:
    rows, labels = torch.ones(20, 2), torch.arange(20) % 2
    masks = [torch.arange(20) < 5, torch.arange(20) > 15, torch.zeros(20, dtype=torch.bool)]
    for given, more, error, message in [
        ((rows, labels, ("10/10",)), {}, ConfigError, r"protocol='10/10' must be one of 10/80/10, 10/10/80, public"),
        ((torch.ones(12, 2), torch.arange(12) - 3), {}, DataError, r"at least 10 labelled nodes.*there are 9"),
        ((rows, labels, ("public",)), {}, ConfigError, "'public' needs a data set with train_mask, val_mask and test_mask"),
        ((rows, labels, ("public",)), {"masks": masks}, DataError, "must have labelled nodes to train on, to choose by and"),
        ((rows * torch.nan, labels), {}, DataError, "must be finite"),
    ]:
        with pytest.raises(error, match=message):
            evaluate_nodes(*given, **more)
