"""Declarations of the adapters and their commands; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import AdapterInfo, CommandInfo, hookimpl

_SIMCSE = ("transformers", "accelerate", "scipy", "datasets")
_GRACE = ("torch_geometric", "scipy")
_GRAPH = ("torch_geometric", "scipy", "sklearn", "tqdm")
_MOLECULE = ("torch_geometric", "rdkit", "sklearn", "tqdm")


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
        AdapterInfo(
            name="grace",
            target="tempplug_adapters.graph.grace",
            summary="GRACE node representations in PyTorch Geometric",
            reference="Zhu et al. 2020 (GRACE)",
            requires=_GRACE,
            extra="graph",
        ),
        AdapterInfo(
            name="graphcl",
            target="tempplug_adapters.graph.graphcl_train",
            summary="GraphCL graph representations, measured on TU data sets",
            reference="You et al. 2020 (GraphCL)",
            requires=_GRAPH,
            extra="graph",
        ),
        AdapterInfo(
            name="molecule",
            target="tempplug_adapters.graph.molecule_train",
            summary="GraphCL pre-training on unlabelled molecules, fine-tuning on MoleculeNet",
            reference="Hu et al. 2020; You et al. 2020 (GraphCL)",
            requires=_MOLECULE,
            extra="molecule",
        ),
        AdapterInfo(
            name="pygcl",
            target="tempplug_adapters.graph.pygcl:PyGCLLoss",
            summary="a loss for PyGCL's contrast models, without importing PyGCL",
            reference="Zhu et al. 2021 (PyGCL)",
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
            name="train graphcl",
            target="tempplug_adapters.graph.graphcl_command:main",
            summary="train a graph encoder with any temperature strategy",
            requires=_GRAPH,
            extra="graph",
        ),
        CommandInfo(
            name="eval sts",
            target="tempplug_adapters.sentence_evaluation.command:main",
            summary="Spearman correlation on STS12-16, STS-B and SICK-R",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="train grace",
            target="tempplug_adapters.graph.grace_command:main",
            summary="train node representations with any temperature strategy",
            requires=_GRACE,
            extra="graph",
        ),
        CommandInfo(
            name="train molecule",
            target="tempplug_adapters.graph.molecule_command:main",
            summary="train an encoder of molecules with any temperature strategy",
            requires=_MOLECULE,
            extra="molecule",
        ),
    ]
