"""Trainings with the mixin, in one process or several that start from other temperatures: they save, resume and accumulate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_toys import Data, Encoder, MyTrainer
from objective_toys import Biased
from transformers import HfArgumentParser, TrainingArguments

from tempplug_adapters.huggingface import TemperatureArguments

# an epoch ends with 10 items: 8 on the first process, 2 on the second
STEPS, SAVED, PER_STEP, ITEMS = 6, 3, 16, 90
OPTIONS: dict[str, Any] = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False}
OPTIONS |= {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "steps", "save_steps": SAVED, "learning_rate": 0.05}
OPTIONS |= {"weight_decay": 0.1, "max_grad_norm": 0.5, "accelerator_config": {"even_batches": False}}

BEST: dict[str, Any] = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": SAVED}
BEST |= {"metric_for_best_model": "infonce_loss", "greater_is_better": True}  # the first, as others have learned more


def trainer(folder: Path, loss: Any, data: Data, mini_batch: int | None = None, **more: Any) -> MyTrainer:
    torch.manual_seed(0)
    training = TrainingArguments(output_dir=str(folder), **{**OPTIONS, **more})
    of_loss = {"contrastive_loss": loss, "contrastive_mini_batch_size": mini_batch}
    return MyTrainer(Encoder(dropout=0.0), training, train_dataset=data, eval_dataset=data, **of_loss)


def run(
    folder: Path,
    processes: int,
    flags: str,
    accumulation: int = 1,
    checkpoint: str | None = None,
    bias: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Trains and returns what this process holds at the end; with a bias, the objective is one that learns it.

    All processes together see `PER_STEP` items a step.
    """
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(flags.split(), look_for_args_file=False)
    loss = temperature.create_loss(layout="cross-view", symmetric=True)
    if bias is not None:
        loss.objective = Biased(bias)
    sizes = {"per_device_train_batch_size": PER_STEP // processes, "gradient_accumulation_steps": accumulation}
    trained = trainer(folder, loss, Data(ITEMS), **sizes, **more)
    batches: list[int] = []
    trained.model.register_forward_hook(lambda module, inputs, output: batches.append(len(output) // 2))
    trained.train(resume_from_checkpoint=checkpoint)
    logs = trained.state.log_history
    return {
        "batches": batches,
        "gather": loss.gather,
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
        "learned": {name: parameter.item() for name, parameter in loss.named_parameters()},
        "weights": {name: value.flatten().tolist() for name, value in trained.model.state_dict().items()},
        **{name: [entry[name] for entry in logs if name in entry] for name in ("loss", "temperature")},
    }


def noisy() -> Data:
    """13 pairs in which not every item is nearest to its own."""
    data = Data(13)
    data.b = data.a + 4 * (data.b - data.a)
    return data


def evaluated(folder: Path) -> dict[str, float]:
    """Evaluates 13 items in batches of 4: two processes fill the last one up with the first items, and drop those again."""
    more = {"per_device_eval_batch_size": 4, "accelerator_config": {}}
    return trainer(folder, TemperatureArguments().create_loss(layout="cross-view"), noisy(), **more).evaluate()


def one_left(folder: Path) -> list[float]:
    """Trains on 13 items in batches of 4 without gathering, so that one process has one item in the end."""
    loss = TemperatureArguments("learnable").create_loss(layout="cross-view", gather=False)
    more = {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 4}
    trained = trainer(folder, loss, Data(13), **more)
    trained.train()
    return [parameter.sum().item() for parameter in (*trained.model.parameters(), *loss.parameters())]


def runs(folder: Path, rank: int, processes: int) -> dict[str, Any]:
    """Every run that is compared, by name."""
    # the processes disagree, so that only the broadcast at the start can make them equal
    learnable = f"--temperature-strategy learnable --temperature-args initial_temperature={0.07 + 0.1 * rank}"
    macl, checkpoint = "--temperature-strategy macl", str(folder / "learnable" / f"checkpoint-{SAVED}")
    return {
        "learnable": run(folder / "learnable", processes, learnable),
        "accumulated": run(folder / "accumulated", processes, learnable, accumulation=2),
        "resumed": run(folder / "resumed", processes, learnable, checkpoint=checkpoint),
        "macl": run(folder / "macl", processes, macl),
        "mini-batches": run(folder / "mini-batches", processes, learnable, accumulation=2, mini_batch=3),
        "best": run(folder / "best", processes, learnable, **BEST),
        "objective": run(folder / "objective", processes, macl, bias=0.5 + 0.4 * rank),
    }


def of_process(folder: Path, rank: int, processes: int) -> dict[str, Any]:
    """Returns what one of several processes got: every run, an evaluation, and a training in which one item is left."""
    found = runs(folder, rank, processes)
    return found | {"evaluated": evaluated(folder / "evaluated"), "one left": one_left(folder / "one left")}
