"""SimCSE as a method; the best encoder on STS-B dev is saved as a folder that other libraries can load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from huggingface_hub import EvalResult
from torch import Tensor, distributed

import tempplug
from tempplug import ContrastiveLoss
from tempplug.distributed import active
from tempplug.errors import ConfigError
from tempplug_adapters.data_files.roles import Role
from tempplug_adapters.data_files.text_roles import TEXTS
from tempplug_adapters.data_files.text_rows import TextRows, open_texts
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.positives import Positives
from tempplug_adapters.sentence_evaluation import sts_data, transfer_data
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder, load_encoder, longest_input
from tempplug_adapters.sentence_evaluation.encoder_folder import write_sentence_folder
from tempplug_adapters.sentence_evaluation.encoding import shared
from tempplug_adapters.sentence_evaluation.sts import evaluate_sts, evaluate_stsb
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS, load_sts
from tempplug_adapters.sentence_evaluation.transfer import evaluate_transfer
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS, load_rows
from tempplug_adapters.simcse.data import Sentences
from tempplug_adapters.simcse.model import SimCSEModel
from tempplug_adapters.simcse.recipe import CHOSEN_BY, SimCSERecipe
from tempplug_adapters.simcse.sentence_method import SentenceMethod, SentenceModule
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.training.method import FOLDER, RESAMPLED_FILE, Card, Restored, Run, Source

RESAMPLES = 200
"""Samples of the pairs of the STS test sets that the mean of these is measured on, too."""


class SimCSEModule(SentenceModule):
    """Maps views of sentences to the loss from view a to view b, in one direction."""

    def __init__(self, recipe: SimCSERecipe, data: Sentences, loss_fn: ContrastiveLoss) -> None:
        model = SimCSEModel.from_pretrained(
            recipe.model_name_or_path,
            recipe.pooling,
            mlp_only_train=recipe.mlp_only_train,
            config=data.config,
            mlm=recipe.mlm_weight > 0,
            own=recipe.encoder,
        )
        super().__init__(model, data, loss_fn)
        self.views, self.mlm_weight = data.views.views, recipe.mlm_weight
        self.tokenizer, self.pooling = data.tokenizer, model.pooling
        self.positives = Positives(teacher_temperature=getattr(recipe, "teacher_temperature", None))
        self._seen: tuple[Tensor, ...] = ()

    def forward(
        self, index: Tensor | None = None, drawn: Tensor | None = None, teacher: Tensor | None = None, **inputs: Tensor
    ) -> Tensor:
        """Returns the loss in nats, [], of the samples ``index``, [B]; the inputs of `SimCSEModel` are [V·B, T] by view.

        ``drawn`` is what `TokenizedViews.draw` chose, [B, V], where samples have different texts; ``teacher`` has the scores of
        each positive and its hard negatives, [B, V - 1]. Without ``index``, it returns the embeddings of the inputs, [n, D].
        """
        outputs = self.model(**inputs)
        embeddings: Tensor = outputs["embedding"]
        if index is None:
            return embeddings
        loss = self.loss_of(embeddings, index, drawn, teacher)
        return loss + self.mlm_weight * outputs["mlm_loss"] if "mlm_loss" in outputs else loss

    def rows_to_embed(
        self, index: Tensor, drawn: Tensor | None = None, teacher: Tensor | None = None, **inputs: Tensor
    ) -> list[dict[str, Tensor]]:
        """Returns the inputs as rows that `forward` can embed in parts; raises ConfigError with masked tokens."""
        if self.mlm_weight:
            raise ConfigError("contrastive_mini_batch_size does not split the loss of masked tokens: choose mlm_weight=0.")
        return [inputs]

    def loss_of(
        self,
        embeddings: Tensor,
        index: Tensor,
        drawn: Tensor | None = None,
        teacher: Tensor | None = None,
        **inputs: Tensor,
    ) -> Tensor:
        """Returns the contrastive loss of the embeddings, [V·B, D] by view; arguments as of `forward`."""
        view_a, view_b, rest = embeddings.tensor_split((len(index), 2 * len(index)))
        self._seen = (view_a.detach(), view_b.detach())
        known = self.loss_fn.accepted(index=index, keys=self._keys(index, drawn))
        if self.views > 2:
            known |= {"hard_negatives": rest} if drawn is None and self.views == 3 else _hard_negatives(rest, index, drawn)
        if teacher is not None:
            known["targets"] = self.positives.targets(
                teacher, None, teacher.shape[1], embeddings, gather=bool(self.loss_fn.gather)
            )
        loss: Tensor = self.loss_fn(view_a, view_b, **known)
        return loss

    def _keys(self, index: Tensor, drawn: Tensor | None) -> dict[str, Tensor] | None:
        """Returns the keys of the positive of each row, and of its hard negatives."""
        if self.text_keys is None:
            return None
        keys = self.text_keys[index]
        keys = keys if drawn is None else keys.gather(1, drawn.clamp(min=0))
        positive, hard = keys[:, min(1, keys.shape[1] - 1)], keys[:, 2:]
        return {"view_a": positive, "view_b": positive, **({"hard_negatives": hard.flatten()} if self.views > 2 else {})}

    def measure(self) -> dict[str, float]:
        """Returns statistics of the last batch: those of the loss, and uniformity and alignment of its views."""
        view_a, view_b = self._seen
        return {
            **numbers_of(self.loss_fn.record),
            "uniformity": float(tempplug.metrics.uniformity(view_a)),
            "alignment": float(tempplug.metrics.alignment(view_a, view_b)),
        }


def _hard_negatives(rows: Tensor, index: Tensor, drawn: Tensor | None) -> dict[str, Tensor]:
    """Returns ``hard_negatives`` [B, k, D] and their mask [B, k] from their rows, view by view; those that miss are ones."""
    if drawn is None:
        return {"hard_negatives": rows.reshape(-1, len(index), rows.shape[-1]).transpose(0, 1)}
    mask = drawn[:, 2:].T >= 0
    hard = rows.new_ones(*mask.shape, rows.shape[-1])
    hard[mask] = rows
    return {"hard_negatives": hard.transpose(0, 1), "hard_negative_mask": mask.T}


class SimCSEMethod(SentenceMethod[SimCSERecipe, Sentences]):
    """View a's sentences are anchors; the other samples' view b, and all hard negatives, are their negatives.

    Source: Gao et al. 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings.
    """

    evaluated_by_all = True

    def load(self, recipe: SimCSERecipe, source: Source) -> Sentences:
        """Returns the samples of a file; checks that the evaluation data exist."""
        samples = read_rows(recipe, source)
        if source.evaluated:
            load_sts("STSB", source.data_dir, "dev")
            for task in recipe.tasks_of(STS_TASKS):
                load_sts(task, source.data_dir)
            for task in recipe.tasks_of(TRANSFER_TASKS):
                if source.data_dir is None:
                    raise ConfigError(f"task {task} needs the folder with the data sets: --data-dir or TEMPPLUG_DATA.")
                load_rows(task, source.data_dir)
        return Sentences(samples, recipe, source.data_dir, recipe.dropout)

    def files(self, recipe: SimCSERecipe, source: Source, data: Sentences) -> dict[str, Path | str]:
        """Returns the file of the samples, and those of STS-B dev and of the recipe's tasks."""
        files = super().files(recipe, source, data)
        if source.evaluated and source.data_dir is not None:  # without a folder, STS is read from the hub at fixed commits
            evaluated = {"STSB dev": sts_data.files_of("STSB", source.data_dir, "dev")}
            evaluated |= {task: sts_data.files_of(task, source.data_dir) for task in recipe.tasks_of(STS_TASKS)}
            evaluated |= {task: transfer_data.files_of(task, source.data_dir) for task in recipe.tasks_of(TRANSFER_TASKS)}
            files |= {f"{task}/{path.name}": path for task, paths in evaluated.items() for path in paths}
        return files

    def describe(self, data: Sentences) -> str:
        """Returns the number and the kind of the samples, and what was left out."""
        return "\n".join([f"{len(data)} {data.kind}", *data.notes])

    def known(self, recipe: SimCSERecipe, data: Sentences) -> dict[str, Any]:
        """Returns the number of samples and the width of the embeddings."""
        return {"size": len(data), "dimension": data.config.hidden_size}

    def keys(self, recipe: SimCSERecipe, data: Sentences) -> np.ndarray | None:
        """Returns the keys of sentences if no batch may contain a sentence twice."""
        return data.views.keys if recipe.batch_sampler == "no_duplicates" else None

    def build(self, recipe: SimCSERecipe, data: Sentences, loss: Any) -> SimCSEModule:
        """Returns the pretrained encoder with randomly initialised heads."""
        return SimCSEModule(recipe, data, loss)

    def evaluate(self, recipe: SimCSERecipe, module: Any, data: Sentences, run: Run) -> dict[str, float]:
        """Returns Spearman × 100 on STS-B dev; after the training also the results of the recipe's tasks.

        The mean over all seven STS test sets is then also computed on `RESAMPLES` resamples of their pairs (`RESAMPLED_FILE`).
        """
        encoder = shared(SentenceEncoder(module.encoder.base_model, module.tokenizer, module.pooling))
        sts, transfer = (recipe.tasks_of(known) if run.final else [] for known in (STS_TASKS, TRANSFER_TASKS))
        parts, done = 1 + bool(sts) + bool(transfer), 0

        def progress(fraction: float, doing: str) -> None:
            run.progress((done + fraction) / parts)

        found = {CHOSEN_BY: evaluate_stsb(encoder, data.data_dir, progress=progress)}
        if sts:
            done += 1
            whole = set(sts) == set(STS_TASKS)
            result = evaluate_sts(encoder, data.data_dir, sts, resamples=RESAMPLES if whole else 0, progress=progress)
            found |= {name.lower(): value for name, value in result.spearman.items()}
            if result.average is not None:
                found["sts_average"] = result.average
                if not active() or distributed.get_rank() == 0:
                    resampled = [round(value, 4) for value in result.resampled]
                    write_json(run.output_dir / RESAMPLED_FILE, {"sts_average": resampled})
        if transfer:
            done += 1
            device = next(module.parameters()).device
            scores = evaluate_transfer(encoder, data.data_dir or "", transfer, device=device, progress=progress).accuracy
            found |= {name.lower(): value for name, value in scores.items()}
            found["transfer_average"] = sum(scores.values()) / len(scores)
        return found

    def write(self, module: Any, data: Sentences, folder: Path) -> None:
        """Writes the encoder with its tokenizer as a folder that transformers and sentence-transformers load."""
        super().write(module, data, folder)
        model = module.encoder.base_model
        write_sentence_folder(folder, model, module.model.pooling, self.longest(model, data))

    def longest(self, model: Any, data: Sentences) -> int:
        """Returns the tokens that evaluation and use read; training truncates sentences for speed, as in SimCSE."""
        return longest_input(model, data.tokenizer)

    def kept(self, recipe: SimCSERecipe, module: Any, data: Sentences) -> dict[str, Any]:
        """Returns how texts become vectors."""
        longest = self.longest(module.encoder.base_model, data)
        return {"preprocessing": {"tokenizer": ".", "pooling": module.pooling, "max_length": longest}}

    def restore(self, recipe: SimCSERecipe, kept: Mapping[str, Any], folder: Path) -> Restored:
        """Returns the encoder of the folder with its pooling."""
        found: Any = load_encoder(folder, kept["preprocessing"]["pooling"], device="cpu")
        return Restored(found.model, tokenizer=found.tokenizer, pooling=found.pooling)

    def card(self, recipe: SimCSERecipe, module: Any, data: Sentences, results: Mapping[str, Any]) -> Card:
        """Returns the text on sentence encoders, with the figures under the names of the literature."""
        scores: Mapping[str, float] = results["evaluation"]
        heads = "Spearman × 100", "accuracy of a linear classifier, in per cent"
        tables = {
            head: {_task(figure): value for figure, value in scores.items() if _is_accuracy(figure) == (head is heads[1])}
            for head in heads
        }
        return Card(
            about="A sentence encoder: sentences that mean the same have vectors of a high cosine similarity.",
            example='["A man is playing a guitar.", "Somebody plays music."]',
            use=f"{_LIBRARY}\n\nWithout sentence-transformers a sentence's embedding is {IN_TRANSFORMERS[module.pooling]}.",
            base=recipe.model_name_or_path,
            metadata={
                "library_name": "sentence-transformers",
                "pipeline_tag": "sentence-similarity",
                "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction"],
                "eval_results": [_result(figure, value) for figure, value in scores.items()] or None,
            },
            scores=tables,
            citation=_PAPER,
        )


