"""A suite that trains nothing: figures that follow from the arm and the seed, and faults on request through the environment.

TOY_LOG: file to which every run appends its name. TOY_SLEEP: seconds a run takes. TOY_FAIL: label and seed that raise.
TOY_CRASH: label and seed whose process ends without a word. TOY_SLOW: label and seed that take ten minutes. TOY_HOLD: file with
labels and seeds, one a line, that wait as long as they stand there.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tempplug.options import Number
from tempplug.plugins import SuiteInfo, hookimpl
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around
from tempplug_benchmarks.arm import UNTRAINED, arms
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import Metric, Profile
from tempplug_benchmarks.run_method import RunContext
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

_LOSS = LossRecipe(temperatures=around(0.05, macl={"base_temperature": 0.05, "alpha": 2, "threshold": 0.8}))


@dataclass(frozen=True, kw_only=True)
class ToyRecipe(Recipe):
    loss: LossRecipe = _LOSS

    steps: Annotated[int, Number(at_least=1, integer=True, help="of nothing")] = 10


METHOD = MethodInfo(name="toy", summary="nothing", target="nowhere:None", recipes={"toy": ToyRecipe()}, datasets="none")
METRICS = (
    Metric(name="STSB", summary="Spearman × 100 of nothing"),
    Metric(name="error", summary="share of mistakes", higher_is_better=False, decimals=3),
)
BASELINE = "fixed+infonce"
REPORTED = {
    BASELINE: (PaperRow("macl", "B.4", "SimCSE-BERT", "STS"),),
    "macl+infonce": (PaperRow("macl", "B.4", "w/ MACL", "STS"),),
}
ARMS = arms(BASELINE, "macl+infonce", "fixed+dcl", reported=REPORTED)


def train(context: RunContext) -> dict[str, float]:
    specs = f"{(context.strategy or 'untrained').partition(':')[0]}+{context.objective}".removesuffix("+None")
    name = f"{specs} {context.recipe.seed}"
    if log := os.environ.get("TOY_LOG"):
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{name} {os.getpid()}\n")
    for step in range(10):
        context.progress(step / 10, f"step {step}")
        time.sleep(float(os.environ.get("TOY_SLEEP", "0")) / 10)
    while (hold := os.environ.get("TOY_HOLD")) and name in Path(hold).read_text(encoding="utf-8").splitlines():
        time.sleep(0.05)
    if os.environ.get("TOY_SLOW") == name:
        time.sleep(600)
    if os.environ.get("TOY_FAIL") == name:
        raise RuntimeError("the toy broke\non purpose")
    if os.environ.get("TOY_CRASH") == name:
        os._exit(7)
    if context.strategy:
        context.temperature.update(dict.fromkeys(("first", "last", "min", "max", "mean"), 0.1 + context.recipe.seed / 8))
    generator = random.Random(f"{context.strategy} {context.objective} {context.recipe.seed}")
    return {"STSB": 70 + 10 * generator.random(), "error": generator.random()}


def wind(context: RunContext) -> dict[str, float]:
    """Returns the variable WIND of the environment; notes this process and its threads."""
    found = {"milliseconds": float(os.environ["WIND"]), "calls": os.getpid(), "rounds": int(os.environ["OMP_NUM_THREADS"])}
    context.implementations["tempplug"] = {name: float(value) for name, value in found.items()}
    return {"milliseconds": float(found["milliseconds"])}


def make_suite(steps: int = 10, needs: tuple[str, ...] = ()) -> Suite:
    recipe = METHOD.recipe(steps=steps)
    quick = Profile(
        dataset="none", recipe=recipe, arms=ARMS, metrics=METRICS, primary="STSB", training={"save_steps": 3, "fp16": True}
    )
    small = Profile(dataset="real", recipe=recipe, arms=(*ARMS, UNTRAINED), metrics=METRICS, primary="STSB", needs=needs)
    task = Task(
        name="toy-task",
        summary="figures out of thin air",
        method=METHOD,
        baseline=BASELINE,
        profiles={"quick": quick, "small": small},
        train=train,
        papers="sentence",
        quickstart=(BASELINE, "macl+infonce"),
    )
    return Suite("toy", "nothing at all", (task,))


SUITE = make_suite(needs=("text/toy.tsv",))


class Plugin:
    @hookimpl
    def tempplug_register_suites(self) -> list[SuiteInfo]:
        return [SuiteInfo(name="toy", target="toy_suite:SUITE", summary="nothing at all")]
