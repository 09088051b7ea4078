"""``tempplug train molecule``: a step is GraphCL's formula, both stages are exact after a kill, encoders are used again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from method_toys import Kill, Killed, plain_loop, weights, without_seconds
from molecule_toys import labelled, unlabelled, write_files
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tempplug.cli import main
from tempplug.errors import ConfigError
from tempplug_adapters.graph import molecule_files
from tempplug_adapters.graph.molecule_data import MoleculeSet
from tempplug_adapters.graph.molecule_gin import MoleculeEncoder
from tempplug_adapters.graph.molecule_method import MoleculeMethod, MoleculeModule, Molecules
from tempplug_adapters.graph.molecule_recipe import DATASETS, METHOD, MoleculeRecipe
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.training.train import train

SMALL: dict[str, Any] = {
    "layers": 2,
    "width": 16,
    "per_device_train_batch_size": 50,
    "num_train_epochs": 2,
    "finetune_epochs": 3,
}
SCHEDULE = "schedule:shape=triangle,temperature_min=0.05,temperature_max=0.2,period=3"


def run(folder: Path, strategy: str = "fixed", data: Molecules | None = None, **more: Any) -> dict[str, Any]:
    settings = {**SMALL, **{name: more.pop(name) for name in list(more) if name in MoleculeRecipe.kinds()}}
    data = Molecules(unlabelled()) if data is None else data
    return train(METHOD.load(), METHOD.recipe(**settings), data, TemperatureArguments(strategy, [], None), folder, **more)


def both() -> Molecules:
    return Molecules(unlabelled(), {"one": labelled(200, 1), "three": labelled(200, 3)})


def test_the_loss_of_a_step_is_graphcls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One way, cosine, the positive left out of the denominator, from the first views to the second."""
    seen: list[Tensor] = []
    build = MoleculeMethod.build

    def watched(self: MoleculeMethod, *given: Any) -> MoleculeModule:
        module = build(self, *given)
        module.head.register_forward_hook(lambda layer, _, output: seen.append(output.detach()))
        return module

    monkeypatch.setattr(MoleculeMethod, "build", watched)
    results = run(tmp_path, training={"logging_strategy": "steps", "logging_steps": 1})
    assert [len(each) for each in seen] == [50, 50, 51, 51] * 2, "a last batch of one joins the one before it"
    for number, entry in enumerate(results["history"]):
        view_a, view_b = seen[2 * number : 2 * number + 2]
        assert not torch.allclose(view_a, view_b)
        logits = (cosine_similarity(view_a[:, None], view_b[None], dim=2) / 0.1).exp()
        positive = logits.diagonal()
        expected = -(positive / (logits.sum(1) - positive)).log().mean()
        assert entry["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert len(results["history"]) == 4


@pytest.mark.parametrize("strategy", ["learnable", SCHEDULE])
def test_pre_training_is_a_plain_loop_to_the_bit(tmp_path: Path, strategy: str) -> None:
    run(tmp_path, strategy)
    plain = plain_loop(MoleculeMethod(METHOD), METHOD.recipe(**SMALL), Molecules(unlabelled()), strategy).state_dict()
    found = weights(tmp_path)
    assert all(torch.equal(found[name], value) for name, value in plain.items() if isinstance(value, Tensor))


@pytest.mark.slow
def test_pre_training_tells_molecules_apart_and_learns_temperatures(tmp_path: Path) -> None:
    results = run(tmp_path, "learnable", Molecules(unlabelled(300)), num_train_epochs=6)
    losses = [entry["loss"] for entry in results["history"]]
    assert losses[-1] < losses[0] - 0.5
    assert results["history"][-1]["temperature"] != pytest.approx(0.1, abs=1e-4)
    assert results["evaluation"] == {}


def test_a_schedule_hears_of_fractions_of_epochs(tmp_path: Path) -> None:
    strategy = "schedule:temperature_min=0.1,temperature_max=0.9,period=2"
    results = run(tmp_path, strategy, Molecules(unlabelled(100)), training={"logging_strategy": "steps", "logging_steps": 1})
    assert [entry["temperature"] for entry in results["history"]] == pytest.approx([0.9, 0.5, 0.1, 0.5])


def test_bfloat16_trains(tmp_path: Path) -> None:
    half, full = (run(tmp_path / str(bf16), bf16=bf16) for bf16 in (True, False))
    assert half["loss"] == pytest.approx(full["loss"], rel=0.05)
    assert half["loss"] != full["loss"]
    assert {value.dtype for value in MoleculeEncoder.load(tmp_path / "True" / "encoder.pt").parameters()} == {torch.float32}


def test_molecules_without_bonds_train(tmp_path: Path) -> None:
    results = run(tmp_path, data=Molecules(MoleculeSet(["C", "O", "[Na+].[Cl-]"])), per_device_train_batch_size=2)
    assert math.isfinite(results["loss"])
    with pytest.raises(ConfigError, match="1 items are too few"):
        run(tmp_path / "one", data=Molecules(MoleculeSet(["CC"])))


@pytest.mark.slow
def test_a_killed_pre_training_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", SCHEDULE, both())
    with pytest.raises(Killed):
        run(tmp_path / "killed", SCHEDULE, both(), callbacks=[Kill(3)])
    again = run(tmp_path / "killed", SCHEDULE, both(), resume_from_checkpoint="auto")
    same(whole, again, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.3, 0.8])
