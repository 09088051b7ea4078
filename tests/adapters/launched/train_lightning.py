"""Run as a plain script, which Lightning's strategy ``ddp`` starts once more for the second process: two epochs.

Argument: the folder of the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from launched.pairs import Encoder, pairs, save
from torch import Tensor

import tempplug

ITEMS, BATCH = 8, 2


class Contrastive(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.loss_fn = tempplug.ContrastiveLoss("learnable", layout="two-view", gather=True)
        self.losses: list[float] = []
        self.seen: list[list[int]] = []

    def training_step(self, batch: list[Tensor], batch_index: int) -> Tensor:
        *views, items = batch
        self.seen.append(items.tolist())
        loss = self.loss_fn(*self.encoder(*views))
        self.losses.append(loss.item())
        self.log("temperature", self.loss_fn.record.temperature_mean)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        spared = [self.get_parameter(f"loss_fn.{name}") for name in self.loss_fn.no_weight_decay()]
        groups = [{"params": self.encoder.parameters()}, {"params": spared, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.05)


def main(folder: Path) -> None:
    data = pairs(ITEMS)
    dataset = torch.utils.data.TensorDataset(data["a"].float(), data["b"].float(), torch.arange(ITEMS))
    torch.manual_seed(0)
    model = Contrastive()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    run: Any = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", default_root_dir=folder, max_epochs=2, **quiet)
    run.fit(model, torch.utils.data.DataLoader(dataset, batch_size=BATCH))  # Lightning deals the items out to the processes
    results = {
        "world": run.world_size,
        "strategy": type(run.strategy).__name__,
        "state": model.state_dict(),
        "seen": model.seen,
        "losses": model.losses,
        "logged": run.callback_metrics["temperature"],
    }
    save(folder, run.global_rank, results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
