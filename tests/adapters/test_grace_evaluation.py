"""Classification of nodes: scores against scikit-learn's, splits that are partitions, and what a probe can and cannot find."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import f1_score

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.graph.node_evaluation import PROTOCOLS, evaluate_nodes, f1_scores, split


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (60,), generator=generator)
    predicted = torch.where(torch.rand(60, generator=generator) < 0.5, labels, torch.randint(5, (60,), generator=generator))
    scores = f1_scores(labels, predicted, classes=7)  # classes 4 to 6 are never there, class 4 is predicted alone
    assert scores.micro == pytest.approx(100 * f1_score(labels, predicted, average="micro"))
    assert scores.macro == pytest.approx(100 * f1_score(labels, predicted, average="macro", zero_division=0))


@pytest.mark.parametrize(("protocol", "sizes"), [("10/80/10", (332, 2661, 334)), ("10/10/80", (332, 332, 2663))])
def test_splits_are_partitions_of_the_protocols_sizes(protocol: str, sizes: tuple[int, ...]) -> None:
    parts = split(3327, protocol, torch.Generator().manual_seed(0))
    assert tuple(map(len, parts)) == sizes
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(3327))
    other = split(3327, protocol, torch.Generator().manual_seed(1))
    assert not torch.equal(parts[0], other[0])


def test_classes_that_a_line_parts_are_found_and_noise_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    noise = torch.randn(300, 4, generator=generator)
    clear = noise + 12 * torch.eye(4)[labels]
    names = torch.tensor([7, -2, 30])[labels]  # classes need not count from 0
    assert evaluate_nodes(clear, names, steps=200).micro == 100.0
    for protocol in PROTOCOLS:
        assert 15 < evaluate_nodes(noise, names, protocol, steps=200).micro < 52


def test_the_result_follows_from_the_seed_and_touches_no_other_generator() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 3
    vague = torch.randn(200, 4, generator=generator) + torch.eye(4)[labels]
    before = torch.get_rng_state()
    scores = [evaluate_nodes(vague, labels, "10/10/80", seed, steps=100) for seed in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_validation_score_decides() -> None:
    """With steps that overfit 30 training nodes, stopping at the best validation score must not lose to the last step."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(300) % 2
    wide = torch.randn(300, 60, generator=generator) + 0.5 * labels[:, None]
    train, valid, test = split(300, "10/80/10", torch.Generator().manual_seed(0))
    model = torch.nn.Linear(60, 2)
    torch.nn.init.xavier_uniform_(model.weight, generator=_after_split())
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    history = []
    for step in range(1, 301):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(wide[train]), labels[train]).backward()
        optimizer.step()
        if step % 20 == 0:
            right = (model(wide).argmax(1) == labels).float()
            history.append((right[valid].mean().item(), 100 * right[test].mean().item()))
    best = max(score for score, _ in history)
    first_best = next(tested for score, tested in history if score == best)
    assert first_best != history[-1][1], "the case must tell the two apart"
    assert evaluate_nodes(wide, labels, "10/80/10", 0, steps=300).micro == pytest.approx(first_best, abs=1e-4)


def _after_split() -> torch.Generator:
    generator = torch.Generator().manual_seed(0)
    torch.randperm(300, generator=generator)
    return generator


def test_what_cannot_be_evaluated_is_said() -> None:
    with pytest.raises(ConfigError, match=r"protocol='10/10' must be one of 10/80/10, 10/10/80"):
        evaluate_nodes(torch.ones(20, 2), torch.arange(20) % 2, "10/10")
    with pytest.raises(DataError, match=r"at least 10 nodes.*there are 9"):
        evaluate_nodes(torch.ones(9, 2), torch.arange(9) % 2)
    with pytest.raises(DataError, match="must be finite"):
        evaluate_nodes(torch.full((20, 2), torch.nan), torch.arange(20) % 2)
