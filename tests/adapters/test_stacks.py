"""What people combine with the losses: one short training each, of which `.ci/versions` runs all on old and new releases."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset, DatasetDict
from huggingface_toys import Data, Encoder, MyTrainer
from sentence_transformer_toys import log_scale, make, sentences, tiny
from transformers import TrainingArguments

import tempplug
from tempplug_adapters.sentence_transformers import CachedTemperatureRankingLoss, TemperatureRankingLoss
from tempplug_adapters.sentence_transformers.library import losses as library


def needs(package: str) -> Any:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"pip install {package}, as .ci/versions does")


@pytest.mark.filterwarnings("ignore:.*without a negative:RuntimeWarning")
@pytest.mark.parametrize("which", ["plain", "Matryoshka", "GIST", "cached", "cached Matryoshka", "several data sets"])
def test_a_learned_temperature_trains_in_each(tiny_bert: Path, tmp_path: Path, which: str) -> None:
    model = tiny(tiny_bert)
    kind = CachedTemperatureRankingLoss if "cached" in which else TemperatureRankingLoss
    options: dict[str, Any] = {"negatives": "guide", "guide": tiny(tiny_bert)} if which == "GIST" else {}
    loss = kind(model, "learnable", **options)
    whole: Any = library.MatryoshkaLoss(model, loss, [16, 8]) if "Matryoshka" in which else loss
    data: Any = None
    if which == "several data sets":
        whole = {"ours": loss, "theirs": library.MultipleNegativesRankingLoss(model)}
        data = DatasetDict({name: Dataset.from_dict(sentences(32, seed)) for seed, name in enumerate(whole)})
    before, weight = log_scale(loss), model[0].auto_model.embeddings.word_embeddings.weight.clone()
    make(tmp_path, model, whole, data=data, max_steps=3).train()
    assert log_scale(loss) != before
    assert not torch.equal(model[0].auto_model.embeddings.word_embeddings.weight, weight)


@needs("peft")
@pytest.mark.parametrize("how", ["add_adapter", "inject_adapter_in_model"])
def test_lora_in_sentence_transformers(tiny_bert: Path, tmp_path: Path, how: str) -> None:
    """Adapters and temperature move, the weights below do not; the checkpoint has both."""
    from peft import LoraConfig, inject_adapter_in_model

    model, config = tiny(tiny_bert), LoraConfig(r=2, target_modules=["query"])
    if how == "add_adapter":
        try:
            model[0].auto_model.add_adapter(config)
        except ValueError as error:
            pytest.skip(f"transformers {transformers.__version__}: {error}")
    else:
        inject_adapter_in_model(config, model[0].auto_model)
    loss = TemperatureRankingLoss(model, "learnable")
    before, start = {name: each.clone() for name, each in model.named_parameters()}, log_scale(loss)
    make(tmp_path, model, loss, max_steps=2, save_strategy="steps", save_steps=2).train()
    moved = {name for name, each in model.named_parameters() if not torch.equal(each, before[name])}
    assert moved
    assert all("lora" in name for name in moved)
    assert log_scale(loss) != start
    files = {each.name for each in (tmp_path / "checkpoint-2").iterdir()}
    assert {"contrastive_loss.pt", "manifest.json"} <= files
    assert ("adapter_model.safetensors" in files) == (how == "add_adapter")


@needs("peft")
def test_lora_in_a_trainer(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(Encoder(), LoraConfig(r=2, target_modules=["layers.0"]))
    loss = tempplug.ContrastiveLoss("learnable", layout="cross-view")
    arguments = TrainingArguments(str(tmp_path), max_steps=2, use_cpu=True, report_to="none", save_strategy="no")
    start = loss.strategy.state_dict()["log_scale"].clone()
    MyTrainer(wrapped, arguments, train_dataset=Data(), contrastive_loss=loss).train()
    assert not torch.equal(loss.strategy.state_dict()["log_scale"], start)


@needs("optuna")
def test_optuna_searches_a_strategy(tiny_bert: Path, tmp_path: Path) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = tempplug.search_space("macl", base_temperature=(0.02, 0.5))

    def objective(trial: Any) -> float:
        model = tiny(tiny_bert)
        loss = TemperatureRankingLoss(model, space.suggest(trial))
        trainer = make(tmp_path, model, loss, max_steps=1)
        trainer.train()
        return float(trainer.state.log_history[0]["gradient_scale"])

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=3)
    assert len({trial.params["macl.base_temperature"] for trial in study.trials}) == 3
    assert space.suggest(study.best_params).startswith("macl:base_temperature=")
