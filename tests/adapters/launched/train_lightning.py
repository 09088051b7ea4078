"""Run as a plain script, which Lightning's strategy ``ddp`` starts once more for the second process.

One epoch, its checkpoint, and from there a second epoch; and two epochs without a break. Argument: the folder of the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from launched.pairs import Encoder, pairs, save
from torch import Tensor, nn

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


def trainer(folder: Path, epochs: int) -> Any:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "default_root_dir": folder, "max_epochs": epochs}
    return lightning.Trainer(**options, **dict.fromkeys(quiet, False))


def train(folder: Path, epochs: int, checkpoint: Path | None = None) -> tuple[Any, Any]:
    """Trains, and returns the module and its Trainer; Lightning itself deals the items out to the processes."""
    data = pairs(ITEMS)
    dataset = torch.utils.data.TensorDataset(data["a"].float(), data["b"].float(), torch.arange(ITEMS))
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, run = Contrastive(), trainer(folder, epochs)
    run.fit(model, loader, ckpt_path=checkpoint, weights_only=True)
    return model, run


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def main(folder: Path) -> None:
    first, run = train(folder, 1)
    checkpoint = folder / "epoch.ckpt"
    run.save_checkpoint(checkpoint)
    after_one = state(first)
    resumed, _ = train(folder, 2, checkpoint)
    whole, run = train(folder, 2)
    saved = torch.load(checkpoint, weights_only=True)["state_dict"]
    results = {
        "world": run.world_size,
        "strategy": type(run.strategy).__name__,
        "one epoch": after_one,
        "saved": saved,
        "resumed": state(resumed),
        "whole": state(whole),
        "seen": first.seen,
        "losses": whole.losses,
        "resumed losses": resumed.losses,
        "logged": run.callback_metrics["temperature"],
    }
    save(folder, run.global_rank, results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
