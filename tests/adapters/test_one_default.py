"""One default for one word: what a strategy without options is in every context, and that a training prints what it uses."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_toys import Data, Encoder, MyTrainer
from sentence_transformer_toys import make, tiny
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import losses as library
from test_lightning import Points, fit
from torch import nn
from transformers import HfArgumentParser, TrainingArguments

import tempplug
from tempplug.arguments import merge_spec
from tempplug.strategies.fixed import Fixed
from tempplug_adapters import metric_learning
from tempplug_adapters.graph.pygcl import PyGCLLoss
from tempplug_adapters.graph.recipes import GRACE, GRAPHCL
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.msc.recipe import METHOD as MSC
from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
)
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE
from tempplug_adapters.training.method import Method
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import around
from tempplug_adapters.vision.lightly import NTXentLoss
from tempplug_adapters.vision.recipes import METHODS as VISION
from tempplug_benchmarks.arm import parse_arm, resolve

Given = str | None


def flags(given: Given) -> TemperatureArguments:
    words = [] if given is None else ["--temperature_strategy", given]
    (parsed,) = HfArgumentParser((TemperatureArguments,)).parse_args_into_dataclasses(words)  # type: ignore[arg-type]
    return parsed


def ranked(given: Given, **more: Any) -> tempplug.Strategy:
    return flags(given).create_sentence_transformers_loss(Model(), **more).contrastive_loss.strategy


def own_loop(given: Given) -> tempplug.Strategy:
    """The three lines of a script without a Trainer, and of the examples for Lightning."""
    parser = argparse.ArgumentParser()
    tempplug.add_temperature_arguments(parser)
    parsed = parser.parse_args([] if given is None else ["--temperature-strategy", given])
    name, options = merge_spec(parsed.temperature_strategy, parsed.temperature_args)
    return tempplug.create_strategy(name, **options)


def command(info: MethodInfo, given: Given) -> tempplug.Strategy:
    """What ``tempplug train`` makes of its flags, without data."""

    class WithoutData(Method[Any, Any]):  # type: ignore[misc]
        known = staticmethod(lambda recipe, data: {})

    WithoutData.__abstractmethods__ = frozenset()
    loss = WithoutData(info).create_loss(info.recipe(), None, TemperatureArguments(given, contrastive_objective=None))
    return loss.strategy


def suite(info: MethodInfo, given: Given) -> tempplug.Strategy:
    """What ``tempplug bench`` makes of an arm, and ``tempplug bench sweep`` of a strategy."""
    recipe = info.recipe()
    resolved = resolve(parse_arm(recipe.loss.strategy if given is None else given, recipe), recipe).strategy
    assert resolved is not None
    return tempplug.create_strategy(resolved)


class Model(nn.Module):
    """Enough of a SentenceTransformer to make a loss for."""

    def __getitem__(self, place: int) -> nn.Module:
        return self


RANKING, CACHED = (partial(kind, Model()) for kind in (TemperatureRankingLoss, CachedTemperatureRankingLoss))


def drop_in(kind: Callable[..., Any], given: Any, **more: Any) -> tempplug.Strategy:
    strategy: tempplug.Strategy = kind(*[] if given is None else [given], **more).contrastive_loss.strategy
    return strategy


METHODS = ((VISION["simclr"], 0.1), (SIMCSE, 0.05), (GRACE, 0.5), (GRAPHCL, 0.2), (MSC, 0.25))
CONTEXTS: dict[str, tuple[float, Callable[[Any], tempplug.Strategy]]] = {
    "ContrastiveLoss": (0.1, lambda given: tempplug.ContrastiveLoss(*[] if given is None else [given]).strategy),
    "own loop, Lightning": (0.1, own_loop),
    "Hugging Face mixin": (0.1, lambda given: flags(given).create_loss("cross-view").strategy),
    "mixin around 0.05": (0.05, lambda given: flags(given).create_loss(temperatures=around(0.05)).strategy),
    "sentence-transformers": (0.05, partial(drop_in, RANKING)),
    "sentence-transformers, cached": (0.05, partial(drop_in, CACHED)),
    "sentence-transformers, flags": (0.05, ranked),
    "sentence-transformers, flags, cached": (0.05, partial(ranked, mini_batch_size=2)),
    "lightly": (0.5, partial(drop_in, NTXentLoss)),
    "lightly, memory bank": (0.5, partial(drop_in, NTXentLoss, memory_bank_size=(4, 3))),
    "PyGCL": (0.1, partial(drop_in, PyGCLLoss)),
    "pytorch-metric-learning, NT-Xent": (0.07, partial(drop_in, metric_learning.NTXentLoss)),
    "pytorch-metric-learning, SupCon": (0.1, partial(drop_in, metric_learning.SupConLoss)),
    **{f"train {info.name}": (default, partial(command, info)) for info, default in METHODS},
    **{f"bench {info.name}": (default, partial(suite, info)) for info, default in METHODS},
}
TAKE_INSTANCES = ("ContrastiveLoss", "sentence-transformers", "sentence-transformers, cached", "lightly", "PyGCL")


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_strategy_without_options_is_the_default_of_its_context(context: str) -> None:
    default, create = CONTEXTS[context]
    spec = {given: create(given).spec() for given in (None, "fixed", "fixed:temperature=0.3", "fixed:temperature=0.1")}
    assert list(spec.values()) == [f"fixed:temperature={each:g}" for each in (default, default, 0.3, 0.1)]
    assert create("macl").options["base_temperature"] == default
    assert create("macl:base_temperature=0.3").options["base_temperature"] == 0.3
    if context in TAKE_INSTANCES:
        strategy = Fixed(temperature=0.3)
        assert create(strategy) is strategy


def test_all_that_is_around_a_temperature_moves_with_it() -> None:
    """The default of the context decides the others too: they stand beside its baseline."""
    assert drop_in(RANKING, "learnable").options["initial_temperature"] == 0.05
    dystress = drop_in(RANKING, "dystress:profile=linear").options
    assert (dystress["temperature_min"], dystress["temperature_max"], dystress["profile"]) == (0.025, 0.05, "linear")
    assert drop_in(RANKING, "temperature-free").spec() == "temperature-free:eps=0.0001"
    individual = drop_in(RANKING, "individual:size=9").options
    assert (individual["temperature_init"], individual["temperature_min"]) == (0.05, 0.025), "it must be able to fall"
    assert around(0.5)["individual"]["temperature_min"] == 0.05
    assert drop_in(NTXentLoss, "learnable").options["initial_temperature"] == 0.5
    assert drop_in(PyGCLLoss, None, tau=0.4).spec() == drop_in(PyGCLLoss, "fixed", tau=0.4).spec() == "fixed:temperature=0.4"
    assert TemperatureRankingLoss(Model(), scale=10).temperature == 0.1


def test_what_the_data_know_stands_behind_what_is_written_and_the_context() -> None:
    given = {"size": 9, "temperature_init": 0.9, "class_counts": [3, 2]}
    written = flags("individual:temperature_min=0.01").create_loss(temperatures=around(0.05), **given).strategy
    assert (written.options["size"], written.options["temperature_init"], written.options["temperature_min"]) == (9, 0.05, 0.01)
    assert flags("head-tail").create_loss(temperatures=around(0.05), **given).strategy.options["class_counts"] == (3, 2)


# What a training prints


MACL = "macl:base_temperature={:g},alpha=0.5,threshold=0,floor_ratio=0.1,strict=false"


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines that say what is used, of standard error alone."""
    captured = capsys.readouterr()
    assert ", objective " not in captured.out
    return [line for line in captured.err.splitlines() if ", objective " in line]


