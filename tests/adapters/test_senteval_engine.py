"""Scripts written for SentEval run on our code: the same calls, the same keys, our numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from transfer_toys import letters, sentence, write_tables

from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.sentence_evaluation import senteval
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, TASKS
from tempplug_adapters.sentence_evaluation.transfer import FAST, evaluate_transfer

QUICK = {"kfold": 5, "classifier": {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}}


def batcher(params: Any, batch: list[list[str]]) -> np.ndarray:
    """What SimCSE's and SentEval's examples do: words to one array, an empty sentence to a full stop."""
    return np.vstack([letters([" ".join(words or ["."])])[0].numpy() for words in batch])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tables(tmp_path_factory.mktemp("data"))
    dev = folder / "SST2.dev.tsv"
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:41]))
    for task in STS_TASKS:
        (folder / "sts" / task).mkdir(parents=True)
        for number, file in enumerate({file for split in TASKS[task].splits for file in TASKS[task].files(split)}):
            rows = [
                f"{(7 * n + number) % 50 / 10}\t{sentence(n, 1)}\t{sentence(n + 1 + number, 2)}" for n in range(20 + number)
            ]
            (folder / "sts" / task / file).write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    return folder


def columns(folder: Path, file: str) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Scores of a file of pairs, and the vectors of both sides."""
    scores, a, b = zip(*(line.split("\t") for line in (folder / "sts" / file).read_text().splitlines()[1:]), strict=True)
    return [float(score) for score in scores], letters(list(a)).numpy(), letters(list(b)).numpy()


def test_transfer_has_the_keys_of_senteval_and_our_numbers(folder: Path) -> None:
    prepared: dict[str, int] = {}

    def prepare(params: Any, samples: list[list[str]]) -> None:
        prepared[params.current_task] = len(samples)
        params.table = {"seen": len(samples)}

    def reading(params: Any, batch: list[list[str]]) -> np.ndarray:
        assert params["table"]["seen"] == prepared[params.current_task]
        assert params.absent is None
        return batcher(params, batch)

    engine = senteval.engine.SE({"task_path": str(folder), "usepytorch": True, **QUICK}, reading, prepare)
    found = engine.eval(["MR", "SST2", "TREC", "MRPC"])
    assert engine.results is found
    wanted = evaluate_transfer(letters, folder, ["MR", "SST2", "TREC", "MRPC"], protocol=FAST)
    for task, sizes in {"MR": (60, 60), "SST2": (40, 60), "TREC": (72, 72), "MRPC": (60, 60)}.items():
        keys = {"devacc": wanted.dev[task], "acc": wanted.accuracy[task], "ndev": sizes[0], "ntest": sizes[1]}
        assert found[task] == (keys | {"f1": wanted.f1[task]} if task == "MRPC" else keys)
    assert prepared == {"MR": 60, "SST2": 160, "TREC": 144, "MRPC": 240}


def test_the_defaults_are_those_of_senteval() -> None:
    engine = senteval.SE({"task_path": "x", "classifier": {"nhid": 0, "max_epoch": 3}}, batcher)
    assert (engine.protocol.folds, engine.params.batch_size) == (5, 128)
    classifier = engine.protocol.classifier
    assert (classifier.optimizer, classifier.batch_size, classifier.max_epoch) == ("adam", 64, 3)


def test_sts_has_the_keys_of_senteval(folder: Path) -> None:
    found = senteval.SE({"task_path": str(folder)}, batcher).eval("STS13")
    parts = [columns(folder, f"STS13/{subset}.tsv") for subset in ("FNWN", "headlines", "OnWN")]
    assert list(found) == ["FNWN", "headlines", "OnWN", "all"]
    near = [(a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1) for _, a, b in parts]
    near = [each.round(6) for each in near]  # equal vectors tie
    together = np.concatenate(near), np.concatenate([scores for scores, _, _ in parts])
    sizes = [len(each) for each in near]
    assert [found[name]["nsamples"] for name in list(found)[:3]] == sizes
    for name, correlate in (("pearson", pearsonr), ("spearman", spearmanr)):
        values = [found[part][name][0] for part in list(found)[:3]]
        assert values == pytest.approx([correlate(a, b)[0] for a, (b, _, _) in zip(near, parts, strict=True)], abs=2e-3)
        assert found["all"][name]["all"] == pytest.approx(correlate(*together)[0], abs=2e-3)
        assert found["all"][name]["mean"] == pytest.approx(np.mean(values))
        assert found["all"][name]["wmean"] == pytest.approx(np.average(values, weights=sizes))


def test_the_benchmarks_have_dev_and_test_and_similarity_may_be_ones_own(folder: Path) -> None:
    parameters = {"task_path": str(folder), "similarity": lambda a, b: -float(np.abs(a - b).sum())}
    found = senteval.SE(parameters, batcher).eval(["STSBenchmark", "SICKRelatedness"])
    assert list(found["SICKRelatedness"]) == ["dev", "test"]
    scores, a, b = columns(folder, "STSB/test.tsv")
    wanted = spearmanr(-np.abs(a - b).sum(1), scores)
    assert found["STSBenchmark"]["test"]["spearman"].correlation == pytest.approx(wanted.statistic)


def test_a_zero_vector_is_like_nothing(folder: Path) -> None:
    def zeros(params: Any, batch: list[list[str]]) -> np.ndarray:
        vectors = batcher(params, batch)
        vectors[[words[0] == "ab" for words in batch]] = 0
        return vectors

    assert np.isfinite(senteval.SE({"task_path": str(folder)}, zeros).eval("STS12")["all"]["spearman"]["all"])


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"usepytorch": False}, ConfigError, "usepytorch=False"),
        ({"seed": 7}, ConfigError, "seed=7"),
        ({"kfold": 1}, ConfigError, "folds=1 must be an integer, at least 2"),
        ({"batch_size": 0}, ConfigError, "batch_size=0 must be a whole number"),
        ({"task_path": ""}, ConfigError, "params lacks task_path"),
        ({"classifier": {"nhid": 50}}, ConfigError, "classifier nhid=50"),
        ({"classifier": {"nhid": 0, "tenacty": 3}}, UnknownNameError, "classifier has tenacty; known are nhid, optim"),
        ({}, UnknownNameError, r"unknown task 'STS-B'.*Known here: MR, CR.*SICKRelatedness"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        senteval.SE({"task_path": "x", **params}, batcher).eval("STS-B")
