"""One run of a suite that trains, on the smallest method that there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from method_toys import METHOD, Points, ToyMethod, ToyRecipe
from transformers.utils import logging

from tempplug.errors import ConfigError
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.training.method import RESAMPLED_FILE, Run, Source
from tempplug_benchmarks.arm import arms
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.run_method import RunContext, _thinned, run_method

PROFILE = Profile(
    dataset="points of the tests",
    source="points",
    recipe=METHOD.recipe(num_train_epochs=3),
    arms=arms("fixed+infonce"),
    metrics=(Metric(name="share", figure="spread", summary="of points"), Metric(name="final", summary="whether it ended")),
    primary="share",
)


def context(work_dir: Path, profile: Profile = PROFILE, seed: int = 0, **more: Any) -> RunContext:
    recipe = profile.recipe.changed(seed=seed, **more.pop("changes", {}))
    specs = {"strategy": "fixed:temperature=0.3", "objective": "infonce", "data_dir": None, **more}
    return RunContext(method=METHOD, profile=profile, recipe=recipe, work_dir=work_dir, **specs)


def test_metrics_are_the_methods_figures_and_the_seed_decides(tmp_path: Path) -> None:
    training = {"gradient_accumulation_steps": 3, "save_strategy": "no"}
    profile = replace(PROFILE, training=training)
    noted = [context(tmp_path / str(number), profile, seed) for number, seed in enumerate((0, 0, 1))]
    first, again, other = map(run_method, noted)
    assert first == again != other
    assert list(first) == ["share", "final"]
    assert first["final"] == 1.0
    assert noted[0].launch == {"processes": 1, "effective_batch_size": 3 * 8}
    assert noted[0].resampled == {}
    assert not list(tmp_path.rglob("checkpoint-*")), "the arguments of the training reach it"


def test_figures_on_samples_of_the_test_data_are_recorded_by_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(self: ToyMethod, recipe: Any, module: Any, data: Any, run: Run) -> dict[str, float]:
        write_json(run.output_dir / RESAMPLED_FILE, {"spread": [1.0, 2.5], "other": [3.0]})
        return {"spread": 1.5, "final": 1.0}

    monkeypatch.setattr(ToyMethod, "evaluate", evaluate)
    run_method(sampled := context(tmp_path))
    assert sampled.resampled == {"share": [1.0, 2.5]}


def test_a_metric_without_a_figure_is_named(tmp_path: Path) -> None:
    profile = replace(PROFILE, metrics=(Metric(name="score", figure="sprad", summary="of points"),))
    message = r"method 'toy' measures no 'sprad'\. Did you mean 'spread'\? It does: spread, final\."
    with pytest.raises(ConfigError, match=message):
        run_method(context(tmp_path, profile))


def test_an_arm_that_is_not_trained_takes_no_step(tmp_path: Path) -> None:
    told: list[str] = []
    none = {"strategy": None, "objective": None, "changes": {"num_train_epochs": 0}}
    untrained = context(tmp_path, **none, progress=lambda fraction, text: told.append(text))
    assert run_method(untrained)["final"] == 1.0
    assert told == ["evaluating"]


def test_progress_rises_to_the_end_without_the_bars_of_transformers(tmp_path: Path) -> None:
    told: list[tuple[float, str, bool]] = []

    def progress(fraction: float, text: str) -> None:
        told.append((fraction, text.partition(",")[0], logging.is_progress_bar_enabled()))

    logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    run_method(context(tmp_path, progress=progress))
    fractions, texts, bars = zip(*told, strict=True)
    assert list(fractions) == sorted(fractions)
    assert [fractions[0], fractions[-1]] == [pytest.approx(0.8 / 9), pytest.approx(1.0)]
    assert (texts[2:4], texts[-1]) == (("epoch 1 of 3", "epoch 1.333 of 3"), "evaluating")
    assert not any(bars)
    assert logging.is_progress_bar_enabled()


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    steps: list[str] = []

    def stop(fraction: float, text: str) -> None:
        steps.append(text)
        if len(steps) == 5:
            raise KeyboardInterrupt

    undisturbed, resumed = context(tmp_path / "whole", seed=5), context(tmp_path / "killed", seed=5, progress=stop)
    whole = run_method(undisturbed)
    with pytest.raises(KeyboardInterrupt):
        run_method(context(tmp_path / "killed", seed=5, progress=stop))
    assert len(list((tmp_path / "killed").glob("checkpoint-*"))) == 2
    assert run_method(resumed) == whole
    assert resumed.course == undisturbed.course
    assert resumed.course["step"] == list(range(1, 10))
    assert len(steps) == 5 + 5 + 1, "the step after the last checkpoint is done again, those before are not"


def test_an_interrupted_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    def stop(fraction: float, text: str) -> None:
        if text.startswith("epoch 2"):
            raise KeyboardInterrupt

    profile = replace(PROFILE, needs=("text/pairs", "table.csv"))
    table, pairs = tmp_path / "table.csv", tmp_path / "text" / "pairs" / "a.tsv"
    pairs.parent.mkdir(parents=True)
    table.write_text("one")
    pairs.write_text("one")
    with pytest.raises(KeyboardInterrupt):
        run_method(context(tmp_path / "run", profile, progress=stop, data_dir=tmp_path))
    pairs.write_text("two")
    with pytest.raises(ConfigError, match=rf"^the data have changed since .* was written: text/pairs/a\.tsv \({pairs}\) has "):
        run_method(context(tmp_path / "run", profile, data_dir=tmp_path))
    pairs.write_text("one")
    assert run_method(context(tmp_path / "run", profile, data_dir=tmp_path))["final"] == 1.0


def test_the_course_of_a_training_is_recorded_in_some_points(tmp_path: Path) -> None:
    schedule = "schedule:shape=triangle,temperature_min=0.2,temperature_max=0.9,period=40"
    long = context(tmp_path / "long", replace(PROFILE, recipe=PROFILE.recipe.changed(num_train_epochs=40)), strategy=schedule)
    run_method(long)
    course = long.course
    assert (course["step"][0], course["step"][-1], len(course["step"])) == (1, 120, 25)
    assert {"temperature", "positive_similarity", "negative_similarity"} < course.keys()
    assert {len(values) for values in course.values()} == {25}
    # it starts high, is lowest in the middle, and every look is at the step that it is said to be of
    expected = [0.2 + 0.7 * abs(1 - 2 * (step - 1) / 120) for step in course["step"]]
    assert course["temperature"] == pytest.approx(expected, abs=1e-3)
    holed = {"step": [1.0, 2.0], "temperature": [0.1, 0.123456789], "negative_similarity": [0.5, float("nan")]}
    assert _thinned(holed) == {"step": [1.0, 2.0], "temperature": [0.1, 0.12346]}
    assert _thinned({}) == {}


def test_a_profile_may_read_its_own_data_and_settle_the_recipe(tmp_path: Path) -> None:
    asked: list[Source] = []

    def load(recipe: ToyRecipe, source: Source) -> tuple[ToyRecipe, Points]:
        asked.append(source)
        return recipe.changed(noise=5.0), Points(12)

    own = run_method(context(tmp_path / "own", replace(PROFILE, load=load), data_dir=tmp_path))
    assert own != run_method(context(tmp_path / "plain"))
    assert asked == [Source("points", tmp_path, tmp_path / "own" / "data")]
