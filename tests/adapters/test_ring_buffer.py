"""The ring buffer: first in, first out whatever the batch sizes, saved whole, and it never waits for the device."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tempplug.errors import ConfigError, ShapeError
from tempplug_adapters.ring_buffer import RingBuffer


def numbered(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count, dtype=torch.float32)[:, None].repeat(1, 2)


def oldest_first(buffer: RingBuffer) -> list[float]:
    position = int(buffer.position)
    return [float(row[0]) for row in torch.cat([buffer.rows[position:], buffer.rows[:position]])]


@pytest.mark.parametrize("batches", [[3, 7, 2, 6, 1], [10, 1], [11], [23, 3], [1] * 12])
def test_the_last_rows_stay_in_order(batches: list[int]) -> None:
    buffer, expected = RingBuffer(10, 2), deque[float](maxlen=10)
    expected.extend(buffer.rows[:, 0].tolist())
    done = 100
    for count in batches:
        buffer.enqueue(numbered(done, count))
        expected.extend(map(float, range(done, done + count)))
        done += count
        assert oldest_first(buffer) == list(expected)


def test_it_starts_with_random_unit_rows_from_the_global_generator() -> None:
    torch.manual_seed(3)
    first = RingBuffer(50, 8)
    torch.manual_seed(3)
    assert torch.equal(first.rows, nn.functional.normalize(torch.randn(50, 8)))
    assert int(first.position) == 0


def test_nearest_is_the_most_similar_row() -> None:
    torch.manual_seed(0)
    buffer, embeddings = RingBuffer(40, 5).double(), torch.randn(9, 5, dtype=torch.float64)
    found = buffer.nearest(embeddings * torch.rand(9, 1, dtype=torch.float64) * 100)
    for row, embedding in zip(found, embeddings, strict=True):
        similarity = [float(nn.functional.cosine_similarity(embedding, each, dim=0)) for each in buffer.rows]
        assert torch.equal(row, buffer.rows[similarity.index(max(similarity))])


def test_nearest_carries_no_gradient_and_is_found_in_full_precision_under_autocast() -> None:
    buffer = RingBuffer(2, 2)
    buffer.enqueue(nn.functional.normalize(torch.tensor([[1.0, 0.003], [1.0, 0.001]])))
    with torch.autocast("cpu", torch.bfloat16):
        found = buffer.nearest(torch.tensor([[1.0, 0.001], [1.0, 0.003]], requires_grad=True))
    assert torch.equal(found, buffer.rows.flip(0))
    before = found.clone()
    buffer.enqueue(torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True) * 3)
    assert torch.equal(found, before)
    assert not found.requires_grad
    assert (buffer.rows.dtype, buffer.rows.requires_grad, buffer.rows.eq(3).all()) == (torch.float32, False, True)


class Waits(TorchDispatchMode):
    """Lists the operations that copy a number from the device to Python, and the rows that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.written: list[list[int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.name() == "aten::index_copy_":
            self.written.append(args[2].tolist())
        if function.name() in ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero"):
            self.seen.append(function.name())
        return function(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device_and_each_row_is_written_once_in_place() -> None:
    buffer = RingBuffer(4, 2)
    places = buffer.rows.data_ptr(), buffer.position.data_ptr()
    with Waits() as waits:
        buffer.enqueue(torch.randn(3, 2))
        buffer.enqueue(torch.randn(10, 2))
        buffer.nearest(torch.randn(3, 2))
    assert waits.seen == []
    assert waits.written == [[0, 1, 2], [1, 2, 3, 0]], "a GPU would write a row that is named twice in any order"
    assert (buffer.rows.data_ptr(), buffer.position.data_ptr()) == places
    with Waits() as waits:
        int(buffer.position)
    assert waits.seen, "the test would notice"


def test_the_state_is_rows_and_position() -> None:
    buffer, other = RingBuffer(4, 2), RingBuffer(4, 2)
    buffer.enqueue(numbered(0, 6))
    assert set(buffer.state_dict()) == {"rows", "position"}
    other.load_state_dict(buffer.state_dict())
    for each in (buffer, other):
        each.enqueue(numbered(6, 3))
    assert oldest_first(other) == oldest_first(buffer) == [5, 6, 7, 8]


def test_faults_are_named() -> None:
    for size, dimension, name in ((0, 2, "size=0"), (2, 0, "dimension=0"), (-3, 2, "size=-3")):
        with pytest.raises(ConfigError, match=f"{name} of a ring buffer must be at least 1"):
            RingBuffer(size, dimension)
    for shape in ((3, 3), (2,), (3, 2, 2)):
        for call, name in ((RingBuffer(4, 2).enqueue, "rows"), (RingBuffer(4, 2).nearest, "embeddings")):
            with pytest.raises(ShapeError, match=rf"{name} of shape .* must be \[B, 2\]"):
                call(torch.zeros(shape))
