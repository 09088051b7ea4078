"""``tempplug eval vision``: the numbers of the parts, on digits and CIFAR-10, written, printed, drawn; faults in one line."""

from __future__ import annotations

import json
import subprocess
import sys
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
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone, create_backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray, ImageSet
from tempplug_adapters.images.long_tail import long_tail_indices
from tempplug_adapters.images.representations import represent
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.vision.evaluation import evaluations
from tempplug_adapters.vision.evaluation.classifiers import few_label_accuracies, fit_linear_probe, knn_votes, svc_probe
from tempplug_adapters.vision.evaluation.evaluations import Evaluation, long_tail_evaluation
from tempplug_adapters.vision.evaluation.scores import accuracy
from tempplug_adapters.vision.evaluation.settings import EVALUATIONS, EvaluationSettings, LinearProbeSettings
from tempplug_adapters.vision.evaluation.table import evaluation_table
from tempplug_adapters.vision.recipes import SIMCLR
from tempplug_adapters.vision.vision_images import load_vision


def main(words: list[str]) -> int:
    return tempplug(["eval", "vision", *words])


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


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return written(tmp_path / "run")


def backbone(seed: int) -> Backbone:
    torch.manual_seed(seed)
    return create_backbone("resnet18", stem="cifar", width=4)


def labelled(images: ImageSet) -> Tensor:
    assert images.labels is not None
    return images.labels


def evaluate(checkpoint: Path, *more: str) -> tuple[int, dict[str, Any]]:
    output = checkpoint / "new" / "found.json"
    arguments = [
        "--checkpoint",
        str(checkpoint),
        "--dataset",
        "digits",
        "--output",
        str(output),
        "--device",
        "cpu",
        "--seed",
        "3",
    ]
    status = main([*arguments, *more])
    return status, json.loads(output.read_text()) if output.exists() else {}


