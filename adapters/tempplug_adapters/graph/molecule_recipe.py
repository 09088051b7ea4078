"""Settings of pre-training and fine-tuning on molecules, and ``tempplug train molecule``, as data: no framework is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tempplug.options import Number, Text
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import LossRecipe, Recipe, around, integer, integer_or_none

UNLABELLED = "graph/smiles/zinc_druglike_100k.smi.gz"
"""The file of a data folder with the molecules for pre-training."""
DATASETS = ("BBBP", "BACE", "ClinTox", "SIDER", "Tox21", "ToxCast", "MUV", "HIV")
"""Of MoleculeNet, those of Hu et al. and GraphCL."""
_DROPOUT = Number(at_least=0, below=1, help="after each layer, while fine-tuning")
# GraphCL's code leaves the positive out of the denominator. That loss has no minimum over a learned temperature, so a learned
# temperature keeps the positive in.
_LOSS = LossRecipe(layout="cross-view", temperatures=around(0.1), objective="dcl", objectives={"learnable": "infonce"})


@dataclass(frozen=True, kw_only=True)
class MoleculeRecipe(Recipe):
    """Settings of pre-training and fine-tuning. The defaults are those of GraphCL's code, which MACL follows.

    Epochs, batch size and learning rate are those of pre-training; fine-tuning has its own. The papers use the encoder after 80
    epochs and temperatures around 0.1.

    Source: You et al. 2020 (GraphCL), section 5 and code; Hu et al. 2020, section 5.1 and code; Huang et al. 2023 (MACL),
    appendix B.5.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="of pre-training; 0 fine-tunes an untrained encoder")] = 80
    per_device_train_batch_size: Annotated[int, integer("molecules a step of pre-training", 2)] = 256
    learning_rate: Annotated[float, Number(above=0, help="of pre-training, at its highest")] = 1e-3
    layers: Annotated[int, integer("of the encoder")] = 5
    width: Annotated[int, integer("of the encoder")] = 300
    view_ratio: Annotated[float, Number(at_least=0, below=1, help="fraction of the atoms that a view loses")] = 0.2
    pretrain_file: Annotated[
        str | None, Text(optional=True, help=f"unlabelled SMILES, one a line; none: {UNLABELLED} of the data folder")
    ] = None
    max_pretrain_molecules: Annotated[int | None, integer_or_none("only the first", 2)] = None
    encoder: Annotated[
        str | None,
        Text(
            optional=True,
            help="encoder.pt of an earlier run, instead of pre-training; or MODULE:NAME to pre-train",
        ),
    ] = None
    finetune_epochs: Annotated[float, Number(at_least=0, help="of fine-tuning, for every data set")] = 100
    finetune_batch_size: Annotated[int, integer("molecules a step of fine-tuning", 2)] = 32
    finetune_learning_rate: Annotated[float, Number(above=0, help="of fine-tuning")] = 1e-3
    dropout: Annotated[float, _DROPOUT] = 0.5

    def fine_tuning(self) -> FineTuneRecipe:
        """Returns the settings of fine-tuning."""
        return FineTuneRecipe(
            num_train_epochs=self.finetune_epochs,
            per_device_train_batch_size=self.finetune_batch_size,
            learning_rate=self.finetune_learning_rate,
            dropout=self.dropout,
            bf16=self.bf16,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class FineTuneRecipe(Recipe):
    """How an encoder of molecules is fine-tuned on one labelled data set; values come from `MoleculeRecipe`.

    Source: Hu et al. 2020, section 5.1 and code.
    """

    per_device_train_batch_size: Annotated[int, integer("molecules a step", 2)] = 32
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 1e-3
    dropout: Annotated[float, _DROPOUT] = 0.5


METHOD = MethodInfo(
    name="molecule",
    summary="Pre-train an encoder of molecules with any temperature strategy, and fine-tune it on data sets of MoleculeNet.",
    target="tempplug_adapters.graph.molecule_method:MoleculeMethod",
    recipes={"graphcl": MoleculeRecipe()},
    datasets=f"fine-tuned on, several with commas between them: {', '.join(DATASETS)}, or files NAME.csv with a column smiles "
    "and one of 0 and 1 for each task; none: pre-train only",
    default_dataset="",
)
FINE_TUNING = MethodInfo(
    name="molecule-fine-tuning",
    summary="Fine-tune an encoder of molecules on a labelled data set, and measure it by ROC-AUC.",
    target="tempplug_adapters.graph.molecule_finetune:FineTuning",
    recipes={"graphcl": FineTuneRecipe()},
    datasets=METHOD.datasets,
)
