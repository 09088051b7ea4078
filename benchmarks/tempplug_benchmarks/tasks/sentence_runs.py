"""One run of the suite ``sentence``: finds or generates its data, trains with `tempplug_adapters.simcse`, measures on STS.

It must not know how arms are compared. Importing this loads no framework.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tempplug.errors import DataError
from tempplug_benchmarks.data import sentences
from tempplug_benchmarks.task import RunContext

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
GENERATED = "generated"
"""The ``model`` of a recipe that generates encoder and sentences."""


@dataclass(frozen=True)
class Sources:
    """Where one run reads.

    Attributes:
        model: folder or hub name of the encoder.
        train_file: sentences or pairs.
        columns: of a table with more columns than are trained on.
        where: conditions on its rows.
        sts_dir: folder of the STS data.
        generated: whether all of it was generated, STS-B alone for evaluation.
    """

    model: str
    train_file: Path
    columns: tuple[str, ...]
    where: tuple[str, ...]
    sts_dir: Path
    generated: bool


def train_supervised(context: RunContext) -> dict[str, float]:
    """Trains on paraphrases or entailment pairs, in-batch negatives, and returns the metrics."""
    return _run(context, supervised=True)


def train_unsupervised(context: RunContext) -> dict[str, float]:
    """Trains on sentences alone, two dropout views of each, and returns the metrics."""
    return _run(context, supervised=False)


def _run(context: RunContext, supervised: bool) -> dict[str, float]:
    from tempplug_adapters.sentence_evaluation.encoder import load_encoder
    from tempplug_adapters.sentence_evaluation.sts import evaluate_sts

    with _quiet(context.work_dir / "training.log"):
        sources = _sources(context, supervised)
        folder, dev = _train(context, sources)
        encoder = load_encoder(folder)
        context.progress(1.0, "evaluating")
        result = evaluate_sts(encoder, sources.sts_dir, ("STSB",) if sources.generated else STS)
    if sources.generated:
        return result.spearman
    return {"STSB-dev": dev, **result.spearman, "Avg": float(result.average or 0)}


def _sources(context: RunContext, supervised: bool) -> Sources:
    if context.recipe["model"] == GENERATED:
        return _generate(context, supervised)
    if context.data_dir is None:
        raise DataError(f"profile '{context.profile}' needs real data: pass --data-dir or set TEMPPLUG_DATA.")
    text = context.data_dir / "text"
    small = context.profile == "small"
    columns: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    if supervised and small:
        train_file = text / "nli" / "nli_pairs.tsv.gz"
        columns, where = ("premise", "hypothesis"), ("label=entailment",)
    elif supervised:
        train_file = text / "nli" / "nli_for_simcse.csv"
    else:
        train_file = text / "wiki" / ("wiki_sentences.txt.gz" if small else "wiki1m_for_simcse.txt")
    model = str(context.recipe["model"])
    return Sources(str(text / model) if small else model, train_file, columns, where, text / "sts", generated=False)


def _generate(context: RunContext, supervised: bool) -> Sources:
    """Writes encoder, training data and evaluation data of the quick profile; evaluation is the same for every seed."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = context.work_dir / "generated"
    folder.mkdir(exist_ok=True)
    count = int(context.recipe["train_samples"] or 0)
    if supervised:
        train_file = folder / "pairs.tsv"
        lines = ["view_a\tview_b", *("\t".join(pair) for pair in sentences.paraphrase_pairs(count, context.seed))]
    else:
        train_file = folder / "sentences.txt"
        lines = sentences.plain_sentences(count, context.seed)
    train_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_tiny_encoder(folder / "encoder", seed=context.seed)
    sentences.write_sts(folder / "sts", seed=0)
    return Sources(str(folder / "encoder"), train_file, (), (), folder / "sts", generated=True)


def _train(context: RunContext, sources: Sources) -> tuple[Path, float]:
    """Trains by the recipe; the only place that knows how the adapter is called.

    Returns:
        The folder of the encoder, and its STS-B dev (NaN where it was not evaluated).
    """
    from tempplug_adapters.huggingface import TemperatureArguments
    from tempplug_adapters.simcse import DataArguments, ModelArguments, SimCSETrainingArguments, train_simcse

    recipe: dict[str, Any] = dict(context.recipe)
    output = context.work_dir / "training"
    when = "no" if recipe["eval_steps"] is None else "steps"
    results = train_simcse(
        ModelArguments(sources.model, recipe["pooler"], max_length=recipe["max_length"]),
        DataArguments(
            str(sources.train_file),
            columns=list(sources.columns),
            where=list(sources.where),
            max_train_samples=recipe["train_samples"],
            sts_dir=str(sources.sts_dir),
            sts_test=False,
        ),
        TemperatureArguments(context.arm.strategy, contrastive_objective=context.arm.objective),
        SimCSETrainingArguments(
            output_dir=str(output),
            learning_rate=recipe["learning_rate"],
            warmup_steps=recipe["warmup"],
            per_device_train_batch_size=recipe["batch_size"],
            num_train_epochs=recipe["epochs"],
            eval_strategy=when,
            save_strategy=when,
            eval_steps=recipe["eval_steps"],
            save_steps=recipe["eval_steps"] or 500,
            bf16=recipe["precision"] == "bf16",
            fp16=recipe["precision"] == "fp16",
            seed=context.seed,
            disable_tqdm=True,
            report_to=[],
            dataloader_pin_memory=False,
            resume_from_checkpoint="auto",
        ),
        callbacks=[_progress_callback(context)],
    )
    return output, float(results.get("stsb_dev", math.nan))


def _progress_callback(context: RunContext) -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        """Tells the runner how far training is."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            context.progress(state.global_step / state.max_steps, f"step {state.global_step} of {state.max_steps}")

    return Progress()


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Sends what the Trainer prints to a file and hides the loading bars, which would break those of the runner."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with log.open("a", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
            yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
