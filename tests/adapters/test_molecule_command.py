"""``tempplug train molecule`` on generated molecules: folders are whole, runs resume exactly, faults are named."""

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

from tempplug_adapters.graph.molecule_command import main
from tempplug_benchmarks.tasks.molecule_generated import generate, labels


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    (folder / "unlabelled.smi").write_text("\n".join(["no molecule", *generate(300, seed=1)]))
    for name, tasks in (("one", 1), ("Three", 3)):
        smiles = generate(200, seed=0)
        rows = [
            f"{text},{','.join('' if each != each else f'{each:g}' for each in row)}"
            for text, row in zip(smiles, labels(smiles, tasks, 0), strict=True)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["smiles," + ",".join("abc"[:tasks]), *rows]))
    return folder


def words(folder: Path, output: Path, *more: str, datasets: tuple[str, ...] = ("one",)) -> list[str]:
    return [
        *("--dataset", *(str(folder / f"{name}.csv") for name in datasets), "--pretrain-file", str(folder / "unlabelled.smi")),
        *(
            "--output-dir",
            str(output),
            "--layers",
            "2",
            "--width",
            "16",
            "--pretrain-epochs",
            "2",
            "--pretrain-batch-size",
            "64",
        ),
        *("--finetune-epochs", "2", "--device", "cpu", "--no-progress"),
        *more,
    ]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(folder / "encoder.pt", weights_only=True)["weights"])


def test_a_run_writes_encoder_and_figures(generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert main(words(generated, output, "--temperature-strategy", "macl", datasets=("one", "Three"))) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "strategy macl:base_temperature=0.1,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false\nobjective dcl\n300 "
    )
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["objective"] == "dcl"
    assert (metrics["pretrain_molecules"], metrics["unreadable"]) == (300, 1)
    assert metrics["settings"]["width"] == 16
    found = list(metrics["datasets"].values())
    assert [each["tasks"] for each in found] == [1, 3]
    assert all(f"{each['test_roc_auc']:.2f} ({each['test']} test molecules" in out for each in found)
    assert {each.name for each in output.iterdir()} == {
        "pretrain",
        "finetune-one",
        "finetune-three",
        "encoder.pt",
        "metrics.json",
    }


def test_an_earlier_encoder_stands_for_pre_training(generated: Path, tmp_path: Path) -> None:
    assert main(words(generated, tmp_path / "all")) == 0
    assert main(words(generated, tmp_path / "reused", "--encoder", str(tmp_path / "all/encoder.pt"))) == 0
    whole, reused = (json.loads((tmp_path / name / "metrics.json").read_text())["datasets"] for name in ("all", "reused"))
    assert whole == reused
    assert not (tmp_path / "reused/pretrain").exists()


def test_training_from_scratch_starts_where_pre_training_starts(
    generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(generated, tmp_path / "scratch", "--pretrain-epochs", "0")) == 0
    assert capsys.readouterr().out.startswith("no pre-training\n")
    assert not (tmp_path / "scratch/encoder.pt").exists()
    assert main(words(generated, tmp_path / "trained", "--pretrain-learning-rate", "0", "--finetune-epochs", "0")) == 0
    torch.manual_seed(0)
    from tempplug_adapters.graph.molecule_gin import MoleculeEncoder

    fresh = MoleculeEncoder(2, 16).state_dict()
    unmoved = weights(tmp_path / "trained")
    assert all(torch.equal(fresh[name], unmoved[name]) for name in fresh if "running" not in name and "tracked" not in name)


def test_pre_training_alone_needs_no_data_set(generated: Path, tmp_path: Path) -> None:
    more = ("--max-pretrain-molecules", "101", "--temperature-strategy", "learnable", "--bf16")
    assert main([*words(generated, tmp_path, *more, datasets=())]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["pretrain_molecules"], metrics["unreadable"], metrics["objective"]) == (100, 1, "infonce")
    assert metrics["settings"]["bf16"] is True
    assert metrics["datasets"] == {}


