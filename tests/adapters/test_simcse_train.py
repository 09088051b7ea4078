"""``tempplug train simcse`` on generated sentences: a step is the formula's, runs resume exactly, faults are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tempplug.arguments import parse_spec
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse import DataArguments, ModelArguments, SimCSETrainer, SimCSETrainingArguments, train_simcse
from tempplug_adapters.simcse.checkpoints import resume_point
from tempplug_adapters.simcse.command import main
from tempplug_adapters.simcse.recipe import known_options
from tempplug_benchmarks.data.sentences import paraphrase_pairs, plain_sentences, write_sts
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    write_tiny_encoder(folder / "encoder", seed=0, layers=1, width=32)
    write_sts(folder / "sts", seed=0, train=2, dev=60, test=60)
    pairs = paraphrase_pairs(160, 0)
    (folder / "pairs.tsv").write_text("a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    hard = [pairs[position - 1][1] for position in range(len(pairs))]
    rows = zip(pairs, hard, strict=True)
    (folder / "triplets.csv").write_text("a,b,n\n" + "".join(f'"{a}","{b}","{n}"\n' for (a, b), n in rows))
    (folder / "sentences.txt").write_text("\n".join(plain_sentences(160, 0)))
    return folder


def words(folder: Path, output: Path, file: str = "pairs.tsv", *more: str) -> list[str]:
    return [
        *("--model-name-or-path", str(folder / "encoder"), "--train-file", str(folder / file)),
        *("--sts-dir", str(folder / "sts"), "--sts-test", "false", "--output-dir", str(output), "--report-to", "none"),
        *("--per-device-train-batch-size", "16", "--learning-rate", "1e-3", "--use-cpu", "true", "--disable-tqdm", "true"),
        *("--eval-steps", "5", "--save-steps", "5", "--logging-steps", "5"),
        *more,
    ]


def test_the_loss_of_a_batch_is_simcses_cross_entropy(generated: Path, tmp_path: Path) -> None:
    seen: list[tuple[torch.Tensor, dict[str, torch.Tensor]]] = []

    class Watching(SimCSETrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # type: ignore[no-untyped-def]
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
            seen.append((loss.detach(), {name: value.detach() for name, value in outputs.items()}))
            return loss

    import tempplug_adapters.simcse.train as module

    original, module.SimCSETrainer = module.SimCSETrainer, Watching  # type: ignore[misc]
    try:
        train_simcse(
            ModelArguments(str(generated / "encoder")),
            DataArguments(str(generated / "sentences.txt"), sts_test=False),
            TemperatureArguments("fixed:temperature=0.07"),
            SimCSETrainingArguments(str(tmp_path), max_steps=2, eval_strategy="no", save_strategy="no", report_to=[]),
        )
    finally:
        module.SimCSETrainer = original  # type: ignore[misc]
    assert len(seen) == 2
    for loss, outputs in seen:
        a, b = (torch.nn.functional.normalize(outputs[name]) for name in ("view_a", "view_b"))
        assert not torch.allclose(a, b), "dropout must tell the views apart"
        assert torch.allclose(loss, torch.nn.functional.cross_entropy(a @ b.T / 0.07, torch.arange(64)), rtol=1e-5)


def test_a_run_writes_encoder_numbers_and_log(generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(generated, tmp_path, "triplets.csv", "--pooler", "avg", "--temperature-strategy", "macl")) == 0
    out = capsys.readouterr().out
    assert "strategy macl:base_temperature=0.05,alpha=2,threshold=0.8" in out
    results = json.loads((tmp_path / "simcse_results.json").read_text())
    assert results["steps"] == 10
    assert results["samples"] == 160
    assert f"{results['stsb_dev']:.2f}" in out
    history = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    logged = next(entry for entry in history if "loss" in entry)
    assert {"temperature", "positive_similarity", "uniformity", "alignment", "infonce"} <= set(logged)
    evaluated = [entry["eval_stsb_spearman"] for entry in history if "eval_stsb_spearman" in entry]
    assert results["stsb_dev"] == max(evaluated)
    assert (tmp_path / "model.safetensors").is_file()
    assert json.loads((tmp_path / "tempplug_encoder.json").read_text()) == {"pooling": "avg"}


@pytest.mark.parametrize("extra", [["--mlm-weight", "0.1"], ["--bf16", "true"], ["--dropout", "0.2", "--max-length", "8"]])
def test_further_flags_train(generated: Path, tmp_path: Path, extra: list[str]) -> None:
    if "--mlm-weight" in extra:
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        folder = tmp_path / "mlm"
        AutoModelForMaskedLM.from_pretrained(generated / "encoder").save_pretrained(folder)
        AutoTokenizer.from_pretrained(generated / "encoder").save_pretrained(folder)
        extra = [*extra, "--model-name-or-path", str(folder)]
    more = ["--max-steps", "3", "--eval-strategy", "no", "--save-strategy", "no", *extra]
    assert main(words(generated, tmp_path / "out", "sentences.txt", *more)) == 0
    weights = load_file(tmp_path / "out/model.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values())


RESUMED = ["schedule:shape=triangle,temperature_min=0.03,temperature_max=0.2,period=0.4", "learnable"]


@pytest.mark.parametrize("strategy", RESUMED)
def test_a_killed_run_resumes_to_the_same_weights(generated: Path, tmp_path: Path, strategy: str) -> None:
    def command(output: Path) -> list[str]:
        more = ["--temperature-strategy", strategy, "--num-train-epochs", "2", "--resume-from-checkpoint", "auto"]
        program = "from tempplug_adapters.simcse.command import main; import sys; sys.exit(main(sys.argv[1:]))"
        return [sys.executable, "-c", program, *words(generated, output, "pairs.tsv", *more)]

    def finish(output: Path) -> None:
        done = subprocess.run(command(output), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    finish(tmp_path / "whole")
    with subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wanted = tmp_path / "killed/checkpoint-5/trainer_state.json"
        deadline = time.monotonic() + 120
        while not wanted.is_file() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (tmp_path / "killed/simcse_results.json").exists()
    finish(tmp_path / "killed")
    for name in ("model.safetensors", "simcse_head.safetensors"):
        whole, killed = (load_file(tmp_path / run / name) for run in ("whole", "killed"))
        assert all(torch.equal(whole[key], killed[key]) for key in whole)
    states = [torch.load(tmp_path / run / "contrastive_loss.pt", weights_only=True) for run in ("whole", "killed")]
    assert str(states[0]) == str(states[1])
    logs = [json.loads((tmp_path / run / "trainer_state.json").read_text())["log_history"] for run in ("whole", "killed")]
    temperatures = [[entry["temperature"] for entry in log if "temperature" in entry] for log in logs]
    assert temperatures[0] == temperatures[1]
    assert len(set(temperatures[0])) > 1


def test_a_new_run_does_not_write_over_an_old_one(generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = words(generated, tmp_path, "pairs.tsv", "--max-steps", "5")
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "holds checkpoint-5 of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err
    (tmp_path / "checkpoint-5/optimizer.pt").unlink()
    assert resume_point(tmp_path, "auto") is None


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (
            ["--temperature-strategy", "macl", "--temperature-args", "alpha=-2"],
            "alpha=-2 of strategy 'macl' must be at least 0.",
        ),
        (["--train-file", "nothing.txt"], "nothing.txt does not exist"),
        (["--model-name-or-path", "./nothing"], "cannot be loaded"),
        (["--sts-dir", "nowhere"], "nowhere"),
        (["--pooler", "max"], "pooler='max' must be one of cls_mlp, cls, avg, avg_first_last."),
        (["--resume-from-checkpoint", "nowhere"], "resume_from_checkpoint='nowhere' is not a complete checkpoint"),
        (["--fp16", "true"], "fp16=true needs a GPU: use bf16=true on a CPU."),
        (["--max-train-samples", "1"], "max_train_samples=1 must be at least 2."),
    ],
)
def test_faults_end_with_one_line(
    generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(generated, tmp_path, "pairs.tsv", *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_the_recipe_fills_what_the_flags_leave_out() -> None:
    from tempplug_adapters.simcse.train import create_loss

    for given, expected in [
        ("fixed", "fixed:temperature=0.05"),
        ("fixed:temperature=0.1", "fixed:temperature=0.1"),
        ("macl:alpha=1", "macl:base_temperature=0.05,alpha=1,threshold=0.8,floor_ratio=0.1,strict=false"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.025,temperature_max=0.1,period=0.6,seed=0"),
    ]:
        assert create_loss(TemperatureArguments(given), epochs=3).strategy.spec() == expected
    assert known_options(parse_spec("temperature-free")[0], 1.0) == {}


def test_two_processes_train_one_encoder(generated: Path, tmp_path: Path) -> None:
    more = ["--temperature-strategy", "learnable", "--max-steps", "5", "--ddp-backend", "gloo"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tempplug.cli"]
    command += ["train", "simcse", *words(generated, tmp_path, "pairs.tsv", *more)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("STS-B dev") == 1
    results = json.loads((tmp_path / "simcse_results.json").read_text())
    assert results["steps"] == 5
    state = torch.load(tmp_path / "contrastive_loss.pt", weights_only=True)
    assert state["strategy.log_scale"].item() != pytest.approx(torch.tensor(1 / 0.05).log().item(), abs=1e-6)