def test_a_killed_fine_tuning_ends_as_if_it_had_not_been(tmp_path: Path, fraction: float) -> None:
    def kill(done: float) -> None:
        if done > fraction:
            raise Killed

    whole = run(tmp_path / "whole", SCHEDULE, both())
    with pytest.raises(Killed):
        run(tmp_path / "killed", SCHEDULE, both(), evaluation_progress=kill)
    assert not (tmp_path / "killed" / "metrics.json").exists()
    name = "one" if fraction < 0.5 else "three"
    tuned = tmp_path / "killed" / f"finetune-{name}"
    begun = {each.name for each in tuned.glob("checkpoint-*")}
    assert begun
    told: list[float] = []
    again = run(tmp_path / "killed", SCHEDULE, both(), resume_from_checkpoint="auto", evaluation_progress=told.append)
    assert told[0] > fraction - 0.1, "what was done is not done again"
    assert told[-1] == 1
    same(whole, again, tmp_path)


def same(whole: dict[str, Any], again: dict[str, Any], folder: Path) -> None:
    assert without_seconds(again) == without_seconds(whole)
    for part in (".", "finetune-one", "finetune-three"):
        expected, found = weights(folder / "whole" / part), weights(folder / "killed" / part)
        assert all(torch.equal(expected[name], found[name]) for name in expected), part
        results = [json.loads((folder / name / part / "metrics.json").read_text()) for name in ("whole", "killed")]
        assert without_seconds(results[0]) == without_seconds(results[1])


@pytest.mark.slow
def test_fine_tuning_waits_for_the_end_and_hears_the_users_arguments(tmp_path: Path) -> None:
    training = {"eval_strategy": "epoch", "logging_strategy": "steps", "logging_steps": 1, "max_steps": 2}
    results = run(tmp_path, data=both(), training=training, finetune_epochs=1)
    assert results["steps"] == 2
    assert not any("eval_roc_auc one" in entry for entry in results["history"][:-1])
    tuned = json.loads((tmp_path / "finetune-one" / "metrics.json").read_text())
    assert tuned["steps"] == 5, "max_steps is that of pre-training"
    assert len([entry for entry in tuned["history"] if "loss" in entry]) == 5
    assert results["evaluation"]["roc_auc one"] == tuned["evaluation"]["roc_auc"]


