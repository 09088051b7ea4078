"""Declarations of the adapters and their commands; imports nothing heavy."""

from __future__ import annotations

from tempplug.plugins import AdapterInfo, CommandInfo, hookimpl

# What training and its progress need, whatever is trained.
_TRAINING = ("transformers", "accelerate", "tqdm", "numpy")
_SIMCSE = (*_TRAINING, "scipy", "sklearn", "datasets")
_SENTENCE_TRANSFORMERS = (*_SIMCSE, "sentence_transformers")
_GRAPH = (*_TRAINING, "torch_geometric", "scipy", "sklearn")
_MOLECULE = (*_GRAPH, "rdkit")
_VISION = (*_TRAINING, "kornia", "PIL", "sklearn", "datasets", "matplotlib")
# Title, module and class of each method, and where it comes from.
_METHODS = {
    "simclr": ("SimCLR", "simclr:SimCLR", "Chen et al. 2020 (SimCLR)"),
    "moco": ("MoCo v2", "moco:MoCo", "He et al. 2020, Chen et al. 2020 (MoCo v2)"),
    "nnclr": ("NNCLR", "nnclr:NNCLR", "Dwibedi et al. 2021 (NNCLR)"),
    "simsiam": ("SimSiam", "simsiam:SimSiam", "Chen and He 2021 (SimSiam)"),
    "barlow-twins": ("Barlow Twins", "barlow_twins:BarlowTwins", "Zbontar et al. 2021 (Barlow Twins)"),
    "supcon": ("SupCon", "supcon:SupCon", "Khosla et al. 2020 (SupCon)"),
}


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
            target="tempplug_adapters.simcse.model:SimCSEModel",
            summary="SimCSE sentence embeddings with BERT and RoBERTa encoders",
            reference="Gao et al. 2021 (SimCSE)",
            requires=_SIMCSE,
            extra="simcse",
        ),
        AdapterInfo(
            name="mabel",
            target="tempplug_adapters.mabel.method",
            summary="MABEL, masked language models with less gender bias",
            reference="He et al. 2022 (MABEL)",
            requires=_SIMCSE,
            extra="simcse",
        ),
        AdapterInfo(
            name="sentence-transformers",
            target="tempplug_adapters.sentence_transformers",
            summary="ranking losses for sentence-transformers, and a Trainer and a callback that look after them",
            reference="Reimers and Gurevych 2019 (Sentence-BERT)",
            requires=_SENTENCE_TRANSFORMERS,
            extra="sentence-transformers",
        ),
        AdapterInfo(
            name="lightning",
            target="tempplug_adapters.lightning",
            summary="a callback that tells losses their progress and logs their records, and groups for the optimizer",
            requires=("lightning",),
            extra="lightning",
        ),
        AdapterInfo(
            name="grace",
            target="tempplug_adapters.graph.grace_method",
            summary="GRACE node representations in PyTorch Geometric",
            reference="Zhu et al. 2020 (GRACE)",
            requires=_GRAPH,
            extra="graph",
        ),
        AdapterInfo(
            name="graphcl",
            target="tempplug_adapters.graph.graphcl_method",
            summary="GraphCL graph representations, measured on TU data sets",
            reference="You et al. 2020 (GraphCL)",
            requires=_GRAPH,
            extra="graph",
        ),
        AdapterInfo(
            name="molecule",
            target="tempplug_adapters.graph.molecule_method",
            summary="GraphCL pre-training on unlabelled molecules, fine-tuning on MoleculeNet",
            reference="Hu et al. 2020; You et al. 2020 (GraphCL)",
            requires=_MOLECULE,
            extra="molecule",
        ),
        AdapterInfo(
            name="graphgym",
            target="tempplug_adapters.graph.graphgym",
            summary="a network, a loss, metrics and settings for configurations of GraphGym",
            reference="You et al. 2020 (GraphGym)",
            requires=("torch_geometric", "lightning", "yacs"),
            extra="graphgym",
        ),
        AdapterInfo(
            name="pygcl",
            target="tempplug_adapters.graph.pygcl:PyGCLLoss",
            summary="a loss for PyGCL's contrast models, without importing PyGCL",
            reference="Zhu et al. 2021 (PyGCL)",
        ),
        *(
            AdapterInfo(
                name=name,
                target=f"tempplug_adapters.vision.{target}",
                summary=f"{title} around any image backbone",
                reference=reference,
                requires=_VISION,
                extra="vision",
            )
            for name, (title, target, reference) in _METHODS.items()
        ),
        AdapterInfo(
            name="lightly",
            target="tempplug_adapters.vision.lightly:NTXentLoss",
            summary="lightly's NTXentLoss and memory bank, without importing lightly",
        ),
        AdapterInfo(
            name="clip",
            target="tempplug_adapters.clip.method:ClipMethod",
            summary="CLIP and other dual encoders of transformers, fine-tuned on images with captions",
            reference="Radford et al. 2021 (CLIP)",
            requires=_VISION,
            extra="vision",
        ),
        AdapterInfo(
            name="msc",
            target="tempplug_adapters.msc.model:MSC",
            summary="mean-shifted contrastive anomaly detection with a pretrained backbone",
            reference="Reiss and Hoshen 2023 (MSC)",
            requires=_VISION,
            extra="vision",
        ),
        AdapterInfo(
            name="dcrec",
            target="tempplug_adapters.recommendation.dcrec:DCRec",
            summary="DCRec, sequential recommendation with two graphs of items",
            reference="Yang et al. 2023 (DCRec)",
            requires=_GRAPH,
            extra="graph",
        ),
    ]


