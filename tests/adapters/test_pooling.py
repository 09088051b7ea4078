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
    return SimpleNamespace(last_hidden_state=states[-1], hidden_states=states)


def test_cls_before_pooler_is_the_first_token_and_cls_what_the_pooler_makes_of_it() -> None:
    outputs = layers()
    outputs.pooler_output = torch.full((2, 3), 7.0)
    assert torch.equal(pool(outputs, MASK, "cls_before_pooler"), outputs.last_hidden_state[:, 0])
    assert torch.equal(pool(outputs, MASK, "cls"), outputs.pooler_output)


def test_the_first_token_of_left_padded_batches_is_no_padding() -> None:
    outputs = layers()
    pooled = pool(outputs, MASK.flip(1), "cls_before_pooler")
    assert torch.equal(pooled, torch.stack([outputs.last_hidden_state[0, 1], outputs.last_hidden_state[1, 2]]))


def test_averages_are_over_real_tokens_only() -> None:
    outputs = layers()
    _, first, second_last, last = outputs.hidden_states
    for row, length in enumerate((3, 2)):
        mean = sum(last[row, token] for token in range(length)) / length
        ends = sum((first[row, token] + last[row, token]) / 2 for token in range(length)) / length
        top = sum((second_last[row, token] + last[row, token]) / 2 for token in range(length)) / length
        torch.testing.assert_close(pool(outputs, MASK, "avg")[row], mean)
        torch.testing.assert_close(pool(last, MASK, "avg")[row], mean)
        torch.testing.assert_close(pool(outputs, MASK.bool(), "avg_first_last")[row], ends)
        torch.testing.assert_close(pool(outputs, MASK, "avg_top2")[row], top)


def test_averages_are_taken_in_float32_or_wider() -> None:
    outputs = layers(torch.bfloat16)
    wide = outputs.last_hidden_state.float()
    torch.testing.assert_close(pool(outputs, MASK, "avg"), pool(wide, MASK, "avg"), rtol=0, atol=0)
    assert pool(wide.double(), MASK, "avg").dtype == torch.float64


def test_a_sentence_without_tokens_averages_to_zero() -> None:
    assert torch.equal(pool(layers(), torch.tensor([[0] * 4, [1] * 4]), "avg")[0], torch.zeros(3))


def test_pooling_carries_gradient() -> None:
    tokens = torch.ones(2, 4, 3, requires_grad=True)
    pool(tokens, MASK, "avg").sum().backward()
    assert tokens.grad is not None
    torch.testing.assert_close(tokens.grad[..., 0], MASK / MASK.sum(1, keepdim=True))


def test_faulty_poolings() -> None:
    with pytest.raises(UnknownNameError, match=r"pooling='mean' is not one of cls, cls_before_pooler, avg, avg_first_last"):
        pool(layers(), MASK, "mean")
    last = layers().last_hidden_state
    for outputs in (last, SimpleNamespace(last_hidden_state=last, hidden_states=None, pooler_output=None)):
        for how in ("avg_first_last", "avg_top2"):
            with pytest.raises(ConfigError, match=f"pooling='{how}' needs all layers: .*output_hidden_states=True"):
                pool(outputs, MASK, how)
        with pytest.raises(ConfigError, match="pooling='cls' needs a model with a pooler of its own"):
            pool(outputs, MASK, "cls")
    with pytest.raises(ShapeError, match=r"hidden states \[2, 4, 3\] and attention_mask \[2, 3\]"):
        pool(layers(), MASK[:, :3], "cls")