def test_the_recipe_is_that_of_graphcls_code() -> None:
    """You et al. 2020 and Hu et al. 2020, which MACL follows: Adam, 1e-3, 256 molecules a step, the encoder after 80 epochs."""
    recipe = METHOD.recipe()
    assert (recipe.num_train_epochs, recipe.per_device_train_batch_size, recipe.learning_rate) == (80, 256, 1e-3)
    settings = recipe.values()
    assert (settings["layers"], settings["width"], settings["view_ratio"], settings["optimizer"]) == (5, 300, 0.2, "adam")
    tuning = METHOD.recipe(seed=3, bf16=True).fine_tuning()  # type: ignore[attr-defined]
    assert (tuning.num_train_epochs, tuning.per_device_train_batch_size, tuning.learning_rate) == (100, 32, 1e-3)
    assert (tuning.dropout, tuning.weight_decay, tuning.optimizer, tuning.seed, tuning.bf16) == (0.5, 0, "adam", 3, True)
    assert tuple(molecule_files._TABLES) == DATASETS
    method, data = MoleculeMethod(METHOD), Molecules(unlabelled())
    for given, strategy, objective in [
        ("fixed", "fixed:temperature=0.1", "dcl"),
        # Huang et al. 2023, appendix B.5
        ("macl", "macl:base_temperature=0.1,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false", "dcl"),
        ("dystress", "dystress:temperature_min=0.05,temperature_max=0.1", "dcl"),
        ("schedule", "schedule:shape=cosine,temperature_min=0.05,temperature_max=0.2,period=16,seed=0", "dcl"),
        ("learnable", "learnable:initial_temperature=0.1", "infonce"),
        ("individual", "individual:size=101,temperature_init=0.1", "dcl"),
        ("amcl", "amcl:dimension=300", "dcl"),
    ]:
        loss = method.create_loss(recipe, data, TemperatureArguments(given, [], None))
        assert loss.strategy.spec().startswith(strategy)
        assert (loss.objective.name, loss.layout.name) == (objective, "cross-view")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("generated"))


def words(files: Path, output: Path, *more: str, datasets: tuple[str, ...] = ("one",)) -> list[str]:
    data = ["--dataset", ",".join(str(files / f"{name}.csv") for name in datasets)]
    data += ["--pretrain-file", str(files / "unlabelled.smi"), "--output-dir", str(output)]
    small = ["--layers", "2", "--width", "16", "--num-train-epochs", "2", "--per-device-train-batch-size", "64"]
    return ["train", "molecule", *data, *small, "--finetune-epochs", "2", *more]


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.mark.slow
def test_a_command_writes_encoder_and_figures(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(files, tmp_path, "--temperature-strategy", "macl", datasets=("one", "Three"))) == 0
    out = capsys.readouterr().out
    spec = "macl:base_temperature=0.1,alpha=0.5,threshold=0,floor_ratio=0.1,strict=false"
    assert out.startswith(f"strategy {spec}\nobjective dcl\n")
    assert "300 molecules to pre-train on, one with 200 molecules, Three with 200 molecules" in out
    results = metrics(tmp_path)
    assert (results["items"], results["unreadable"], results["recipe"]["width"]) == (300, 1, 16)
    assert list(results["evaluation"]) == ["roc_auc one", "valid_roc_auc one", "roc_auc Three", "valid_roc_auc Three"]
    for name, value in results["evaluation"].items():
        assert f"{name:<24} {value:8.2f}" in out
    assert [metrics(tmp_path / f"finetune-{name}")["tasks"] for name in ("one", "Three")] == [1, 3]


@pytest.mark.slow
def test_an_earlier_encoder_stands_for_pre_training(files: Path, tmp_path: Path) -> None:
    assert main(words(files, tmp_path / "all")) == 0
    again = ["--encoder", str(tmp_path / "all" / "encoder.pt"), "--layers", "7", "--pretrain-file", "nowhere"]
    assert main(words(files, tmp_path / "again", *again)) == 0
    whole, reused = metrics(tmp_path / "all"), metrics(tmp_path / "again")
    assert whole["evaluation"] == reused["evaluation"]
    assert (reused["steps"], reused["items"]) == (0, 0)
    assert (reused["recipe"]["layers"], reused["recipe"]["width"]) == (2, 16), "of the file"