def read_rows(recipe: SimCSERecipe, source: Source, roles: Sequence[Role] = TEXTS) -> TextRows:
    """Returns the rows of a file that a recipe trains on: a sample for each positive, where all of them count."""
    most = recipe.max_train_samples
    teacher = getattr(recipe, "teacher_temperature", None) is not None
    rows = open_texts(
        source.dataset, recipe.columns, recipe.where, min_score=recipe.min_score, teacher=teacher, roles=roles, most=most
    )
    return rows.paired() if recipe.positives == "all" and rows.most_positives > 1 else rows


IN_TRANSFORMERS: Final = {
    "cls": "`AutoModel`'s `pooler_output`: [CLS] through the MLP",
    "cls_before_pooler": "`AutoModel`'s `last_hidden_state[:, 0]`: [CLS] without the MLP of the training",
    "avg": "the mean over the tokens of the attention mask of `AutoModel`'s `last_hidden_state`",
    "avg_first_last": "the mean over the tokens of the attention mask of `AutoModel`'s"
    " `(hidden_states[1] + hidden_states[-1]) / 2`",
    "avg_top2": "the mean over the tokens of the attention mask of `AutoModel`'s `(hidden_states[-2] + hidden_states[-1]) / 2`",
}
"""How to compute a sentence embedding without sentence-transformers, by pooling."""
_LIBRARY = f"""sentence-transformers opens the folder, too:

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer({FOLDER}).encode(["A man is playing a guitar."])
```"""
_PAPER = """@inproceedings{gao2021simcse,
    title = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
    author = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi},
    booktitle = {Empirical Methods in Natural Language Processing (EMNLP)},
    year = {2021},
}"""


_NAMES = {
    "stsb_dev": "STS-B dev",
    "stsb": "STS-B test",
    "sickr": "SICK-R",
    "sts_average": "average of the seven test sets",
    "transfer_average": "average of the transfer tasks",
}


def _task(figure: str) -> str:
    """Returns the usual name of an evaluation metric in the literature."""
    return _NAMES.get(figure, figure.upper())


def _is_accuracy(figure: str) -> bool:
    """Returns whether a metric is an accuracy of a transfer task; the others are correlations."""
    return figure == "transfer_average" or figure.upper() in TRANSFER_TASKS


def _result(figure: str, value: float) -> EvalResult:
    kind = "semantic-similarity", "Semantic Similarity", "spearman_cosine", "Spearman of cosine similarity × 100"
    if _is_accuracy(figure):
        kind = "text-classification", "Transfer", "accuracy", "Accuracy of a linear classifier in per cent"
    task_type, task_name, metric_type, metric_name = kind
    return EvalResult(task_type, figure, _task(figure), metric_type, round(value, 4), task_name, metric_name=metric_name)
