"""Trainers that embed in mini-batches: weights and temperatures are those of training on whole batches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import clip_toys
import pytest
import simcse_toys
import torch
from huggingface_toys import Data, MyTrainer, make, weights
from method_toys import run as run_toy
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import default_collate
from transformers import HfArgumentParser

import tempplug
from tempplug.errors import ConfigError, ShapeError, TensorError
from tempplug.targets import of_keys
from tempplug_adapters.clip.recipe import METHOD as CLIP
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE
from tempplug_adapters.simcse.retrieval_recipe import METHOD as RETRIEVAL
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.train import train


class WithArguments(MyTrainer):
    """Views with hard negatives, keys of rows and an uncertainty of both views."""

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        view_a, view_b, hard = model(torch.cat([inputs["a"], inputs["b"], inputs["a"].flip(1)])).chunk(3)
        keys = {"view_a": inputs["labels"] // 2, "view_b": inputs["labels"] // 2, "hard_negatives": -inputs["labels"] - 1}
        uncertainty = inputs["a"].norm(dim=1), inputs["b"].norm(dim=1)
        return view_a, view_b, {"hard_negatives": hard, "keys": keys, "uncertainty": uncertainty}


def loss_of(trainer: type[MyTrainer]) -> tempplug.ContrastiveLoss:
    if trainer is MyTrainer:
        return tempplug.ContrastiveLoss("learnable", layout="cross-view")
    return tempplug.ContrastiveLoss("uncertainty", layout="cross-view:directions=ab+ba", negatives="same-key")


@pytest.mark.parametrize("trainer", [MyTrainer, WithArguments])
def test_the_mixin_trains_as_with_whole_batches(tmp_path: Path, trainer: type[MyTrainer]) -> None:
    """With accumulated micro-batches, clipping, an uneven last mini-batch and an evaluation between the steps."""
    more: dict[str, Any] = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.3, "max_steps": 6, "dropout": 0.0}
    more |= {"optim": "sgd", "learning_rate": 0.3, "eval_strategy": "steps", "eval_steps": 3, "eval_on_start": True}
    ended = []
    for size in (None, 3):
        calls: list[int] = []
        data = {"train_dataset": Data(60), "eval_dataset": Data(10)}
        ours = make(tmp_path, loss_of(trainer), trainer, keywords={**data, "contrastive_mini_batch_size": size}, **more)
        start = weights(ours)
        ours.model.register_forward_hook(
            lambda module, inputs, output, calls=calls: calls.append(len(output) if module.training else -len(output))
        )
        ours.train()
        ended.append(
            (ours.state.log_history, {**weights(ours), **ours.contrastive_loss.state_dict()}, (max(calls), min(calls)))
        )
        assert any(not torch.equal(value, start[name]) for name, value in weights(ours).items())
    (whole, expected, most), (logs, found, few) = ended
    views = 2 if trainer is MyTrainer else 3
    assert (most, few) == ((8 * views, -8 * views), (3 * views, -8 * views)), "evaluations are not split"
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
    for entry, other in zip(logs, whole, strict=True):
        numbers = {name: value for name, value in entry.items() if not name.startswith(("train_", "eval_runtime", "eval_s"))}
        assert numbers == pytest.approx({name: other[name] for name in numbers}, rel=1e-3, abs=1e-5)


class WithTargets(MyTrainer):
    """Targets of a batch from its collator, a row for each item."""

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        inputs = dict(inputs)
        arguments = {"targets": inputs.pop("targets"), "keys": inputs["labels"]}
        return (*super().contrastive_views(model, inputs), arguments)


def with_targets(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    batch: dict[str, torch.Tensor] = default_collate(rows)
    return {**batch, "targets": of_keys(batch["labels"] // 4)}


@pytest.mark.parametrize("queue", [None, 8])
def test_targets_of_a_batch_train_whole_in_parts_and_with_past_batches(tmp_path: Path, queue: int | None) -> None:
    """Against a loop of dense formulas; items of one quadruple are each other's positives."""
    found = []
    for size in (None, 3):
        keywords = {"contrastive_mini_batch_size": size, "queue_size": queue, "data_collator": with_targets}
        loss = tempplug.ContrastiveLoss(0.1, layout="cross-view", negatives="same-key")
        ours = make(tmp_path, loss, WithTargets, keywords=keywords, max_steps=3, dropout=0.0, optim="sgd", learning_rate=0.3)
        ours.args.lr_scheduler_type = "constant"
        batches = [dict(batch) for batch in ours.get_train_dataloader()][:3]
        plain = copy.deepcopy(ours.model)
        ours.get_train_dataloader = lambda batches=batches: batches  # type: ignore[method-assign]
        ours.train()
        found.append(weights(ours))
    past = [torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)]
    optimizer = torch.optim.SGD(plain.parameters(), 0.3)
    for batch in batches:
        view_a, view_b = normalize(plain(torch.cat([batch["a"], batch["b"]]))).chunk(2)
        logits = view_a @ torch.cat([view_b, past[0].reshape(-1, view_b.shape[1])]).T / 0.1
        copies = batch["labels"][:, None] == torch.cat([torch.full_like(batch["labels"], -1), past[1]])
        logits = logits.masked_fill(copies, -torch.inf)
        losses = logits.logsumexp(1) - (batch["targets"] * logits[:, : len(view_b)]).sum(1)
        optimizer.zero_grad()
        losses.mean().backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        if queue is not None:
            rows = torch.cat([past[0].reshape(-1, view_b.shape[1]), view_b.detach()]), torch.cat([past[1], batch["labels"]])
            past = [each[-queue:] for each in rows]
    for trained in found:
        for name, value in plain.state_dict().items():
            torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-5)


