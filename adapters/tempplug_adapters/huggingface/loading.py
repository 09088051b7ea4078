"""Loading pretrained encoders and their tokenizers: quietly where nothing is wrong, with an error where weights are missing.

Shared by training and evaluation. Runs no code from model repositories.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoTokenizer

from tempplug.errors import ConfigError, TempplugError


def load_pretrained(auto_class: Any, name: str, *, pooler: bool = False, purpose: str = "", **options: Any) -> Any:
    """Returns a pretrained model in float32.

    BERT's own pooler may be missing where nobody reads it; any other missing weight would be random.

    Args:
        auto_class: ``AutoModel`` or another class with ``from_pretrained``.
        name: a folder or a name on the Hugging Face hub.
        pooler: whether the model's own pooler will be read.
        purpose: what is wanted of it, for the message where weights are missing.
        options: of ``from_pretrained``.

    Raises:
        ConfigError: the model cannot be loaded, or lacks weights of its architecture or a pooler that will be read.
    """
    with explained(name), quiet_transformers():
        model, report = auto_class.from_pretrained(
            name,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            **options,
        )
    missing = [key for key in report["missing_keys"] if "pooler." not in key]
    faulty = sorted(missing) + sorted(f"{key} (of another shape)" for key, *_ in report["mismatched_keys"])
    if faulty:
        wanted = f" Wanted is {purpose}." if purpose else ""
        raise ConfigError(f"model='{name}' lacks weights of its architecture, such as {faulty[0]}.{wanted}")
    if pooler and (getattr(model, "pooler", None) is None or any("pooler." in key for key in report["missing_keys"])):
        raise ConfigError(
            f"model='{name}' has no weights of a pooler of its own, which pooling='cls' reads; choose cls_before_pooler, the "
            "same token without it, or another pooling."
        )
    return model


def load_tokenizer(name: str, **options: Any) -> Any:
    """Returns the tokenizer of a pretrained model.

    Args:
        name: a folder or a name on the Hugging Face hub.
        options: of ``from_pretrained``.

    Raises:
        ConfigError: it cannot be loaded, or has no vocabulary or no padding token.
    """
    with explained(name), quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ConfigError(f"model='{name}' has no vocabulary: put its tokenizer's files into the folder.")
    if tokenizer.pad_token is None:
        raise ConfigError(f"model='{name}' has a tokenizer without a padding token, so sentences cannot be batched.")
    return tokenizer


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turns the many errors of loading a model into one that says what was wanted."""
    try:
        yield
    except TempplugError:
        raise
    except Exception as error:  # the parsers of configurations, tokenizers and weights raise errors of every class
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(". ")
        raise ConfigError(
            f"model='{name}' cannot be loaded: {reason}. Give a folder with config.json, the weights and the tokenizer's "
            "files, or the name of a model on the Hugging Face hub."
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Mutes the loading report: masked-LM heads that are left out are no news, and missing weights raise."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
