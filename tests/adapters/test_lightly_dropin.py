"""lightly's NT-Xent loss and memory bank: its values, its signatures, and the state that lightly loses."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from covering import every_pair
from torch import Tensor, nn
from vision_method_toys import macl_temperature, nt_xent, queue_loss, unit

from tempplug import create_strategy
from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.lightly import MemoryBank, NTXentLoss


def outputs(rows: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    out0, noise = torch.randn(2, rows, 3, generator=generator, dtype=torch.float64)
    return out0.to(dtype, copy=True).requires_grad_(), (out0 + noise).to(dtype)


def test_the_signatures_are_those_of_lightly() -> None:
    parameters = inspect.signature(NTXentLoss).parameters
    positional = {name: each.default for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD}
    assert positional == {"temperature": 0.5, "memory_bank_size": 0, "gather_distributed": False}
    defaults = {name: each.default for name, each in inspect.signature(MemoryBank).parameters.items()}
    assert defaults == {"size": 65536, "gather_distributed": False, "feature_dim_first": True}
    assert list(inspect.signature(MemoryBank.forward).parameters) == ["self", "output", "labels", "update"]


def test_with_a_bank_value_and_gradient_are_lightlys_over_several_steps() -> None:
    torch.manual_seed(0)
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    bank = loss_fn.memory_bank.ring_buffer.rows.clone()
    for step in range(5):
        pair, other = (outputs(seed=step) for _ in "ab")
        loss, expected = loss_fn(pair[0], pair[1].requires_grad_()), queue_loss(other[0], other[1].requires_grad_(), bank, 0.2)
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
        loss.backward()
        expected.backward()
        for ours, theirs in zip(pair, other, strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)
        start = 4 * step % 8
        bank[start : start + 4] = unit(pair[1].detach())
    torch.testing.assert_close(loss_fn.memory_bank.ring_buffer.rows, bank)


def test_the_bank_changes_only_where_the_anchors_require_gradient_and_the_call_succeeds() -> None:
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    buffer = loss_fn.memory_bank.ring_buffer
    before = buffer.rows.clone()
    out0, out1 = outputs()
    loss_fn(out0.detach(), out1)
    loss_fn(out0, out1, update=False)
    broken = out1.clone()
    broken[2, 0] = torch.nan
    with pytest.raises(NonFiniteError, match="view_b holds NaN"):
        loss_fn(out0, broken)
    assert torch.equal(buffer.rows, before)
    loss_fn(out0, out1)
    assert int(buffer.position) == 4
    torch.testing.assert_close(buffer.rows[:4], unit(out1))


def test_a_strategy_may_stand_for_the_temperature() -> None:
    out0, out1 = outputs()
    temperature = macl_temperature((unit(out0) * unit(out1)).sum(1), base=0.2)
    loss = NTXentLoss("macl:base_temperature=0.2")(out0, out1)
    torch.testing.assert_close(loss, nt_xent(out0, out1, temperature.item()), rtol=1e-10, atol=0)
    with_bank = NTXentLoss(create_strategy("macl", base_temperature=0.2), (8, 3)).double()
    bank = with_bank.memory_bank.ring_buffer.rows.clone()
    torch.testing.assert_close(with_bank(out0, out1), queue_loss(out0, out1, bank, temperature), rtol=1e-10, atol=0)
    assert NTXentLoss("macl", objective="reweighted")(out0, out1) >= 1


def test_what_strategies_need_gets_through() -> None:
    out0, out1 = outputs()
    loss_fn = NTXentLoss("individual:size=9", (8, 3))
    loss_fn(out0.float(), out1.float(), index=torch.tensor([1, 2, 3, 5]))
    assert loss_fn.contrastive_loss.strategy.log_means.isfinite().nonzero().flatten().tolist() == [1, 2, 3, 5]
    assert NTXentLoss("learnable").no_weight_decay() == {"contrastive_loss.strategy.log_scale"}
    assert [name for name, _ in NTXentLoss("learnable").named_parameters()] == ["contrastive_loss.strategy.log_scale"]


def test_terms_on_negatives_get_through() -> None:
    out0, out1 = outputs()
    keys = torch.tensor([0, 1, 0, 2])
    value = NTXentLoss(negatives="same-key")(out0, out1, keys=keys)
    both = torch.cat([keys, keys])
    left_out = (both[:, None] == both) & (torch.arange(8) != torch.arange(8).roll(4)[:, None])
    torch.testing.assert_close(value, nt_xent(out0, out1, 0.5, left_out), rtol=1e-10, atol=0)
    loss_fn = NTXentLoss(memory_bank_size=(8, 3), negatives="hardness:strength=2")
    loss_fn(out0.float(), out1.float())
    assert loss_fn.contrastive_loss.record.negative_weight != 1
    with pytest.raises(ConfigError, match="'same-key' reads keys=, which a memory bank, which holds"):
        NTXentLoss(memory_bank_size=(8, 3), negatives="same-key")


@pytest.mark.parametrize("size", [(10, 3), 10])
def test_the_bank_survives_save_and_resume(size: int | tuple[int, int]) -> None:
    loss_fn, fresh = NTXentLoss(0.2, size), NTXentLoss(0.2, size)
    assert (fresh.state_dict() == {}) == (size == 10), "a bank that waits for its first batch has no rows"
    for seed in range(4):
        loss_fn(*outputs(seed=seed, dtype=torch.float32))
    state = pickle.loads(pickle.dumps(loss_fn.state_dict()))
    for resumed in (copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))):
        resumed.load_state_dict(state)
        nn.Sequential(resumed).load_state_dict({})  # a checkpoint without a bank leaves it
        assert int(resumed.memory_bank.ring_buffer.position) == 6
        twin = copy.deepcopy(loss_fn)
        for seed in range(4, 8):
            assert torch.equal(*(each(*outputs(seed=seed, dtype=torch.float32)) for each in (twin, resumed)))
        assert torch.equal(twin.memory_bank.ring_buffer.rows, resumed.memory_bank.ring_buffer.rows)
    assert size != 10 or fresh.memory_bank.ring_buffer is None, "loading a copy does not touch the original"


def test_the_temperature_can_be_changed_as_lightlys() -> None:
    pairs = outputs(dtype=torch.float32)
    loss_fn = NTXentLoss(0.5)
    assert loss_fn.temperature == 0.5
    loss_fn.temperature = 0.1
    assert loss_fn.temperature == 0.1
    assert torch.equal(loss_fn(*pairs), NTXentLoss(0.1)(*pairs))
    with pytest.raises(ConfigError, match="temperature"):
        loss_fn.temperature = 0
    macl = NTXentLoss("macl:base_temperature=0.2")
    assert str(macl.temperature).startswith("macl:base_temperature=0.2")
    with pytest.raises(ConfigError, match=r"temperature=0.3 cannot be set: strategy 'macl:.*' decides it"):
        macl.temperature = 0.3


def test_the_bank_returns_what_was_there_before() -> None:
    bank = MemoryBank((5, 3))
    before = bank.ring_buffer.rows.clone()
    output = torch.randn(4, 3, requires_grad=True)
    same, rows = bank(output, None, True)
    assert same is output
    assert torch.equal(rows, before.T)
    assert torch.equal(bank(output)[1][:, :4].T, output)
    assert not rows.requires_grad
    assert torch.equal(bank(output)[1], bank(output)[1]), "without update nothing changes"
    bank(output, update=True)
    assert torch.equal(rows, before.T), "what was returned is a copy"
    assert torch.equal(bank.ring_buffer.rows[[4, 0, 1, 2]], output), "a batch that does not fit goes on at the beginning"


def test_the_bank_in_its_other_forms() -> None:
    assert MemoryBank(4, feature_dim_first=False)(torch.ones(2, 3))[1].shape == (4, 3)
    assert MemoryBank(4)(torch.ones(2, 3))[1].shape == (3, 4)
    NTXentLoss(0.2, 0).load_state_dict({})
    for none in (0, (0, 3)):
        bank, output = MemoryBank(none), torch.ones(2, 3)
        assert bank(output, update=True) == (output, None)
        assert bank.state_dict() == {}
        assert NTXentLoss(0.5, none).contrastive_loss.layout.name == "two-view"


def test_faults_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (-1, (-1, 3), (4, -3), (2, 3, 4), (), 4.0, True, (4, 3.0), "8"):
        with pytest.raises(ConfigError, match="of the memory bank must be"):
            MemoryBank(size)  # type: ignore[arg-type]
    for temperature in (0, -0.1, float("nan"), True, None):
        with pytest.raises(ConfigError, match="temperature"):
            NTXentLoss(temperature)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a memory bank of size 0 has no rows"):
        MemoryBank(0).buffer_for(torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"rows of shape \[2, 4\] must be \[B, 3\]"):
        MemoryBank((5, 3))(torch.ones(2, 4), update=True)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"gather_distributed=True needs torch\.distributed"):
        NTXentLoss(gather_distributed=True)
    assert NTXentLoss()(torch.eye(3), torch.eye(3)).isfinite()


@pytest.mark.filterwarnings("ignore:layout 'two-view' leaves:RuntimeWarning")
@pytest.mark.parametrize(("rows", "dimension", "temperature"), every_pair((1, 2, 3, 4), (1, 2, 4, 8), (0.07, 0.5, 1, 1e-7)))
def test_any_small_batch_has_the_value_of_the_cross_entropy(rows: int, dimension: int, temperature: float) -> None:
    """Random, equal and opposite pairs, with a bank and without; temperatures down to where lightly's own is."""
    torch.manual_seed(rows)
    for out0, out1 in ((torch.rand(rows, dimension), torch.rand(rows, dimension)), (torch.eye(rows, dimension) + 1,) * 2):
        pairs = [each.double() for each in (out0, out1)]
        loss_fn, with_bank = NTXentLoss(temperature), NTXentLoss(temperature, (6, dimension)).double()
        expected = queue_loss(*pairs, with_bank.memory_bank.ring_buffer.rows, temperature)
        torch.testing.assert_close(with_bank(*pairs), expected, rtol=1e-8, atol=1e-8 / temperature)
        expected = nt_xent(*pairs, temperature)
        torch.testing.assert_close(loss_fn(*pairs), expected, rtol=1e-8, atol=1e-8 / temperature)
        # Which output comes first does not matter, as in lightly's test of symmetry.
        torch.testing.assert_close(loss_fn(*pairs), loss_fn(*reversed(pairs)))
