"""The model card of an output folder: README.md with metadata for the Hugging Face hub; the text is in `card.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from tempplug.errors import TempplugError
from tempplug.plugins import AdapterInfo, registry
from tempplug_adapters.ending import number
from tempplug_adapters.huggingface.citation import bibtex
from tempplug_adapters.training.method import Method


def model_card(
    method: Method[Any, Any], recipe: Any, module: Any, data: Any, results: Mapping[str, Any], output_name: str = "out"
) -> str:
    """Returns the card: metadata in YAML, usage of the encoder, training details, scores and citations.

    Args:
        method: the method of the training.
        recipe: its settings.
        module: what was trained.
        data: what it was trained on.
        results: contents of ``metrics.json``.
        output_name: name of the folder.
    """
    card = method.card(recipe, module, data, results)
    base: str | None = card.base
    strategy: Any = getattr(getattr(module, "loss_fn", None), "strategy", None)
    on_the_hub = base and not Path(base).exists() and re.fullmatch(r"([\w.-]+/)?[\w.-]+", base)
    own = {"tags": [], "base_model": base if on_the_hub else None, "model_name": output_name, **card.metadata}
    own["tags"] = [*own["tags"], method.info.name, "tempplug"]
    used = f"the temperature strategy\n`{strategy.name}`" if strategy is not None else "no temperature strategy"
    training = {
        **{name: results[name] for name in ("strategy", "objective", "negatives") if results.get(name)},
        "samples": f"{results['items']} of {Path(results['dataset']).name or 'data'}",
        "steps": f"{results['steps']} ({results['epochs']:.3g} epochs)",
        **{name.replace("_", " "): _word(value) for name, value in recipe.values().items() if value not in (None, [], "")},
    }
    scores = card.scores if card.scores is not None else {"value": results["evaluation"]}
    tables = [_table(head, {name: number(value) for name, value in rows.items()}) for head, rows in scores.items() if rows]
    citation = [f"```bibtex\n{each}\n```" for each in (card.citation, "" if _plain(strategy) else bibtex(strategy)) if each]
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        metadata=ModelCardData(**own).to_yaml(),
        name=output_name,
        about=card.about,
        base=f"from `{Path(base).name if Path(base).exists() else base}` " if base else "",
        method=f"`{method.info.name}`" + _reference(method.info.name),
        strategy=used,
        example=card.example,
        use=f"\n{card.use.strip()}\n".replace("FOLDER", output_name) if card.use else "",
        training=_table("value", {name: f"`{value}`" for name, value in training.items()}, "setting"),
        scores="\n\n".join(tables) or "None were measured.",
        citation="\n\n".join(citation) or "See the paper of the method.",
    )


def _plain(strategy: Any) -> bool:
    return strategy is None or strategy.name == "fixed"


def _reference(name: str) -> str:
    try:
        return f", {registry().get(AdapterInfo, name).reference},"
    except TempplugError:
        return ""


def _word(value: Any) -> Any:
    """Returns a setting as it is shown: of a path its last part alone, since the rest is of no use elsewhere."""
    if isinstance(value, list):
        return " ".join(str(_word(each)) for each in value)
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _table(head: str, rows: Mapping[str, Any], first: str = "figure") -> str:
    lines = [f"| {first} | {head} |", "| :-- | :-- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines)
