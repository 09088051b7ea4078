"""Declarations of the adapters and their commands; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import AdapterInfo, CommandInfo, hookimpl

_SIMCSE = ("transformers", "accelerate", "scipy", "datasets")


@hookimpl
def tempplug_register_adapters() -> list[AdapterInfo]:
    """Returns the adapters of this distribution."""
    return [
        AdapterInfo(
            name="huggingface",
            target="tempplug_adapters.huggingface",
            summary="flags, Trainer mixin and callback for Hugging Face Trainers",
            requires=_SIMCSE,
            extra="simcse",
        ),
        AdapterInfo(
            name="simcse",
            target="tempplug_adapters.simcse",
            summary="SimCSE sentence embeddings with BERT and RoBERTa encoders",
            reference="Gao et al. 2021 (SimCSE)",
            requires=_SIMCSE,
            extra="simcse",
        ),
    ]


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the training and evaluation commands."""
    return [
        CommandInfo(
            name="train simcse",
            target="tempplug_adapters.simcse.command:main",
            summary="train a sentence encoder with any temperature strategy",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="eval sts",
            target="tempplug_adapters.sentence_evaluation.command:main",
            summary="Spearman correlation on STS12-16, STS-B and SICK-R",
            requires=_SIMCSE,
            extra="simcse",
        ),
    ]