def test_the_mixin_prints_what_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = TrainingArguments(str(tmp_path), max_steps=2, report_to="none", use_cpu=True, save_strategy="no")
    loss = TemperatureArguments("schedule").create_loss("cross-view", symmetric=True)
    MyTrainer(Encoder(), arguments, train_dataset=Data(), contrastive_loss=loss).train()
    options = "temperature_min=0.1,temperature_max=1,period=0.05,seed=0,granularity=step"
    assert said(capsys) == [f"strategy schedule:shape=cosine,{options}, objective infonce, layout cross-view, symmetric"]


@pytest.mark.parametrize(
    ("kind", "door"),
    [(TemperatureRankingLoss, "trainer"), (CachedTemperatureRankingLoss, "callback"), (TemperatureRankingLoss, "neither")],
)
def test_sentence_transformers_prints_what_is_used(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[TemperatureRankingLoss], door: str
) -> None:
    model = tiny(tiny_bert)
    loss = kind(model, "macl", "dcl")
    wrapped = library.MatryoshkaLoss(model, loss, [16, 8])
    if door == "trainer":
        trainer = make(tmp_path, model, wrapped, max_steps=2)
    else:
        keywords = {"callbacks": [TemperatureRankingCallback(loss)]} if door == "callback" else {}
        trainer = make(tmp_path, model, wrapped, SentenceTransformerTrainer, keywords=keywords, max_steps=2)
    trainer.train()
    note = "; not in the logs: TemperatureSentenceTransformerTrainer adds its temperature" if door == "neither" else ""
    assert said(capsys) == [f"strategy {MACL.format(0.05)}, objective dcl, layout cross-view{note}"]


