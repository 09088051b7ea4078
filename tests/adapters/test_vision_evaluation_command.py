"""``tempplug eval vision``: the numbers of the parts, on digits and CIFAR-10, written, printed, drawn; faults in one line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import top_k_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from tempplug import metrics
from tempplug.cli import main as tempplug
from tempplug.errors import DataError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.long_tail import long_tail_indices
from tempplug_adapters.images.representations import represent
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.vision.evaluation import evaluations
from tempplug_adapters.vision.evaluation.classifiers import (
    accuracy,
    few_label_accuracies,
    fit_linear_probe,
    knn_votes,
    svc_probe,
)
from tempplug_adapters.vision.evaluation.evaluations import Evaluation, long_tail_evaluation
from tempplug_adapters.vision.evaluation.settings import EvaluationSettings, LinearProbeSettings
from tempplug_adapters.vision.evaluation_command import evaluation_table
from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_adapters.vision.vision_images import load_vision

BRIEF = LinearProbeSettings(epochs=5, batch_size=64, seed=3)


def written(folder: Path, **about: Any) -> Path:
    """The folder of a training whose backbone is `backbone(0)`."""
    recipe = {"backbone": "resnet18", "stem": "cifar", "width": 4, "image_size": 8, "augmentation": "simclr-cifar"}
    drawn = {"count": None, "imbalance_ratio": None, "largest_class": None, "held_out": 0, "split_seed": 3, "load_size": None}
    folder.mkdir()
    torch.save(backbone(0).state_dict(), folder / "encoder.pt")
    dataset = about.pop("dataset", "digits")
    write_json(folder / "settings.json", {"dataset": dataset, "recipe": {**recipe, **drawn, **about}})
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("trained") / "run")


def backbone(seed: int) -> Backbone:
    torch.manual_seed(seed)
    return create_backbone("resnet18", stem="cifar", width=4)


def evaluate(checkpoint: Path, output: Path, *more: str) -> tuple[int, dict[str, Any]]:
    given = ["--checkpoint", str(checkpoint), "--dataset", "digits", "--output", str(output), "--device", "cpu", "--seed", "3"]
    status = tempplug(["eval", "vision", *given, *more])
    return status, json.loads(output.read_text()) if output.exists() else {}


def test_numbers_are_those_of_the_parts(checkpoint: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(evaluations.PROBES, "lightly", replace(BRIEF, seed=0))
    flags = "--neighbours 5 --vote-temperature 0.0001 --imbalance-ratio 10 --largest-class 40 --split-seed 4 --train-images 700"
    names = ["knn", "linear-probe", "top-5", "svc-probe", "few-labels", "long-tail", "report"]
    more = "--test-images 200 --augmentation simclr-cifar --batch-size 100"
    status, found = evaluate(checkpoint, tmp_path / "new" / "a.json", "--evaluations", *names, *flags.split(), *more.split())
    assert status == 0
    train = load_images("digits", "train", None, count=700, seed=4)
    test = load_images("digits", "test", None, count=200, seed=4)
    network, labels, truth = backbone(0), train.labels, test.labels
    bank, queries = (represent(network, each, batch_size=100) for each in (train, test))
    assert (found["bank"], found["queries"], found["classes"], found["dimension"]) == (700, 200, 10, bank.shape[1])
    order = torch.randperm(700, generator=torch.Generator().manual_seed(4))
    nearest = KNeighborsClassifier(1, metric="cosine").fit(bank[order[70:]], labels[order[70:]])  # of so cold a vote
    knn = {"validation": 100 * nearest.score(bank[order[:70]], labels[order[:70]]), "k": 5, "temperature": 1e-4}
    voted = knn_votes(bank, labels, queries, k=5, temperature=1e-4).argmax(1)
    assert found["knn"] == pytest.approx({"accuracy": accuracy(truth, voted), **knn})
    assert 0 < knn["validation"] < 100
    probe = fit_linear_probe(bank, labels, BRIEF)
    linear = {"accuracy": pytest.approx(accuracy(truth, probe(queries).argmax(1))), "epochs": 5, "seed": 3}
    assert {name: found["linear-probe"][name] for name in linear} == linear
    votes = KNeighborsClassifier(5, metric="cosine", weights=lambda far: np.exp(1e4 * (far.min(1)[:, None] - far)))
    scores = votes.fit(bank.double(), labels).predict_proba(queries.double())
    # of classes with equal scores scikit-learn's takes the highest first, and ours the lowest
    turned = top_k_accuracy_score(9 - truth.numpy(), scores[:, ::-1], k=5, labels=range(10))
    within = top_k_accuracy_score(truth, probe(queries).detach(), k=5)
    assert found["top-5"] == pytest.approx({"knn top-5": 100 * turned, "linear top-5": 100 * within})
    assert found["few-labels"] == few_label_accuracies(bank, labels, queries, truth, seed=3)
    assert found["svc-probe"]["accuracy"] == pytest.approx(accuracy(truth, svc_probe(bank, labels, queries)))
    chosen = long_tail_indices(labels, 10, 40, 4)
    tail = long_tail_evaluation(bank[chosen], labels[chosen], queries, truth)
    assert found["long-tail"]["bank"] == len(chosen)
    for name, score in tail.items():
        assert found["long-tail"][name]["tail"] == pytest.approx(score["tail"]), name
    report = found["report"]
    assert report["uniformity"] == pytest.approx(metrics.uniformity(queries).item(), rel=1e-3)
    assert report["tolerance"] == pytest.approx(metrics.tolerance(queries, truth).item(), rel=1e-3)
    torch.manual_seed(3)
    augmentation = create_augmentation("simclr-cifar", 8)
    views = [represent(network, test, augmentation=augmentation, batch_size=100) for _ in "ab"]
    assert report["alignment"] == pytest.approx(metrics.alignment(*views).item(), rel=1e-3)
    table = capsys.readouterr().out
    assert "bank of 700 train images, 200 test images as queries\n" in table
    for name, value in {
        "knn": found["knn"]["accuracy"],
        "linear top-5": found["top-5"]["linear top-5"],
        "10 labels": found["few-labels"]["10 labels"],
        "knn@10": found["long-tail"]["knn@10"]["overall"],
        "alignment": report["alignment"],
    }.items():
        assert re.search(rf"(^|  ){name} +{value:.4g}($|  )", table, re.M), name
    assert len(table.splitlines()) <= 15
    assert all(len(line) <= 80 for line in table.splitlines() if "/" not in line)


def test_the_table_has_a_figure_for_each_group_of_classes_that_there_is() -> None:
    score = {"overall": 41.204, "head": 60.0, "middle": 33.1, "tail": None, "classes": [1.0]}
    found = {"checkpoint": "a.pt", "dataset": "toys", "bank": 90, "queries": 30, "classes": 5, "dimension": 7, "seconds": 2.0}
    tail = {"bank": 40, "imbalance_ratio": 10.0, "largest_class": 9, "split_seed": 0, "knn@1": score}
    assert [line.split() for line in evaluation_table({**found, "long-tail": tail}).splitlines()[3:]] == [
        ["knn@1", "41.2"],
        ["knn@1", "head", "60"],
        ["knn@1", "middle", "33.1"],
        ["next:", "tempplug", "export", "--checkpoint", "a.pt", "--output", "backbone.pth"],
    ]


def test_the_seed_decides_and_views_may_be_of_fewer_images_the_same_for_every_seed() -> None:
    train, test = (load_images("digits", split, None, count=40) for split in ("train", "test"))
    state, network = torch.get_rng_state(), backbone(0)
    torch.set_rng_state(state)
    device, settings = torch.device("cpu"), EvaluationSettings(view_images=15)
    found = [Evaluation(network, train, test, replace(settings, seed=seed), device) for seed in (0, 0, 1)]
    drawn = [each.views for each in found]
    assert torch.equal(torch.get_rng_state(), state), "the global generator goes on where it was"
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert not torch.equal(drawn[0][0], drawn[0][1])
    assert torch.equal(found[0].viewed, found[2].viewed)
    assert len(found[0].viewed.unique()) == len(drawn[0][0]) == 15
    all_of_them = Evaluation(network, train, test, EvaluationSettings(view_images=99), device)
    assert torch.equal(all_of_them.viewed, torch.arange(40))
    assert found[0].measure("report") == found[1].measure("report")


def test_drawings_and_numbers_are_written(checkpoint: Path, tmp_path: Path, capsys: Any) -> None:
    folder, where = tmp_path / "plots", ["--checkpoint", str(checkpoint), "--dataset", "digits"]
    more = f"--plots {folder} --evaluations knn --plot-method pca --test-images 40 --train-images 30"
    assert tempplug(["eval", "vision", *where, *more.split()]) == 0
    found = json.loads((checkpoint / "evaluation_digits.json").read_text())
    assert found["knn"]["k"] == 30, "as many as there are"
    assert found["plots"] == [str(folder / "similarity_histogram.svg"), str(folder / "embedding_plot.svg")]
    assert "two views of one image: 40 pairs" in (folder / "similarity_histogram.svg").read_text()
    drawn = len(load_images("digits", "test", None, count=40, seed=3).labels.unique())
    assert f"digits test: 40 images of {drawn} classes, pca" in (folder / "embedding_plot.svg").read_text()
    assert f"wrote {folder / 'embedding_plot.svg'}" in capsys.readouterr().out


def test_what_is_not_given_follows_the_training(tmp_path: Path, monkeypatch: Any) -> None:
    banks: list[Tensor] = []
    original = evaluations.long_tail_evaluation

    def spy(bank: Tensor, *given: Any, **more: Any) -> Any:
        banks.append(bank)
        return original(bank, *given, **more)

    monkeypatch.setattr(evaluations, "long_tail_evaluation", spy)
    drawn: dict[str, Any] = {"imbalance_ratio": 4.0, "largest_class": 60, "split_seed": 5}
    about = {"image_size": 10, "load_size": 12, "augmentation": "none", "count": 900, "held_out": 100, **drawn}
    run, flags = written(tmp_path / "run", **about), ("--evaluations", "long-tail", "report", "--test-images", "200")
    found = evaluate(run, tmp_path / "a.json", *flags)[1]
    trained = load_vision(SIMCLR.recipe(evaluations=(), **about), "digits", None).train  # type: ignore[arg-type]
    torch.testing.assert_close(banks[0], represent(backbone(0), trained, size=10))
    assert {name: found["long-tail"][name] for name in drawn} == drawn
    assert (found["bank"], found["report"]["views"]) == (900, "none")
    assert found["report"]["alignment"] == pytest.approx(0.0, abs=1e-6)
    queries = represent(backbone(0), load_images("digits", "test", None, size=12, count=200, seed=5), size=10)
    assert found["report"]["uniformity"] == pytest.approx(metrics.uniformity(queries).item(), rel=1e-4)


def test_the_draw_of_another_data_set_is_not_followed(tmp_path: Path) -> None:
    about = {"dataset": "cifar10", "count": 30_000, "imbalance_ratio": 100.0, "largest_class": 4500, "split_seed": 5}
    flags = ("--evaluations", "long-tail", "--imbalance-ratio", "20")
    status, found = evaluate(written(tmp_path / "run", **about), tmp_path / "a.json", *flags)
    assert (status, found["long-tail"]["split_seed"]) == (0, 0)
    labels = load_images("digits", "train", None).labels
    assert found["long-tail"]["largest_class"] == 9 * int(labels.bincount().min()) // 10


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--evaluations kmn", "no evaluation 'kmn'. Did you mean 'knn'? Known: knn, linear-probe, "),
        ("--neighbours 0", "neighbours=0 must be an integer, at least 1."),
        ("--augmentation simclr-cifer", "unknown augmentation 'simclr-cifer'. Did you mean 'simclr-cifar'?"),
        ("--dataset digitz", "Did you mean 'digits'?"),
        ("--output found.txt", "output=found.txt must be a file that ends in .json."),
        ("--checkpoint none", "checkpoint 'none' is no folder of a training: it must hold settings.json and encoder.pt"),
        (f"--output {__file__}/a.json", f"output='{__file__}' cannot be written: it, or a folder above it, is a file."),
        (f"--plots {__file__}", f"plots='{__file__}' cannot be written: it, or a folder above it, is a file."),
        ("--evaluations knn long-tail --imbalance-ratio 900", "largest_class=122, nine tenths of the smallest"),
        ("--probe moco", "argument --probe"),
    ],
)
def test_faults_come_before_images_are_read(
    checkpoint: Path, tmp_path: Path, flags: str, message: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.delattr(evaluations, "represent")
    assert evaluate(checkpoint, tmp_path / "a.json", *flags.split()) == (2, {})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    if not message.startswith("argument"):  # which shows the usage
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1


@pytest.mark.parametrize(("error", "status"), [(DataError("these are odd numbers"), 2), (KeyboardInterrupt(), 130)])
def test_what_was_measured_is_kept_where_one_fails(
    checkpoint: Path, tmp_path: Path, error: BaseException, status: int, monkeypatch: Any, capsys: Any
) -> None:
    def fail(_: Evaluation) -> dict[str, Any]:
        raise error

    monkeypatch.setitem(evaluations.MEASURES, "svc-probe", fail)
    few = ["--evaluations", "knn", "svc-probe", "report", "--train-images", "60", "--test-images", "40", "--neighbours", "5"]
    ended, found = evaluate(checkpoint, tmp_path / "a.json", *few)
    assert (ended, found["knn"]["k"], "report" in found) == (status, 5, status == 2)
    assert found.get("failed") == ({"svc-probe": "these are odd numbers"} if status == 2 else None)
    if status == 2:
        shown = capsys.readouterr()
        assert shown.err.splitlines()[-1] == "error: svc-probe: these are odd numbers"
        assert re.search(rf"^knn +{found['knn']['accuracy']:.4g}$", shown.out, re.M)
