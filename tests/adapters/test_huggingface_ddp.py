"""Two processes with gloo on CPU against one: `torchrun` runs this file itself as the training script.

The processes start from different temperatures and save, resume and accumulate gradients; every process writes what it
holds at the end, and the tests compare. They also run the script of docs/trainers.md, as it stands there.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from objective_toys import Biased
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
    def __init__(self, items: int = 128, noise: float = 0.5) -> None:
        generator = torch.Generator().manual_seed(0)
        self.a = torch.randn(items, 8, generator=generator)
        self.b = self.a + noise * torch.randn(items, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"a": self.a[index], "b": self.b[index]}


class MyTrainer(TemperatureTrainerMixin, Trainer):
    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return model(inputs["a"]), model(inputs["b"])


def run(
    folder: Path, processes: int, accumulation: int, flags: list[str], checkpoint: str | None = None, bias: float | None = None
) -> dict[str, Any]:
    """Trains and returns what this process holds at the end; all processes together see `PER_STEP` items a step.

    With a bias, the objective is one that learns it.
    """
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(flags, look_for_args_file=False)
    training = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=PER_STEP // processes,
        gradient_accumulation_steps=accumulation,
        **OPTIONS,
    )
    torch.manual_seed(0)
    loss = temperature.create_loss(layout="cross-view", symmetric=True)
    if bias is not None:
        loss.objective = Biased(bias)
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


def evaluated(folder: Path) -> dict[str, float]:
    """Evaluates 13 items in batches of 4: two processes fill the last one up with the first items, and drop those again."""
    training = TrainingArguments(str(folder), per_device_eval_batch_size=4, **OPTIONS)
    torch.manual_seed(0)
    loss = TemperatureArguments().create_loss(layout="cross-view")
    return MyTrainer(Encoder(), training, eval_dataset=Data(13, noise=2.0), contrastive_loss=loss).evaluate()


def one_left(folder: Path) -> list[float]:
    """Trains on 13 items in batches of 4 without gathering, so that one process has one item in the end."""
    options = {**OPTIONS, "max_steps": -1, "num_train_epochs": 2, "accelerator_config": {"even_batches": False}}
    training = TrainingArguments(str(folder), per_device_train_batch_size=4, **options)
    torch.manual_seed(0)
    loss = TemperatureArguments("learnable").create_loss(layout="cross-view", gather=False)
    trainer = MyTrainer(Encoder(), training, train_dataset=Data(13), contrastive_loss=loss)
    trainer.train()
    return [parameter.sum().item() for parameter in (*trainer.model.parameters(), *loss.parameters())]


def guide(folder: Path, script: str, bert: str, pairs: str) -> dict[str, Any]:
    """Runs the script of the guide to trainers and returns what is left of it: all logs."""
    flags = "--temperature-strategy learnable --eval_strategy epoch --save_strategy epoch --load_best_model_at_end true"
    flags += " --metric_for_best_model contrastive_accuracy --num_train_epochs 2 --use_cpu true --disable_tqdm true"
    flags += " --logging_steps 1 --learning_rate 1e-3 --per_device_train_batch_size 4 --report_to none"
    sys.argv = ["train.py", *flags.split(), "--output_dir", str(folder), "--model", bert, "--pairs", pairs]
    trainer = runpy.run_path(script, run_name="__main__")["trainer"]
    return {"logs": trainer.state.log_history, "best": trainer.state.best_metric, "processes": trainer.args.world_size}


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
        "objective": run(folder / "objective", processes, 1, macl, bias=0.5 + 0.4 * rank),
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> dict[str, dict[str, Any]]:
    """What rank 0, rank 1 and a single process on the joint batches ended with."""
    folder = tmp_path_factory.mktemp("ddp")
    # here: the processes that are launched have no path to them
    from launcher import LAUNCHES
    from snippets import snippets

    (script,) = [each.code for each in snippets("docs/trainers.md") if each.title == "train.py"]
    (folder / "train.py").write_text(script, encoding="utf-8")
    words = ["man", "woman", "dog", "horse", "guitar", "piano", "park"]
    rows = [{"anchor": f"the {a} plays {b}", "positive": f"a {a} in {b}"} for a in words for b in words]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, str(folder)]
    command.append(str(tiny_bert))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_DATASETS_CACHE": str(folder / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(LAUNCHES), *filter(None, [os.environ.get("PYTHONPATH")])])
    launched = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert launched.returncode == 0, launched.stderr[-4000:]
    ranks = {f"rank {rank}": json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)}
    return {**ranks, "single": runs(tmp_path_factory.mktemp("single"), 0, 1)}


NAMES = ["learnable", "accumulated", "resumed", "macl", "objective"]


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


def test_the_bias_of_an_objective_is_learned(results: dict[str, dict[str, Any]]) -> None:
    assert results["rank 1"]["objective"]["learned"].keys() == {"objective.offset"}
    assert abs(results["rank 1"]["objective"]["learned"]["objective.offset"] - 0.5) > 0.05


@pytest.mark.parametrize("rank", ["rank 0", "rank 1"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(results: dict[str, dict[str, Any]], rank: str) -> None:
    whole, resumed = results[rank]["learnable"], results[rank]["resumed"]
    assert resumed["learned"] == whole["learned"]
    assert resumed["weights"] == whole["weights"]
    assert resumed["temperature"] == whole["temperature"]


def test_evaluation_takes_the_mean_over_the_items_of_all_processes(results: dict[str, dict[str, Any]]) -> None:
    found, again = (results[f"rank {rank}"]["evaluated"] for rank in (0, 1))
    names = ("eval_contrastive_accuracy", "eval_infonce_loss")
    data = Data(13, noise=2.0)
    torch.manual_seed(0)
    encoder = Encoder()
    a, b = (nn.functional.normalize(encoder(each)) for each in (data.a, data.b))
    expected = []
    for start, own in ((0, 4), (4, 4), (8, 4), (12, 1)):
        items = [each % 13 for each in range(start, start + 4)]
        similarity = a[items] @ b[items].T
        loss = nn.functional.cross_entropy(similarity / 0.1, torch.arange(4), reduction="none")
        expected += list(zip((similarity.argmax(1) == torch.arange(4))[:own].tolist(), loss[:own].tolist(), strict=True))
    for name, values in zip(names, zip(*expected, strict=True), strict=True):
        assert found[name] == again[name] == pytest.approx(sum(values) / 13, rel=1e-5)
    assert 0 < found["eval_contrastive_accuracy"] < 1


def test_one_item_left_for_one_process_ends_no_run(results: dict[str, dict[str, Any]]) -> None:
    first, second = (results[f"rank {rank}"]["one left"] for rank in (0, 1))
    assert first == second
    assert all(math.isfinite(each) for each in first)


def test_the_script_of_the_guide_trains_on_two_processes(results: dict[str, dict[str, Any]]) -> None:
    first, second = (results[f"rank {rank}"]["guide"] for rank in (0, 1))
    temperatures, accuracies = (
        [[entry[name] for entry in rank["logs"] if name in entry] for rank in (first, second)]
        for name in ("temperature", "eval_contrastive_accuracy")
    )
    assert first["processes"] == 2
    assert temperatures[0] == temperatures[1]
    assert temperatures[0][0] == pytest.approx(0.07)
    assert temperatures[0][-1] != pytest.approx(0.07, rel=1e-3)
    assert accuracies[0] == accuracies[1]
    assert len(accuracies[0]) == 2
    assert first["best"] == max(accuracies[0])


if __name__ == "__main__":
    rank, output, bert = int(os.environ["RANK"]), Path(sys.argv[1]), sys.argv[2]
    found = runs(output, rank, 2)
    found["evaluated"] = evaluated(output / "evaluated")
    found["one left"] = one_left(output / "one left")
    found["guide"] = guide(output / "guide", str(output / "train.py"), bert, str(output / "pairs.jsonl"))
    (output / f"rank{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()
