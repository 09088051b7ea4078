"""Every training says what it gained: the untrained figures, those after, the difference, and the metric in words."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from huggingface_toys import Data, make as make_trainer
from method_toys import METHOD, Kill, Killed, Points, ToyMethod, run, train_toy, without_seconds
from molecule_toys import labelled, unlabelled
from sentence_transformer_toys import create, make, sentences, through, weights
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from tempplug_adapters.gain import figures_at, report_gain
from tempplug_adapters.graph.molecule_method import Molecules
from tempplug_adapters.graph.recipes import MOLECULE
from tempplug_adapters.metric_names import METRICS, QUALIFIERS, explain
from tempplug_adapters.training.callbacks import ProgressLine

TASKS = Path(__file__).parents[2] / "benchmarks" / "tempplug_benchmarks" / "tasks"


def words(folder: Path, *more: str) -> list[str]:
    return ["--dataset", "points", "--output-dir", str(folder), *more]


def events(err: str, kind: str = "") -> list[dict[str, Any]]:
    """Returns the events among the lines of standard error, or those of a kind."""
    found = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    return [each for each in found if kind in ("", each["event"])]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def spread(points: Points, encoder: torch.nn.Linear) -> float:
    """Returns the figure of the toy method."""
    with torch.no_grad():
        return float(encoder(points.x).std())


def test_a_command_writes_the_gain_to_standard_error_and_leaves_standard_output_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert METHOD(words(tmp_path / "without", "--eval-on-start", "false")) == 0
    without = capsys.readouterr()
    assert METHOD(words(tmp_path / "with")) == 0
    shown = capsys.readouterr()
    assert shown.out.replace("/with", "/without") == without.out
    assert {each["event"] for each in events(without.err)} == {"progress"}
    assert METHOD(words(tmp_path / "none", "--no-evaluate")) == 0
    assert {each["event"] for each in events(capsys.readouterr().err)} == {"progress"}
    torch.manual_seed(0)  # the recipe's
    untrained = spread(Points(), torch.nn.Linear(6, 4))
    (start,) = events(shown.err, "untrained")
    assert start["figures"] == {"spread": pytest.approx(untrained, rel=1e-6), "final": 0.0}
    metrics = json.loads((tmp_path / "with" / "metrics.json").read_text())
    gains = {each["metric"]: each for each in events(shown.err, "gain")}
    after = metrics["evaluation"]["spread"]
    expected = {"untrained": start["figures"]["spread"], "trained": after, "difference": after - start["figures"]["spread"]}
    assert gains["spread"] == {"event": "gain", "metric": "spread", **expected, "meaning": None}
    assert gains["final"]["difference"] == 1
    assert [each["step"] for each in events(shown.err, "progress")] == list(range(1, 10))
    assert all(each["steps"] == 9 for each in events(shown.err, "progress"))
    assert events(shown.err, "progress")[-1]["seconds_left"] == 0


def test_measuring_the_untrained_model_does_not_change_the_training(tmp_path: Path) -> None:
    data = Molecules(unlabelled(60), {"one": labelled(200, 1)})
    settings = {"layers": 2, "width": 16, "per_device_train_batch_size": 50, "num_train_epochs": 2, "finetune_epochs": 1}

    def molecules(folder: Path, **training: Any) -> dict[str, Any]:
        return train_toy(MOLECULE, folder, data, **settings, training=training)

    for name, trained in (("toy", lambda folder, **training: run(folder, training=training)), ("molecule", molecules)):
        plain, measured = (trained(tmp_path / f"{name}-{on}", eval_on_start=on) for on in (False, True))
        start, *history = measured["history"]
        assert start["step"] == 0
        assert start.keys() >= {f"eval_{metric}" for metric in measured["evaluation"]}, name
        assert without_seconds({**measured, "history": history}) == without_seconds(plain), name
        first, second = (torch.load(tmp_path / f"{name}-{on}" / "encoder.pt", weights_only=True) for on in (False, True))
        first, second = (each.get("state", each) if "state" in each else each for each in (first, second))
        tensors = [key for key, value in first.items() if isinstance(value, torch.Tensor)]
        assert all(torch.equal(first[key], second[key]) for key in tensors)


def test_a_resumed_training_keeps_the_untrained_figures_and_does_not_measure_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert METHOD(words(tmp_path / "whole")) == 0
    whole = events(capsys.readouterr().err, "gain")
    measured: list[bool] = []
    evaluate = ToyMethod.evaluate

    def count(self: ToyMethod, recipe: Any, module: Any, data: Any, run: Any) -> dict[str, float]:
        measured.append(run.untrained)
        return evaluate(self, recipe, module, data, run)

    monkeypatch.setattr(ToyMethod, "evaluate", count)
    with pytest.raises(Killed):
        run(tmp_path / "killed", callbacks=[Kill(5)], training={"eval_on_start": True}, dataset="points", files=dict)
    assert measured == [True]
    assert METHOD(words(tmp_path / "killed", "--resume-from-checkpoint", "auto")) == 0
    shown = events(capsys.readouterr().err)
    assert measured == [True, False], "only the trained one"
    assert [each for each in shown if each["event"] == "gain"] == whole
    assert not [each for each in shown if each["event"] in ("measuring", "untrained")]
    assert [each["step"] for each in shown if each["event"] == "progress"] == [5, 6, 7, 8, 9]


def test_seconds_of_an_epoch_are_without_those_of_the_first_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = ToyMethod.evaluate

    def slowly(self: ToyMethod, recipe: Any, module: Any, data: Any, run: Any) -> dict[str, float]:
        if run.untrained:
            time.sleep(3)
        return evaluate(self, recipe, module, data, run)

    monkeypatch.setattr(ToyMethod, "evaluate", slowly)
    assert run(tmp_path, training={"eval_on_start": True})["seconds_per_epoch"] < 1


def test_a_terminal_shows_a_table_in_words_and_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    before = {"knn": 31.25, "uniformity": -1.0, "knn validation": 30.0, "gone": 1.0, "odd": 1.0}
    report_gain(before, {"knn": 61.5, "uniformity": -2.34567, "knn validation": math.nan, "new": 3.0, "odd": 2.0})
    header, *lines = sys.stderr.getvalue().splitlines()
    assert header.split() == ["gain", "of", "the", "training", "untrained", "trained", "difference"]
    assert lines[0].split() == ["knn", "31.25", "61.5", "+30.25"]
    assert lines[1].split() == ["uniformity", "-1", "-2.346", "-1.346"]
    assert lines[2].split()[:4] == ["knn", "validation", "30", "nan"]
    assert lines[3].split() == ["odd", "1", "2", "+1"]
    assert [line.split(":")[0] for line in lines[4:]] == ["knn", "uniformity", "validation"]
    assert not any(word in sys.stderr.getvalue() for word in ("gone", "new", "{"))
    assert max(map(len, [header, *lines[:4]])) <= 80
    sys.stderr = Terminal()
    report_gain({str(number): 0.0 for number in range(99)}, {str(number): 1.0 for number in range(99)})
    assert sys.stderr.getvalue().splitlines()[-1] == "and 84 more in the log"
    sys.stderr = Terminal()
    report_gain({}, {"knn": 1.0})
    assert sys.stderr.getvalue() == "", "nothing to compare with"


def test_a_terminal_has_a_bar_with_the_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ProgressLine() as line:
        run(tmp_path, training={"eval_on_start": True}, callbacks=[line], evaluation_progress=line.evaluating)
    shown = sys.stderr.getvalue()
    assert "measuring the untrained model; --eval-on-start false leaves it out" in shown
    assert re.search(r"train: 100%.* 9/9 \[\d\d:\d\d<\d\d:\d\d", shown)
    assert re.search(r"^untrained  spread \S+  final 0$", shown.replace("\r", "\n"), flags=re.MULTILINE)
    assert "{" not in shown


def test_figures_that_are_not_finite_are_null_in_events(capsys: pytest.CaptureFixture[str]) -> None:
    report_gain({"f1_micro 10/80/10": math.nan}, {"f1_micro 10/80/10": 50.0})
    (line,) = events(capsys.readouterr().err)
    assert (line["untrained"], line["trained"], line["difference"]) == (None, 50.0, None)
    assert "logistic regression" in line["meaning"]
    assert "80 % to choose by" in line["meaning"]


def test_figures_are_those_of_a_step_or_of_the_last_evaluation() -> None:
    history: list[dict[str, Any]] = [
        {"eval_a_loss": 3.0, "eval_a_runtime": 1.0, "epoch": 0, "step": 0},
        {"eval_b_loss": 4.0, "eval_b_samples_per_second": 1.0, "step": 0},
        {"loss": 1.0, "step": 5},
        {"eval_a_loss": 2.0, "step": 5},
        {"eval_a_loss": 2.5, "eval_name": "text", "step": 9},
        {"train_runtime": 1.0, "step": 9},
    ]
    assert figures_at(history, 0) == {"a_loss": 3.0, "b_loss": 4.0}
    assert figures_at(history, 5) == {"a_loss": 2.0}
    assert figures_at(history, None) == {"a_loss": 2.5}
    assert figures_at([], None) == figures_at([], 0) == {}


def figures_of(declared: Any) -> set[str]:
    """Returns the names of the figures of all metrics that the declaration of a suite has."""
    if not isinstance(declared, dict):
        return set()
    own = {each.get("figure", each["name"]) for each in declared.get("metrics", []) if isinstance(each, dict)}
    return own.union(*map(figures_of, declared.values()))


OF_METHODS = {
    *("held_out_ndcg@10", "cisi_recall@100", "stsb_dev", "sts12", "sickr", "sts_average", "mr", "transfer_average", "knn"),
    *("linear top-5", "svc", "few-shot", "long-tail tail", "validation knn@10", "10 labels", "tolerance", "uniformity"),
    *("interclass_uniformity", "f1_macro public", "validation_accuracy", "valid_roc_auc", "average_precision"),
    *("image_to_text_r1", "text_to_image_r10", "zero_shot", "validation_icat", "contrastive_accuracy", "infonce_loss"),
}
OF_LIBRARY = {
    *("sts-dev_spearman_cosine", "sts_pearson_cosine", "nli_cosine_accuracy", "NanoMSMARCO_cosine_ndcg@10", "loss", "nli_loss"),
    *("x_cosine_accuracy@1", "x_cosine_precision@3", "x_cosine_recall@5", "x_cosine_mrr@10", "x_cosine_map@100", "x_map"),
}


def test_every_metric_of_the_suites_the_methods_and_the_library_has_words() -> None:
    suites = set().union(*(figures_of(tomllib.loads(file.read_text())) for file in TASKS.glob("*.toml")))
    assert len(suites) > 30
    names = {*suites, *OF_METHODS, *OF_LIBRARY} - {"gain"}
    assert [name for name in sorted(names) if not set(explain(name)) & METRICS.keys()] == []
    assert list(explain("interclass_uniformity")) == ["interclass_uniformity"], "not uniformity"
    assert list(explain("valid_roc_auc BBBP")) == ["roc_auc", "validation"]
    assert list(explain("ndcg@10 full")) == ["nDCG@k", "full"]
    assert explain("spread") == {}
    assert all(len(clause) <= 100 for _, clause in (METRICS | QUALIFIERS).values()), "one short clause"


def evaluator() -> EmbeddingSimilarityEvaluator:
    rows = sentences(12, seed=3, columns=2)
    return EmbeddingSimilarityEvaluator(rows["anchor"], rows["positive"], [place / 12 for place in range(12)], name="toy")


@pytest.mark.parametrize("strategy", ["no", "epoch", "steps"])
def test_the_sentence_transformers_trainer_says_what_it_gained(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    model, loss = create(tiny_bert, "fixed")
    untrained = evaluator()(model)["toy_spearman_cosine"]
    trainer = make(
        tmp_path, model, loss, keywords={"evaluator": evaluator()}, eval_strategy=strategy, eval_steps=4, max_steps=8
    )
    trainer.train()
    shown = capsys.readouterr()
    trained = evaluator()(model)["toy_spearman_cosine"]
    assert trained != untrained
    gains = {each["metric"]: each for each in events(shown.err, "gain")}
    expected = {"untrained": untrained, "trained": trained, "difference": trained - untrained}
    for name, value in expected.items():
        assert gains["toy_spearman_cosine"][name] == pytest.approx(value, abs=1e-6)
    assert gains["toy_spearman_cosine"]["meaning"] == "Spearman's rank correlation of cosines with human ratings"
    steps = [entry["step"] for entry in trainer.state.log_history if "eval_toy_spearman_cosine" in entry]
    assert steps == ([0, 4, 8] if strategy == "steps" else [0, 8])


def test_the_best_model_is_compared_and_a_resumed_training_measures_no_untrained_model(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, best_steps = "toy_spearman_cosine", set()
    arguments: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    arguments |= {"load_best_model_at_end": True, "metric_for_best_model": name, "max_steps": 8}
    for door, better in (("trainer", max), ("callback", min)):
        for resumed in (None, str(tmp_path / door / "checkpoint-4")):
            model, loss = create(tiny_bert, "fixed")
            keywords = {"evaluator": evaluator()}
            trainer = through(
                door, tmp_path / door, model, loss, keywords=keywords, greater_is_better=better is max, **arguments
            )
            trainer.train(resume_from_checkpoint=resumed)
            (gain,) = [each for each in events(capsys.readouterr().err, "gain") if each["metric"] == name]
            seen = [(each["step"], each[f"eval_{name}"]) for each in trainer.state.log_history if f"eval_{name}" in each]
            assert [step for step, _ in seen] == [0, 2, 4, 6, 8], "each step once"
            best_step, best = better(seen[1:], key=lambda each: each[1])
            assert (gain["untrained"], gain["trained"]) == (seen[0][1], best)
            assert gain["trained"] == pytest.approx(evaluator()(trainer.model)[name], abs=1e-6)
            best_steps.add(best_step)
    assert best_steps - {8}, "the best is not always the last"


@pytest.mark.parametrize("of_library", [True, False])
def test_the_first_evaluation_of_a_trainer_does_not_change_the_training(
    tiny_bert: Path, tmp_path: Path, of_library: bool
) -> None:
    """Dropout and the order of the batches are those of a training that is not measured."""
    ends = []
    for measured in (True, False):
        torch.manual_seed(0)
        if of_library:
            model, loss = create(tiny_bert, "macl", dropout=True)
            keywords = {"eval_dataset": Dataset.from_dict(sentences(16, 5)), "measure_gain": measured}
            trainer = make(tmp_path, model, loss, keywords=keywords, max_steps=3)
        else:
            strategy = "epoch" if measured else "no"
            keywords = {"eval_dataset": Data(16, seed=1)}
            trainer = make_trainer(tmp_path, "macl", dropout=0.5, keywords=keywords, eval_strategy=strategy, max_steps=3)
        trainer.train()
        ends.append(weights(trainer))
        steps = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
        assert steps == ([0, 3] if measured else [])
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
