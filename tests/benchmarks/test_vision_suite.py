from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from suite_checks import check_imports_are_light, check_profile, run_context
from torch import Tensor, nn

from tempplug.arguments import parse_spec
from tempplug.errors import DataError
from tempplug_adapters.images.augmentation import create_augmentation
from tempplug_adapters.images.backbones import Backbone
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.vision.recipe import VisionSettings
from tempplug_adapters.vision.recipes import OBJECTIVES, RECIPES, known_options
from tempplug_benchmarks.command import main
from tempplug_benchmarks.papers import load
from tempplug_benchmarks.plan import plan, resolve, slug
from tempplug_benchmarks.task import PROFILES, RunContext
from tempplug_benchmarks.tasks import vision_runs
from tempplug_benchmarks.tasks.vision import METRICS, SUITE
from tempplug_benchmarks.tasks.vision_papers import PAPERS
from tempplug_benchmarks.tasks.vision_recipes import SMALL_IMAGES
from tempplug_benchmarks.tasks.vision_runs import RANDOM, read_images, settings_of, train_images

TASKS = [task.name for task in SUITE.tasks]


def context_of(
    work_dir: Path, label: str = "fixed-0.1", profile: str = "quick", task: str = "cifar10", seed: int = 0, **more: Any
) -> RunContext:
    return run_context(SUITE, work_dir, label, profile, task, seed, **more)


def test_importing_the_suite_loads_no_framework() -> None:
    check_imports_are_light("tempplug_benchmarks.tasks.vision")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_complete(name: str) -> None:
    task = SUITE.task(name)
    assert tuple(task.profiles) == (PROFILES if name == "cifar10" else ("paper",))
    for profile_name, profile in task.profiles.items():
        check_profile(profile)
        assert {"macl", "macl-reweighted", "dcl", "dystress", "temperature-free", "schedule", "amcl", RANDOM} <= {
            arm.label for arm in profile.arms
        }
        assert bool(profile.needs) == (profile_name == "small")
        assert profile.metrics == METRICS


def test_what_adaptivity_buys_can_be_told_from_what_the_objective_buys() -> None:
    for profile in SUITE.task("cifar10").profiles.values():
        arms = {arm.label: (arm.strategy, arm.objective) for arm in profile.arms}
        assert arms["dcl"] == (arms["fixed-0.1"][0], "dcl")
        assert arms["macl-reweighted"] == (arms["macl"][0], "reweighted")
        assert arms["macl"][1] == arms["fixed-0.1"][1] == "infonce"


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.task)
def test_the_papers_profile_is_a_recipe_of_the_adapter(paper: Any, tmp_path: Path) -> None:
    changed = {name: value for name, value in paper.changes.items() if name in {each.name for each in fields(VisionSettings)}}
    expected = replace(RECIPES["simclr"][paper.base], **changed, seed=3)
    for arm in SUITE.task(paper.task).profile("paper").arms:
        settings = settings_of(context_of(tmp_path, arm.label, "paper", paper.task, seed=3))
        heads = 3 if arm.label == "amcl" else 1
        assert settings == replace(expected, heads=heads, epochs=0 if arm.label == RANDOM else expected.epochs)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.task)
def test_arms_are_those_of_the_recipe(paper: Any, tmp_path: Path) -> None:
    arms = {arm.label: arm for arm in SUITE.task(paper.task).profile("paper").arms}
    settings = settings_of(context_of(tmp_path, paper.baseline, "paper", paper.task))
    for label, strategy in {
        paper.baseline: "fixed",
        "dcl": "fixed",
        "dystress": "dystress",
        "schedule": "schedule",
        "amcl": "amcl",
    }.items():
        known = known_options("simclr", strategy, settings, 1)
        words = ",".join(
            f"{key}={value}" for key, value in known.items() if key != "size" and (strategy == "amcl" or key != "dimension")
        )
        assert resolve(arms[label]).strategy == resolve(replace(arms[label], strategy=f"{strategy}:{words}")).strategy
    assert arms["amcl"].objective == OBJECTIVES["amcl"]
    assert arms["macl-reweighted"].objective == OBJECTIVES["macl"]
    threshold = 0.2 if paper.task == "imagenet-100" else 0
    assert parse_spec(arms["macl"].strategy)[1] == {"base_temperature": 0.1, "alpha": 0.5, "threshold": threshold}