def test_targets_of_a_part_are_refused(tmp_path: Path) -> None:
    ours = make(tmp_path, "fixed", Returning, keywords={"contrastive_mini_batch_size": 3}, max_steps=1)
    ours.given = lambda inputs: ({"targets": of_keys(inputs["labels"])},)
    with pytest.raises(ShapeError, match=r"rows of the shapes .*\[3\].* and .*\[2\].*must come with the inputs"):
        ours.train()


def test_dropout_is_that_of_the_first_pass(tmp_path: Path) -> None:
    """Each forward pass of a part is followed by one with the same output."""
    outputs: list[torch.Tensor] = []
    ours = make(tmp_path, "learnable", dropout=0.5, keywords={"contrastive_mini_batch_size": 4}, max_steps=1)
    ours.model.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach()))
    ours.train()
    assert len(outputs) == 4
    for first, second in zip(outputs[:2], outputs[2:], strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(outputs[0], outputs[1])


class Returning(MyTrainer):
    given: Any

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return (*super().contrastive_views(model, inputs), *self.given(inputs))


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (ConfigError, "contrastive_mini_batch_size=4 takes no auxiliary_loss", lambda inputs: ({}, torch.zeros(()))),
        (ShapeError, r"an output of shape \[\] belongs to no row", lambda inputs: ({"weight": torch.zeros(())},)),
        (
            ShapeError,
            "all parts of a batch must have outputs of one form",
            lambda inputs: ({"x": {inputs["labels"][0].item(): 1}},),
        ),
    ],
)
def test_what_cannot_be_split_is_refused(tmp_path: Path, error: type[Exception], words: str, given: Any) -> None:
    ours = make(tmp_path, "fixed", Returning, keywords={"contrastive_mini_batch_size": 4}, max_steps=1)
    ours.given = given
    with pytest.raises(error, match=words):
        ours.train()


class InOneTensor(MyTrainer):
    """Both views of a batch are rows of one input, which a split would mix."""

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(model(inputs["a"]).chunk(2))


def test_inputs_whose_rows_are_not_the_items_are_refused(tmp_path: Path) -> None:
    ours = make(tmp_path, "fixed", InOneTensor, keywords={"contrastive_mini_batch_size": 4}, max_steps=1)
    with pytest.raises(ShapeError, match="2 embeddings of 4 rows of a mini-batch: row i of every input must belong to item i"):
        ours.train()


