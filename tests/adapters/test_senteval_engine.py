"""Scripts written for SentEval run on our code: the same calls, the same keys, our numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    dev = tmp_path / "SST2.dev.tsv"
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:41]))
    for task in STS_TASKS:
        (tmp_path / "sts" / task).mkdir(parents=True)
        for number, file in enumerate({file for split in TASKS[task].splits for file in TASKS[task].files(split)}):
            rows = [
                f"{(7 * n + number) % 50 / 10}\t{sentence(n, 1)}\t{sentence(n + 1 + number, 2)}" for n in range(20 + number)
            ]
            (tmp_path / "sts" / task / file).write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    return tmp_path


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


def test_the_defaults_are_those_of_senteval(folder: Path) -> None:
    engine = senteval.SE({"task_path": str(folder)}, batcher)
    assert (engine.protocol.folds, engine.params.batch_size) == (5, 128)
    assert (engine.protocol.classifier.optimizer, engine.protocol.classifier.batch_size) == ("adam", 64)
    assert (
        senteval.SE({"task_path": "x", "classifier": {"nhid": 0, "max_epoch": 3}}, batcher).protocol.classifier.max_epoch == 3
    )


def test_sts_has_the_keys_of_senteval(folder: Path) -> None:
    found = senteval.SE({"task_path": str(folder)}, lambda params, batch: letters([" ".join(w) for w in batch])).eval("STS13")
    assert list(found) == ["FNWN", "headlines", "OnWN", "all"]
    near: list[float] = []
    gold: list[float] = []
    each = {"pearson": [], "spearman": []}
    for subset in ("FNWN", "headlines", "OnWN"):
        lines = (folder / "sts" / "STS13" / f"{subset}.tsv").read_text().splitlines()[1:]
        scores, a, b = zip(*(line.split("\t") for line in lines), strict=True)
        similar = torch.nn.functional.cosine_similarity(letters(list(a)), letters(list(b))).round(decimals=6)
        part = found[subset]
        assert part["nsamples"] == len(lines)
        assert part["pearson"][0] == pytest.approx(pearsonr(similar, [float(score) for score in scores])[0], abs=1e-5)
        near, gold = [*near, *similar.tolist()], [*gold, *map(float, scores)]
        for name in each:
            each[name].append((part[name][0], len(lines)))
    assert found["all"]["spearman"]["all"] == pytest.approx(spearmanr(near, gold)[0], abs=2e-3)
    assert found["all"]["pearson"]["all"] == pytest.approx(pearsonr(near, gold)[0], abs=1e-5)
    for name, parts in each.items():
        values, sizes = zip(*parts, strict=True)
        assert found["all"][name]["mean"] == pytest.approx(np.mean(values))
        assert found["all"][name]["wmean"] == pytest.approx(np.average(values, weights=sizes))


def test_the_benchmarks_are_cosines_of_dev_and_test_and_similarity_may_be_ones_own(folder: Path) -> None:
    parameters = {"task_path": str(folder), "similarity": lambda a, b: -float(np.abs(a - b).sum())}
    found = senteval.SE(parameters, batcher).eval(["STSBenchmark", "SICKRelatedness"])
    assert list(found["SICKRelatedness"]) == ["dev", "test"]
    lines = (folder / "sts" / "STSB" / "test.tsv").read_text().splitlines()[1:]
    scores, a, b = zip(*(line.split("\t") for line in lines), strict=True)
    wanted = spearmanr(-(letters(list(a)) - letters(list(b))).abs().sum(1), [float(score) for score in scores])
    assert found["STSBenchmark"]["test"]["spearman"].correlation == pytest.approx(wanted.statistic)


def test_a_zero_vector_is_like_nothing(folder: Path) -> None:
    def zeros(params: Any, batch: list[list[str]]) -> np.ndarray:
        vectors = batcher(params, batch)
        vectors[[words[0] == "ab" for words in batch]] = 0
        return vectors

    assert np.isfinite(senteval.SE({"task_path": str(folder)}, zeros).eval("STS12")["all"]["spearman"]["all"])


def test_what_is_not_had_is_refused() -> None:
    for asked, message in {
        "usepytorch": (False, "usepytorch=False is not had here, only True"),
        "seed": (7, "seed=7 is not had here, only 1111"),
        "kfold": (1, "folds=1 must be an integer, at least 2"),
        "batch_size": (0, "batch_size=0 must be a whole number"),
        "task_path": ("", "params lacks task_path"),
        "classifier": ({"nhid": 50}, "classifier nhid=50 is not had here, only 0"),
    }.items():
        value, said = message
        with pytest.raises(ConfigError, match=said):
            senteval.SE({"task_path": "x", asked: value}, batcher)
    with pytest.raises(UnknownNameError, match="classifier has tenacty; known are nhid, optim"):
        senteval.SE({"task_path": "x", "classifier": {"nhid": 0, "tenacty": 3}}, batcher)
    with pytest.raises(UnknownNameError, match=r"unknown task 'STS-B'.*Known here: MR, CR.*SICKRelatedness"):
        senteval.SE({"task_path": "x"}, batcher).eval("STS-B")