def test_each_of_several_losses_is_named(tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny(tiny_bert)
    data = {"first": make(tmp_path, model, TemperatureRankingLoss(model)).train_dataset}
    data["second"] = data["first"]
    losses = {"first": TemperatureRankingLoss(model), "second": TemperatureRankingLoss(model, "fixed:temperature=0.2")}
    make(tmp_path, model, losses, data=data, max_steps=1).train()
    assert said(capsys) == [
        "first: strategy fixed:temperature=0.05, objective infonce, layout cross-view",
        "second: strategy fixed:temperature=0.2, objective infonce, layout cross-view",
    ]


@pytest.mark.filterwarnings("ignore:.*(many workers|logging interval)")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_lightning_prints_what_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for loss, expected in ((tempplug.ContrastiveLoss("macl"), 0.1), (NTXentLoss("macl"), 0.5)):
        module = Points()
        module.loss_fn = loss
        module.training_step = lambda batch, number, module=module: module.contrast(batch)
        fit(module, tmp_path, max_epochs=2)
        (line,) = said(capsys)
        assert line.startswith(f"strategy {MACL.format(expected)}, objective infonce, layout two-view")


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (lambda: NTXentLoss("macl"), f"strategy {MACL.format(0.5)}, objective infonce, layout two-view"),
        (lambda: NTXentLoss(0.2, (8, 4)), "strategy fixed:temperature=0.2, objective infonce, layout queue"),
        (lambda: PyGCLLoss("macl", "dcl", tau=0.4), f"strategy {MACL.format(0.4)}, objective dcl, layout masks"),
    ],
)
def test_drop_ins_print_at_the_first_step(
    create: Callable[[], nn.Module], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loss, views = create(), (torch.randn(6, 4, requires_grad=True), torch.randn(6, 4))
    with torch.no_grad():
        loss(*views)
    loss.eval()(*views)
    assert said(capsys) == [], "nothing is trained yet"
    for _ in range(2):
        loss.train()(*views).backward()
    assert said(capsys) == [expected]


def test_only_one_process_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        for rank, lines in ((1, 0), (0, 1)):
            monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            NTXentLoss()(torch.randn(6, 4, requires_grad=True), torch.randn(6, 4))
            assert len(said(capsys)) == lines
    finally:
        torch.distributed.destroy_process_group()


def test_a_bar_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    from tqdm import tqdm

    with tqdm(total=3) as bar:
        NTXentLoss()(torch.randn(6, 4, requires_grad=True), torch.randn(6, 4))
        bar.update()
    told = "\nstrategy fixed:temperature=0.5, objective infonce, layout two-view\n"
    assert told in capsys.readouterr().err.replace("\r", "\n")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler looks at it
def test_a_compiled_drop_in_prints_and_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    views = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4)
    compiled = torch.compile(NTXentLoss(), backend="eager", fullgraph=True)(*views)
    assert len(said(capsys)) == 1
    assert math.isclose(compiled.item(), NTXentLoss(0.5)(*views).item(), rel_tol=1e-6)