def test_the_smaller_profiles_train_simclr_for_a_while(tmp_path: Path) -> None:
    for profile in ("quick", "small"):
        settings = settings_of(context_of(tmp_path, profile=profile))
        settings.check_method("simclr")
        assert settings.precision == "float32", "many times slower in bfloat16 on a processor without it"
        recipe = SUITE.task("cifar10").profile(profile).recipe
        assert recipe["images"] == recipe["drawn"] == (SMALL_IMAGES if profile == "small" else 512)


@pytest.mark.parametrize("name", TASKS)
def test_reported_rows_exist_and_are_of_their_arms(name: str) -> None:
    task = SUITE.task(name)
    tables, answered = load(task.papers), 0
    for arm in task.profile("paper").arms:
        own, options = parse_spec(resolve(arm).strategy)
        for row in arm.reported:
            for metric, cell in tables.row(row).items():
                assert metric in {each.name for each in METRICS}
                assert cell.settings["strategy"] == own
                assert cell.settings.get("objective", arm.objective) == arm.objective.partition(":")[0]
                assert {key: value for key, value in cell.settings.items() if key in options} == {
                    key: options[key] for key in cell.settings if key in options
                }
                answered += 1
    assert answered
    for profile_name, profile in task.profiles.items():
        assert profile_name == "paper" or not any(arm.reported for arm in profile.arms), "papers answer another question"


def test_every_cell_is_answered_by_an_arm() -> None:
    rows = {row for task in SUITE.tasks for arm in task.profile("paper").arms for row in arm.reported}
    cells = {(cell.paper, cell.table, cell.method, cell.dataset) for cell in load("vision").cells}
    assert {(row.paper, row.table, row.method, row.dataset) for row in rows} == cells


@pytest.mark.parametrize(
    ("paper", "table", "dataset", "method", "metric", "printed", "deviation"),
    [
        ("macl", "9", "CIFAR-10", "NT-Xent", "linear", 84.65, None),
        ("macl", "9", "CIFAR-10", "DCL", "linear", 86.29, None),
        ("macl", "B.3", "CIFAR-10", "MACL", "kNN", 85.32, None),
        ("macl", "B.3", "CIFAR-10", "Dual", "kNN", 83.87, None),
        ("macl", "1", "ImageNet", "w/ MACL", "linear", 64.3, None),
        ("macl", "7", "ImageNet-100", "w/o adaptive", "linear", 77.32, None),
        ("dystress", "1", "ImageNet-100", "DySTreSS*", "linear", 78.82, None),
        ("dystress", "3", "CIFAR-10", "DySTreSS", "kNN", 85.68, None),
        ("dystress", "3", "CIFAR-100", "SimCLR", "kNN", 52.32, None),
        ("temperature-free", "2", "Imagenette", "temperature 1", "kNN", 82.27, 1.42),
        ("temperature-free", "2", "Imagenette", "temperature free", "kNN", 84.65, 0.27),
        ("amcl", "3", "CIFAR-100", "SimCLR + AMCL", "linear", 61.8, None),
        ("amcl", "3", "Tiny-ImageNet", "SimCLR baseline", "linear", 48.1, None),
        ("amcl", "5", "STL-10", "+AMCL", "linear", 83.7, None),
    ],
)
def test_cells_stand_as_printed(
    paper: str, table: str, dataset: str, method: str, metric: str, printed: float, deviation: float | None
) -> None:
    found = [
        (cell.value, cell.std)
        for cell in load("vision").cells
        if (cell.paper, cell.table, cell.dataset, cell.method, cell.metric) == (paper, table, dataset, method, metric)
    ]
    assert found == [(printed, deviation)]


