"""Sequential recommendation as a method, and rankings of next items: HR@k and NDCG@k among all items or sampled ones.

``sasrec`` is the transformer alone, trained by cross-entropy; `DCRecMethod` adds graphs and contrastive terms to it. In
ranks, ties and NaN scores are counted against the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.huggingface.arguments import TemperatureArguments
from tempplug_adapters.modes import Progress, silent
from tempplug_adapters.own_modules import create_module, find
from tempplug_adapters.quoting import fenced, shell_flag
from tempplug_adapters.recommendation.interaction_files import files_of, load_sequences
from tempplug_adapters.recommendation.interactions import Interactions, Ranges, numbered
from tempplug_adapters.recommendation.recipes import SequenceRecipe
from tempplug_adapters.recommendation.sequence_encoder import HistoryEncoder, OwnEncoder, SequenceEncoder
from tempplug_adapters.storage.files import inside, one_line
from tempplug_adapters.storage.fingerprint import files_below, grouped
from tempplug_adapters.storage.tensors import read_tensors, write_tensors
from tempplug_adapters.training.method import FOLDER, Card, Inputs, Method, Run, Source, load_weights

CUTOFFS = (1, 5, 10)
SAMPLED = 100
"""Negatives of the sampled protocol."""
_BLOCK = 256
"""Block size of the original's sampling of negatives."""


def full_ranks(scores: Tensor, targets: Tensor, histories: Tensor) -> Tensor:
    """Returns the rank [B], 1 the best, of each target among all items but the rest of its history, by scores [B, I + 1]."""
    own = scores.gather(1, targets[:, None])
    ahead = ~(scores < own)
    ahead.scatter_(1, histories, False)
    ahead[:, 0] = False
    ahead.scatter_(1, targets[:, None], False)
    return 1 + ahead.sum(1)


