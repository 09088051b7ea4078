"""MABEL as a method: trains a masked language model on entailment pairs and their counterfactuals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from tempplug import ContrastiveLoss
from tempplug.errors import DataError
from tempplug_adapters.bias_evaluation import find_bias_file, has_bias_file
from tempplug_adapters.bias_evaluation.crows_pairs import FILE as CROWS_PAIRS, evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.masked_language_model import MODEL, MaskedLanguageModel
from tempplug_adapters.bias_evaluation.stereoset import (
    DEVELOPMENT_FILE,
    FILE as STEREOSET,
    GENDER,
    evaluate_stereoset,
    read_stereoset,
)
from tempplug_adapters.data_files.roles import TEXT, Role
from tempplug_adapters.data_files.text_roles import ID, LABEL
from tempplug_adapters.data_files.text_rows import TextRows, open_texts
from tempplug_adapters.huggingface.loading import load_pretrained, load_tokenizer, own_model
from tempplug_adapters.huggingface.masked_tokens import NOT_PREDICTED, masked_loss_sum
from tempplug_adapters.mabel.gender_words import GenderWords
from tempplug_adapters.mabel.recipe import GENDER_WORDS, MabelRecipe
from tempplug_adapters.measurements import numbers_of
from tempplug_adapters.simcse.data import Sentences
from tempplug_adapters.simcse.model import initialise
from tempplug_adapters.simcse.sentence_method import SentenceMethod, SentenceModule
from tempplug_adapters.training.method import FOLDER, Card, Restored, Run, Source

ROLES: Final = (
    Role("premise", (TEXT,), ("premise", "sentence1", "anchor", "sent0", "sentence_a")),
    Role("hypothesis", (TEXT,), ("hypothesis", "sentence2", "positive", "sent1", "sentence_b")),
    Role("counterfactual", (TEXT,), ("counterfactual",), many=True, required=False),
    ID,
    LABEL,
)
"""Of the columns of a table; the counterfactuals are those of premise and hypothesis, in this order."""
POOLING = "cls_before_pooler"
"""The vector of a sentence: [CLS], which the projection of the training reads."""


class MabelModel(nn.Module):
    """Embeds sentences, and computes the loss of masked token prediction.

    Args:
        encoder: a transformers masked language model.

    Source: He et al. 2022, MABEL, section 3 and its code: the projection of [CLS] is two layers with a tanh between them.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.config.hidden_size
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        for layer in (self.head[0], self.head[2]):
            initialise(layer, encoder.config)

    @classmethod
    def from_pretrained(cls, name: str, own: str | None = None) -> MabelModel:
        """Returns the model for a pretrained one, or for what `own_model` makes from it.

        Raises:
            ConfigError: it has no masked language modelling head.
        """
        return cls(own_model(load_pretrained(AutoModelForMaskedLM, name, purpose=MODEL), own))

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns one embedding per sentence, [n, D], from its tokens, [n, T], beginning with [CLS]."""
        hidden: Tensor = self.encoder.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        embedding: Tensor = self.head(hidden[:, 0])
        return embedding

    def mlm_loss(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross-entropy of the masked tokens in ``labels``, in nats, []; 0 without masked tokens."""
        total = masked_loss_sum(self.encoder, input_ids, attention_mask, labels)
        return total / (labels != NOT_PREDICTED).sum().clamp(min=1)


class Quadruples(Sentences):
    """Token ids of premises, hypotheses, and the counterfactuals of both, see `Sentences`.

    Attributes:
        ungendered: number of pairs left out because they contain no gender word.
        ambiguous: number of occurrences of each word with several counterparts.
    """

    ungendered = 0
    ambiguous: Mapping[str, int] = {}

    def __init__(self, samples: Sequence[tuple[str, ...]], recipe: MabelRecipe, data_dir: Path | None, rows: TextRows) -> None:
        super().__init__(samples, recipe, data_dir)
        self.tables, self.notes = (rows.assigned,), rows.notes