@hookimpl
def tempplug_register_commands() -> list[CommandInfo]:
    """Returns the training and evaluation commands."""
    return [
        CommandInfo(
            name="demo",
            target="tempplug_adapters.demo.command:main",
            summary="which temperature each strategy would use on your embeddings, and what it does to the gradient",
            requires=("numpy",),
            extra="simcse",
        ),
        CommandInfo(
            name="sweep",
            target="tempplug_adapters.sweep.command:main",
            summary="run your own training command over temperatures and strategies, and draw how much they matter",
        ),
        CommandInfo(
            name="watch",
            target="tempplug_adapters.watch.command:main",
            summary="the course of a training while it runs, what is harmful in it, and the remedy",
        ),
        CommandInfo(
            name="train simcse",
            target="tempplug_adapters.simcse.recipe:METHOD",
            summary="train a sentence encoder with any temperature strategy",
            requires=(*_SIMCSE, "sklearn"),
            extra="simcse",
        ),
        CommandInfo(
            name="train mabel",
            target="tempplug_adapters.mabel.recipe:METHOD",
            summary="train a masked language model against gender bias with any temperature strategy",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="train graphcl",
            target="tempplug_adapters.graph.graphcl_recipe:METHOD",
            summary="train a graph encoder with any temperature strategy",
            requires=_GRAPH,
            extra="graph",
        ),
        CommandInfo(
            name="eval sts",
            target="tempplug_adapters.sentence_evaluation.sts_command:main",
            summary="Spearman correlation on STS12-16, STS-B and SICK-R",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="eval transfer",
            target="tempplug_adapters.sentence_evaluation.transfer_command:main",
            summary="accuracy of linear classifiers on MR, CR, SUBJ, MPQA, SST2, TREC and MRPC",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="eval bias",
            target="tempplug_adapters.bias_evaluation.command:main",
            summary="StereoSet and CrowS-Pairs: the gender bias of a masked language model",
            requires=_SIMCSE,
            extra="simcse",
        ),
        CommandInfo(
            name="train grace",
            target="tempplug_adapters.graph.grace_recipe:METHOD",
            summary="train node representations with any temperature strategy",
            requires=_GRAPH,
            extra="graph",
        ),
        CommandInfo(
            name="train molecule",
            target="tempplug_adapters.graph.molecule_recipe:METHOD",
            summary="train an encoder of molecules with any temperature strategy",
            requires=_MOLECULE,
            extra="molecule",
        ),
        *(
            CommandInfo(
                name=f"train {name}",
                target=f"tempplug_adapters.vision.recipes:{name.replace('-', '_').upper()}",
                summary=f"train an image encoder with {title} and any temperature strategy that it has a form for",
                requires=_VISION,
                extra="vision",
            )
            for name, (title, _, _) in _METHODS.items()
        ),
        CommandInfo(
            name="train clip",
            target="tempplug_adapters.clip.recipe:METHOD",
            summary="fine-tune CLIP or another dual encoder on images with captions with any temperature strategy",
            requires=_VISION,
            extra="vision",
        ),
        CommandInfo(
            name="train msc",
            target="tempplug_adapters.msc.recipe:METHOD",
            summary="fine-tune a pretrained image encoder for anomaly detection with any temperature strategy",
            requires=_VISION,
            extra="vision",
        ),
        CommandInfo(
            name="train sasrec",
            target="tempplug_adapters.recommendation.recipe:METHOD",
            summary="train a transformer that recommends the next item, without a contrastive loss",
            requires=_TRAINING,
            extra="graph",
        ),
        CommandInfo(
            name="train dcrec",
            target="tempplug_adapters.recommendation.dcrec_recipe:METHOD",
            summary="train a recommender of the next item with any temperature strategy",
            requires=_GRAPH,
            extra="graph",
        ),
        CommandInfo(
            name="eval vision",
            target="tempplug_adapters.vision.evaluation.command:main",
            summary="nearest neighbours, linear probes and plots of a trained image encoder",
            requires=_VISION,
            extra="vision",
        ),
        CommandInfo(
            name="export",
            target="tempplug_adapters.vision.export_command:main",
            summary="write a trained image encoder in torchvision's layout",
            requires=_VISION,
            extra="vision",
        ),
    ]