@pytest.mark.parametrize("stage", ["pretrain", "finetune-one"])
def test_a_killed_run_resumes_to_the_same_weights(generated: Path, tmp_path: Path, stage: str) -> None:
    strategy = "schedule:shape=triangle,temperature_min=0.05,temperature_max=0.2,period=3"
    epochs = ("--pretrain-epochs", "6" if stage == "pretrain" else "2", "--finetune-epochs", "8")

    def command(output: Path) -> list[str]:
        return words(generated, output, "--temperature-strategy", strategy, *epochs, "--resume-from-checkpoint", "auto")

    assert main(command(tmp_path / "whole")) == 0
    program = "from tempplug_adapters.graph.molecule_command import main; import sys; sys.exit(main(sys.argv[1:]))"
    call = [sys.executable, "-c", program, *command(tmp_path / "killed")]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while (
            not (tmp_path / "killed" / stage / "checkpoint.pt").is_file()
            and process.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (tmp_path / "killed/metrics.json").exists()
    assert main(command(tmp_path / "killed")) == 0
    whole, killed = (weights(tmp_path / name) for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    tuned = [torch.load(tmp_path / name / "finetune-one/checkpoint.pt", weights_only=True) for name in ("whole", "killed")]
    assert all(torch.equal(value, tuned[1]["model"][name]) for name, value in tuned[0]["model"].items())
    figures = [json.loads((tmp_path / name / "metrics.json").read_text())["datasets"] for name in ("whole", "killed")]
    assert figures[0] == figures[1]


def test_a_new_run_does_not_write_over_an_old_one(generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(generated, tmp_path)) == 0
    assert main(words(generated, tmp_path)) == 2
    assert "holds the checkpoint of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err
    assert main(words(generated, tmp_path, "--resume-from-checkpoint", "auto")) == 0
    assert main(words(generated, tmp_path, "--resume-from-checkpoint", "auto", "--seed", "1")) == 2
    assert "seed=1 differs from the checkpoint's 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature-strategy", "macle"], "unknown strategy 'macle'. Did you mean 'macl'?"),
        (
            ["--temperature-strategy", "macl", "--temperature-args", "alpha=-2"],
            "alpha=-2 of strategy 'macl' must be at least 0.",
        ),
        (["--contrastive-objective", "dlc"], "unknown objective 'dlc'. Did you mean 'dcl'?"),
        (["--dataset", "BBB"], "no data set 'BBB'. Did you mean 'BBBP'?"),
        (["--dataset", "BBBP", "--data-dir", "nowhere"], "--data-dir nowhere is not a folder."),
        (["--pretrain-file", "nothing.smi"], "nothing.smi does not exist"),
        (["--encoder", "nothing.pt"], "nothing.pt does not exist"),
        (["--view-ratio", "1"], "view_ratio=1.0 must be less than 1."),
        (["--device", "tpu:x"], "device='tpu:x' must be auto, cpu, cuda or cuda:N."),
        (["--max-pretrain-molecules", "2"], "1 molecule is too few to pre-train on"),
    ],
)
def test_faults_end_with_one_line(
    generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(generated, tmp_path, *extra)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_without_molecules_to_pre_train_on_the_flag_is_named(
    generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    assert main(["--output-dir", str(tmp_path), "--no-progress"]) == 2
    assert "pass --pretrain-file, --data-dir or set TEMPPLUG_DATA" in capsys.readouterr().err


def test_real_molecules_train_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    more = (
        "--max-pretrain-molecules",
        "200",
        "--pretrain-epochs",
        "1",
        "--finetune-epochs",
        "2",
        "--layers",
        "2",
        "--width",
        "16",
    )
    assert main(["--dataset", "BACE", "--data-dir", str(data_dir), "--output-dir", str(tmp_path), "--no-progress", *more]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["pretrain_molecules"] == 200
    assert 50 < metrics["datasets"]["BACE"]["test_roc_auc"] < 100
    assert metrics["datasets"]["BACE"]["test"] == 152


def test_an_output_that_is_a_file_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "taken"
    output.write_text("")
    assert main(words(tmp_path / "absent", output)) == 2
    assert f"error: output_dir='{output}' cannot be written: it, or a folder above it, is a file." in capsys.readouterr().err
