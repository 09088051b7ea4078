"""Classification of nodes: scores against scikit-learn's, splits that are partitions, and what a probe can and cannot find."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.node_evaluation import PROTOCOLS, Split, evaluate_nodes, f1_scores, split
from tempplug_adapters.training.batches import seed_of


def hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).bool()


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (60,), generator=generator)
    predicted = torch.where(torch.rand(60, generator=generator) < 0.5, labels, torch.randint(5, (60,), generator=generator))
    scores = f1_scores(hot(labels, 7), hot(predicted, 7))  # classes 4 to 6 are never there, class 4 is predicted alone
    assert scores.micro == pytest.approx(100 * f1_score(labels, predicted, average="micro"))
    assert scores.macro == pytest.approx(100 * f1_score(labels, predicted, average="macro", zero_division=0))
    several, guessed = (torch.rand(60, 5, generator=generator) < 0.3 for _ in range(2))
    scores = f1_scores(several, guessed)
    assert scores.micro == pytest.approx(100 * f1_score(several, guessed, average="micro"))
    assert scores.macro == pytest.approx(100 * f1_score(several, guessed, average="macro", zero_division=0))


@pytest.mark.parametrize(("protocol", "sizes"), [("10/80/10", (332, 2661, 334)), ("10/10/80", (332, 332, 2663))])
def test_splits_are_partitions_of_the_protocols_sizes(protocol: str, sizes: tuple[int, ...]) -> None:
    found = split(3327, protocol, torch.Generator().manual_seed(0))
    parts = (found.train, found.valid, found.test)
    assert tuple(map(len, parts)) == sizes
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(3327))
    assert not torch.equal(found.train, split(3327, protocol, torch.Generator().manual_seed(1)).train)


def test_classes_that_a_line_parts_are_found_and_noise_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    noise = torch.randn(300, 4, generator=generator)
    clear = noise + 12 * torch.eye(4)[labels]
    names = torch.tensor([7, 2, 30])[labels]  # classes need not count from 0
    assert evaluate_nodes(clear, names, steps=200)["10/80/10"].micro == 100.0
    for scores in evaluate_nodes(noise, names, tuple(PROTOCOLS), steps=200).values():
        assert 15 < scores.micro < 52


def test_the_result_follows_from_the_seed_and_touches_no_other_generator() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 3
    vague = torch.randn(200, 4, generator=generator) + torch.eye(4)[labels]
    before = torch.get_rng_state()
    scores = [evaluate_nodes(vague, labels, ("10/10/80",), seed, steps=100) for seed in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
    assert torch.equal(torch.get_rng_state(), before)


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
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(300) % 3
    return torch.randn(300, 60, generator=generator) + 0.7 * torch.eye(60)[labels], labels


def test_the_best_validation_score_decides_of_each_protocol_by_itself() -> None:
    """With steps that overfit 30 training nodes, and both protocols in one training."""
    rows, labels = vague_rows()
    found = evaluate_nodes(rows, labels, tuple(PROTOCOLS), 0, steps=300)
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
            parts = split(300, "10/10/80", generator)
            each.append(by_torch(rows, labels, parts, generator, 200, l2))
        chosen.append(max(range(3), key=lambda place, each=each: each[place][0]))
        expected.append(each[chosen[-1]][:2])
    assert set(chosen) != {0}, "the case must need a strength"
    assert (found.validation, found.micro) == tuple(
        pytest.approx(sum(each) / 3, abs=1e-4) for each in zip(*expected, strict=True)
    )


def test_several_classes_a_node_have_a_regression_each() -> None:
    rows, labels = vague_rows()
    both = torch.stack([labels != 0, labels != 1, labels == 2], 1).long()
    generator = torch.Generator().manual_seed(0)
    parts = split(300, "10/80/10", generator)
    best, tested, _ = by_torch(rows, both.float(), parts, generator, 200)
    found = evaluate_nodes(rows, both, ("10/80/10",), steps=200)["10/80/10"]
    assert (found.validation, found.micro) == (pytest.approx(best, abs=1e-4), pytest.approx(tested, abs=1e-4))


def test_nodes_without_a_label_are_left_out() -> None:
    rows, labels = vague_rows()
    hidden, noise = labels.repeat(2), torch.cat([rows, torch.full_like(rows, 1e6)])
    hidden[300:] = -1
    assert evaluate_nodes(noise, hidden, steps=60) == evaluate_nodes(rows, labels, steps=60)
    several = torch.stack([labels == 0, labels == 1], 1).long()
    unlabelled = torch.cat([several, several.clone().index_fill_(1, torch.tensor([1]), -1)])
    assert evaluate_nodes(noise, unlabelled, steps=60) == evaluate_nodes(rows, several, steps=60)


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
    found = evaluate_nodes(rows, labels, ("public",), masks=masks, steps=100)["public"]
    assert found.micro == pytest.approx(sum(tested) / 2, abs=1e-4)
    alone = evaluate_nodes(rows, labels, ("public",), masks=[each[:, 0] for each in masks], steps=100)["public"]
    assert alone.micro == pytest.approx(tested[0], abs=1e-4)
    test = masks[2][:, 0]
    one = evaluate_nodes(rows, labels, ("public",), masks=[masks[0], masks[1], test], steps=20)
    assert one.keys() == {"public"}, "a mask may be one for all splits"


def test_what_cannot_be_evaluated_is_said() -> None:
    with pytest.raises(ConfigError, match=r"protocol='10/10' must be one of 10/80/10, 10/10/80, public"):
        evaluate_nodes(torch.ones(20, 2), torch.arange(20) % 2, ("10/10",))
    with pytest.raises(DataError, match=r"at least 10 labelled nodes.*there are 9"):
        evaluate_nodes(torch.ones(12, 2), torch.arange(12) - 3)
    with pytest.raises(ConfigError, match="protocol='public' needs a data set with train_mask, val_mask and test_mask"):
        evaluate_nodes(torch.ones(20, 2), torch.arange(20) % 2, ("public",))
    masks = [torch.arange(20) < 5, torch.arange(20) > 15, torch.zeros(20, dtype=torch.bool)]
    with pytest.raises(DataError, match="public split must have labelled nodes to train on, to choose by and to test on"):
        evaluate_nodes(torch.ones(20, 2), torch.arange(20) % 2, ("public",), masks=masks)
    with pytest.raises(DataError, match="must be finite"):
        evaluate_nodes(torch.full((20, 2), torch.nan), torch.arange(20) % 2)
