"""Trainings with the ranking losses: what Trainer and callback do for a temperature that sentence-transformers does not."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import every_pair
from datasets import Dataset, DatasetDict
from sentence_transformer_toys import (
    assert_equal,
    create,
    features,
    log_scale,
    logged,
    make,
    sentences,
    through,
    tiny,
    watched,
    weights,
)
from sentence_transformers import SentenceTransformer
from torch import nn

import tempplug
from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.sentence_transformers import (
    CachedTemperatureRankingLoss,
    TemperatureRankingCallback,
    TemperatureRankingLoss,
    TemperatureSentenceTransformerTrainer,
)
from tempplug_adapters.sentence_transformers.library import losses as library

DOORS = ["trainer", "callback"]
ONE_STEP: dict[str, Any] = {"max_steps": 1, "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
MODELS_RATE = "learnable:learning_rate=none"


def test_what_learns_counts_or_follows_a_schedule_is_not_trained_without_a_manager(tiny_bert: Path) -> None:
    strategies = ["learnable learns", "schedule follows a schedule", "individual:size=64 counts"]
    for strategy, size, wrapped in every_pair(strategies, [None, 8], [False, True]):
        spec, does = strategy.split(" ", 1)
        model, loss = create(tiny_bert, spec, size)
        whole = library.MatryoshkaLoss(model, loss, [16, 8]) if wrapped else loss
        name = loss.contrastive_loss.strategy.name
        with pytest.raises(ConfigError, match=f"strategy '{name}' {does}, and no Trainer or callback"):
            whole(features(model.train()), None)
        if spec == "learnable":
            assert loss(features(model.eval()), None).isfinite()
            loss.take_charge()
            assert loss(features(model.train()), None).isfinite()
    for strategy in ("fixed", "macl", "dystress", "temperature-free"):
        model, loss = create(tiny_bert, strategy)
        assert loss(features(model.train()), None).isfinite()


@pytest.mark.parametrize(("door", "optim"), [("trainer", "adamw_torch"), ("callback", "sgd"), ("library", "adamw_torch")])
def test_weight_decay_spares_the_temperature_with_our_trainer_and_callback(
    tiny_bert: Path, tmp_path: Path, door: str, optim: str
) -> None:
    after = []
    for decay in (0.0, 0.5):
        model, loss = create(tiny_bert, MODELS_RATE)
        loss.take_charge()
        given = {**ONE_STEP, "optim": optim, "learning_rate": 0.1, "weight_decay": decay}
        trainer = through(door, tmp_path, model, loss, **given)
        trainer.train()
        assert [len(group["params"]) > 0 for group in trainer.optimizer.param_groups] == [True, True]
        after.append((log_scale(loss), model[0].auto_model.embeddings.word_embeddings.weight.norm().item()))
    (scale, weight), (decayed_scale, decayed_weight) = after
    assert decayed_weight < weight
    if door == "library":
        assert decayed_scale < scale - 0.05
    else:
        assert decayed_scale == scale


@pytest.mark.parametrize(("door", "size"), [("trainer", 3), ("callback", None)])
def test_accumulation_of_four_gives_the_mean_gradient(tiny_bert: Path, tmp_path: Path, door: str, size: int | None) -> None:
    """The library's cached losses give their own parameters four times that."""
    model, loss = create(tiny_bert, MODELS_RATE, size)
    model.double()
    start, reference = log_scale(loss), TemperatureRankingLoss(copy.deepcopy(model), "learnable")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    batches = watched(loss)
    through(door, tmp_path, model, loss, gradient_accumulation_steps=4, optim="sgd", **ONE_STEP).train()
    reference.take_charge()
    assert len(batches) == 4
    torch.stack([reference(batch, None) for batch in batches]).mean().backward()
    expected = reference.contrastive_loss.strategy.log_scale.grad.item()
    assert abs(expected) > 1e-3
    assert start - log_scale(loss) == pytest.approx(expected, abs=1e-6)
    for name, weight in reference.model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(before[name] - dict(model.named_parameters())[name], weight.grad, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("door", DOORS)
def test_the_temperatures_gradient_is_clipped_by_itself_and_the_loss_released_at_the_end(
    tiny_bert: Path, tmp_path: Path, door: str
) -> None:
    model, loss = create(tiny_bert, MODELS_RATE)
    start = log_scale(loss)
    through(door, tmp_path, model, loss, optim="sgd", **{**ONE_STEP, "max_grad_norm": 1e-3}).train()
    assert abs(start - log_scale(loss)) == pytest.approx(1e-3, rel=1e-2)
    with pytest.raises(ConfigError, match="no Trainer or callback manages it"):
        through("library", tmp_path, model, loss, max_steps=1).train()


@pytest.mark.parametrize(
    ("strategy", "rate", "more", "optim"),
    [
        ("learnable:learning_rate=0.03", 0.03, {}, "adamw_torch"),
        ("learnable", 0.02, {"learning_rate_mapping": {r"log_scale$": 0.02}}, "adamw_torch"),
        (MODELS_RATE, 0.1, {}, "adamw_torch"),
        ("learnable", None, {}, "sgd"),
    ],
)
def test_the_temperature_has_a_learning_rate_of_its_own(
    tiny_bert: Path, tmp_path: Path, strategy: str, rate: float | None, more: dict[str, Any], optim: str
) -> None:
    """It follows the schedule of the encoder's rate; ``learning_rate_mapping`` comes first."""
    paths, moved = [], []
    for door in DOORS:
        given = {"max_steps": 4, "optim": optim, "learning_rate": 0.1, "weight_decay": 0.5, **more}
        trainer = through(door, tmp_path, *create(tiny_bert, strategy), **given)
        trainer.train()
        paths.append(logged(trainer, "temperature"))
        moved.append(weights(trainer))
    assert paths[0] == pytest.approx(paths[1], rel=1e-6)
    assert_equal(*moved)
    if rate:  # which is Adam's first step
        assert abs(math.log(paths[0][0] / paths[0][1])) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(
    ("door", "strategy", "period", "arguments", "goes_by", "different"),
    [
        ("trainer", "schedule", 0.4, {"num_train_epochs": 2}, ["2 epochs"], []),
        ("callback", "schedule:shape=triangle", 0.1, {"max_steps": 4}, ["0.5 epochs"], ["3 different temperatures"]),
        ("trainer", "schedule:period=3", 3.0, {"max_steps": 4}, [], ["4 different temperatures, from 0.089 to 0.1, where its"]),
    ],
)
def test_a_schedule_hears_its_progress_and_gets_a_fifth_of_the_runs_epochs(
    tiny_bert: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    door: str,
    strategy: str,
    period: float,
    arguments: dict[str, Any],
    goes_by: list[str],
    different: list[str],
) -> None:
    """The fourth of eight steps an epoch begins at an eighth of a period of three, where τ is 0.0625 + 0.0375·cos 45°."""
    model, loss = create(tiny_bert, strategy)
    with caplog.at_level(logging.WARNING, logger="tempplug_adapters"):
        trainer = through(door, tmp_path, model, loss, **arguments)
        trainer.train()
    schedule = tempplug.create_strategy(strategy, period=period, temperature_min=0.025, temperature_max=0.1)
    expected = []
    for step in range(trainer.state.global_step):
        schedule.set_progress(epoch=step / 8)
        expected.append(schedule.temperature())
    assert logged(trainer, "temperature") == pytest.approx(expected, rel=1e-5)
    assert f"period={period:g}," in loss.get_config_dict()["strategy"]
    messages = [record.getMessage() for record in caplog.records]
    for word, parts in (("goes by the", goes_by), ("0.025 to 0.1: ", different)):
        said = [message for message in messages if word in message]
        assert len(said) == len(parts)
        assert all(part in message for part, message in zip(parts, said, strict=True))


def test_a_stream_without_a_length_is_one_epoch(tiny_bert: Path, tmp_path: Path) -> None:
    model, loss = create(tiny_bert, "schedule")
    data = Dataset.from_dict(sentences(64)).to_iterable_dataset()
    trainer = through("callback", tmp_path, model, loss, data=data, max_steps=5)
    trainer.train()
    assert loss.contrastive_loss.strategy.options["period"] == pytest.approx(0.2)
    assert logged(trainer, "temperature") == pytest.approx([0.1] * 5, rel=1e-5)


@pytest.mark.parametrize("door", DOORS)
def test_logs_measure_the_last_training_batch_also_after_an_evaluation(tiny_bert: Path, tmp_path: Path, door: str) -> None:
    model, inner = create(tiny_bert, "learnable")
    loss = library.MatryoshkaLoss(model, inner, [16, 8])
    data, other = (Dataset.from_dict(sentences(16, seed)) for seed in (0, 5))
    arguments = {"eval_strategy": "steps", "eval_steps": 1, "logging_strategy": "epoch", "num_train_epochs": 1, "data": data}
    trainer = through(door, tmp_path, model, loss, keywords={"eval_dataset": other}, max_grad_norm=0.0, **arguments)
    seen: list[float] = []
    inner.contrastive_loss.register_forward_hook(lambda own, *_: seen.append(log_scale(inner)) if own.training else None)
    trainer.train()
    assert len(logged(trainer, "eval_loss")) == 3, "before the training, too"
    assert logged(trainer, "temperature") == pytest.approx([torch.tensor(-seen[-1]).exp().item()])
    for key in ("positive_similarity", "negative_similarity", "gradient_scale"):
        assert len(logged(trainer, key)) == 1


def test_several_data_sets_may_have_a_loss_each_or_one(tiny_bert: Path, tmp_path: Path) -> None:
    model, first = create(tiny_bert, "learnable")
    second = TemperatureRankingLoss(model, "learnable:initial_temperature=0.2")
    losses: dict[str, nn.Module] = {"first": first, "second": second, "third": library.MultipleNegativesRankingLoss(model)}
    data = DatasetDict({name: Dataset.from_dict(sentences(16, seed)) for seed, name in enumerate(losses)})
    trainer = make(tmp_path, model, losses, data=data, num_train_epochs=1, save_strategy="epoch")
    trainer.train()
    last, scales = trainer.state.log_history[-2], [log_scale(first), log_scale(second)]
    found = [last[f"{name}_temperature"] for name in ("first", "second")]
    assert found == pytest.approx([math.exp(-scale) for scale in scales], rel=0.05)
    assert scales[0] != scales[1]
    saved = torch.load(next(tmp_path.glob("checkpoint-*")) / "contrastive_loss.pt", weights_only=True)
    assert [value.item() for value in saved.values()] == scales
    trainer = make(tmp_path, model, dict.fromkeys(losses, first), data=data, num_train_epochs=1)
    trainer.train()
    assert len(logged(trainer, "temperature")) == 6


def test_a_last_batch_of_one_does_not_end_a_run(tiny_bert: Path, tmp_path: Path) -> None:
    data = Dataset.from_dict(sentences(9, columns=2))
    trainer = make(tmp_path, *create(tiny_bert, "learnable"), data=data, num_train_epochs=1)
    with pytest.warns(RuntimeWarning, match="without a negative"):
        trainer.train()
    assert (logged(trainer, "loss")[-1], trainer.state.global_step) == (0.0, 2)


def test_the_model_card_has_strategy_objective_and_citation(tiny_bert: Path, tmp_path: Path) -> None:
    model = tiny(tiny_bert)
    make(tmp_path, model, TemperatureRankingLoss(model, "macl:alpha=2", "dcl"), max_steps=1).train()
    model.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    for words in ('"strategy": "macl:base_temperature=0.05,alpha=2', '"objective": "dcl"', "@misc{tempplug-macl,"):
        assert words in card
    assert library.MultipleNegativesRankingLoss(model).citation.splitlines()[1] in card
    assert "loss:TemperatureRankingLoss" in card


def test_every_trial_starts_with_the_temperature_of_the_first(tiny_bert: Path, tmp_path: Path) -> None:
    def fresh(trial: object = None) -> SentenceTransformer:
        return tiny(tiny_bert)

    loss = TemperatureRankingLoss(fresh(), "learnable")
    trainer = make(tmp_path, None, loss, keywords={"model_init": fresh}, max_steps=2)
    start = log_scale(loss)
    trainer.train()
    learned = log_scale(loss)
    assert learned != start
    trainer.train()
    assert log_scale(loss) == learned


def test_an_optimizer_of_ones_own_gets_the_parameters_of_the_loss_or_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    model, loss = create(tiny_bert, "learnable")
    start, (optimizer, other, last) = log_scale(loss), (torch.optim.AdamW(model.parameters(), lr=0.01) for _ in range(3))
    make(tmp_path, model, loss, keywords={"optimizers": (optimizer, None)}, max_steps=1).train()
    assert log_scale(loss) != start
    assert optimizer.param_groups[-1]["weight_decay"] == 0.0
    scheduler = torch.optim.lr_scheduler.ConstantLR(other)
    for door, given, message in (
        ("trainer", (other, scheduler), "passed with its scheduler lacks the parameters of the loss"),
        ("callback", (last, None), "the optimizer lacks the parameters of the loss"),
    ):
        with pytest.raises(ConfigError, match=message):
            through(door, tmp_path, model, loss, keywords={"optimizers": given}, max_steps=1).train()


def test_trainer_and_callback_need_a_loss_and_one_of_them_is_enough(tiny_bert: Path, tmp_path: Path) -> None:
    model, loss = create(tiny_bert, "learnable")
    for door in DOORS:
        with pytest.raises(ConfigError, match="loss contains no TemperatureRankingLoss"):
            through(door, tmp_path, model, library.MultipleNegativesRankingLoss(model))
    trainer = make(tmp_path, model, loss, keywords={"callbacks": [TemperatureRankingCallback(loss)]}, max_steps=1)
    assert isinstance(trainer, TemperatureSentenceTransformerTrainer)
    assert not any(isinstance(each, TemperatureRankingCallback) for each in trainer.callback_handler.callbacks)


def test_the_flags_make_the_loss(tiny_bert: Path) -> None:
    model = tiny(tiny_bert)
    plain = TemperatureArguments().create_sentence_transformers_loss(model)
    assert (type(plain), plain.scale, plain.gather_across_devices) == (TemperatureRankingLoss, 20.0, False)
    assert TemperatureArguments("fixed", ["temperature=0.1"]).create_sentence_transformers_loss(model).temperature == 0.1
    arguments = TemperatureArguments("macl:alpha=2", ["threshold=0.8"], "dclw:sigma=0.25")
    cached = arguments.create_sentence_transformers_loss(model, mini_batch_size=4, gather_across_devices=True)
    assert (type(cached), cached.mini_batch_size, cached.contrastive_loss.gather) == (CachedTemperatureRankingLoss, 4, True)
    assert cached.contrastive_loss.objective.spec() == "dclw:sigma=0.25"
    options = cached.contrastive_loss.strategy.options
    assert (options["alpha"], options["threshold"], options["base_temperature"]) == (2, 0.8, 0.05)
    for strategy in ("learnable", "amcl:dimension=32"):
        made = TemperatureArguments(strategy, temperature_learning_rate=0.3).create_sentence_transformers_loss(model)
        assert made.contrastive_loss.strategy.learning_rate == 0.3
