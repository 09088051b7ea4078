"""A suite that trains nothing: figures that follow from the arm and the seed, and faults on request through the environment.

TOY_LOG: file to which every run appends its name. TOY_SLEEP: seconds a run takes. TOY_FAIL: label and seed that raise.
TOY_CRASH: label and seed whose process ends without a word.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from tempplug.plugins import SuiteInfo, hookimpl
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, RunContext, Task

METRICS = (
    Metric(name="STSB", summary="Spearman × 100 of nothing"),
    Metric(name="error", summary="share of mistakes", higher_is_better=False, decimals=3),
)
ARMS = (
    Arm("plain", "fixed:temperature=0.05", reported=(PaperRow("macl", "B.4", "SimCSE-BERT", "STS"),)),
    Arm("macl", "macl:base_temperature=0.05,alpha=2,threshold=0.8", reported=(PaperRow("macl", "B.4", "w/ MACL", "STS"),)),
    Arm("plain-dcl", "fixed:temperature=0.05", "dcl"),
)


def train(context: RunContext) -> dict[str, float]:
    name = f"{context.arm.label} {context.seed}"
    if log := os.environ.get("TOY_LOG"):
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{name} {os.getpid()}\n")
    for step in range(10):
        context.progress(step / 10, f"step {step}")
        time.sleep(float(os.environ.get("TOY_SLEEP", "0")) / 10)
    if os.environ.get("TOY_FAIL") == name:
        raise RuntimeError("the toy broke\non purpose")
    if os.environ.get("TOY_CRASH") == name:
        os._exit(7)
    generator = random.Random(f"{context.arm.strategy} {context.arm.objective} {context.seed}")
    return {"STSB": 70 + 10 * generator.random(), "error": generator.random()}


def make_suite(steps: int = 10, needs: tuple[str, ...] = ()) -> Suite:
    quick = Profile(dataset="none", recipe={"steps": steps, "rate": 0.1}, arms=ARMS, metrics=METRICS, primary="STSB")
    small = Profile(dataset="real", recipe={"steps": steps}, arms=ARMS, metrics=METRICS, primary="STSB", needs=needs)
    task = Task(
        name="toy-task",
        summary="figures out of thin air",
        baseline="plain",
        profiles={"quick": quick, "small": small},
        train=train,
        papers="sentence",
    )
    return Suite("toy", "nothing at all", (task,))


SUITE = make_suite(needs=("text/toy.tsv",))


class Plugin:
    @hookimpl
    def tempplug_register_suites(self) -> list[SuiteInfo]:
        return [SuiteInfo(name="toy", target="toy_suite:SUITE", summary="nothing at all")]
