"""Long tails against the published sizes, and the groups of classes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, ShapeError
from tempplug_adapters.images.long_tail import head_mid_tail, hold_out, long_tail_counts, long_tail_indices, long_tail_part


def balanced(classes: int, each: int, seed: int = 0) -> Tensor:
    """Labels of a balanced set in a random order."""
    order = torch.randperm(classes * each, generator=torch.Generator().manual_seed(seed))
    return torch.arange(classes).repeat_interleave(each)[order]


@pytest.mark.parametrize(
    ("ratio", "classes", "total", "smallest"),
    [
        (50, 10, 12596, 90),
        (50, 100, 11349, 9),
        (100, 10, 11165, 45),
        (100, 100, 9754, 4),
        (150, 10, 10496, 30),
        (150, 100, 9011, 3),
    ],
)
def test_published_sizes(ratio: int, classes: int, total: int, smallest: int) -> None:
    n_max = 45_000 // classes
    counts = long_tail_counts(classes, ratio, n_max)
    assert (counts[0], counts[-1], sum(counts)) == (n_max, smallest, total)
    labels = balanced(classes, 50_000 // classes)
    kept, held = hold_out(labels, 5000, seed=0)
    part = kept[long_tail_indices(labels[kept], ratio, n_max, seed=0)]
    assert len(part) == total
    assert sorted(labels[part].bincount().tolist(), reverse=True) == counts
    assert not set(part.tolist()) & set(held.tolist())


def floor_of_power(n_max: int, ratio: int, rank: int, steps: int) -> int:
    """The largest n with n^steps * ratio^rank <= n_max^steps, in whole numbers."""
    n = 0
    while Fraction(n + 1) ** steps * ratio**rank <= Fraction(n_max) ** steps:
        n += 1
    return n


def test_sizes_are_rounded_down_exactly() -> None:
    for classes, ratio, n_max in ((10, 100, 500), (5, 16, 400), (3, 100, 450), (7, 64, 128), (11, 1024, 2048), (3, 1, 7)):
        expected = [floor_of_power(n_max, ratio, rank, classes - 1) for rank in range(classes)]
        assert long_tail_counts(classes, ratio, n_max) == expected
    assert long_tail_counts(1, 100, 200) == [200]
    assert long_tail_counts(2, 2.5, 10) == [10, 4]


def test_classes_and_images_are_drawn_by_seed() -> None:
    labels, before = balanced(10, 60), torch.get_rng_state()
    parts = [long_tail_indices(labels, 10, 50, seed) for seed in range(200)]
    assert torch.equal(parts[0], long_tail_indices(labels, 10, 50, 0))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(bool((part[1:] > part[:-1]).all()) for part in parts)
    largest = torch.tensor([int(labels[part].bincount(minlength=10).argmax()) for part in parts])
    assert min(largest.bincount(minlength=10).tolist()) >= 8  # 20 expected
    chosen = torch.stack([torch.zeros(600).index_fill(0, part, 1) for part in parts]).mean(0)
    share = sum(long_tail_counts(10, 10, 50)) / 600
    assert float(chosen.mean()) == pytest.approx(share)
    assert float((chosen - share).abs().max()) < 6 * math.sqrt(share * (1 - share) / 200)


def test_as_many_of_each_class_are_held_out() -> None:
    labels = balanced(5, 30)
    kept, held = hold_out(labels, 50, seed=1)
    assert labels[held].bincount().tolist() == [10] * 5
    assert torch.equal(torch.cat([kept, held]).sort().values, torch.arange(150))
    assert torch.equal(held, held.sort().values)
    assert not torch.equal(held, hold_out(labels, 50, seed=2)[1])
    kept, held = hold_out(labels, 0, seed=1)
    assert (len(kept), len(held)) == (150, 0)


def test_faults_are_named() -> None:
    few, drawn = balanced(4, 20), torch.tensor([0, 0, 2, 2])
    for call, error, message in [
        (lambda: long_tail_counts(10, 0.5, 100), ConfigError, "imbalance_ratio=0.5 must be at least 1"),
        (lambda: long_tail_counts(10, math.inf, 100), ConfigError, "imbalance_ratio=inf must be at least 1"),
        (lambda: long_tail_counts(10, 10, 9), ConfigError, "n_max=9 images of the largest class must be at least imb"),
        (lambda: long_tail_counts(0, 10, 100), ConfigError, "classes=0 must be at least 1"),
        (lambda: long_tail_indices(few, 4, 30, 0), DataError, r"class \d has 20 images, but 30 are required"),
        (lambda: long_tail_indices(drawn, 1, 2, 0), DataError, "class 1 has 0 images"),
        (lambda: hold_out(few, 100, 0), DataError, "class 0 has 20 images, but 25 are required"),
        (lambda: hold_out(few, 6, 0), ConfigError, "count=6 of images held out must be a multiple of the 4 classes"),
        (lambda: head_mid_tail([1, 2]), ConfigError, "counts of 2 classes cannot be put into head, middle and tail"),
    ]:
        with pytest.raises(error, match=message):
            call()
    for head, tail in ((100, None), (None, 20), (10, 12)):
        with pytest.raises(ConfigError, match=f"head_above={head} and tail_below={tail} must both be given"):
            head_mid_tail([1, 2, 3], head_above=head, tail_below=tail)
    for labels in (torch.zeros(4), drawn[None], drawn[:0], torch.tensor([0, -1])):
        for read in (long_tail_indices, hold_out):
            with pytest.raises(ShapeError, match=r"labels \[.*\] torch\..* must be \[N\] torch.int64, at least one, from 0 on"):
                read(labels, *([1, 1, 0] if read is long_tail_indices else [0, 0]))


def test_thirds_by_size() -> None:
    for classes, sizes in ((10, (4, 3, 3)), (100, (34, 33, 33)), (3, (1, 1, 1)), (5, (2, 2, 1))):
        counts = torch.randperm(classes, generator=torch.Generator().manual_seed(0)) * 3 + 1
        groups = head_mid_tail(counts)
        assert tuple(map(len, groups)) == sizes
        joined = [label for group in groups for label in group]
        assert sorted(joined) == list(range(classes))
        assert counts[joined].tolist() == sorted(counts.tolist(), reverse=True)
        assert head_mid_tail(counts.tolist()) == groups


def test_groups_by_number_and_by_thresholds() -> None:
    assert head_mid_tail([5, 5, 5, 5, 5, 5]) == ([0, 1], [2, 3], [4, 5])
    counts = [100, 101, 19, 20, 1280, 6]
    assert head_mid_tail(counts, head_above=100, tail_below=20) == ([4, 1], [0, 3], [2, 5])
    assert head_mid_tail([5, 1], head_above=2, tail_below=3) == ([0], [], [1])


def test_largest_class_keeps_nine_tenths_of_the_smallest() -> None:
    names = [str(code) for code in range(10)]
    for each, largest in ((5000, 4500), (500, 450), (19, 17)):
        labels = torch.cat([torch.arange(10).repeat_interleave(each), torch.zeros(7, dtype=torch.int64)])
        part, found = long_tail_part(labels, names, 1, None, 0)
        assert found == largest
        assert labels[part].bincount().tolist() == [largest] * 10
    with pytest.raises(ConfigError, match="largest_class=0, nine tenths of the smallest class, must be at least"):
        long_tail_part(torch.arange(10), names, 1, None, 0)
