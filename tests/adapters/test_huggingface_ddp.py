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
from huggingface_toys import Data, Encoder, MyTrainer
from objective_toys import Biased
from torch import nn
from transformers import HfArgumentParser, TrainingArguments

from tempplug_adapters.huggingface import TemperatureArguments

pytestmark = pytest.mark.slow

# an epoch ends with 10 items: 8 on the first process, 2 on the second
STEPS, SAVED, PER_STEP, ITEMS = 6, 3, 16, 90
OPTIONS: dict[str, Any] = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False}
OPTIONS |= {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "steps", "save_steps": SAVED, "learning_rate": 0.05}
OPTIONS |= {"weight_decay": 0.1, "max_grad_norm": 0.5, "accelerator_config": {"even_batches": False}}


def trainer(folder: Path, loss: Any, data: Data, **more: Any) -> MyTrainer:
    torch.manual_seed(0)
    training = TrainingArguments(output_dir=str(folder), **{**OPTIONS, **more})
    return MyTrainer(Encoder(dropout=0.0), training, train_dataset=data, eval_dataset=data, contrastive_loss=loss)


def run(
    folder: Path, processes: int, flags: str, accumulation: int = 1, checkpoint: str | None = None, bias: float | None = None
) -> dict[str, Any]:
    """Trains and returns what this process holds at the end; all processes together see `PER_STEP` items a step.

    With a bias, the objective is one that learns it.
    """
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(flags.split(), look_for_args_file=False)
    loss = temperature.create_loss(layout="cross-view", symmetric=True)
    if bias is not None:
        loss.objective = Biased(bias)
    sizes = {"per_device_train_batch_size": PER_STEP // processes, "gradient_accumulation_steps": accumulation}
    trained = trainer(folder, loss, Data(ITEMS), **sizes)
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


def guide(folder: Path, script: str, bert: str, pairs: str) -> dict[str, Any]:
    """Runs the script of the guide to trainers and returns what is left of it: all logs."""
    flags = "--temperature-strategy learnable --eval_strategy epoch --save_strategy epoch --load_best_model_at_end true"
    flags += " --metric_for_best_model contrastive_accuracy --num_train_epochs 2 --use_cpu true --disable_tqdm true"
    flags += " --logging_steps 1 --learning_rate 1e-3 --per_device_train_batch_size 4 --report_to none"
    sys.argv = ["train.py", *flags.split(), "--output_dir", str(folder), "--model", bert, "--pairs", pairs]
    trained = runpy.run_path(script, run_name="__main__")["trainer"]
    return {"logs": trained.state.log_history, "best": trained.state.best_metric, "processes": trained.args.world_size}


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
        "objective": run(folder / "objective", processes, macl, bias=0.5 + 0.4 * rank),
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> list[dict[str, Any]]:
    """What rank 0, rank 1 and a single process on the joint batches ended with."""
    folder = tmp_path_factory.mktemp("ddp")
    # here: the processes that are launched have no path to them
    from launcher import LAUNCHES, torchrun
    from snippets import snippets

    (script,) = [each.code for each in snippets("docs/trainers.md") if each.title == "train.py"]
    (folder / "train.py").write_text(script, encoding="utf-8")
    words = ["man", "woman", "dog", "horse", "guitar", "piano", "park"]
    rows = [{"anchor": f"the {a} plays {b}", "positive": f"a {a} in {b}"} for a in words for b in words]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_DATASETS_CACHE": str(folder / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(LAUNCHES), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [*torchrun(2), __file__, str(folder), str(tiny_bert)]
    launched = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert launched.returncode == 0, launched.stderr[-4000:]
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    return [*ranks, runs(tmp_path_factory.mktemp("single"), 0, 1)]


@pytest.mark.parametrize("name", ["learnable", "accumulated", "resumed", "macl", "objective"])
def test_two_processes_equal_each_other_and_one_on_the_joint_batch(results: list[dict[str, Any]], name: str) -> None:
    """Same losses, same temperatures, same weights, to the rounding of another order of summation."""
    two, other, one = (each[name] for each in results)
    assert ((two["backend"], two["gather"]), (one["backend"], one["gather"])) == (("gloo", True), (None, False))
    assert (two["learned"], two["weights"]) == (other["learned"], other["weights"])
    assert [each[-1] for each in (two["batches"], other["batches"], one["batches"])] == [8, 2, 10] or name == "accumulated"
    for figures in ("loss", "temperature", "learned"):
        assert two[figures] == pytest.approx(one[figures], rel=1e-4)
    for key, values in two["weights"].items():
        assert values == pytest.approx(one["weights"][key], rel=1e-3, abs=1e-5), key


def test_the_temperature_and_the_bias_of_an_objective_are_learned(results: list[dict[str, Any]]) -> None:
    temperatures, (bias,) = results[1]["learnable"]["temperature"], results[1]["objective"]["learned"].items()
    assert temperatures[0] == pytest.approx(0.07, rel=1e-5)
    assert len(set(temperatures)) == STEPS
    assert bias[0] == "objective.offset"
    assert abs(bias[1] - 0.5) > 0.05


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(results: list[dict[str, Any]]) -> None:
    for rank in results[:2]:
        for name in ("learned", "weights", "temperature"):
            assert rank["resumed"][name] == rank["learnable"][name]


def test_evaluation_takes_the_mean_over_the_items_of_all_processes(results: list[dict[str, Any]]) -> None:
    found, again = (rank["evaluated"] for rank in results[:2])
    data = noisy()
    torch.manual_seed(0)
    encoder = Encoder(dropout=0.0)
    a, b = (nn.functional.normalize(encoder(each)) for each in (data.a, data.b))
    expected = []
    for start, own in ((0, 4), (4, 4), (8, 4), (12, 1)):
        items = [each % 13 for each in range(start, start + 4)]
        similarity = a[items] @ b[items].T
        loss = nn.functional.cross_entropy(similarity / 0.1, torch.arange(4), reduction="none")
        expected += list(zip((similarity.argmax(1) == torch.arange(4))[:own].tolist(), loss[:own].tolist(), strict=True))
    for name, values in zip(("eval_contrastive_accuracy", "eval_infonce_loss"), zip(*expected, strict=True), strict=True):
        assert found[name] == again[name] == pytest.approx(sum(values) / 13, rel=1e-5)
    assert 0 < found["eval_contrastive_accuracy"] < 1


def test_one_item_left_for_one_process_ends_no_run(results: list[dict[str, Any]]) -> None:
    first, second = (rank["one left"] for rank in results[:2])
    assert first == second
    assert all(math.isfinite(each) for each in first)


def test_the_script_of_the_guide_trains_on_two_processes(results: list[dict[str, Any]]) -> None:
    first, second = (rank["guide"] for rank in results[:2])
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