class MabelModule(SentenceModule):
    """Maps quadruples of sentences to the loss from premises to hypotheses, in one direction."""

    loss_fn: ContrastiveLoss

    def __init__(self, recipe: MabelRecipe, data: Quadruples, loss_fn: ContrastiveLoss) -> None:
        super().__init__(MabelModel.from_pretrained(recipe.model_name_or_path, recipe.encoder), data, loss_fn)
        if not recipe.mlm_weight:  # DistributedDataParallel would wait for the gradients of unused parameters
            used = {id(each) for each in self.model.encoder.base_model.parameters()}
            for each in self.model.encoder.parameters():
                each.requires_grad_(id(each) in used)
        self.items, self.recipe = len(data), recipe
        self._terms: dict[str, Tensor] = {}

    def forward(
        self,
        index: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        mlm_input_ids: Tensor | None = None,
        mlm_labels: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss in nats, [].

        Args:
            index: [B] positions of the quadruples.
            input_ids: [4·B, T] premises, hypotheses, counterfactual premises, counterfactual hypotheses.
            attention_mask: [4·B, T] non-zero at real tokens.
            mlm_input_ids: [4·B, T] the same tokens, some of them masked.
            mlm_labels: [4·B, T] the masked tokens, `masked_tokens.NOT_PREDICTED` elsewhere.
        """
        premise, hypothesis, other_premise, other_hypothesis = self.model.embed(input_ids, attention_mask).chunk(4)
        anchors, candidates = torch.cat([premise, other_premise]), torch.cat([hypothesis, other_hypothesis])
        # A premise and its counterfactual are two anchors, each with its own state in strategies that learn per example.
        keys = None if self.text_keys is None else self.text_keys[index][:, 1::2].T.flatten()  # of the hypotheses
        known = self.loss_fn.accepted(index=torch.cat([index, index + self.items]), keys=keys)
        terms = {
            "contrastive_loss": self.loss_fn(anchors, candidates, **known),
            "alignment_loss": self._alignment(anchors, candidates, known),
        }
        weight = 1.0 if self.recipe.contrastive_weight is None else self.recipe.contrastive_weight
        loss = weight * terms["contrastive_loss"] + self.recipe.alignment_weight * terms["alignment_loss"]
        if mlm_input_ids is not None and mlm_labels is not None:
            terms["mlm_loss"] = self.model.mlm_loss(mlm_input_ids, attention_mask, mlm_labels)
            loss = loss + self.recipe.mlm_weight * terms["mlm_loss"]
        self._terms = {name: value.detach() for name, value in terms.items()}
        return loss

    def _alignment(self, anchors: Tensor, candidates: Tensor, known: dict[str, Any]) -> Tensor:
        """Returns the mean squared distance between the similarity rows of a premise and of its counterfactual, []."""
        # one matrix for both halves, so that the logits are those of the contrastive loss for every temperature strategy
        if self.recipe.alignment_of == "logits":
            of_strategy = {name: known[name] for name in self.loss_fn.strategy.takes & known.keys()}
            rows = self.loss_fn.logits(anchors, candidates, **of_strategy)
        else:
            rows = F.normalize(anchors.float(), dim=1) @ F.normalize(candidates.float(), dim=1).T
        half = len(anchors) // 2
        return (rows[:half, :half] - rows[half:, half:]).square().sum(1).mean()

    def measure(self) -> dict[str, float]:
        """Returns statistics of the last batch: those of the contrastive loss, and the unweighted terms of the loss."""
        return {**numbers_of(self.loss_fn.record), **{name: float(value) for name, value in self._terms.items()}}


class MabelMethod(SentenceMethod[MabelRecipe, Quadruples]):
    """Premises are anchors and their hypotheses are positives; all other hypotheses of either gender are negatives.

    Source: He et al. 2022, MABEL: Attenuating Gender Bias using Textual Entailment Data; alignment loss a1 of its code.
    """

    def load(self, recipe: MabelRecipe, source: Source) -> Quadruples:
        """Returns the tokenised pairs with a gender word and their counterfactuals; checks the evaluation data."""
        rows = open_texts(source.dataset, recipe.columns, recipe.where, roles=ROLES)
        samples = [sample.texts for sample in rows]
        if source.evaluated:
            read_stereoset(source.data_dir)
            read_crows_pairs(source.data_dir)
        if "counterfactual" in rows.assigned:
            if rows.uneven or rows.most_negatives != 2:
                raise DataError(f"{source.dataset}: each row must have both counterfactuals; they are missing in some.")
            return Quadruples(samples[: recipe.max_train_samples], recipe, source.data_dir, rows)
        words = GenderWords.read(_gender_words(recipe, source))
        pairs = [pair for pair in samples if any(map(words.has_any, pair))]
        if len(pairs) < 2:
            raise DataError(f"{source.dataset} holds {len(pairs)} pairs with a gender word; training needs at least 2.")
        used = pairs[: recipe.max_train_samples]
        data = Quadruples([(*pair, *map(words.swapped, pair)) for pair in used], recipe, source.data_dir, rows)
        data.ungendered = len(samples) - len(pairs)
        data.ambiguous = words.ambiguous(sentence for pair in used for sentence in pair)
        return data

    def files(self, recipe: MabelRecipe, source: Source, data: Quadruples) -> dict[str, Path | str]:
        """Returns the file of the pairs, the list of words, and the files of StereoSet and CrowS-Pairs."""
        files = super().files(recipe, source, data)
        if not any("counterfactual" in table for table in data.tables):
            files["gender_words"] = _gender_words(recipe, source)
        for name in (STEREOSET, DEVELOPMENT_FILE, CROWS_PAIRS) if source.evaluated else ():
            if has_bias_file(source.data_dir, name):
                files[name] = find_bias_file(source.data_dir, name, "the evaluation")
        return files

    def describe(self, data: Quadruples) -> str:
        """Returns the number of pairs, of those left out, and of words with several counterparts."""
        left_out = f", {data.ungendered} without gender words left out" if data.ungendered else ""
        guessed = ", ".join(f"{word} {number}" for word, number in Counter(data.ambiguous).most_common())
        size = f"{len(data)} pairs and their counterfactuals{left_out}; ambiguous words: {guessed or 'none'}"
        return "\n".join([size, *data.notes])

    def origin(self, recipe: MabelRecipe, data: Quadruples) -> dict[str, Any]:
        """Returns the number of pairs that were left out, and of ambiguous words by word."""
        return {"pairs_without_gender_words": data.ungendered, "ambiguous_words": dict(sorted(data.ambiguous.items()))}

    def known(self, recipe: MabelRecipe, data: Quadruples) -> dict[str, Any]:
        """Returns the number of premises, counterfactual ones included, and the width of the embeddings."""
        return {"size": 2 * len(data), "dimension": data.config.hidden_size}

    def build(self, recipe: MabelRecipe, data: Quadruples, loss: Any) -> MabelModule:
        """Returns the pretrained model with a projection of random weights."""
        return MabelModule(recipe, data, loss)

    def evaluate(self, recipe: MabelRecipe, module: Any, data: Quadruples, run: Run) -> dict[str, float]:
        """Returns LM, SS and ICAT of StereoSet, and MABEL's score of CrowS-Pairs, all for gender.

        With StereoSet's development set, its ICAT is returned as ``validation_icat``.
        """
        model = MaskedLanguageModel(module.encoder, data.tokenizer)
        stereoset = evaluate_stereoset(model, read_stereoset(data.data_dir))
        pairs = [pair for pair in read_crows_pairs(data.data_dir) if pair.bias_type == GENDER]
        found = {
            "stereoset_lm": stereoset.lm,
            "stereoset_ss": stereoset.ss,
            "stereoset_icat": stereoset.icat,
            "crows_pairs": evaluate_crows_pairs(model, pairs, "differing").score,
        }
        if has_bias_file(data.data_dir, DEVELOPMENT_FILE):
            found["validation_icat"] = evaluate_stereoset(model, read_stereoset(data.data_dir, DEVELOPMENT_FILE)).icat
        return found

    def kept(self, recipe: MabelRecipe, module: Any, data: Quadruples) -> dict[str, Any]:
        """Returns how texts become vectors."""
        return {"preprocessing": {"tokenizer": ".", "pooling": POOLING}}

    def restore(self, recipe: MabelRecipe, kept: Mapping[str, Any], folder: Path) -> Restored:
        """Returns the masked language model of the folder."""
        model = load_pretrained(AutoModelForMaskedLM, str(folder), purpose=MODEL)
        return Restored(model, tokenizer=load_tokenizer(str(folder)), pooling=kept["preprocessing"]["pooling"])

    def card(self, recipe: MabelRecipe, module: Any, data: Quadruples, results: Mapping[str, Any]) -> Card:
        """Returns the text on masked language models."""
        return Card(
            about="A masked language model with less gender bias. A sentence's vector is the last hidden state of [CLS].",
            example='["The doctor finished her shift.", "The doctor finished his shift."]',
            use=f"transformers opens the folder, too:\n\n```python\n{_USE}\n```",
            base=recipe.model_name_or_path,
            metadata={"library_name": "transformers", "pipeline_tag": "fill-mask"},
        )


def _gender_words(recipe: MabelRecipe, source: Source) -> Path:
    if recipe.gender_words:
        return Path(recipe.gender_words)
    return find_bias_file(source.data_dir, GENDER_WORDS, "MABEL's list of words")


_USE = f"""from transformers import AutoModelForMaskedLM

network = AutoModelForMaskedLM.from_pretrained({FOLDER})"""