def test_the_quick_profile_trains_and_measures_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "vision", "--seeds", "0", "--output", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "vision / cifar10 / quick" in captured.out
    arms = SUITE.task("cifar10").profile("quick").arms
    assert len(captured.err.splitlines()) == len(arms)
    found = {
        arm.label: json.loads((tmp_path / "vision/quick/cifar10" / slug(arm.label) / "seed-0.json").read_text())["metrics"]
        for arm in arms
    }
    for metrics in found.values():
        assert 30 < metrics["kNN"] < 100
        assert 30 < metrics["linear"] < 100
        assert 0 < metrics["alignment"] < 4
        assert -8 < metrics["uniformity"] < 0
        assert 0 < metrics["tolerance"] < 1
    assert len({metrics["uniformity"] for metrics in found.values()}) == len(arms), "every arm has learnt something else"
    assert found[RANDOM]["uniformity"] > max(metrics["uniformity"] for label, metrics in found.items() if label != RANDOM)
    assert not list(tmp_path.rglob("*.work"))


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    told: list[str] = []

    def stop(fraction: float, text: str) -> None:
        told.append(text.partition(",")[0])
        if told[-1] == "epoch 1 of 2":
            raise KeyboardInterrupt

    smaller = {"images": 256, "drawn": 256, "epochs": 2, "save_epochs": 1}
    whole = train_images(context_of(tmp_path / "whole", "amcl", seed=5, **smaller))
    with pytest.raises(KeyboardInterrupt):
        train_images(context_of(tmp_path / "killed", "amcl", seed=5, **smaller, progress=stop))
    told.clear()
    assert train_images(context_of(tmp_path / "killed", "amcl", seed=5, **smaller, progress=stop)) == whole
    assert [text for text in told if text.startswith("epoch")] == ["epoch 2 of 2"]


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    told: list[float] = []
    smaller = {"images": 128, "drawn": 128, "epochs": 2}
    train_images(context_of(tmp_path, **smaller, progress=lambda fraction, text: told.append(fraction)))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    assert told[0] == pytest.approx(0.45)


