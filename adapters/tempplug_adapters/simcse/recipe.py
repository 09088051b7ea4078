"""SimCSE's settings and ``tempplug train simcse``, as data: importing this loads no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

from tempplug.errors import UnknownNameError, listed, nearest
from tempplug.options import Choice, Flag, Number, Text, Words
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.training.recipe import DropLast, GradientNorm, LossRecipe, Optimizer, OwnModel, Recipe, Schedule, around

BATCH_SAMPLERS: Final = ("random", "no_duplicates")
TASK_GROUPS: Final = {"sts": STS_TASKS, "transfer": TRANSFER_TASKS}
POSITIVES: Final = ("one", "all")
COLUMNS: Final = (
    "of a table: role=column, role one of anchor, positive, negative (several with commas), or names in this order; none: by "
    "their usual names, such as query, answer, negative"
)
CHOSEN_BY = "stsb_dev"
"""The metric of the best encoder, which is saved."""

# MACL's and DySTreSS's own settings for SimCSE are Huang et al. 2023, appendix B.4, where experiments on sentences do not
# reweight, and DySTreSS, section 4.
_LOSS = LossRecipe(
    layout="cross-view",
    temperatures=around(
        0.05,
        macl={"base_temperature": 0.05, "alpha": 2.0, "threshold": 0.8},
        dystress={"temperature_min": 0.03, "temperature_max": 0.05},
    ),
    objectives={},
)
_EVERY = 125


@dataclass(frozen=True, kw_only=True)
class SimCSERecipe(Recipe):
    """The settings of SimCSE. The defaults are for BERT-base on single sentences and save the best encoder on STS-B dev.

    Source: Gao et al. 2021, appendix A: one epoch, batch 64, learning rate 3e-5, linear decay without warm-up, no weight decay,
    evaluation every 125 steps. Gradients are clipped to norm 1, the default of the Trainer that their code uses.
    """

    loss: LossRecipe = _LOSS

    num_train_epochs: Annotated[float, Number(at_least=0, help="passes over the samples, fractions allowed")] = 1.0
    per_device_train_batch_size: Annotated[
        int | None, Number(at_least=2, integer=True, help="sentences, pairs or triplets a step and process")
    ] = 64
    learning_rate: Annotated[float, Number(above=0, help="at its highest")] = 3e-5
    optimizer: Optimizer = "adamw"
    lr_scheduler_type: Schedule = "linear"
    dataloader_drop_last: DropLast = True
    max_grad_norm: GradientNorm = 1.0
    model_name_or_path: Annotated[
        str, Text(help="encoder of the BERT or RoBERTa family: a folder or a name on the Hugging Face hub")
    ] = "bert-base-uncased"
    encoder: OwnModel = None
    pooling: Annotated[str, Choice(POOLINGS, help="sentence embedding; cls: [CLS] through a randomly initialised MLP")] = "cls"
    mlp_only_train: Annotated[bool, Flag(help="evaluate and save without the MLP of --pooling cls")] = True
    dropout: Annotated[
        float | None,
        Number(at_least=0, below=1, optional=True, help="of hidden states and attention, which makes the views differ"),
    ] = None
    max_length: Annotated[int, Number(at_least=3, integer=True, help="tokens of a sentence in training; the rest is cut")] = 32
    mlm_weight: Annotated[float, Number(at_least=0, help="of an additional masked-language-model loss; SimCSE uses 0.1")] = 0.0
    mlm_probability: Annotated[float, Number(above=0, below=1, help="share of the tokens that it predicts")] = 0.15
    columns: Annotated[tuple[str, ...], Words(help=COLUMNS)] = ()
    where: Annotated[tuple[str, ...], Words(help="conditions column=value that a row of a table must meet")] = ()
    min_score: Annotated[
        float | None, Number(optional=True, help="lowest score, or label that is a number, of a positive pair; none: no limit")
    ] = None
    positives: Annotated[
        str | None,
        Choice(
            POSITIVES, optional=True, help="of an anchor with several: one, drawn each epoch, or all, a pair each; none: one"
        ),
    ] = None
    hard_negatives: Annotated[
        int | None,
        Number(
            at_least=1, integer=True, optional=True, help="of a pair, at most; they are drawn from more each epoch; none: 7"
        ),
    ] = None
    max_train_samples: Annotated[
        int | None, Number(at_least=2, integer=True, optional=True, help="number of samples, from the first; none: all")
    ] = None
    batch_sampler: Annotated[
        str, Choice(BATCH_SAMPLERS, help="no_duplicates: no sentence twice in a batch, where it would be its own negative")
    ] = "random"
    tasks: Annotated[
        tuple[str, ...],
        Words(help="STS and transfer tasks to measure at the end of the training, such as STSB MR; sts, transfer: all of them"),
    ] = ()

    running: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "eval_strategy": "steps",
            "eval_steps": _EVERY,
            "save_steps": _EVERY,
            "logging_strategy": "steps",
            "logging_steps": 25,
            "load_best_model_at_end": True,
            "metric_for_best_model": CHOSEN_BY,
            "greater_is_better": True,
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tasks", self.known_tasks())

    def known_tasks(self) -> tuple[str, ...]:
        """Returns the tasks, each once, with those that ``sts`` and ``transfer`` stand for; raises UnknownNameError."""
        known, tasks = (*TASK_GROUPS, *STS_TASKS, *TRANSFER_TASKS), dict[str, None]()
        for task in self.tasks:
            if task not in known:
                raise UnknownNameError(f"unknown task '{task}'.{nearest(task, known)} Known: {listed(known)}.")
            tasks |= dict.fromkeys(TASK_GROUPS.get(task, (task,)))
        return tuple(tasks)

    def tasks_of(self, known: Sequence[str]) -> list[str]:
        """Returns those of the tasks to measure that are among ``known``."""
        return [task for task in self.tasks if task in known]


_ROBERTA = {"model_name_or_path": "roberta-base"}


def _with(strategy: str) -> LossRecipe:
    return replace(_LOSS, strategy=strategy)


def _recipes() -> dict[str, SimCSERecipe]:
    """Returns the papers' settings by name."""
    # Gao et al. 2021, appendix A and the table of hyperparameters beside their code: unsupervised RoBERTa learns at 1e-5
    # with batches of 512, supervised models of either kind at 5e-5 with 512 for three epochs, and keep their MLP.
    # Huang et al. 2023 (MACL), appendix B.4: SimCSE's settings, but batches of 64 for RoBERTa too, and no reweighting; they
    # found a dropout of 0.2 better with MACL, which their tables may or may not use: ``--dropout 0.2``.
    # Manna et al. 2024 (DySTreSS), section 4 and table 5: SimCSE's settings for BERT, the cosine profile from 0.03 to 0.05.
    unsupervised = SimCSERecipe()
    supervised = SimCSERecipe(num_train_epochs=3, per_device_train_batch_size=512, learning_rate=5e-5, mlp_only_train=False)
    roberta = unsupervised.changed(**_ROBERTA, learning_rate=1e-5)
    return {
        "unsupervised-bert": unsupervised,
        "unsupervised-roberta": roberta.changed(per_device_train_batch_size=512),
        "supervised-bert": supervised,
        "supervised-roberta": supervised.changed(**_ROBERTA),
        "macl-bert": replace(unsupervised, loss=_with("macl")),
        "macl-roberta": replace(roberta, loss=_with("macl")),
        "dystress-bert": replace(unsupervised, loss=_with("dystress")),
    }


METHOD = MethodInfo(
    name="simcse",
    summary="Train a sentence encoder with SimCSE and any temperature strategy, and measure it on STS and transfer tasks.",
    target="tempplug_adapters.simcse.method:SimCSEMethod",
    recipes=_recipes(),
    datasets=(
        "file of sentences (.txt, one a line: two dropout views of each), or a table of sentences, or of pairs and perhaps "
        "their hard negatives (.csv, .tsv, .jsonl, .json, .parquet, .arrow, a folder of datasets, OWNER/NAME on the hub); text "
        "also as .gz"
    ),
)
