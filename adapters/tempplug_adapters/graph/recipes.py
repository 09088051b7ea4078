"""Settings of GRACE, GraphCL, and of pre-training and fine-tuning on molecules, as data; importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from tempplug.options import Choice, Flag, Number, Numbers, Text, Words
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LastBatchNorm, LossRecipe, Recipe, around, integer, integer_or_none

ACTIVATIONS = ("relu", "prelu", "elu")
PROTOCOLS: dict[str, tuple[float, float]] = {"10/80/10": (0.1, 0.8), "10/10/80": (0.1, 0.1)}
"""Shares of the nodes for training and validation by name; the rest is the test set.

PyGCL's ``get_split(train_ratio=0.1, test_ratio=0.8)`` returns the 80 % as validation nodes and the last 10 % as test nodes:
``10/80/10`` is what it measures, ``10/10/80`` what the names of its arguments mean.
"""
_COLUMNS = "of tables: role=column (several with commas), where its name does not say so; role one of"
PUBLIC = "public"
"""The protocol whose splits are the masks of the data set."""
_GRACE_LOSS = LossRecipe(layout="two-view", temperatures=around(0.5))
_SHARE = Number(at_least=0, below=1)
_OWN_ENCODER = "MODULE:NAME[:key=value,...] of a module, class or function, such as torch_geometric.nn:GAT"
OwnEncoder = Annotated[str | None, Text(optional=True, help=_OWN_ENCODER)]


@dataclass(frozen=True, kw_only=True)
class GraceRecipe(Recipe):
    """The settings of GRACE. The defaults are from "Temperature-Free Loss Function for Contrastive Learning", table 3.

    They equal PyGCL's example with 1,000 epochs; Zhu et al. 2020 train CiteSeer with hidden 256, prelu, learning rate 1e-3,
    weight decay 1e-5, 200 epochs, edges 0.2/0.0, features 0.3/0.2 and temperature 0.9. 0.5 is the best temperature of the
    table. Without a batch size, all nodes of the graph are contrasted at once.
    """

    loss: LossRecipe = _GRACE_LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the nodes")] = 1000
    per_device_train_batch_size: Annotated[int | None, integer_or_none("nodes a step, neighbours sampled; none: all", 2)] = None
    hidden: Annotated[int, integer("width of the representations")] = 32
    projection: Annotated[int, integer("width inside the projection head")] = 32
    last_batch_norm: LastBatchNorm = None
    layers: Annotated[int, integer("graph convolutions")] = 2
    activation: Annotated[str, Choice(ACTIVATIONS, help="of the encoder")] = "relu"
    encoder: OwnEncoder = None
    augmentations: Annotated[
        tuple[str, ...], Words(help="one or two of MODULE:NAME, called with a Data; none: edges removed and features masked")
    ] = ()
    edge_removal: Annotated[tuple[float, ...], Numbers(_SHARE, 1, 2, help="share of edges removed, one or one a view")] = (0.3,)
    feature_masking: Annotated[tuple[float, ...], Numbers(_SHARE, 1, 2, help="share of columns hidden, likewise")] = (0.3,)
    neighbours: Annotated[int, integer("sampled a node and layer, with a batch size")] = 15
    raw_features: Annotated[bool, Flag(help="do not scale the features of a node to the sum 1")] = False
    node_features: Annotated[str | None, Text(optional=True, help="table with a row a node, for a table of edges")] = None
    node_labels: Annotated[
        str | None, Text(optional=True, help="table with a class a node, or several of 0 and 1; none: label of the features")
    ] = None
    columns: Annotated[tuple[str, ...], Words(help=f"{_COLUMNS} source, target, weight, node, feature, label")] = ()
    protocols: Annotated[
        tuple[str, ...],
        Words((*PROTOCOLS, PUBLIC), 1, help=f"% of nodes for training, validation and test; {PUBLIC}: the data set's masks"),
    ] = tuple(PROTOCOLS)
    splits: Annotated[int, integer("random ones of each protocol, averaged")] = 1
    l2: Annotated[
        tuple[float, ...], Numbers(Number(at_least=0), help="weight decays of the regression; the best in validation is used")
    ] = (0.0,)


GRACE = MethodInfo(
    name="grace",
    summary="Train node representations with GRACE and any temperature strategy, and classify nodes by them.",
    target="tempplug_adapters.graph.grace_method:GraceMethod",
    recipes={"temperature-free": GraceRecipe()},
    datasets="graph of Planetoid (Cora), CitationFull (CitationFull/Cora), Coauthor (CS), Amazon (Photo) or OGB (ogbn-arxiv); "
    "a .pt file with a Data of PyTorch Geometric or its (data, slices); or a table of edges (.csv, .tsv, .parquet …)",
)

AUGMENTATIONS = ("drop-nodes", "drop-edges", "mask-attributes", "subgraph", "neighbourhood")
_MOLECULES = ("drop-nodes", "neighbourhood")
_SOCIAL = (*_MOLECULES, "drop-edges")
_PROTEINS = (*_SOCIAL, "mask-attributes")
# The pools of the authors' code (random2, random3, random4), chosen by the findings of their section 4.2: edges are left
# alone in molecules, attributes are masked only where there are some.
POOLS = {
    **dict.fromkeys(("MUTAG", "NCI1"), _MOLECULES),
    **dict.fromkeys(("PROTEINS", "DD"), _PROTEINS),
    **dict.fromkeys(("IMDB-BINARY", "REDDIT-BINARY"), _SOCIAL),
}
# GraphCL's code leaves the positive out of the denominator. That loss has no minimum over a learned temperature, so a learned
# temperature keeps the positive in.
_GRAPHCL_LOSS = LossRecipe(layout="cross-view", temperatures=around(0.2), objective="dcl", objectives={"learnable": "infonce"})


@dataclass(frozen=True, kw_only=True)
class GraphCLRecipe(Recipe):
    """The settings of GraphCL. The defaults are those of its code for the TU data sets (You et al. 2020).

    Huang et al. 2023 (MACL), appendix B.5, use the same settings, with temperatures around 0.2.
    """

    loss: LossRecipe = _GRAPHCL_LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the graphs")] = 20
    hidden: Annotated[int, integer("width of a layer of the encoder")] = 32
    layers: Annotated[int, integer("of the encoder")] = 3
    last_batch_norm: LastBatchNorm = None
    augmentations: Annotated[
        tuple[str, ...], Words(help=f"drawn from for each graph: {', '.join(AUGMENTATIONS)}, MODULE:NAME; none: GraphCL's pool")
    ] = ()
    encoder: OwnEncoder = None
    folds: Annotated[int, integer("of the cross-validation that measures the encoder", 2)] = 10

    # two checkpoints a training: ten would take a fifth of a training of half a second
    running: ClassVar[Mapping[str, Any]] = {"save_steps": 0.5}

    def pool(self, dataset: str) -> tuple[str, ...]:
        """Returns the augmentations for a data set; unknown data sets are treated like social networks."""
        return self.augmentations or POOLS.get(dataset, _SOCIAL)


GRAPHCL = MethodInfo(
    name="graphcl",
    summary="Train a graph encoder with GraphCL and any temperature strategy, and classify graphs by their representations.",
    target="tempplug_adapters.graph.graphcl_method:GraphCLMethod",
    recipes={"graphcl": GraphCLRecipe()},
    datasets="data set of the TU collection (MUTAG) or of OGB (ogbg-molhiv), or a .pt file with graphs of PyTorch Geometric: a "
    "list of Data, or the (data, slices) of a data set",
)

UNLABELLED = "graph/smiles/zinc_druglike_100k.smi.gz"
"""The file of a data folder with the molecules for pre-training."""
DATASETS = ("BBBP", "BACE", "ClinTox", "SIDER", "Tox21", "ToxCast", "MUV", "HIV")
"""Of MoleculeNet, those of Hu et al. and GraphCL."""
_MOLECULE_LOSS = replace(_GRAPHCL_LOSS, temperatures=around(0.1))
Columns = Annotated[tuple[str, ...], Words(help=f"{_COLUMNS} smiles, label, id")]
_DROPOUT = Number(at_least=0, below=1, help="after each layer, while fine-tuning")


@dataclass(frozen=True, kw_only=True)
class MoleculeRecipe(Recipe):
    """Settings of pre-training and fine-tuning. The defaults are those of GraphCL's code, which MACL follows.

    Epochs, batch size and learning rate are those of pre-training; fine-tuning has its own. The papers use the encoder after 80
    epochs and temperatures around 0.1.

    Source: You et al. 2020 (GraphCL), section 5 and code; Hu et al. 2020, section 5.1 and code; Huang et al. 2023 (MACL),
    appendix B.5.
    """

    loss: LossRecipe = _MOLECULE_LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="of pre-training; 0 fine-tunes an untrained encoder")] = 80
    per_device_train_batch_size: Annotated[int, integer("molecules a step of pre-training", 2)] = 256
    learning_rate: Annotated[float, Number(above=0, help="of pre-training, at its highest")] = 1e-3
    layers: Annotated[int, integer("of the encoder")] = 5
    width: Annotated[int, integer("of the encoder")] = 300
    last_batch_norm: LastBatchNorm = None
    view_ratio: Annotated[float, Number(at_least=0, below=1, help="fraction of the atoms that a view loses")] = 0.2
    pretrain_file: Annotated[
        str | None, Text(optional=True, help=f"SMILES, one a line, or a table; none: {UNLABELLED} of the data folder")
    ] = None
    columns: Columns = ()
    max_pretrain_molecules: Annotated[int | None, integer_or_none("only the first", 2)] = None
    encoder: Annotated[
        str | None,
        Text(optional=True, help="encoder.pt of an earlier run, instead of pre-training; or MODULE:NAME to pre-train"),
    ] = None
    finetune_epochs: Annotated[float, Number(at_least=0, help="of fine-tuning, for every data set")] = 100
    finetune_batch_size: Annotated[int, integer("molecules a step of fine-tuning", 2)] = 32
    finetune_learning_rate: Annotated[float, Number(above=0, help="of fine-tuning")] = 1e-3
    dropout: Annotated[float, _DROPOUT] = 0.5

    def fine_tuning(self) -> FineTuneRecipe:
        """Returns the settings of fine-tuning."""
        names = {"num_train_epochs": "epochs", "per_device_train_batch_size": "batch_size", "learning_rate": "learning_rate"}
        settings = {setting: getattr(self, f"finetune_{name}") for setting, name in names.items()}
        return FineTuneRecipe(**settings, **{name: getattr(self, name) for name in ("dropout", "columns", "bf16", "seed")})


@dataclass(frozen=True, kw_only=True)
class FineTuneRecipe(Recipe):
    """How an encoder of molecules is fine-tuned on one labelled data set; values come from `MoleculeRecipe`.

    Source: Hu et al. 2020, section 5.1 and code.
    """

    per_device_train_batch_size: Annotated[int, integer("molecules a step", 2)] = 32
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 1e-3
    dropout: Annotated[float, _DROPOUT] = 0.5
    columns: Columns = ()


MOLECULE = MethodInfo(
    name="molecule",
    summary="Pre-train an encoder of molecules with any temperature strategy, and fine-tune it on data sets of MoleculeNet.",
    target="tempplug_adapters.graph.molecule_method:MoleculeMethod",
    recipes={"graphcl": MoleculeRecipe()},
    datasets=f"fine-tuned on, several with commas between them: {', '.join(DATASETS)}, or tables such as NAME.csv with a "
    "column smiles and one of 0 and 1 for each task; none: pre-train only",
    default_dataset="",
)
FINE_TUNING = MethodInfo(
    name="molecule-fine-tuning",
    summary="Fine-tune an encoder of molecules on a labelled data set, and measure it by ROC-AUC.",
    target="tempplug_adapters.graph.molecule_finetune:FineTuning",
    recipes={"graphcl": FineTuneRecipe()},
    datasets=MOLECULE.datasets,
)
