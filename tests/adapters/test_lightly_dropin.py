"""lightly's NT-Xent loss and memory bank: its values, its signatures, and the state that lightly loses."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch import Tensor, nn
from vision_method_toys import macl_temperature, queue_loss, unit

from tempplug import create_strategy
from tempplug.errors import ConfigError, NonFiniteError, ShapeError
from tempplug_adapters.vision.lightly import MemoryBank, NTXentLoss


def outputs(rows: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    out0, noise = torch.randn(2, rows, 3, generator=generator, dtype=torch.float64)
    return out0.to(dtype, copy=True).requires_grad_(), (out0 + noise).to(dtype)


def lightly_without_bank(out0: Tensor, out1: Tensor, temperature: float) -> Tensor:
    """Cross entropy over 2N rows of 2N - 1 logits, the positive among them."""
    count = len(out0)
    together = unit(torch.cat([out0, out1]))
    logits = together @ together.T / temperature
    logits = logits[~torch.eye(2 * count, dtype=torch.bool)].view(2 * count, -1)
    # Without its own entry, row i < N finds its positive at i + N - 1, the others at i.
    target = torch.cat([torch.arange(count) + count - 1, torch.arange(count)])
    return nn.functional.cross_entropy(logits, target)


def test_the_signatures_are_those_of_lightly() -> None:
    parameters = inspect.signature(NTXentLoss).parameters
    positional = {name: each.default for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD}
    assert positional == {"temperature": 0.5, "memory_bank_size": 0, "gather_distributed": False}
    parameters = inspect.signature(MemoryBank).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        "size": 65536,
        "gather_distributed": False,
        "feature_dim_first": True,
    }
    assert list(inspect.signature(MemoryBank.forward).parameters) == ["self", "output", "labels", "update"]


@pytest.mark.parametrize("temperature", [0.5, 0.07, 1])
def test_without_a_bank_the_value_is_lightlys(temperature: float) -> None:
    out0, out1 = outputs()
    loss = NTXentLoss(temperature)(out0, out1)
    torch.testing.assert_close(loss, lightly_without_bank(out0, out1, temperature), rtol=1e-10, atol=0)
    assert torch.equal(NTXentLoss()(out0, out1), NTXentLoss("fixed:temperature=0.5")(out0, out1))


def test_with_a_bank_the_value_is_lightlys_over_several_steps() -> None:
    torch.manual_seed(0)
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    bank = loss_fn.memory_bank.ring_buffer.rows.clone()
    for step in range(5):
        out0, out1 = outputs(seed=step)
        torch.testing.assert_close(loss_fn(out0, out1), queue_loss(out0, out1, bank, 0.2), rtol=1e-10, atol=0)
        start = 4 * step % 8
        bank[start : start + 4] = unit(out1)
    torch.testing.assert_close(loss_fn.memory_bank.ring_buffer.rows, bank)


def test_with_a_bank_gradient_flows_to_both_outputs() -> None:
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    bank = loss_fn.memory_bank.ring_buffer.rows.clone()
    out0, out1 = outputs()
    out1.requires_grad_()
    loss_fn(out0, out1).backward()
    found = out0.grad.clone(), out1.grad.clone()
    out0.grad = out1.grad = None
    queue_loss(out0, out1, bank, 0.2).backward()
    torch.testing.assert_close(found, (out0.grad, out1.grad), rtol=1e-8, atol=1e-12)


def test_the_bank_changes_only_where_the_anchors_require_gradient() -> None:
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    buffer = loss_fn.memory_bank.ring_buffer
    before = buffer.rows.clone()
    out0, out1 = outputs()
    loss_fn(out0.detach(), out1)
    loss_fn(out0, out1, update=False)
    assert torch.equal(buffer.rows, before)
    loss_fn(out0, out1)
    assert int(buffer.position) == 4
    torch.testing.assert_close(buffer.rows[:4], unit(out1))


def test_a_failed_call_leaves_the_bank_as_it_was() -> None:
    loss_fn = NTXentLoss(0.2, (8, 3)).double()
    out0, out1 = outputs()
    out1[2, 0] = torch.nan
    with pytest.raises(NonFiniteError, match="view_b holds NaN"):
        loss_fn(out0, out1)
    assert int(loss_fn.memory_bank.ring_buffer.position) == 0
    assert loss_fn.memory_bank.ring_buffer.rows.isfinite().all()


def test_a_strategy_may_stand_for_the_temperature() -> None:
    out0, out1 = outputs()
    temperature = macl_temperature((unit(out0) * unit(out1)).sum(1), base=0.2)
    loss = NTXentLoss("macl:base_temperature=0.2")(out0, out1)
    torch.testing.assert_close(loss, lightly_without_bank(out0, out1, temperature.item()), rtol=1e-10, atol=0)
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


@pytest.mark.parametrize("size", [(10, 3), 10])
def test_the_bank_survives_save_and_resume(size: int | tuple[int, int]) -> None:
    loss_fn = NTXentLoss(0.2, size)
    for seed in range(4):
        loss_fn(*outputs(seed=seed, dtype=torch.float32))
    resumed = NTXentLoss(0.2, size)
    resumed.load_state_dict(pickle.loads(pickle.dumps(loss_fn.state_dict())))
    assert int(resumed.memory_bank.ring_buffer.position) == 6
    for seed in range(4, 8):
        assert torch.equal(*(each(*outputs(seed=seed, dtype=torch.float32)) for each in (loss_fn, resumed)))
    assert torch.equal(loss_fn.memory_bank.ring_buffer.rows, resumed.memory_bank.ring_buffer.rows)


def test_a_bank_that_waits_can_be_saved_copied_and_loaded() -> None:
    waiting = NTXentLoss(0.2, 10)
    assert waiting.state_dict() == {}
    waiting.load_state_dict({})
    full = NTXentLoss(0.2, 10)
    full(*outputs(dtype=torch.float32))
    for twin in (copy.deepcopy(waiting), pickle.loads(pickle.dumps(waiting))):
        twin.load_state_dict(full.state_dict())
        assert torch.equal(twin.memory_bank.ring_buffer.rows, full.memory_bank.ring_buffer.rows)
    assert waiting.memory_bank.ring_buffer is None, "loading a copy does not touch the original"


@pytest.mark.parametrize("size", [(10, 3), 10, 0])
def test_a_checkpoint_without_a_bank_leaves_the_bank(size: int | tuple[int, int]) -> None:
    loss_fn = NTXentLoss(0.2, size)
    loss_fn(*outputs(dtype=torch.float32))
    before = {name: each.clone() for name, each in loss_fn.state_dict().items()}
    nn.Sequential(loss_fn).load_state_dict({})
    assert loss_fn.state_dict().keys() == before.keys()
    assert all(torch.equal(each, before[name]) for name, each in loss_fn.state_dict().items())


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
    for none in (0, (0, 3)):
        bank, output = MemoryBank(none), torch.ones(2, 3)
        assert bank(output, update=True) == (output, None)
        assert bank.state_dict() == {}
        assert NTXentLoss(0.5, none).contrastive_loss.layout.name == "two-view"
    with pytest.raises(ConfigError, match="a memory bank of size 0 has no rows"):
        MemoryBank(0).buffer_for(torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"rows of shape \[2, 4\] must be \[B, 3\]"):
        MemoryBank((5, 3))(torch.ones(2, 4), update=True)


@pytest.mark.parametrize("size", [-1, (-1, 3), (4, -3), (2, 3, 4), (), 4.0, True, (4, 3.0), "8"])
def test_sizes_are_checked(size: object) -> None:
    with pytest.raises(ConfigError, match="of the memory bank must be"):
        MemoryBank(size)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0, -0.1, 1e-300 * 0, float("nan"), True, None])
def test_temperatures_are_checked(temperature: object) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        NTXentLoss(temperature)  # type: ignore[arg-type]


def test_a_single_pair_has_no_negative_without_a_bank() -> None:
    out0, out1 = outputs(1)
    loss_fn = NTXentLoss()
    with pytest.warns(
        RuntimeWarning, match="leaves 2 of 2 anchors without a negative: .* they have a loss of their positives alone"
    ):
        loss = loss_fn(out0, out1)
    torch.testing.assert_close(loss, lightly_without_bank(out0, out1, 0.5))
    loss.backward()
    assert torch.equal(out0.grad, torch.zeros_like(out0))
    assert NTXentLoss(0.5, (4, 3))(*outputs(1, dtype=torch.float32)).isfinite()


@pytest.mark.filterwarnings("ignore:layout 'two-view' leaves:RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1, 1e-7])
@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_any_small_batch_has_the_value_of_the_cross_entropy(rows: int, dimension: int, temperature: float) -> None:
    """Random, equal and opposite pairs, with a bank and without; temperatures down to where lightly's own is."""
    torch.manual_seed(rows)
    for out0, out1 in ((torch.rand(rows, dimension), torch.rand(rows, dimension)), (torch.eye(rows, dimension) + 1,) * 2):
        pairs = [each.double() for each in (out0, out1)]
        loss_fn, with_bank = NTXentLoss(temperature), NTXentLoss(temperature, (6, dimension)).double()
        expected = queue_loss(*pairs, with_bank.memory_bank.ring_buffer.rows, temperature)
        torch.testing.assert_close(with_bank(*pairs), expected, rtol=1e-8, atol=1e-8 / temperature)
        expected = lightly_without_bank(*pairs, temperature)
        torch.testing.assert_close(loss_fn(*pairs), expected, rtol=1e-8, atol=1e-8 / temperature)
        # Which output comes first does not matter, as in lightly's test of symmetry.
        torch.testing.assert_close(loss_fn(*pairs), loss_fn(*reversed(pairs)))


def test_gathering_needs_a_torch_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"gather_distributed=True needs torch\.distributed"):
        NTXentLoss(gather_distributed=True)
    assert NTXentLoss()(torch.eye(3), torch.eye(3)).isfinite()
