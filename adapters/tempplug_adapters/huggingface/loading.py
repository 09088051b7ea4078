"""Loading pretrained encoders: quietly where nothing is wrong, with an error where weights are missing.

Shared by training and evaluation. Runs no code from model repositories.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tempplug.errors import ConfigError


def load_pretrained(auto_class: Any, name: str, **options: Any) -> Any:
    """Returns a pretrained model in float32.

    BERT's own pooler may be missing, since no pooling of ours uses it; any other missing weight would be random.

    Args:
        auto_class: ``AutoModel`` or another class with ``from_pretrained``.
        name: a folder or a name on the Hugging Face hub.
        options: of ``from_pretrained``.

    Raises:
        ConfigError: the model cannot be loaded, or lacks weights of its architecture.
    """
    with explained(name), quiet_transformers():
        model, report = auto_class.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, **options
        )
    missing = sorted(key for key in report["missing_keys"] if "pooler." not in key)
    if missing or report["mismatched_keys"]:
        raise ConfigError(f"model='{name}' lacks weights of its architecture, such as {(missing or ['of another shape'])[0]}.")
    return model


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turns the many errors of loading a model into one that says what was wanted."""
    try:
        yield
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"model='{name}' cannot be loaded: {reason} Give a folder with config.json, the weights and the tokenizer's files, "
            "or the name of a model on the Hugging Face hub."
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Mutes the loading report: heads that are left out are no news, and missing weights raise."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