def sampled_ranks(scores: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Returns the rank [B] of each target among negatives [B, K] by scores [B, I + 1]; an item counts once."""
    drawn = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, negatives, True)
    drawn.scatter_(1, targets[:, None], False)
    own = scores.gather(1, targets[:, None])
    return 1 + (drawn & ~(scores < own)).sum(1)


def draw_negatives(weights: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
    """Returns negatives for each row, [R, `SAMPLED`], drawn with replacement by the weights [I + 1] of items.

    Items of the histories are included. As in DCRec's evaluation by RecBole, the negatives of a block of 256 rows avoid the
    targets [R] of other rows, so that a row's own target may be among its negatives.
    """
    found = []
    chances = weights.double()
    for block in torch.split(targets, _BLOCK):
        avoided = block.repeat(SAMPLED)
        drawn = torch.multinomial(chances, len(avoided), replacement=True, generator=generator)
        # with a single item of weight, a clash can never be avoided
        while (clash := (drawn == avoided).nonzero()[:, 0]).numel() and int((chances > 0).sum()) > 1:
            drawn[clash] = torch.multinomial(chances, len(clash), replacement=True, generator=generator)
        found.append(drawn.reshape(len(block), SAMPLED))
    return torch.cat(found)


def figures(ranks: Tensor) -> dict[str, float]:
    """Returns HR@k and NDCG@k × 100 of ranks [R] for k of `CUTOFFS`; NDCG is 1 / log₂(rank + 1) up to rank k."""
    gains = 100 / torch.log2(ranks.double() + 1)
    found = {f"hr@{k}": 100 * float((ranks <= k).double().mean()) for k in CUTOFFS}
    return found | {f"ndcg@{k}": float(torch.where(ranks <= k, gains, 0.0).mean()) for k in CUTOFFS}


Ranker = Callable[[Tensor, Tensor], Tensor]
"""Histories [B, L], padded with 0, and their lengths [B], both on the CPU, to scores of all items [B, I + 1] on any device."""
ROWS = 256
"""Histories that are ranked at once."""


def evaluate_ranker(
    ranker: Ranker, data: Interactions, examples: Ranges, rankings: Sequence[str], seed: int = 0, progress: Progress = silent
) -> dict[str, dict[str, float]]:
    """Returns HR@k and NDCG@k × 100 by protocol, see `figures`.

    The sampled negatives depend only on the seed and the examples, so that rankers and epochs are compared on the same ones.
    (The original draws new ones at every evaluation.)

    Args:
        ranker: the ranker to measure.
        data: the data of the examples.
        examples: histories and targets.
        rankings: of `RANKINGS`.
        seed: of the negatives.
        progress: called with the fraction done.
    """
    targets = torch.from_numpy(data.items[examples.ends])
    negatives = None
    if "sampled" in rankings:
        negatives = draw_negatives(data.last_targets(), targets, torch.Generator().manual_seed(seed))
    found: dict[str, list[Tensor]] = {name: [] for name in rankings}
    for rows in torch.arange(len(examples)).split(ROWS):  # type: ignore[no-untyped-call]
        histories, lengths, wanted = data.batch(examples[rows.numpy()])
        scores = ranker(histories, lengths)
        check_finite_rows(scores, "the scores of items", start=int(rows[0]))
        wanted = wanted.to(scores.device)
        if "full" in found:
            found["full"].append(full_ranks(scores, wanted, histories.to(scores.device)).cpu())
        if negatives is not None:
            found["sampled"].append(sampled_ranks(scores, wanted, negatives[rows].to(scores.device)).cpu())
        progress((int(rows[-1]) + 1) / len(examples))
    return {name: figures(torch.cat(ranks)) for name, ranks in found.items()}


def popularity_ranker(counts: Tensor) -> Ranker:
    """Returns a ranker that scores items by their counts [I + 1]."""
    return lambda histories, lengths: counts.expand(len(histories), -1)


INTERACTIONS_FILE: Final = "interactions.pt"
"""In the output folder: the newest items of every user, and the names of users and items."""
S = TypeVar("S", bound=SequenceRecipe)


def sequence_encoder(recipe: SequenceRecipe, data: Interactions) -> HistoryEncoder:
    """Returns the transformer of a recipe with random weights, or embeddings of items around the user's encoder."""
    if recipe.encoder is not None:
        widths = dict.fromkeys(("hidden", "width", "d_model", "input_size", "hidden_size"), recipe.hidden)
        known = widths | {"layers": recipe.layers, "num_layers": recipe.layers, "max_length": recipe.max_length}
        module = create_module(find(recipe.encoder, "encoder"), "encoder", known, first="hidden")
        return OwnEncoder(module, data.item_count, recipe.hidden)
    sizes = (recipe.hidden, recipe.inner, recipe.layers, recipe.heads, recipe.dropout, recipe.attention_dropout)
    return SequenceEncoder(data.item_count, recipe.max_length, *sizes)


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
        """Returns the sequences of a data set or a table, split."""
        sequences = load_sequences(source.dataset, source.data_dir, recipe.columns)
        items = len(sequences.names)
        return Interactions(sequences[0], items, recipe.max_length, recipe.validation_share, *sequences[1:])

    def tables(self, data: Interactions) -> Sequence[Assigned]:
        """Returns the table, or the benchmark files."""
        return data.tables

    def evaluation_data(self, recipe: S, module: Any, source: Source) -> Interactions:
        """Returns a data set with the numbers that items had in the training; raises `UnknownNameError` for other items."""
        data = self.load(recipe, source)
        numbers = [numbered(module.data.item_numbers, name, "item") for name in data.names]
        data.items, data.names, data.item_count = np.array([0, *numbers])[data.items], module.data.names, module.data.item_count
        return data

    def files(self, recipe: S, source: Source, data: Interactions) -> dict[str, Path | str]:
        """Returns the table, or the files of a data set."""
        files = files_of(source.dataset, source.data_dir)
        return grouped("dataset", files_below(files[""]) if "" in files else files)

    def describe(self, data: Interactions) -> str:
        """Returns the numbers of users, items, interactions and examples."""
        sizes = f"{data.user_count} users, {data.item_count} items, {len(data.items)} interactions"
        parts = f"{len(data)} examples to train on, {len(data.validation)} to validate, {len(data.test)} to test"
        return "\n".join([f"{sizes}; {parts}", *data.notes])

    def known(self, recipe: S, data: Interactions) -> dict[str, Any]:
        """Returns the number of examples and the width of the embeddings."""
        return {"size": len(data), "dimension": recipe.hidden}

    def states(self, recipe: S, module: Any, data: Interactions, split: str) -> Ranker:
        """Returns a function from histories of a split, as a ranker has them, to their states [B, D]."""
        device = next(module.parameters()).device
        return lambda histories, lengths: module.encoder(histories.to(device), lengths.to(device))

    def scorer(self, module: Any) -> Any:
        """Returns the part of the module that scores items for states."""
        return module.encoder

    def ranker(self, recipe: S, module: Any, data: Interactions, split: str) -> Ranker:
        """Returns the module as a ranker of histories of a split."""
        states, scorer = self.states(recipe, module, data, split), self.scorer(module)
        return lambda histories, lengths: scorer.scores(states(histories, lengths))

    def save(self, recipe: S, module: Any, data: Interactions, output_dir: Path) -> None:
        """Writes the weights, and users and items with their names."""
        super().save(recipe, module, data, output_dir)
        write_tensors(output_dir / INTERACTIONS_FILE, data.saved())

    def kept(self, recipe: S, module: Any, data: Interactions) -> dict[str, Any]:
        """Returns where the names of users and items are, and how long a history is."""
        return {"preprocessing": {"max_length": recipe.max_length}, "users_and_items": INTERACTIONS_FILE}

    def restore(self, recipe: S, kept: Mapping[str, Any], folder: Path) -> nn.Module:
        """Returns the module of the folder with its interactions as ``data``."""
        file = inside(folder, kept["users_and_items"], "users_and_items of tempplug.json")
        try:
            data = Interactions.restored(read_tensors(file), recipe.max_length, recipe.validation_share)
        except (DataError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{file} cannot be read: {one_line(error)}") from error
        module: Any = self.build(recipe, data, None)
        load_weights(module.encoder, folder)
        module.data = data
        built: nn.Module = module
        return built

    def read(self, recipe: S, source: Source, split: str) -> Inputs:
        """Returns the histories of all users of a data set or a table, as names of items."""
        found = load_sequences(source.dataset, source.data_dir, recipe.columns)
        given = [[found.names[item - 1] for item in each] for each in found.histories]
        rows = sum(len(assigned.table) for assigned in found.tables)
        counted = f"{rows} rows are the histories of {len(given)} users, in the order of their first rows, with a vector each"
        return Inputs(given, found.users, notes=[counted, *found.notes])

    def embed(self, recipe: S, module: Any, given: Sequence[Sequence[object]]) -> Tensor:
        """Returns the states [n, D] after histories: lists of items by name, oldest first, of which the newest count."""
        data, states = module.data, self.states(recipe, module, module.data, "test")
        histories = [[numbered(data.item_numbers, item, "item") for item in each] for each in given]
        parts = range(0, len(histories), ROWS)
        return torch.cat([states(*data.padded(histories[first : first + ROWS])).cpu() for first in parts])

    def recommend(self, recipe: S, module: Any, users: Sequence[object], top: int) -> list[list[tuple[str, float]]]:
        """Returns the items that come next for each user by name, best first, with scores; those of the history are left out.

        Raises:
            UnknownNameError: there is no such user.
            NonFiniteError: a score is not finite.
        """
        data, ranker = module.data, self.ranker(recipe, module, module.data, "test")
        histories = [data.known(user) for user in users]
        found = []
        for first in range(0, len(histories), ROWS):
            part = data.padded(histories[first : first + ROWS])
            scores = ranker(*part).cpu().float()
            check_finite_rows(scores, "the scores of items", users[first : first + ROWS])
            scores = scores.scatter(1, part[0], -torch.inf)  # the padding among them
            scores[:, 0] = -torch.inf
            values, numbers = scores.topk(min(top, data.item_count), dim=1)
            for row, items in zip(values.tolist(), numbers.tolist(), strict=True):
                pairs = zip(row, items, strict=True)
                found.append([(data.names[item - 1], value) for value, item in pairs if value > -math.inf])
        return found

    def next_command(self, recipe: S, data: Interactions, folder: str, dataset: str) -> str:
        """Returns the command that recommends items to the first user."""
        return f"tempplug recommend {folder} {shell_flag('--user', data.users[0])} --top 10"

    def card(self, recipe: S, module: Any, data: Interactions, results: Mapping[str, Any]) -> Card:
        """Returns the text on recommenders."""
        command = self.next_command(recipe, data, FOLDER, "")
        return Card(
            about=f"A recommender of the next of {data.item_count} items: a history of items has a vector, and so has an item.",
            example=f"[{[str(data.names[0])]}]",
            use=f"The items that come next for a user of the training:\n\n{fenced('bash', command)}",
            metadata={"pipeline_tag": "other", "tags": ["recommendation"]},
        )

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
