"""The model card of an encoder trained by SimCSE: README.md with metadata for the Hugging Face hub.

The text is in `card.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from huggingface_hub import EvalResult, ModelCardData

from tempplug import Strategy
from tempplug_adapters.huggingface.citation import bibtex
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS
from tempplug_adapters.simcse.recipe import SimCSERecipe

IN_TRANSFORMERS: Final = {
    "cls": "`AutoModel`'s `pooler_output`: [CLS] through the MLP",
    "cls_before_pooler": "`AutoModel`'s `last_hidden_state[:, 0]`: [CLS] without the MLP of the training",
    "avg": "the mean over the tokens of the attention mask of `AutoModel`'s `last_hidden_state`",
    "avg_first_last": "the mean over the tokens of the attention mask of `AutoModel`'s"
    " `(hidden_states[1] + hidden_states[-1]) / 2`",
    "avg_top2": "the mean over the tokens of the attention mask of `AutoModel`'s `(hidden_states[-2] + hidden_states[-1]) / 2`",
}
"""How to compute a sentence embedding without sentence-transformers, by pooling."""
_SETTINGS = (
    *("columns", "where", "per_device_train_batch_size", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay"),
    *("pooling", "mlp_only_train", "max_length", "dropout", "mlm_weight", "seed"),
)


def model_card(
    recipe: SimCSERecipe, results: Mapping[str, Any], pooling: str, strategy: Strategy, output_name: str = "out"
) -> str:
    """Returns the card: metadata in YAML, usage of the encoder, training details, scores and citations.

    Args:
        recipe: recipe of the training.
        results: contents of ``metrics.json``.
        pooling: pooling of the encoder.
        strategy: temperature strategy.
        output_name: name of the encoder.
    """
    base, local = recipe.model_name_or_path, Path(recipe.model_name_or_path).exists()
    data = Path(results["dataset"]).name or "data"
    scores: Mapping[str, float] = results["evaluation"]
    on_the_hub = not local and re.fullmatch(r"([\w.-]+/)?[\w.-]+", base)
    metadata = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", "simcse", "tempplug"],
        base_model=base if on_the_hub else None,
        model_name=output_name,
        eval_results=[_result(figure, value) for figure, value in scores.items()] or None,
    )
    settings = {name: value for name, value in recipe.values().items() if name in _SETTINGS and value not in (None, [])}
    words = {name: " ".join(value) if isinstance(value, list) else value for name, value in settings.items()}
    training = {
        "strategy": results["strategy"],
        "objective": results["objective"],
        **({"negatives": results["negatives"]} if "negatives" in results else {}),
        "samples": f"{results['items']} of {data}",
        "steps": f"{results['steps']} ({results['epochs']:.3g} epochs)",
        **{name.replace("_", " "): value for name, value in words.items()},
    }
    tables = []
    for kind, head in ((False, "Spearman × 100"), (True, "accuracy of a linear classifier, in per cent")):
        if rows := {_task(figure): f"{value:.2f}" for figure, value in scores.items() if _is_accuracy(figure) == kind}:
            tables.append(_table(("task", head), rows))
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        metadata=metadata.to_yaml(),
        name=output_name,
        base=Path(base).name if local else base,
        strategy=strategy.name,
        in_transformers=IN_TRANSFORMERS[pooling],
        training=_table(("setting", "value"), {name: f"`{value}`" for name, value in training.items()}),
        scores="\n\n".join(tables) or "None were measured.",
        citation="" if strategy.name == "fixed" else f"\n{bibtex(strategy)}",
    )


def _task(figure: str) -> str:
    """Returns the usual name of an evaluation metric in the literature."""
    known = {
        **{"stsb_dev": "STS-B dev", "stsb": "STS-B test", "sickr": "SICK-R", "sts_average": "average of the seven test sets"},
        "transfer_average": "average of the transfer tasks",
    }
    return known.get(figure, figure.upper())


def _is_accuracy(figure: str) -> bool:
    """Returns whether a metric is an accuracy of a transfer task; the others are correlations."""
    return figure == "transfer_average" or figure.upper() in TRANSFER_TASKS


def _result(figure: str, value: float) -> EvalResult:
    kind = "semantic-similarity", "Semantic Similarity", "spearman_cosine", "Spearman of cosine similarity × 100"
    if _is_accuracy(figure):
        kind = "text-classification", "Transfer", "accuracy", "Accuracy of a linear classifier in per cent"
    task_type, task_name, metric_type, metric_name = kind
    return EvalResult(task_type, figure, _task(figure), metric_type, round(value, 4), task_name, metric_name=metric_name)


def _table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    lines = [head, ("---", "---"), *rows.items()]
    return "\n".join(f"| {name} | {value} |" for name, value in lines)
