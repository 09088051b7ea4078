"""lightly's NT-Xent loss and memory bank with any temperature strategy, with the signatures of lightly 1.6.

It does not import lightly. Differences are documented: the bank is part of ``state_dict`` and wraps around.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn

from tempplug import ContrastiveLoss, NegativeTerm, Objective, Strategy
from tempplug.embeddings import unit_rows
from tempplug.errors import ConfigError
from tempplug.types import EngineName, LayoutName, ObjectiveName
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.contexts import refuse_missing
from tempplug_adapters.library_loss import LibraryLoss, strategy_of
from tempplug_adapters.ring_buffer import RingBuffer

LIBRARY_TEMPERATURE = 0.5
"""lightly's default, from which the defaults of a strategy's options are derived."""


class MemoryBank(nn.Module):
    """The last rows that were stored, as in lightly's ``MemoryBankModule``; losses may derive from it.

    There are three differences: the rows are in ``state_dict`` (lightly's are lost when training resumes; a checkpoint without
    rows leaves the bank unchanged), a batch that does not fit at the end continues at the beginning (lightly drops the rest),
    and an integer size causes no warning.

    Args:
        size: (K, D), or K, where D is that of the first batch; 0 for no bank.
        gather_distributed: with a process group, store the rows of all processes.
        feature_dim_first: whether the bank is returned as [D, K], as by lightly, or as [K, D].

    Attributes:
        ring_buffer: the rows; None before D is known, or without a bank.

    Raises:
        ConfigError: the size is negative, or not one or two numbers.

    Source: lightly 1.6, ``lightly.models.modules.memory_bank``.

    >>> import torch
    >>> bank = MemoryBank((4, 2))
    >>> output, rows = bank(torch.ones(3, 2), update=True)
    >>> rows.shape, bank(torch.ones(3, 2))[1][:, :3].eq(1).all()
    (torch.Size([2, 4]), tensor(True))
    """

    def __init__(
        self, size: int | Sequence[int] = 65536, gather_distributed: bool = False, feature_dim_first: bool = True
    ) -> None:
        super().__init__()
        numbers: Sequence[Any] = tuple(size) if isinstance(size, Sequence) else (size,)
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
        if len(numbers) not in (1, 2) or not whole or min(numbers) < 0:
            raise ConfigError(f"size={size} of the memory bank must be (rows, dimension) or a number of rows, at least 0.")
        self.size: tuple[int, ...] = tuple(numbers)
        self.gather_distributed = gather_distributed
        self.feature_dim_first = feature_dim_first
        self.ring_buffer: RingBuffer | None = None
        self.register_load_state_dict_pre_hook(_make_as_saved)  # type: ignore[no-untyped-call]
        if len(self.size) == 2 and self.size[0]:
            self.ring_buffer = self._make(self.size[1])

    def buffer_for(self, output: Tensor) -> RingBuffer:
        """Returns the ring buffer of the rows on the device of the output, created in the first call if D was not given.

        Args:
            output: [B, D].

        Raises:
            ConfigError: the bank has size 0.
        """
        if not self.size[0]:
            raise ConfigError("a memory bank of size 0 has no rows.")
        if self.ring_buffer is None:
            self.ring_buffer = self._make(output.shape[-1])
        # A bank created from a checkpoint may be on another device than the embeddings.
        if self.ring_buffer.rows.device != output.device:
            self.ring_buffer.to(output.device)
        return self.ring_buffer

    def forward(self, output: Tensor, labels: Tensor | None = None, update: bool = False) -> tuple[Tensor, Tensor | None]:
        """Returns the output and the bank as it was before this call; None in its place where there is none.

        Args:
            output: [B, D].
            labels: unused, as in lightly.
            update: whether to store the output, after the bank was read.

        Raises:
            ShapeError: the output has another dimension than the bank.
        """
        if not self.size[0]:
            return output, None
        buffer = self.buffer_for(output)
        rows = buffer.rows.clone()
        if update:
            buffer.enqueue(output.detach())
        return output, rows.T if self.feature_dim_first else rows

    def _make(self, dimension: int) -> RingBuffer:
        return RingBuffer(self.size[0], dimension, gather=self.gather_distributed)


def _make_as_saved(bank: nn.Module, state_dict: MutableMapping[str, Any], prefix: str, *_: object) -> None:
    """Creates a bank of unknown width as wide as the checkpoint's; adds the present bank to a checkpoint that has none."""
    if not isinstance(bank, MemoryBank):
        return
    saved = state_dict.get(f"{prefix}ring_buffer.rows")
    if saved is None and bank.ring_buffer is not None:
        state_dict.update({f"{prefix}ring_buffer.{name}": each for name, each in bank.ring_buffer.state_dict().items()})
    elif saved is not None and bank.ring_buffer is None and bank.size[0]:
        bank.ring_buffer = bank._make(saved.shape[1])


