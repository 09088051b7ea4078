"""Sequential recommendation as a method: histories, next items, and their ranks.

``sasrec`` is the transformer alone, trained by cross-entropy; `DCRecMethod` adds graphs and contrastive terms to it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.own_modules import create_module, find
from tempplug_adapters.recommendation.evaluation import Ranker, evaluate_ranker, popularity_ranker
from tempplug_adapters.recommendation.interaction_files import load_sequences
from tempplug_adapters.recommendation.interactions import Interactions
from tempplug_adapters.recommendation.recipe import SequenceRecipe
from tempplug_adapters.recommendation.sequence_encoder import HistoryEncoder, OwnEncoder, SequenceEncoder
from tempplug_adapters.training.method import Method, Run, Source

S = TypeVar("S", bound=SequenceRecipe)


def sequence_encoder(recipe: SequenceRecipe, data: Interactions) -> HistoryEncoder:
    """Returns the transformer of a recipe with random weights, or embeddings of items around the user's encoder."""
    if recipe.encoder is not None:
        sizes = dict.fromkeys(("hidden", "width", "d_model", "input_size", "hidden_size"), recipe.hidden)
        known = sizes | {"layers": recipe.layers, "num_layers": recipe.layers, "max_length": recipe.max_length}
        module = create_module(find(recipe.encoder, "encoder"), "encoder", known, first="hidden")
        return OwnEncoder(module, data.item_count, recipe.hidden)
    return SequenceEncoder(
        data.item_count,
        recipe.max_length,
        recipe.hidden,
        recipe.inner,
        recipe.layers,
        recipe.heads,
        recipe.dropout,
        recipe.attention_dropout,
    )


class SequenceModule(nn.Module):
    """Maps histories to the loss.

    Attributes:
        encoder: the transformer with its embeddings of items.
        loss_fn: None, since there is no contrastive loss.
    """

    def __init__(self, encoder: HistoryEncoder) -> None:
        super().__init__()
        self.encoder, self.loss_fn = encoder, None

    def forward(self, histories: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Returns the cross-entropy [] of the next items [B] in nats, for histories [B, L], padded with 0, of lengths [B]."""
        return self.encoder.loss(self.encoder(histories, lengths), targets)


class RecommendationMethod(Method[S, Interactions]):
    """Data and evaluation of every method that ranks items after a history."""

    def load(self, recipe: S, source: Source) -> Interactions:
        """Returns a data set of DCRec, or the sequences of a table, split."""
        sequences, items = load_sequences(source.dataset, source.data_dir, recipe.columns)
        return Interactions(sequences, items, recipe.max_length, recipe.validation_share)

    def describe(self, data: Interactions) -> str:
        """Returns the numbers of users, items, interactions and examples."""
        return (
            f"{data.user_count} users, {data.item_count} items, {len(data.items)} interactions; {len(data)} examples to train "
            f"on, {len(data.validation)} to validate, {len(data.test)} to test"
        )

    def known(self, recipe: S, data: Interactions) -> dict[str, Any]:
        """Returns the number of examples and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.hidden}

    def ranker(self, recipe: S, module: Any, data: Interactions, split: str) -> Ranker:
        """Returns the module as a ranker of histories of a split."""
        device = next(module.parameters()).device
        return lambda histories, lengths: module.encoder.scores(module.encoder(histories.to(device), lengths.to(device)))

    @torch.no_grad()
    def evaluate(self, recipe: S, module: nn.Module, data: Interactions, run: Run) -> dict[str, float]:
        """Returns HR@k and NDCG@k × 100 on the held-out users; when the training has ended, also on the test set.

        The test is measured by every protocol of the recipe, also for a ranking by popularity.
        """
        chosen = recipe.rankings[0]
        ranker = self.ranker(recipe, module, data, "validation")
        validation = evaluate_ranker(ranker, data, data.validation, [chosen], recipe.seed, run.progress)[chosen]
        found = {f"validation {name}": value for name, value in validation.items()}
        if run.final:
            popular = popularity_ranker(data.popularity("test"))
            for prefix, each in (("", self.ranker(recipe, module, data, "test")), ("popularity ", popular)):
                tested = evaluate_ranker(each, data, data.test, recipe.rankings, recipe.seed, run.progress)
                for ranking, measured in tested.items():
                    found |= {f"{prefix}{name} {ranking}": value for name, value in measured.items()}
        return found


class SequenceMethod(RecommendationMethod[SequenceRecipe]):
    """The transformer alone, a baseline for contrastive methods.

    Source: Kang & McAuley 2018, Self-Attentive Sequential Recommendation, with DCRec's settings and examples.
    """

    def create_loss(
        self, recipe: SequenceRecipe, data: Interactions, temperature: TemperatureArguments, *, gather: bool = False
    ) -> None:
        """Returns None; raises `ConfigError` if a temperature, an objective or a term on negatives is given."""
        for name in ("temperature_strategy", "temperature_args", "contrastive_objective", "contrastive_negatives"):
            if value := getattr(temperature, name):
                raise ConfigError(f"{name}={value} does not apply: sasrec has no contrastive loss. dcrec adds one to it.")

    def build(self, recipe: SequenceRecipe, data: Interactions, loss: Any) -> SequenceModule:
        """Returns the transformer with random weights."""
        return SequenceModule(sequence_encoder(recipe, data))

    def collate(self, recipe: SequenceRecipe, data: Interactions, index: Tensor) -> dict[str, Any]:
        """Returns histories and next items."""
        histories, lengths, targets = data.batch(data.train[index.numpy()])
        return {"histories": histories, "lengths": lengths, "targets": targets}
