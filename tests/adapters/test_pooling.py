"""Pooling, against loops over tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tempplug.errors import ConfigError, ShapeError, UnknownNameError
from tempplug_adapters.huggingface.pooling import pool

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


def layers(dtype: torch.dtype = torch.float32) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(0)
    states = tuple(torch.randn(2, 4, 3, generator=generator).to(dtype) for _ in range(4))
    return SimpleNamespace(last_hidden_state=states[-1], hidden_states=states, pooler_output=torch.full((2, 3), 7.0))


def test_cls_before_pooler_is_the_first_real_token_and_cls_what_the_pooler_makes_of_it() -> None:
    outputs = layers()
    last = outputs.last_hidden_state
    assert torch.equal(pool(outputs, MASK, "cls_before_pooler"), last[:, 0])
    assert torch.equal(pool(outputs, MASK.flip(1), "cls_before_pooler"), torch.stack([last[0, 1], last[1, 2]]))
    assert torch.equal(pool(outputs, MASK, "cls"), outputs.pooler_output)


def test_averages_are_over_real_tokens_only() -> None:
    outputs = layers()
    _, first, second_last, last = outputs.hidden_states
    for row, length in enumerate((3, 2)):
        mean, ends, top = (
            sum((one[row, token] + last[row, token]) / 2 for token in range(length)) / length
            for one in (last, first, second_last)
        )
        torch.testing.assert_close(pool(outputs, MASK, "avg")[row], mean)
        torch.testing.assert_close(pool(last, MASK, "avg")[row], mean)
        torch.testing.assert_close(pool(outputs, MASK.bool(), "avg_first_last")[row], ends)
        torch.testing.assert_close(pool(outputs, MASK, "avg_top2")[row], top)
    assert torch.equal(pool(outputs, torch.tensor([[0] * 4, [1] * 4]), "avg")[0], torch.zeros(3)), "without any token"


def test_averages_are_taken_in_float32_or_wider() -> None:
    outputs = layers(torch.bfloat16)
    wide = outputs.last_hidden_state.float()
    torch.testing.assert_close(pool(outputs, MASK, "avg"), pool(wide, MASK, "avg"), rtol=0, atol=0)
    assert pool(wide.double(), MASK, "avg").dtype == torch.float64


def test_wrong_poolings_are_named() -> None:
    with pytest.raises(UnknownNameError, match=r"pooling='mean' is not one of cls, cls_before_pooler, avg, avg_first_last"):
        pool(layers(), MASK, "mean")
    last = layers().last_hidden_state
    for outputs in (last, SimpleNamespace(last_hidden_state=last, hidden_states=None, pooler_output=None)):
        with pytest.raises(ConfigError, match=r"pooling='avg_top2' needs all layers: .*output_hidden_states=True"):
            pool(outputs, MASK, "avg_top2")
        with pytest.raises(ConfigError, match="pooling='cls' needs a model with a pooler of its own"):
            pool(outputs, MASK, "cls")
    with pytest.raises(ShapeError, match=r"hidden states \[2, 4, 3\] and attention_mask \[2, 3\]"):
        pool(layers(), MASK[:, :3], "cls")