class Pixels(nn.Module):
    """The grey values themselves, without their mean, as representations."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0].flatten(1)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, float]]:
    """Measures pixels in place of a trained backbone."""
    pixels = Backbone(Pixels(), mean=(0.5, 0.5, 0.5), std=(1, 1, 1), dimension=64)
    monkeypatch.setattr(vision_runs, "train_backbone", lambda context, images: pixels)
    return lambda context: train_images(context)


def test_metrics_are_those_of_their_definitions(untrained: Callable[..., dict[str, float]], tmp_path: Path) -> None:
    context = context_of(tmp_path, seed=4, images=300, drawn=300)
    found = untrained(context)
    torch.manual_seed(0)

    def rows(images: Tensor) -> Tensor:
        return nn.functional.normalize(images[:, 0].flatten(1).double() - 0.5)

    train, test = load_images("digits", "train", None, count=300), load_images("digits", "test", None)
    bank, queries = (rows(each.batch(torch.arange(len(each))) / 255) for each in (train, test))
    assert train.labels is not None
    assert test.labels is not None
    nearest = (queries @ bank.T).topk(20)
    votes = torch.zeros(len(queries), 10, dtype=torch.float64)
    votes.scatter_add_(1, train.labels[nearest.indices], (nearest.values / 0.1).exp())
    assert found["kNN"] == pytest.approx(100 * (votes.argmax(1) == test.labels).double().mean().item())
    distance = torch.cdist(queries, queries).square()
    other = ~torch.eye(len(queries), dtype=torch.bool)
    assert found["uniformity"] == pytest.approx((-2 * distance[other]).exp().mean().log().item(), abs=1e-4)
    same = (test.labels[:, None] == test.labels) & other
    assert found["tolerance"] == pytest.approx((queries @ queries.T)[same].mean().item(), abs=1e-4)
    means = torch.stack([queries[test.labels == number].mean(0) for number in range(10)])
    apart = torch.cdist(means, means).square()[~torch.eye(10, dtype=torch.bool)]
    assert found["interclass uniformity"] == pytest.approx((-2 * apart).exp().mean().log().item(), abs=1e-4)
    order = torch.randperm(360, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(4)
    augmentation = create_augmentation("moco-v2", 8)
    views = [rows(torch.cat([augmentation(test.batch(part) / 255) for part in (order[:256], order[256:])])) for _ in range(2)]
    assert found["alignment"] == pytest.approx((views[0] - views[1]).square().sum(1).mean().item(), abs=1e-4)
    assert 60 < found["linear"] < 100


def test_the_bank_may_be_another_set_than_the_one_trained_on(
    untrained: Callable[..., dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, Any]] = []

    def read(dataset: str, split: str, context: RunContext, **more: Any) -> Any:
        asked.append((dataset, split, more.get("wanted")))
        return load_images("digits", split, None)  # type: ignore[arg-type]

    monkeypatch.setattr(vision_runs, "read_images", read)
    untrained(context_of(tmp_path, "fixed-0.5", "paper", "stl10", image_size=8, probe="lightly", neighbours=5))
    assert asked == [("stl10-unlabeled", "train", 100_000), ("stl10", "train", None), ("stl10", "test", None)]


def test_the_same_images_are_drawn_for_every_seed(tmp_path: Path, data_dir: Path) -> None:
    drawn = [
        read_images(
            "cifar10", "train", context_of(tmp_path, profile="small", seed=seed, data_dir=data_dir), count=40, wanted=40
        )
        for seed in (0, 1)
    ]
    pixels = [each.batch(torch.arange(40)) for each in drawn]
    assert torch.equal(*pixels)
    assert drawn[0].labels is not None
    assert len(drawn[0].labels.unique()) > 5, "drawn from all classes, though the file is sorted by class"


def test_copies_and_parts_are_refused_where_the_whole_is_meant(tmp_path: Path) -> None:
    (tmp_path / "vision").mkdir()
    (tmp_path / "vision" / "cifar10_train_jpeg.npz").touch()
    (tmp_path / "imagenette224_train_jpeg.npz").touch()
    for name, copy in (("cifar10", "vision/cifar10_train_jpeg.npz"), ("imagenette", "imagenette224_train_jpeg.npz")):
        context = context_of(tmp_path, "fixed-0.5", "paper", name, data_dir=tmp_path)
        with pytest.raises(DataError, match=f"{copy} holds lossy copies of images, which are no {name}"):
            read_images(name, "train", context)
    with pytest.raises(DataError, match="has 1,437 images, but profile 'quick' is about 512"):
        read_images("digits", "train", context_of(tmp_path), wanted=512)


def test_a_folder_of_the_users_own_is_read_below_the_data_folder(tmp_path: Path) -> None:
    from PIL import Image

    for split in ("train", "val"):
        for word in ("a", "b"):
            (tmp_path / "mine" / split / word).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "mine" / split / word / "1.png")
    context = context_of(tmp_path, data_dir=tmp_path)
    assert len(read_images("mine/", "train", context, wanted=2)) == 2
    with pytest.raises(DataError, match="needs the folder mine/: pass --data-dir"):
        read_images("mine/", "train", context_of(tmp_path))


def test_real_data_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "vision", "--profile", "small", "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path)]
    assert main(words) == 2
    assert "needs vision/cifar10_train_jpeg.npz, vision/cifar10_test_jpeg.npz under the data folder" in capsys.readouterr().err


def test_plans_of_all_profiles_resolve() -> None:
    for profile in PROFILES:
        tasks = [task for task in SUITE.tasks if profile in task.profiles]
        assert len(plan(SUITE, profile, [0])) == sum(len(task.profile(profile).arms) for task in tasks) > 0
