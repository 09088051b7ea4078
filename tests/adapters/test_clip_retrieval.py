"""Recall and zero-shot accuracy beside rankings that are counted one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tempplug_adapters.clip import method
from tempplug_adapters.clip.method import recall, zero_shot


def counted(anchors: Tensor, candidates: Tensor, pairs: Tensor, k: int) -> float:
    """The definition, an anchor and a candidate at a time."""
    similarity = F.normalize(anchors.double()) @ F.normalize(candidates.double()).T
    hits = []
    for row, values in enumerate(similarity.tolist()):
        own = {candidate for anchor, candidate in pairs.tolist() if anchor == row}
        if own:
            best = max(values[each] for each in own)
            hits.append(sum(value >= best for column, value in enumerate(values) if column not in own) < k)
    return 100 * sum(hits) / len(hits)


@pytest.mark.parametrize("chunk", [2**24, 60])
def test_recall_is_that_of_rankings_counted_one_by_one(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "_CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    anchors, candidates = torch.randn(31, 4, generator=generator), torch.randn(17, 4, generator=generator)
    pairs = torch.stack([torch.randint(30, (40,), generator=generator), torch.randint(17, (40,), generator=generator)], 1)
    found = recall(anchors, candidates, pairs)
    assert found.keys() == {1, 5, 10}
    assert found == pytest.approx({k: counted(anchors, candidates, pairs, k) for k in found})
    assert found[1] < found[5] < found[10]


def test_ties_and_what_is_no_number_count_against_the_model() -> None:
    same, pairs = torch.ones(4, 3), torch.arange(4).repeat(2, 1).T
    assert recall(same, same, pairs) == {1: 0.0, 5: 100.0, 10: 100.0}
    broken = same.clone()
    broken[0] = torch.nan
    assert recall(broken, torch.eye(4)[:, :3], pairs)[1] == 0.0
    # a second caption of its own is no rival
    assert recall(same[:1], torch.ones(2, 3), torch.tensor([[0, 0], [0, 1]]))[1] == 100.0


def test_zero_shot_compares_with_the_mean_direction_of_a_classs_prompts() -> None:
    texts = torch.tensor([[1.0, 0.0], [0.0, 10.0], [0.8, -0.6]])
    prompts = ((0, 1), (2,))
    images = torch.tensor([[1.0, 0.1], [1.0, -0.2], [0.0, 1.0]])
    # class 0 points to (1, 1): the long second prompt counts no more than the first
    assert zero_shot(images, torch.tensor([0, 1, 0]), texts, prompts) == 100.0
    assert zero_shot(images, torch.tensor([0, 0, 1]), texts, prompts) == pytest.approx(100 / 3)
    assert zero_shot(images, torch.tensor([0, 1, 0]), torch.ones(3, 2), prompts) == 0.0
