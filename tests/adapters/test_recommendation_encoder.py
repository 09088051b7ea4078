"""The transformer over histories: padding is of no consequence, the order is, dropouts are the settings', all is finite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tempplug_adapters.recommendation.sequence_encoder import SequenceEncoder, cross_entropy

LENGTHS = torch.tensor([3, 1, 2])
HISTORIES = torch.tensor([[1, 2, 3], [4, 0, 0], [5, 6, 0]])


def encoder(**changes: float) -> SequenceEncoder:
    torch.manual_seed(0)
    made = SequenceEncoder(9, 6, 8, 16, **changes)  # type: ignore[arg-type]
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made.double().eval()


def _by_kind(rows: Tensor) -> list[Tensor]:
    """Keys, then values: the layer has them head by head."""
    return [rows.unflatten(0, (2, 2, -1))[:, kind].flatten(0, 1) for kind in (0, 1)]


def test_a_layer_is_pytorchs() -> None:
    """Post-normalised layers with GELU, as `nn.TransformerEncoderLayer` computes them from the same weights."""
    made = encoder()
    hidden = made.norm(made.items(HISTORIES) + made.positions(torch.arange(3)))
    for own in made.layers:
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.5, "gelu", 1e-12, batch_first=True).double().eval()
        pairs = [(layer.linear1, own.perceptron[0]), (layer.linear2, own.perceptron[2]), (layer.self_attn.out_proj, own.merge)]
        for theirs, ours in [*pairs, (layer.norm1, own.attention_norm), (layer.norm2, own.perceptron_norm)]:
            theirs.load_state_dict(ours.state_dict())
        layer.self_attn.in_proj_weight.data = torch.cat([own.query.weight.data, *_by_kind(own.key_value.weight.data)])
        layer.self_attn.in_proj_bias.data = torch.cat([own.query.bias.data, *_by_kind(own.key_value.bias.data)])
        hidden = layer(hidden, src_key_padding_mask=HISTORIES == 0)
    expected = hidden[torch.arange(3), LENGTHS - 1]
    torch.testing.assert_close(made(HISTORIES, LENGTHS), expected, rtol=1e-9, atol=1e-9)


def test_padding_changes_nothing_and_the_order_does_and_the_loss_is_among_all_items() -> None:
    made, targets = encoder(), torch.tensor([1, 9, 4])
    found = made(HISTORIES, LENGTHS)
    wider = torch.cat([HISTORIES, torch.zeros(3, 3, dtype=torch.long)], 1)
    torch.testing.assert_close(made(wider, LENGTHS), found)
    assert not torch.allclose(made(HISTORIES[:1, [1, 0, 2]], LENGTHS[:1]), found[:1])
    torch.testing.assert_close(made.loss(found, targets), functional.cross_entropy(made.scores(found)[:, 1:], targets - 1))
    empty = made.train()(torch.zeros(3, 3, dtype=torch.long), torch.zeros(3, dtype=torch.long))
    made.loss(empty, targets).backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in made.parameters())
    assert made.loss(empty, targets).isfinite()


def test_cross_entropy_among_all_items_is_pytorchs() -> None:
    torch.manual_seed(0)
    states, items = (torch.randn(size, 4, dtype=torch.float64, requires_grad=True) for size in (6, 9))
    targets = torch.tensor([0, 8, 3, 3, 1, 5])
    found, expected = cross_entropy(states, items, targets), functional.cross_entropy(states @ items.T, targets)
    torch.testing.assert_close(found, expected)
    both = [torch.autograd.grad(3 * each, (states, items)) for each in (found, expected)]
    torch.testing.assert_close(*both)
    far = cross_entropy(1e4 * states.float(), items.float(), targets)
    torch.testing.assert_close(far, functional.cross_entropy(1e4 * (states.float() @ items.float().T), targets))


@pytest.mark.parametrize("which", ["dropout", "attention_dropout"])
def test_each_dropout_is_its_own(which: str) -> None:
    for share, random in ((0.0, False), (0.5, True)):
        made = encoder(**{"dropout": 0.0, "attention_dropout": 0.0, which: share}).train()
        assert torch.equal(made(HISTORIES, LENGTHS), made(HISTORIES, LENGTHS)) is not random
