"""SimCSE's recipes: what their sources say, by names that the command lists, each of which starts a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simcse_toys import write_toys

from tempplug.cli import main
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb
from tempplug_adapters.simcse.recipe import METHOD

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")

BERT, ROBERTA = "bert-base-uncased", "roberta-base"
# Epochs, batch, learning rate, encoder, whether the MLP is left out in the end, strategy.
PAPERS = {
    "unsupervised-bert": (1, 64, 3e-5, BERT, True, "fixed:temperature=0.05"),
    "unsupervised-roberta": (1, 512, 1e-5, ROBERTA, True, "fixed:temperature=0.05"),
    "supervised-bert": (3, 512, 5e-5, BERT, False, "fixed:temperature=0.05"),
    "supervised-roberta": (3, 512, 5e-5, ROBERTA, False, "fixed:temperature=0.05"),
    "macl-bert": (1, 64, 3e-5, BERT, True, "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"),
    "macl-roberta": (
        1,
        64,
        1e-5,
        ROBERTA,
        True,
        "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false",
    ),
    "dystress-bert": (1, 64, 3e-5, BERT, True, "dystress:temperature_min=0.03,temperature_max=0.05,profile=cosine,"),
}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toys(tmp_path_factory.mktemp("toys"))


def start(toys: Path, output: Path, recipe: str, *more: str) -> dict[str, Any]:
    """Trains two small steps, with everything else as the recipe has it."""
    file = "triplets.csv" if recipe.startswith("supervised") else "sentences.txt"
    words = ["--model-name-or-path", str(toys / "encoder"), "--dataset", str(toys / file), "--data-dir", str(toys / "sts")]
    words += [
        "--no-sts-test",
        "--per-device-train-batch-size",
        "8",
        "--max-steps",
        "2",
        "--eval-strategy",
        "no",
        "--save-strategy",
    ]
    assert main(["train", "simcse", "--recipe", recipe, *words, "no", "--output-dir", str(output), *more]) == 0
    results: dict[str, Any] = json.loads((output / "metrics.json").read_text())
    return results


def test_every_recipe_has_a_source() -> None:
    assert set(METHOD.recipes) == set(PAPERS)
    assert next(iter(METHOD.recipes)) == "unsupervised-bert"


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_is_that_of_its_paper_and_starts(toys: Path, tmp_path: Path, name: str) -> None:
    recipe = METHOD.recipe(name)
    values = recipe.values()
    fields = ("num_train_epochs", "per_device_train_batch_size", "learning_rate", "model_name_or_path", "mlp_only_train")
    assert tuple(values[field] for field in fields) == PAPERS[name][:-1]
    assert (values["pooler"], values["max_length"], values["dropout"]) == ("cls", 32, None)
    assert [values[each] for each in ("lr_scheduler_type", "warmup_steps", "weight_decay")] == ["linear", 0, 0]
    assert recipe.running["eval_steps"] == 125
    assert recipe.training()["max_grad_norm"] == 1, "the default of the Trainer that the authors' code uses"
    results = start(toys, tmp_path, name)
    assert results["strategy"].startswith(PAPERS[name][-1])
    assert (results["objective"], results["steps"]) == ("infonce", 2)
    encoder = load_encoder(tmp_path)
    assert encoder.pooling == ("cls_before_pooler" if values["mlp_only_train"] else "cls")
    assert evaluate_stsb(encoder, toys / "sts") == pytest.approx(results["evaluation"]["stsb_dev"], abs=1e-4)
    card = (tmp_path / "README.md").read_text()
    assert f"| strategy | `{results['strategy']}` |" in card
    assert f"| STS-B dev | {results['evaluation']['stsb_dev']:.2f} |" in card


def test_flags_come_before_the_recipes_strategy(toys: Path, tmp_path: Path) -> None:
    with_option = start(toys, tmp_path / "option", "macl-bert", "--temperature-args", "alpha=1")
    assert with_option["strategy"].startswith("macl:base_temperature=0.05,alpha=1,threshold=0.8")
    other = start(toys, tmp_path / "other", "macl-bert", "--temperature-strategy", "fixed")
    assert other["strategy"] == "fixed:temperature=0.05"


def test_help_lists_the_recipes_and_their_strategies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert main(["train", "simcse", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert all(name in words for name in METHOD.recipes)
    assert "(default: fixed; macl-bert: macl; macl-roberta: macl; dystress-bert: dystress)" in words
    assert "(default: yes; supervised-bert: no; supervised-roberta: no)" in words