class NTXentLoss(LibraryLoss):
    """lightly's ``NTXentLoss`` whose temperature may be a strategy: SimCLR's loss, with a memory bank MoCo's.

    With a number as temperature the value is lightly's; a single pair without a bank has no negative, so its loss is 0, with
    one warning. With a bank, ``out1`` is each anchor's positive, all negatives are from the bank, and ``out1`` is stored only
    if ``out0`` requires gradient. Symmetric MoCo must not enqueue twice: call the second direction with ``update=False``, which
    lightly does not have.

    Args:
        temperature: a number, a spec string such as ``macl:alpha=1`` or a strategy. Options missing in a spec string are
            derived from 0.5, lightly's default: the temperature of ``fixed``, the first one of ``learnable``, and the range of
            ``schedule`` from half to twice.
        memory_bank_size: as `MemoryBank`'s ``size``; 0 for none.
        gather_distributed: candidates of all processes, and a bank with the rows of all.
        objective: spec string or instance; ``reweighted`` is MACL's.
        negatives: terms on negatives, as in `tempplug.ContrastiveLoss`. What they read is passed to a call; those that read
            something of all candidates do not fit a bank.
        engine: as in `tempplug.ContrastiveLoss`.

    Attributes:
        contrastive_loss: the loss itself: its ``record`` describes the last call, and ``set_progress`` drives schedules.
        memory_bank: the bank.

    Raises:
        ConfigError: an option is not allowed; a temperature must be greater than 0, and gathering needs torch.distributed.
        UnknownNameError: no such strategy, objective or option.

    Source: lightly 1.6, ``lightly.loss.NTXentLoss``.

    >>> import torch
    >>> loss_fn = NTXentLoss(temperature="macl:base_temperature=0.1", memory_bank_size=(8, 3))
    >>> loss_fn(torch.eye(3), torch.eye(3)).shape
    torch.Size([])
    """

    def __init__(
        self,
        temperature: float | str | Strategy = LIBRARY_TEMPERATURE,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        *,
        objective: ObjectiveName | Objective = "infonce",
        negatives: str | NegativeTerm | Sequence[NegativeTerm] | None = None,
        engine: EngineName = "auto",
    ) -> None:
        super().__init__()
        if gather_distributed and not dist.is_available():
            raise ConfigError("gather_distributed=True needs torch.distributed, which this build of torch lacks.")
        self.memory_bank = MemoryBank(memory_bank_size, gather_distributed)
        layout: LayoutName = "queue" if self.memory_bank.size[0] else "two-view"
        self.contrastive_loss = ContrastiveLoss(
            strategy_of(temperature, LIBRARY_TEMPERATURE),
            objective,
            layout,
            negatives=negatives,
            gather=gather_distributed,
            engine=engine,
        )
        if layout == "queue":
            refuse_missing(self.contrastive_loss.terms, (), "a memory bank, which holds embeddings alone,")

    def forward(self, out0: Tensor, out1: Tensor, *, update: bool = True, **given: Any) -> Tensor:
        """Returns the mean loss in nats, [].

        Args:
            out0: [B, D] raw embeddings of one view, with a bank the anchors.
            out1: [B, D] raw embeddings of the other view.
            update: with a bank, whether it may store ``out1``.
            given: ``labels``, ``index`` or ``uncertainty``, where the strategy needs them, and what terms on negatives read.

        Raises:
            ShapeError: shapes do not fit.
            NonFiniteError: embeddings hold NaN or infinite values (on CPU); the bank stays as it was.
        """
        if self.training and torch.is_grad_enabled():
            announce_once(self.contrastive_loss)
        if not self.memory_bank.size[0]:
            without_bank: Tensor = self.contrastive_loss(out0, out1, **given)
            return without_bank
        buffer = self.memory_bank.buffer_for(out1)
        loss: Tensor = self.contrastive_loss(out0, out1, queue=buffer.rows, **given)
        if update and out0.requires_grad:
            buffer.enqueue(unit_rows(out1.detach())[0])
        return loss


__all__ = ["MemoryBank", "NTXentLoss"]