def test_training_from_scratch_starts_where_pre_training_starts(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(files, tmp_path / "scratch", "--num-train-epochs", "0", "--pretrain-file", "nowhere")) == 0
    assert "one.csv: no pre-training, one with 200 molecules" in capsys.readouterr().out
    again = ["--num-train-epochs", "0", "--resume-from-checkpoint", "auto"]
    assert main(words(files, tmp_path / "scratch", *again, "--pretrain-file", "nowhere")) == 0
    assert main(words(files, tmp_path / "scratch", "--num-train-epochs", "0", "--pretrain-file", "nowhere")) == 2
    assert "holds checkpoint-10 of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err
    assert main(words(files, tmp_path / "trained", "--learning-rate", "1e-30", "--finetune-epochs", "0")) == 0
    fresh, unmoved = (MoleculeEncoder.load(tmp_path / name / "encoder.pt") for name in ("scratch", "trained"))
    for name, value in fresh.named_parameters():
        torch.testing.assert_close(value, unmoved.get_parameter(name), rtol=0, atol=1e-9)


def test_pre_training_alone_needs_no_data_set(files: Path, tmp_path: Path) -> None:
    more = ["--max-pretrain-molecules", "101", "--temperature-strategy", "learnable", "--bf16"]
    assert main(words(files, tmp_path, *more, datasets=())) == 0
    results = metrics(tmp_path)
    assert (results["items"], results["unreadable"], results["objective"]) == (100, 1, "infonce")
    assert results["evaluation"] == {}
    assert results["dataset"] == ""


def test_without_evaluation_labels_are_not_read(files: Path, tmp_path: Path) -> None:
    assert main(words(files, tmp_path, "--no-evaluate", datasets=("absent",))) == 0
    assert metrics(tmp_path)["evaluation"] == {}


@pytest.mark.slow
def test_a_new_run_does_not_write_over_an_old_one(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(files, tmp_path)) == 0
    assert main(words(files, tmp_path)) == 2
    assert "of an earlier run: pass --resume-from-checkpoint auto" in capsys.readouterr().err
    before = metrics(tmp_path)
    assert main(words(files, tmp_path, "--resume-from-checkpoint", "auto")) == 0
    assert without_seconds(metrics(tmp_path)) == without_seconds(before)
    assert main(words(files, tmp_path, "--resume-from-checkpoint", "auto", "--seed", "1")) == 2
    assert "seed=1 differs from the checkpoint's 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ["--temperature-strategy", "macl:alpha=-2"],
            "alpha=-2 of strategy 'macl' must be at least 0 and at most 1e+06.",
        ),
        (["--dataset", "BBB"], "no data set 'BBB'. Did you mean 'BBBP'?"),
        (["--dataset", "a/x.csv,b/x.csv"], "a/x.csv does not exist"),
        (["--pretrain-file", "nothing.smi"], "nothing.smi does not exist"),
        (["--encoder", "nothing.pt"], "nothing.pt does not exist"),
        (["--view-ratio", "1"], "view_ratio=1 must be at least 0 and less than 1."),
        (["--max-pretrain-molecules", "1"], "max_pretrain_molecules=1 must be an integer, at least 2."),
        (["--max-pretrain-molecules", "2"], "1 items are too few"),
    ],
)
def test_faults_end_with_one_line(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    assert main(words(files, tmp_path, *extra)) == 2
    err = capsys.readouterr().err
    assert f"error: {message}" in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("checkpoint-*")), "said before the training"


def test_two_data_sets_of_one_name_are_refused(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(files, tmp_path, datasets=("one", "one"))) == 2
    assert "has two data sets of the name 'one'." in capsys.readouterr().err


def test_without_molecules_to_pre_train_on_the_flag_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    assert main(["train", "molecule", "--output-dir", str(tmp_path)]) == 2
    assert "pass --pretrain-file, --data-dir or set TEMPPLUG_DATA" in capsys.readouterr().err


@pytest.mark.slow
def test_real_molecules_train_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    small = ["--max-pretrain-molecules", "200", "--num-train-epochs", "1", "--finetune-epochs", "2", "--layers", "2"]
    given = ["--dataset", "bace", "--data-dir", str(data_dir), "--output-dir", str(tmp_path), "--width", "16"]
    assert main(["train", "molecule", *given, *small]) == 0
    results = metrics(tmp_path)
    assert results["items"] == 200
    assert 50 < results["evaluation"]["roc_auc BACE"] < 100
    assert metrics(tmp_path / "finetune-BACE")["test"] == 152