def test_the_numbers_are_those_of_the_parts(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(evaluations.PROBES, "lightly", replace(BRIEF, seed=0))
    flags = [
        "--k",
        "5",
        "--vote-temperature",
        "0.0001",
        "--imbalance-ratio",
        "10",
        "--largest-class",
        "40",
        "--split-seed",
        "4",
    ]
    flags += ["--train-images", "700", "--test-images", "200"]
    names = ["knn", "linear-probe", "top-5", "svc-probe", "few-labels", "long-tail", "report"]
    status, found = evaluate(checkpoint, "--evaluations", *names, *flags, "--views", "simclr-cifar", "--batch-size", "100")
    assert status == 0
    train = load_images("digits", "train", None, count=700, seed=4)
    test = load_images("digits", "test", None, count=200, seed=4)
    network, labels, truth = backbone(0), labelled(train), labelled(test)
    bank, queries = (represent(network, each, batch_size=100) for each in (train, test))
    assert (found["bank"], found["queries"], found["classes"], found["dimension"]) == (700, 200, 10, bank.shape[1])
    order = torch.randperm(700, generator=torch.Generator().manual_seed(4))
    nearest = KNeighborsClassifier(1, metric="cosine").fit(
        bank[order[70:]], labels[order[70:]]
    )  # of so cold a vote, one counts
    validation = 100 * nearest.score(bank[order[:70]], labels[order[:70]])
    knn = {
        "accuracy": accuracy(truth, knn_votes(bank, labels, queries, k=5, temperature=1e-4).argmax(1)),
        "k": 5,
        "temperature": 1e-4,
    }
    assert found["knn"] == pytest.approx({**knn, "validation": validation})
    assert 0 < validation < 100
    assert found["linear-probe"]["accuracy"] == pytest.approx(
        accuracy(truth, fit_linear_probe(bank, labels, BRIEF)(queries).argmax(1))
    )
    assert found["linear-probe"]["epochs"] == 5
    assert found["linear-probe"]["seed"] == 3
    votes = KNeighborsClassifier(
        5, metric="cosine", weights=lambda distance: np.exp(1e4 * (distance.min(1)[:, None] - distance))
    )
    scores = votes.fit(bank.double(), labels).predict_proba(queries.double())
    # of classes with equal scores scikit-learn's takes the highest first, and ours the lowest
    turned = top_k_accuracy_score(9 - truth.numpy(), scores[:, ::-1], k=5, labels=range(10))
    assert found["top-5"]["knn top-5"] == pytest.approx(100 * turned)
    probe = fit_linear_probe(bank, labels, BRIEF)
    within = top_k_accuracy_score(truth, probe(queries).detach(), k=5)
    assert found["top-5"]["linear top-5"] == pytest.approx(100 * within)
    assert found["few-labels"] == few_label_accuracies(bank, labels, queries, truth, seed=3)
    right = (svc_probe(bank, labels, queries) == truth).double().mean()
    assert found["svc-probe"]["accuracy"] == pytest.approx(100 * float(right))
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
    first, second = (represent(network, test, augmentation=augmentation, batch_size=100) for _ in "ab")
    assert report["alignment"] == pytest.approx(metrics.alignment(first, second).item(), rel=1e-3)
    table = capsys.readouterr().out
    assert f"knn                     {found['knn']['accuracy']:>8.2f}  k=5, temperature 0.0001\n" in table
    assert "bank of 700 train images, 200 test images as queries\n" in table
    assert f"linear top-5            {found['top-5']['linear top-5']:>8.2f}  its class among the first five\n" in table
    assert f"10 labels               {found['few-labels']['10 labels']:>8.2f}  logistic regression" in table
    assert f"  knn@10                {found['long-tail']['knn@10']['overall']:>8.2f}" in table
    assert f"alignment               {report['alignment']:>8.4f}  of two views by simclr-cifar; lower is closer\n" in table


def test_the_table_has_a_column_for_each_group_of_classes() -> None:
    score = {"overall": 41.204, "head": 60.0, "middle": 33.1, "tail": None, "classes": [1.0]}
    found = {"checkpoint": "a.pt", "dataset": "toys", "bank": 90, "queries": 30, "classes": 5, "dimension": 7, "seconds": 2.0}
    tail = {"bank": 40, "imbalance_ratio": 10.0, "largest_class": 9, "split_seed": 0, "knn@1": score}
    assert evaluation_table({**found, "long-tail": tail}).splitlines()[4:] == [
        "long-tail                overall    head  middle    tail  bank of 40 images, imbalance 10, mean of the classes' "
        "accuracies",
        "  knn@1                    41.20   60.00   33.10       -",
        "",
        "measured in 2.0 s",
    ]


def test_the_same_seed_gives_the_same_numbers(checkpoint: Path) -> None:
    found = [evaluate(checkpoint, "--evaluations", "report", "--test-images", "50", "--train-images", "60")[1] for _ in "ab"]
    for each in found:
        del each["seconds"]
    assert found[0] == found[1]
    assert (found[0]["bank"], found[0]["queries"]) == (60, 50)
    train, test = (load_images("digits", split, None, count=40) for split in ("train", "test"))
    network, state = backbone(0), torch.get_rng_state()
    drawn = [Evaluation(network, train, test, EvaluationSettings(seed=s), torch.device("cpu")).views for s in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state), "the global generator goes on where it was"
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_drawings_are_written(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "plots"
    flags = ["--evaluations", "knn", "--plots", str(folder), "--plot-method", "pca", "--test-images", "40"]
    status, found = evaluate(checkpoint, *flags, "--train-images", "40")
    assert status == 0
    assert found["plots"] == [str(folder / "similarity_histogram.svg"), str(folder / "embedding_plot.svg")]
    assert "two views of one image: 40 pairs" in (folder / "similarity_histogram.svg").read_text()
    drawn = len(labelled(load_images("digits", "test", None, count=40, seed=3)).unique())
    assert f"digits test: 40 images of {drawn} classes, pca" in (folder / "embedding_plot.svg").read_text()
    assert f"wrote {folder / 'embedding_plot.svg'}" in capsys.readouterr().out


def test_what_is_not_given_follows_the_training(checkpoint: Path, tmp_path: Path) -> None:
    flags = ["--evaluations", "long-tail", "report", "--imbalance-ratio", "10", "--test-images", "200"]
    found = evaluate(checkpoint, *flags)[1]
    labels = labelled(load_images("digits", "train", None))
    assert found["long-tail"]["largest_class"] == 9 * int(labels.bincount().min()) // 10
    assert found["long-tail"]["split_seed"] == 3
    about: dict[str, Any] = {"image_size": 10, "load_size": 12, "augmentation": "none"}
    about |= {"count": 900, "imbalance_ratio": 4.0, "largest_class": 60, "held_out": 100, "split_seed": 5}
    other = evaluate(written(tmp_path / "other", **about), *flags[:3], "--test-images", "200")[1]
    assert {name: other["long-tail"][name] for name in ("imbalance_ratio", "largest_class", "split_seed")} == {
        name: about[name] for name in ("imbalance_ratio", "largest_class", "split_seed")
    }
    assert other["bank"] == 900
    assert other["report"]["views"] == "none"
    assert other["report"]["alignment"] == pytest.approx(0.0, abs=1e-6)
    test = load_images("digits", "test", None, size=12, count=200, seed=5)
    queries = represent(backbone(0), test, size=10)
    assert other["report"]["uniformity"] == pytest.approx(metrics.uniformity(queries).item(), rel=1e-4)


def test_the_long_tailed_bank_is_what_was_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about: dict[str, Any] = {"count": 1000, "imbalance_ratio": 10.0, "held_out": 50, "split_seed": 4}
    trained = load_vision(SIMCLR.recipe(image_size=8, evaluations=(), **about), "digits", None).train  # type: ignore[arg-type]
    banks: list[Tensor] = []
    original = evaluations.long_tail_evaluation

    def spy(bank: Tensor, *given: Any, **more: Any) -> Any:
        banks.append(bank)
        return original(bank, *given, **more)

    monkeypatch.setattr(evaluations, "long_tail_evaluation", spy)
    assert evaluate(written(tmp_path / "run", **about), "--evaluations", "long-tail")[0] == 0
    torch.testing.assert_close(banks[0], represent(backbone(0), trained))


def test_the_draw_of_another_data_set_is_not_followed(tmp_path: Path) -> None:
    about = {"dataset": "cifar10", "count": 30_000, "imbalance_ratio": 100.0, "largest_class": 4500, "split_seed": 5}
    status, found = evaluate(written(tmp_path / "run", **about), "--evaluations", "long-tail", "--imbalance-ratio", "10")
    assert status == 0
    assert found["long-tail"]["split_seed"] == 0
    assert found["long-tail"]["largest_class"] < 200


def test_views_may_be_of_fewer_images_the_same_for_every_seed() -> None:
    train, test = (load_images("digits", split, None, count=40) for split in ("train", "test"))
    found = [
        Evaluation(backbone(0), train, test, EvaluationSettings(view_images=15, seed=seed), torch.device("cpu"))
        for seed in (0, 1)
    ]
    assert torch.equal(found[0].viewed, found[1].viewed)
    assert len(found[0].viewed.unique()) == len(found[0].views[0]) == 15
    assert not torch.equal(found[0].views[0], found[1].views[0])
    all_of_them = Evaluation(backbone(0), train, test, EvaluationSettings(view_images=99), torch.device("cpu"))
    assert torch.equal(all_of_them.viewed, torch.arange(40))


def test_without_an_output_the_numbers_lie_in_the_checkpoint(checkpoint: Path) -> None:
    flags = ["--checkpoint", str(checkpoint), "--dataset", "digits", "--evaluations", "knn", "--test-images", "20"]
    assert main([*flags, "--train-images", "30"]) == 0
    found = json.loads((checkpoint / "evaluation_digits.json").read_text())
    assert found["knn"]["k"] == 30, "as many as there are"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--evaluations", "kmn"], "no evaluation 'kmn'. Did you mean 'knn'? Known: knn, linear-probe, "),
        (["--k", "0"], "k=0 must be an integer, at least 1."),
        (["--vote-temperature", "0"], "vote_temperature=0 must be greater than 0."),
        (["--batch-size", "0"], "batch_size=0 must be an integer, at least 1."),
        (["--imbalance-ratio", "0.5"], "imbalance_ratio=0.5 must be at least 1."),
        (["--views", "simclr-cifer"], "unknown augmentation 'simclr-cifer'. Did you mean 'simclr-cifar'?"),
        (["--dataset", "digitz"], "Did you mean 'digits'?"),
        (["--output", "found.txt"], "output=found.txt must be a file that ends in .json."),
        (["--checkpoint", "none"], "checkpoint 'none' is no folder of a training: it must hold settings.json and encoder.pt"),
        (["--checkpoint", __file__], "is no folder of a training"),
        (["--seed", str(2**63)], "seed=9223372036854775808 must be an integer, at least 0 and at most"),
        (["--split-seed", "-1", "--train-images", "4"], "split_seed=-1 must be an integer, at least 0"),
        (["--device", "mps"], "device='mps' must be auto, cpu, cuda or cuda:N."),
        (["--output", f"{__file__}/a.json"], f"output='{__file__}' cannot be written: it, or a folder above it, is a file."),
        (["--plots", __file__], f"plots='{__file__}' cannot be written: it, or a folder above it, is a file."),
        (["--evaluations", "knn", "long-tail", "--imbalance-ratio", "900"], "largest_class=122, nine tenths of the smallest"),
        (["--evaluations", "long-tail", "--largest-class", "9"], "largest_class=9 must be at least imbalance_ratio=100"),
    ],
)
def test_faults_are_one_line(
    checkpoint: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(evaluations, "represent")  # said before minutes of work
    assert evaluate(checkpoint, *flags) == (2, {})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err


@pytest.mark.parametrize("flags", [["--probe", "moco"], ["--plot-method", "umap"], ["--k", "many"]])
def test_mistyped_words_show_the_usage(checkpoint: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(checkpoint, *flags) == (2, {})
    assert f"argument {flags[0]}" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="probe=moco must be one of lightly, macl-cifar10"):
        EvaluationSettings(probe="moco")


def test_help_needs_no_framework() -> None:
    code = (
        "import contextlib, sys\n"
        "from tempplug_adapters.vision.evaluation_command import VISION\n"
        "with contextlib.suppress(SystemExit): VISION(['--help'])\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "--vote-temperature" in shown


def test_nothing_is_measured_on_what_was_learned_from() -> None:
    train = load_images("digits", "train", None)
    device, settings = torch.device("cpu"), EvaluationSettings(k=3)
    with pytest.raises(ConfigError, match="the set 'digits train' must not be both learned from and asked about"):
        Evaluation(backbone(0), train, train, settings, device)
    assert set(evaluations.MEASURES) == set(EVALUATIONS)
    with pytest.raises(UnknownNameError, match="unknown augmentation 'simclr-cifer'"):
        EvaluationSettings(views="simclr-cifer")
    again = load_images("digits", "train", None)
    with pytest.raises(ConfigError, match="queries are the representations of bank"):
        Evaluation(backbone(0), train, again, settings, device).measure("knn")
    assert isinstance(train, ImageArray)
    with pytest.raises(DataError, match="must both have labels"):
        Evaluation(backbone(0), train, replace(again, labels=None), settings, device)
    with pytest.raises(DataError, match="must have the same classes, in the same order"):
        Evaluation(backbone(0), train, replace(again, classes=train.classes[::-1]), settings, device)


def test_a_random_network_on_cifar_is_scored_as_scikit_learn_does(data_dir: Path) -> None:
    train = load_images("cifar10", "train", data_dir, count=1000)
    test = load_images("cifar10", "test", data_dir, count=300)
    labels, truth = labelled(train), labelled(test)
    torch.manual_seed(0)
    network = create_backbone("resnet18", stem="cifar", width=4)
    bank, queries = represent(network, train), represent(network, test)
    x, q = (np.asarray(each.double() / each.double().norm(dim=1, keepdim=True)) for each in (bank, queries))
    for k in (1, 10):
        machine = KNeighborsClassifier(k, algorithm="brute").fit(x, labels)
        assert knn_votes(bank.double(), labels, queries.double(), k=k).argmax(1).tolist() == machine.predict(q).tolist()
    voting = KNeighborsClassifier(200, algorithm="brute", weights=lambda d: np.exp((1 - d**2 / 2) / 0.1)).fit(x, labels)
    exact = knn_votes(bank.double(), labels, queries.double(), k=200, temperature=0.1).argmax(1)
    assert exact.tolist() == voting.predict(q).tolist()
    found = knn_votes(bank, labels, queries, k=200, temperature=0.1).argmax(1)
    assert (found.numpy() == voting.predict(q)).mean() > 0.99, "float32 may turn a close vote"
    assert 0.15 < float((found == truth).double().mean()) < 0.4


def test_what_was_measured_is_kept_where_a_later_evaluation_fails(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--train-images", "60", "--test-images", "40", "--k", "5"]

    def fail(_: Evaluation) -> dict[str, Any]:
        raise DataError("these are odd numbers")

    monkeypatch.setitem(evaluations.MEASURES, "svc-probe", fail)
    status, found = evaluate(checkpoint, "--evaluations", "knn", "svc-probe", "report", *few)
    assert status == 2
    assert found["failed"] == {"svc-probe": "these are odd numbers"}
    assert found["knn"]["k"] == 5
    assert "uniformity" in found["report"]
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == "error: svc-probe: these are odd numbers"
    assert f"knn                     {found['knn']['accuracy']:>8.2f}" in shown.out

    def kill(_: Evaluation) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setitem(evaluations.MEASURES, "svc-probe", kill)
    assert evaluate(checkpoint, "--evaluations", "knn", "svc-probe", *few)[0] == 130
    found = json.loads((checkpoint / "new" / "found.json").read_text())
    assert found["knn"]["k"] == 5
    assert "failed" not in found
    monkeypatch.undo()
    assert "failed" not in evaluate(checkpoint, "--evaluations", "knn", *few)[1]
