"""Two epochs of the Hugging Face Trainer whose last batches are uneven, by temperature strategy, in one process or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launched.pairs import Encoder, pairs
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

import tempplug
from tempplug_adapters.huggingface import TemperatureTrainerMixin

# Batches of 4 go to two processes in turn, the last ones 4 and 1; one process sees the same items in batches of 8.
ITEMS, PER_STEP = 29, 8
STRATEGIES = {"macl": ("macl:alpha=1", "reweighted"), "learnable": ("learnable:initial_temperature=0.2", "infonce")}


class MyTrainer(TemperatureTrainerMixin, Trainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        self.sizes = [*getattr(self, "sizes", []), len(inputs["a"])]
        return model(inputs["a"], inputs["b"])


def train(name: str, processes: int, folder: Path) -> dict[str, Any]:
    """Returns what this process holds at the end."""
    data = pairs(ITEMS)
    items: list[dict[str, Tensor]] = [{"a": a.float(), "b": b.float()} for a, b in zip(data["a"], data["b"], strict=True)]
    training = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=PER_STEP // processes,
        accelerator_config={"even_batches": False},
        num_train_epochs=2,
        learning_rate=0.05,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        save_strategy="no",
    )
    strategy, objective = STRATEGIES[name]
    loss_fn = tempplug.ContrastiveLoss(strategy, objective, gather=True, engine="tiled")
    trainer = MyTrainer(Encoder(), training, train_dataset=items, contrastive_loss=loss_fn)
    trainer.train()
    return {
        "sizes": trainer.sizes,
        "parameters": [each.detach() for each in [*trainer.model.parameters(), *loss_fn.parameters()]],
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "temperature": [entry["temperature"] for entry in trainer.state.log_history if "temperature" in entry],
    }
