"""Trainings with the losses for sentence-transformers, in one process or several, which start from other temperatures."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from sentence_transformer_toys import logged, make, tiny
from sentence_transformers import SentenceTransformerTrainer

from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
)

PER_STEP, STEPS, INITIAL = 16, 4, 0.07
JOBS = {"trainer": TemperatureRankingLoss, "callback": TemperatureRankingLoss, "cached": CachedTemperatureRankingLoss}


def train(name: str, rank: int, processes: int, bert: Path, folder: Path) -> dict[str, Any]:
    """Returns what this process holds at the end."""
    model = tiny(bert).double()
    options: dict[str, Any] = {}
    if name == "cached":
        options = {"mini_batch_size": 3, "negatives": "guide:margin=0.1+same-key", "guide": tiny(bert)}
    elif name == "callback":
        options = {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")}
    strategy = f"learnable:initial_temperature={INITIAL + 0.1 * rank}"
    loss = JOBS[name](model, strategy, gather_across_devices=True, **options)
    keywords = {"callbacks": [TemperatureRankingCallback(loss)]} if name == "callback" else {}
    kind = {"trainer_class": SentenceTransformerTrainer} if name == "callback" else {}
    trainer = make(
        folder / name,
        model,
        loss,
        keywords=keywords,
        **kind,
        per_device_train_batch_size=PER_STEP // processes,
        num_train_epochs=1,
        weight_decay=0.1,
        max_grad_norm=0.5,
        save_strategy="epoch",
        optim="sgd",
    )
    trainer.train()
    return {
        "weights": {key: value.clone() for key, value in model.state_dict().items()},
        "log_scale": loss.contrastive_loss.strategy.log_scale.detach(),
        "temperature": logged(trainer, "temperature"),
        "loss": logged(trainer, "loss"),
        "files": sorted(path.name for path in (folder / name).glob("checkpoint-*/*.json")),
    }


def train_all(rank: int, processes: int, bert: Path, folder: Path) -> dict[str, dict[str, Any]]:
    return {name: train(name, rank, processes, bert, folder) for name in JOBS}


if __name__ == "__main__":
    output, own = Path(sys.argv[1]), int(os.environ["RANK"])
    torch.save(train_all(own, int(os.environ["WORLD_SIZE"]), Path(sys.argv[2]), output), output / f"rank{own}.pt")
    torch.distributed.destroy_process_group()