def test_bad_sizes_and_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contrastive_mini_batch_size=0 must be an integer, at least 1"):
        make(tmp_path, "fixed", keywords={"contrastive_mini_batch_size": 0})
    with pytest.raises(ConfigError, match="contrastive_mini_batch_size=0 must be an integer, at least 1"):
        TemperatureArguments(contrastive_mini_batch_size=0)
    (temperature,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(["--contrastive-mini-batch-size", "4"])
    assert temperature.contrastive_mini_batch_size == 4

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**torch.utils.data.default_collate(rows), "texts": ["a"] * len(rows)}

    keywords = {"contrastive_mini_batch_size": 4, "data_collator": collate}
    with pytest.raises(TensorError, match=r"inputs\['texts'\] of type list must be a tensor"):
        make(tmp_path, "fixed", keywords=keywords, max_steps=1).train()
    with pytest.raises(ConfigError, match="contrastive_mini_batch_size has no meaning for method 'toy': leave it out"):
        run_toy(tmp_path / "toy", training={"contrastive_mini_batch_size": 4})


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simcse_toys.write_toys(tmp_path_factory.mktemp("toys"))


EXACT: dict[str, Any] = {"dropout": 0.0, "optimizer": "sgd", "learning_rate": 0.3, "num_train_epochs": 1}


def trained(job: str, toys: Path, folder: Path, size: int | None) -> dict[str, Any]:
    """Trains without randomness; returns the results, and the weights at the end."""
    info = {"simcse": SIMCSE, "retrieval": RETRIEVAL, "clip": CLIP}[job]
    modules: list[nn.Module] = []
    method = info.load()
    build = method.build
    method.build = lambda *given: modules.append(build(*given)) or modules[0]  # type: ignore[method-assign]
    if job == "clip":
        model = clip_toys.save_clip(folder / "model", clip_toys.WORDS)
        source = Source(str(clip_toys.save_pictures(folder / "pictures", count=16)), None, folder, evaluated=False)
        recipe = info.recipe(model_name_or_path=str(model), num_train_epochs=2, per_device_train_batch_size=8)
    else:
        source = Source(str(toys / "triplets.csv"), toys / "sts", folder)
        recipe = info.recipe(model_name_or_path=str(toys / "encoder"), per_device_train_batch_size=16, max_length=32, **EXACT)
    training = {} if size is None else {"contrastive_mini_batch_size": size}
    temperature = TemperatureArguments("learnable", [], None, contrastive_negatives="same-key")
    results = train(method, recipe, method.load(recipe, source), temperature, folder / "run", training=training, evaluate=False)
    return {"weights": modules[0].state_dict(), **{name: results.get(name) for name in ("loss", "steps", *training)}}


@pytest.mark.parametrize("job", ["simcse", "retrieval", "clip"])
def test_a_method_trains_as_with_whole_batches(toys: Path, tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(job, toys, tmp_path / "whole", None)
    embedded: list[int] = []
    original = tempplug.gradient_cache.EmbeddedParts.__init__

    def counted(self: Any, *given: Any) -> None:
        original(self, *given)
        embedded.append(len(self.parts))

    monkeypatch.setattr(tempplug.gradient_cache.EmbeddedParts, "__init__", counted)
    parts = trained(job, toys, tmp_path / "parts", 5)
    assert embedded[0] == (2 if job == "clip" else 10), "3 · 16 texts, or 8 images and texts"
    assert parts["contrastive_mini_batch_size"] == 5
    assert parts["steps"] == whole["steps"]
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    for name, value in whole["weights"].items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(parts["weights"][name], value, rtol=1e-4, atol=5e-5)


def test_masked_tokens_are_refused(toys: Path) -> None:
    settings = simcse_toys.recipe(toys)
    data = simcse_toys.read(toys, "pairs.tsv", settings)
    module = SIMCSE.load().build(settings, data, tempplug.ContrastiveLoss(layout="cross-view"))
    module.mlm_weight = 0.1
    with pytest.raises(ConfigError, match="does not split the loss of masked tokens: choose mlm_weight=0"):
        module.rows_to_embed(**data.batch(torch.arange(4)))
