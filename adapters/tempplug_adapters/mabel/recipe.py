"""MABEL's settings and ``tempplug train mabel``, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from tempplug.errors import ConfigError
from tempplug.options import Choice, Number, Text, Words
from tempplug_adapters.simcse.recipe import SimCSERecipe
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import (
    GradientNorm,
    LossRecipe,
    Optimizer,
    OwnModel,
    Recipe,
    Schedule,
    integer,
    integer_or_none,
)

GENDER_WORDS: Final = "gender_words.tsv"
"""Default word list: this file in the data folder, its ``text/bias`` or its ``bias``."""
ALIGNED: Final = ("logits", "similarities")
_RULE = (
    "Him and his both become her. For a word with several counterparts (her: him or his; his: her or hers), the first pair in "
    "the list is used, regardless of grammar; such words are counted"
)


@dataclass(frozen=True, kw_only=True)
class MabelRecipe(Recipe):
    """The settings of MABEL. The defaults are for BERT-base; temperatures are those of SimCSE, since MABEL uses its fixed one.

    Source: He et al. 2022, MABEL, and its code: two epochs, batch 32, learning rate 5e-5, and the defaults of the Trainer that
    it uses (linear decay without warm-up, no weight decay, gradients clipped to norm 1); the last state is kept.

    Raises:
        ConfigError: a setting is out of range, or ``columns`` names one or three, or more than four.
    """

    loss: LossRecipe = SimCSERecipe.loss

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the pairs, fractions allowed")] = 2.0
    per_device_train_batch_size: Annotated[
        int | None, integer("pairs a step and process; each comes with its counterfactual", 2)
    ] = 32
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 5e-5
    optimizer: Optimizer = "adamw"
    lr_scheduler_type: Schedule = "linear"
    max_grad_norm: GradientNorm = 1.0
    model_name_or_path: Annotated[
        str, Text(help="masked language model, its head included: a folder or a name on the Hugging Face hub")
    ] = "bert-base-uncased"
    encoder: OwnModel = None
    max_length: Annotated[int, integer("tokens of a sentence in training; the rest is cut", 3)] = 128
    contrastive_weight: Annotated[float | None, Number(at_least=0, optional=True, help="of the contrastive loss; none: 1")] = (
        None
    )
    alignment_weight: Annotated[float, Number(at_least=0, help="of the loss that aligns a pair with its counterfactual")] = 0.05
    alignment_of: Annotated[
        str, Choice(ALIGNED, help="what is aligned: logits, which include the temperature, or cosine similarities")
    ] = "logits"
    mlm_weight: Annotated[float, Number(at_least=0, help="of the masked-language-model loss; 0 leaves the head as it is")] = 0.1
    mlm_probability: Annotated[float, Number(above=0, below=1, help="share of the tokens that it predicts")] = 0.15
    gender_words: Annotated[
        str | None,
        Text(
            optional=True, help=f"table with the columns male and female; none: text/bias/{GENDER_WORDS} of --data-dir. {_RULE}"
        ),
    ] = None
    columns: Annotated[
        tuple[str, ...],
        Words(
            help="of premise and hypothesis; or four: also of the counterfactuals of both, which are used unchanged; or "
            "role=column, role one of premise, hypothesis, counterfactual; none: by their usual names, such as sentence1"
        ),
    ] = ()
    where: Annotated[tuple[str, ...], Words(help="conditions column=value that a row must meet, such as label=entailment")] = ()
    max_train_samples: Annotated[int | None, integer_or_none("number of pairs, from the first; none: all", 2)] = None

    running: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "save_strategy": "steps",
            "save_steps": 125,
            "logging_strategy": "steps",
            "logging_steps": 10,
            "logging_first_step": True,  # the alignment loss falls most in the first ten
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) not in (0, 2, 4) and not any("=" in column for column in self.columns):
            raise ConfigError(f"columns={' '.join(self.columns)} must be two names, a pair, or four, with its counterfactual.")


METHOD = MethodInfo(
    name="mabel",
    summary=(
        "Train a masked language model against gender bias, with MABEL and any temperature strategy, and measure it on "
        "StereoSet and CrowS-Pairs."
    ),
    target="tempplug_adapters.mabel.method:MabelMethod",
    recipes={"mabel": MabelRecipe(), "temperature-free": MabelRecipe(per_device_train_batch_size=16)},
    datasets=(
        "file of entailment pairs (.csv, .tsv, .jsonl, .parquet …): those with a gender word are trained on, each beside "
        "its counterfactual"
    ),
)
