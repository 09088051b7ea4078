"""`train_simcse`: from the four argument records to a trained encoder and its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import set_seed

import tempplug
from tempplug.arguments import parse_spec
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.huggingface.loading import load_tokenizer
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts
from tempplug_adapters.sentence_evaluation.sts_data import load_sts
from tempplug_adapters.simcse.arguments import DataArguments, ModelArguments, SimCSETrainingArguments
from tempplug_adapters.simcse.checkpoints import resume_point
from tempplug_adapters.simcse.data import TokenizedViews, ViewCollator, read_samples
from tempplug_adapters.simcse.model import SimCSEModel
from tempplug_adapters.simcse.recipe import known_options
from tempplug_adapters.simcse.trainer import SimCSETrainer

RESULTS_FILE = "simcse_results.json"


def create_loss(temperature: TemperatureArguments, epochs: float) -> tempplug.ContrastiveLoss:
    """Returns SimCSE's loss: one way from view a to view b, the recipe's options where the flags give none.

    Args:
        temperature: the flags.
        epochs: of the training.
    """
    name, _ = parse_spec(temperature.temperature_strategy or "fixed")
    return temperature.create_loss("cross-view", **known_options(name, epochs))


def train_simcse(
    model: ModelArguments,
    data: DataArguments,
    temperature: TemperatureArguments,
    training: SimCSETrainingArguments,
    callbacks: list[Any] | None = None,
) -> dict[str, Any]:
    """Trains, keeps the best encoder on STS-B dev, evaluates it, and writes all of it to ``training.output_dir``.

    Args:
        model: which encoder.
        data: which sentences.
        temperature: which strategy and objective.
        training: how.
        callbacks: further Trainer callbacks.

    Returns:
        ``strategy`` and ``objective`` (resolved specs), ``samples``, ``steps``, ``train_loss``, ``seconds``, ``stsb_dev``
        (where evaluated) and ``sts`` (the seven tasks on their test sets, where asked for); also written as
        ``simcse_results.json``.

    Raises:
        DataError: a data file is missing, empty or malformed.
        ConfigError: options do not fit together.
        UnknownNameError: no such strategy or objective.
    """
    loss = create_loss(temperature, training.num_train_epochs)
    output_dir = Path(str(training.output_dir))
    resume = resume_point(output_dir, training.resume_from_checkpoint)
    samples = read_samples(data.train_file, data.columns, data.where)[: data.max_train_samples]
    # Read before the first step, so that a missing file does not end an hour of training.
    evaluation = load_sts("STSB", data.sts_dir, "dev") if training.eval_strategy != "no" else None
    if data.sts_test:
        load_sts("STS12", data.sts_dir, "test")
    set_seed(training.seed)
    encoder = SimCSEModel.from_pretrained(
        model.model_name_or_path,
        model.pooler,
        dropout=model.dropout,
        mlm=model.mlm_weight > 0,
    )
    tokenizer = load_tokenizer(model.model_name_or_path)
    trainer = SimCSETrainer(
        model=encoder,
        args=training,
        train_dataset=TokenizedViews(samples, tokenizer, model.max_length),
        eval_dataset=evaluation,
        data_collator=ViewCollator(tokenizer, model.mlm_probability if model.mlm_weight > 0 else None),
        processing_class=tokenizer,
        callbacks=callbacks,
        contrastive_loss=loss,
        sts_dir=data.sts_dir,
        mlm_weight=model.mlm_weight,
    )
    specs = {"strategy": loss.strategy.spec(), "objective": loss.objective.spec()}
    if trainer.is_world_process_zero():
        print(f"strategy {specs['strategy']}\nobjective {specs['objective']}\n{len(samples)} samples", flush=True)
    output = trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    results: dict[str, Any] = {
        **specs,
        "samples": len(samples),
        "steps": output.global_step,
        "train_loss": output.training_loss,
        "seconds": output.metrics.get("train_runtime"),
    }
    if evaluation is not None:
        results["stsb_dev"] = trainer.evaluate()["eval_stsb_spearman"]
    if data.sts_test:
        results["sts"] = evaluate_sts(trainer.sentence_encoder(), data.sts_dir).to_dict()
    if trainer.is_world_process_zero():
        _write(output_dir / RESULTS_FILE, results)
        trainer.save_state()
    return results


def _write(path: Path, results: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
