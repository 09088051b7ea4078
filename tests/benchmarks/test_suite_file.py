"""Suites written as TOML: what tasks share, inherit and insert, and a key that none has."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tempplug.errors import ConfigError
from tempplug_adapters.graph.recipes import GRACE as METHOD
from tempplug_benchmarks.arm import UNTRAINED
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite_file import make_suite


def load(recipe: Any, source: Any, *, folds: int) -> tuple[Any, int]:
    return recipe, folds


CONTENT: dict[str, Any] = {
    "name": "toys",
    "summary": "toys",
    "groups": {"adaptive": ["macl+infonce", "@further"]},
    "shared": {
        "summary": "{words}, shared",
        "baseline": "fixed+infonce",
        "primary": "score",
        "further": [],
        "arms": ["fixed+infonce", "@adaptive", "untrained"],
        "metrics": [{"name": "score", "summary": "of {words}"}],
        "rows": {"macl+infonce": [["macl", "1", "MACL", "{words}"]]},
        "quick": {
            **{"dataset": "{words} {version}", "load": "load", "options": {"folds": 3}},
            "changes": {"hidden": 8, "layers": 3},
        },
        "paper": {"dataset": "all {words}", "reported": True, "changes": {"hidden": 64}},
    },
    "tasks": [
        {"name": "a", "values": {"words": "balls"}, "further": ["schedule+infonce"]},
        {"name": "b", "values": {"words": "cars"}, "quick": {"like": "a", "changes": {"layers": 4}}, "profiles": ["quick"]},
        {
            **{"name": "c", "values": {"words": "dolls"}, "by_name": ["quick"]},
            **{"quick": {"changes": {"learning_rate": 0.25}}, "paper": {"changes": {"learning_rate": 0.5}}},
        },
        {"name": "d", "values": {"words": "kites"}, "quick": {"settings_of": "c", "changes": {"hidden": 5}}},
    ],
}


def test_tasks_share_inherit_and_insert() -> None:
    suite = make_suite(CONTENT, METHOD, load, version=7)
    balls, cars, dolls, kites = suite.tasks
    assert [task.summary for task in suite.tasks] == [f"{word}, shared" for word in ("balls", "cars", "dolls", "kites")]
    both = ["quick", "paper"]
    assert [list(task.profiles) for task in suite.tasks] == [both, ["quick"], both, both]
    quick, paper = balls.profile("quick"), balls.profile("paper")
    assert [arm.label for arm in quick.arms] == ["fixed+infonce", "macl+infonce", "schedule+infonce", "untrained"]
    assert quick.arms[-1] is UNTRAINED
    assert (quick.dataset, quick.metrics[0].summary, paper.dataset) == ("balls 7", "of balls", "all balls")
    assert [arm.reported for arm in (*quick.arms, paper.arms[1])] == [(), (), (), (), (PaperRow("macl", "1", "MACL", "balls"),)]
    assert quick.load is not None
    assert quick.load(1, None) == (1, 3)
    settings = [task.profile("quick").recipe.values() for task in suite.tasks]
    assert [(each["hidden"], each["layers"]) for each in settings] == [(8, 3), (8, 4), (8, 3), (5, 3)]
    assert cars.profile("quick").arms == quick.arms
    assert cars.profile("quick").dataset == "cars 7"
    assert [arm.label for arm in dolls.profile("quick").arms] == ["fixed+infonce", "macl+infonce", "untrained"]
    assert (dolls.by_name, kites.by_name) == (("quick",), ())
    rates = [task.profile("quick").recipe.learning_rate for task in suite.tasks]
    assert rates == [METHOD.recipe().learning_rate] * 2 + [0.25] * 2
    assert dolls.profile("paper").recipe.learning_rate == 0.5


def test_a_key_that_nothing_has_is_refused() -> None:
    content = copy.deepcopy(CONTENT)
    content["tasks"][2]["quick"] = {"datset": "dolls"}
    with pytest.raises(ConfigError, match="key 'datset' of task 'c' must be one of Task or Profile"):
        make_suite(content, METHOD, load, version=7)
