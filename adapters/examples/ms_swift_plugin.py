"""A loss for ms-swift's training of embedding models: any temperature strategy without parameters, by environment variables.

    TEMPPLUG_STRATEGY=macl INFONCE_TEMPERATURE=0.05 swift sft --task_type embedding --loss_type tempplug \
        --external_plugins adapters/examples/ms_swift_plugin.py --model MODEL --dataset pairs.jsonl

``TEMPPLUG_STRATEGY`` (``fixed``), ``TEMPPLUG_OBJECTIVE`` (``infonce``) and ``TEMPPLUG_NEGATIVES`` (none) are spec strings.
``INFONCE_TEMPERATURE`` (0.1) is ms-swift's: the temperature of ``fixed``, and what other strategies are set around. Candidates
come from all processes, with their gradient. A strategy or an objective that learns is refused: ms-swift gives the optimizer
the parameters of its model alone. Megatron and sequence parallelism are refused, too.

Run with ms-swift 4.6.0, transformers 5.19, on one process.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from swift.loss import BaseLoss, loss_map
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tempplug.errors import ConfigError
from tempplug_adapters.announcement import announce_once
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.recipe import around


class TempplugLoss(BaseLoss):
    """The loss of the rows anchor, positive, any number of negatives, anchor, positive, ... of a batch."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        environment = os.environ.get
        chosen = TemperatureArguments(
            environment("TEMPPLUG_STRATEGY", "fixed"),
            contrastive_objective=environment("TEMPPLUG_OBJECTIVE", "infonce"),
            contrastive_negatives=environment("TEMPPLUG_NEGATIVES"),
        )
        temperatures = around(float(environment("INFONCE_TEMPERATURE", "0.1")))
        self.loss_fn = chosen.create_loss("cross-view", temperatures=temperatures)
        if any(each.requires_grad for each in self.loss_fn.parameters()):
            raise ConfigError(
                f"strategy '{self.loss_fn.strategy.name}' or objective '{self.loss_fn.objective.name}' learns, and ms-swift "
                "gives the optimizer the parameters of its model alone: choose others, or train with sentence-transformers."
            )
        if self.is_megatron or getattr(args, "sequence_parallel_size", 1) > 1:
            raise ConfigError("Megatron and sequence parallelism hold rows of one batch on several ranks: leave them out.")
        self.loss_fn.set_length(float(args.num_train_epochs))

    def __call__(self, outputs: Any, labels: Tensor, **kwargs: Any) -> Tensor:
        """Returns the mean loss of a batch.

        Args:
            outputs: their ``last_hidden_state`` [rows, D] has one embedding a text.
            labels: [rows - B] 1 for each positive and 0 for each negative; the anchors have none.
            **kwargs: not used.
        """
        announce_once(self.loss_fn)
        rows = outputs["last_hidden_state"]
        positives = labels.flatten().nonzero().flatten() + torch.arange(1, int(labels.sum()) + 1, device=labels.device)
        ends = torch.cat([positives[1:] - 1, positives.new_tensor([len(rows)])])
        negatives = [rows[first + 1 : last] for first, last in zip(positives.tolist(), ends.tolist(), strict=True)]
        given = {}
        if any(len(each) for each in negatives):
            given["hard_negatives"] = pad_sequence(negatives, batch_first=True)
            kept = [torch.ones(len(each), dtype=torch.bool, device=rows.device) for each in negatives]
            given["hard_negative_mask"] = pad_sequence(kept, batch_first=True)
        self.loss_fn.set_progress(epoch=float(self.trainer.state.epoch or 0.0), step=self.trainer.state.global_step)
        loss: Tensor = self.loss_fn(rows[positives - 1], rows[positives], **given)
        return loss


loss_map["tempplug"] = TempplugLoss
