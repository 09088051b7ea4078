"""Two processes with gloo on CPU against one: `torchrun` runs this file itself as the training script.

The processes start from different temperatures and save, resume and accumulate gradients; every process writes what it
holds at the end, and the tests compare.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import HfArgumentParser, Trainer, TrainingArguments

from tempplug_adapters.huggingface import TemperatureArguments, TemperatureTrainerMixin

pytestmark = pytest.mark.slow

STEPS, SAVED, PER_STEP = 6, 3, 16
OPTIONS: dict[str, Any] = {
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "learning_rate": 0.05,
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
}


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Data(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.a = torch.randn(128, 8, generator=generator)
        self.b = self.a + 0.5 * torch.randn(128, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"a": self.a[index], "b": self.b[index]}


class MyTrainer(TemperatureTrainerMixin, Trainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return model(inputs["a"]), model(inputs["b"])


def run(folder: Path, processes: int, accumulation: int, flags: list[str], checkpoint: str | None = None) -> dict[str, Any]:
    """Trains and returns what this process holds at the end; all processes together see `PER_STEP` items a step."""
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(flags, look_for_args_file=False)
    training = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=PER_STEP // processes,
        gradient_accumulation_steps=accumulation,
        **OPTIONS,
    )
    torch.manual_seed(0)
    loss = temperature.create_loss(layout="cross-view", symmetric=True)
    trainer = MyTrainer(Encoder(), training, train_dataset=Data(), contrastive_loss=loss)
    trainer.train(resume_from_checkpoint=checkpoint)
    return {
        "gather": loss.gather,
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
        "learned": {name: parameter.item() for name, parameter in loss.named_parameters()},
        "weights": {name: value.flatten().tolist() for name, value in trainer.model.state_dict().items()},
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "temperature": [entry["temperature"] for entry in trainer.state.log_history if "temperature" in entry],
    }


def runs(folder: Path, rank: int, processes: int) -> dict[str, Any]:
    """Every run that the tests ask for, by name."""
    # the processes disagree, so that only the broadcast at the start can make them equal
    learnable = ["--temperature-strategy", "learnable", "--temperature-args", f"initial_temperature={0.07 + 0.1 * rank}"]
    macl = ["--temperature-strategy", "macl"]
    checkpoint = str(folder / "learnable" / f"checkpoint-{SAVED}")
    return {
        "learnable": run(folder / "learnable", processes, 1, learnable),
        "accumulated": run(folder / "accumulated", processes, 2, learnable),
        "resumed": run(folder / "resumed", processes, 1, learnable, checkpoint),
        "macl": run(folder / "macl", processes, 1, macl),
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What rank 0, rank 1 and a single process on the joint batches ended with."""
    folder = tmp_path_factory.mktemp("ddp")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launched = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert launched.returncode == 0, launched.stderr[-4000:]
    ranks = {f"rank {rank}": json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)}
    return {**ranks, "single": runs(tmp_path_factory.mktemp("single"), 0, 1)}


NAMES = ["learnable", "accumulated", "resumed", "macl"]


def test_two_processes_on_cpu_talk_over_gloo_and_gather_by_themselves(results: dict[str, dict[str, Any]]) -> None:
    for name in NAMES:
        assert (results["rank 0"][name]["backend"], results["rank 0"][name]["gather"]) == ("gloo", True)
        assert (results["single"][name]["backend"], results["single"][name]["gather"]) == (None, False)


@pytest.mark.parametrize("name", NAMES)
def test_both_processes_end_with_the_same_temperature_and_weights(results: dict[str, dict[str, Any]], name: str) -> None:
    first, second = results["rank 0"][name], results["rank 1"][name]
    assert first["learned"] == second["learned"]
    assert first["weights"] == second["weights"]


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_equal_one_on_the_joint_batch(results: dict[str, dict[str, Any]], name: str) -> None:
    """Same losses, same temperatures, same weights, to the rounding of another order of summation."""
    two, one = results["rank 0"][name], results["single"][name]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["temperature"] == pytest.approx(one["temperature"], rel=1e-4)
    assert two["learned"] == pytest.approx(one["learned"], rel=1e-4)
    for key, values in two["weights"].items():
        assert values == pytest.approx(one["weights"][key], rel=1e-3, abs=1e-5), key


def test_the_temperature_is_learned(results: dict[str, dict[str, Any]]) -> None:
    temperatures = results["rank 1"]["learnable"]["temperature"]
    assert temperatures[0] == pytest.approx(0.07, rel=1e-5)
    assert len(set(temperatures)) == STEPS


@pytest.mark.parametrize("rank", ["rank 0", "rank 1"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(results: dict[str, dict[str, Any]], rank: str) -> None:
    whole, resumed = results[rank]["learnable"], results[rank]["resumed"]
    assert resumed["learned"] == whole["learned"]
    assert resumed["weights"] == whole["weights"]
    assert resumed["temperature"] == whole["temperature"]


if __name__ == "__main__":
    rank, output = int(os.environ["RANK"]), Path(sys.argv[1])
    (output / f"rank{rank}.json").write_text(json.dumps(runs(output, rank, 2)))
    torch.distributed.destroy_process_group()
