"""``tempplug train sasrec`` and what it shares with ``dcrec``: trainings, held-out users, the command's faults."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from method_toys import weights
from recommendation_toys import SMALL, run, toy_log, walks, write_log

from tempplug.cli import main
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.method import SequenceMethod, evaluate_ranker, popularity_ranker
from tempplug_adapters.recommendation.recipes import SASREC as METHOD

FIGURES = [f"{kind}@{k}" for kind in ("hr", "ndcg") for k in (1, 5, 10)]


def test_the_next_item_is_learned_and_the_best_model_is_kept_and_measured(tmp_path: Path) -> None:
    results = run(METHOD, tmp_path, num_train_epochs=15, learning_rate=0.02, rankings=("full", "sampled"))
    assert json.loads((tmp_path / "metrics.json").read_text()) == results
    data, method, recipe = toy_log(), SequenceMethod(METHOD), METHOD.recipe(**SMALL)
    assert (results["strategy"], results["objective"], results["items"]) == (None, None, len(data))
    tested = [f"{who}{name} {ranking}" for who in ("", "popularity ") for ranking in ("full", "sampled") for name in FIGURES]
    found = results["evaluation"]
    assert list(found) == [*(f"validation {name}" for name in FIGURES), *tested]
    assert found["hr@5 full"] > found["popularity hr@5 full"] + 20
    seen = [entry["eval_validation ndcg@10"] for entry in results["history"] if "eval_validation ndcg@10" in entry]
    assert found["validation ndcg@10"] == pytest.approx(max(seen)), "the best model is kept"
    module = method.build(recipe, data, None).eval()
    module.encoder.load_state_dict(torch.load(tmp_path / "encoder.pt", weights_only=True))
    rankers = {"": method.ranker(recipe, module, data, "test"), "popularity ": popularity_ranker(data.popularity("test"))}
    for prefix, ranker in rankers.items():
        with torch.no_grad():
            own = evaluate_ranker(ranker, data, data.test, ["full"])["full"]
        assert {name: found[f"{prefix}{name} full"] for name in FIGURES} == pytest.approx(own)


def test_the_test_set_does_not_reach_training(tmp_path: Path) -> None:
    run(METHOD, tmp_path / "one", num_train_epochs=1)
    others = [np.append(sequence[:-1], 1) for sequence in walks()]
    run(METHOD, tmp_path / "two", num_train_epochs=1, data=Interactions(others, 12, 12, 0.3))
    one, two = (weights(tmp_path / name) for name in ("one", "two"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_training_ends_early_on_the_held_out_users(tmp_path: Path, evaluated: bool) -> None:
    training = {"early_stopping_patience": 2, **({} if evaluated else {"eval_strategy": "no"})}
    results = run(METHOD, tmp_path, num_train_epochs=9, learning_rate=1e-9, training=training)
    assert results["epochs"] == (3 if evaluated else 9), "the first epoch was the best"
    assert evaluated or not [entry for entry in results["history"][:-1] if "eval_validation ndcg@10" in entry]


def words(log: Path, output: Path, *more: str) -> list[str]:
    small = ["--hidden", "8", "--inner", "8", "--layers", "1", "--num-train-epochs", "1", "--validation-share", "0.3"]
    return ["train", "sasrec", "--dataset", str(log), *small, "--output-dir", str(output), *more]


def test_a_command_trains_on_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.csv", walks())
    assert main(words(log, tmp_path / "run", "--rankings", "sampled")) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"strategy none\nobjective none\n{log}: 40 users, 12 items, ")
    shown = [line.split() for line in out.splitlines()[-10:]]
    assert [row[:2] for row in shown[:2]] == [["validation", "hr@1"], ["validation", "hr@5"]]
    assert [row[:2] for row in shown[6:8]] == [["hr@1", "sampled"], ["hr@5", "sampled"]]
    assert shown[-1] == f"next: tempplug recommend {tmp_path / 'run'} --user 0 --top 10".split()
