"""Training data of SimCSE and MABEL: the views of a batch of sentences, pairs, or pairs with hard negatives, tokenised."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from pandas.util import hash_array  # type: ignore[import-untyped]
from torch import Tensor

from tempplug_adapters.data_files.roles import Assigned
from tempplug_adapters.data_files.text_rows import Sample, TextRows, flat_texts
from tempplug_adapters.huggingface.loading import load_tokenizer
from tempplug_adapters.huggingface.masked_tokens import NOT_PREDICTED
from tempplug_adapters.simcse.model import load_config

KEPT = 50_000  # the largest number of samples whose token ids stay in memory; larger data sets are tokenised batch by batch
CHUNK = 1000  # samples tokenised at a time where all are; larger chunks need more memory and are not faster
HARD_NEGATIVES: Final = 7
"""Hard negatives of a sample that a step reads at most, as BGE's groups of eight texts."""


class TokenizedViews:
    """The token ids of each sample's views, from a tokenizer that is called when they are first read; a single sentence becomes
    two views, which differ by dropout.

    The token ids of up to `KEPT` samples stay in memory.

    Args:
        samples: `TextRows`; or tuples of sentences, all of the same number.
        tokenizer: a fast or slow Hugging Face tokenizer.
        max_length: maximum number of tokens in a sentence, special ones included.
        hard_negatives: those of a sample that are read at a time, at most; they are drawn from more.

    Attributes:
        width: sentences per sample: 1, 2, or more with hard negatives.
        views: views per sample, at least 2.
        texts: the largest number of texts of a sample.
        uneven: whether samples have different texts, of which `draw` chooses; otherwise all have ``width`` texts.
    """

    def __init__(
        self,
        samples: Sequence[Sample] | Sequence[tuple[str, ...]],
        tokenizer: Any,
        max_length: int,
        hard_negatives: int = HARD_NEGATIVES,
    ) -> None:
        self.samples, self.tokenizer, self.max_length = samples, tokenizer, max_length
        self._kept: dict[tuple[int, int], array[int]] = {}
        if isinstance(samples, TextRows):
            positives, negatives = samples.most_positives, samples.most_negatives
            self.width = 1 + bool(positives) + min(hard_negatives, negatives) * bool(positives)
            self.uneven = bool(positives) and (samples.uneven or positives > 1 or negatives > hard_negatives)
            self.texts = 1 + positives + negatives
        else:
            self.width = self.texts = len(samples[0])
            self.uneven = False
        self.views = max(2, self.width)

    def __len__(self) -> int:
        return len(self.samples)

    def draw(self, positions: Sequence[int]) -> Tensor:
        """Returns the number of each view's text in its sample, [B, width] int64, -1 for a hard negative that there is not.

        Of several positives one is drawn, and of too many hard negatives some, from PyTorch's global generator.
        """
        if not self.uneven:
            return torch.arange(self.width).expand(len(positions), -1)
        drawn = torch.full((len(positions), self.width), -1)
        for row, position in enumerate(positions):
            sample: Any = self.samples[position]
            positives, negatives, room = len(sample.positives), len(sample.negatives), self.width - 2
            drawn[row, 0] = 0
            drawn[row, 1] = 1 + (torch.randint(positives, ()) if positives > 1 else 0)
            some = torch.randperm(negatives)[:room] if negatives > room else torch.arange(negatives)
            drawn[row, 2 : 2 + len(some)] = 1 + positives + some
        return drawn

    def scores(self, positions: Sequence[int], drawn: Tensor) -> Tensor:
        """Returns a teacher's scores of the texts that `draw` chose, [B, width - 1]; -inf for a missing hard negative."""
        found = torch.full((len(positions), self.width - 1), -torch.inf)
        for row, (position, numbers) in enumerate(zip(positions, drawn[:, 1:].tolist(), strict=True)):
            own: Any = self.samples[position]
            chosen = [own.scores[number - 1] for number in numbers if number > 0]
            found[row, : len(chosen)] = torch.tensor(chosen)
        return found

    def _tokens(self, wanted: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Returns the token ids of texts, each given by sample and number; those that are new are tokenised together."""
        new = list(dict.fromkeys(each for each in wanted if each not in self._kept))
        texts = {position: _texts(self.samples[position]) for position in dict.fromkeys(position for position, _ in new)}
        options = {"truncation": True, "max_length": self.max_length, "add_special_tokens": True}
        sentences = [texts[position][number] for position, number in new]
        ids: list[list[int]] = self.tokenizer(sentences, **options)["input_ids"] if sentences else []
        read = dict(zip(new, ids, strict=True))
        if len(self) <= KEPT:
            self._kept |= {each: array("i", tokens) for each, tokens in read.items()}
        return [read[each] if each in read else self._kept[each].tolist() for each in wanted]

    def rows(self, positions: Sequence[int], drawn: Tensor | None = None) -> list[list[list[int]]]:
        """Returns the token ids of each view of some samples, of the texts that `draw` chose; without missing ones."""
        chosen = (self.draw(positions) if drawn is None else drawn).tolist()
        numbered = zip(positions, chosen, strict=True)
        wanted = [[(position, number) for number in numbers if number >= 0] for position, numbers in numbered]
        tokens = iter(self._tokens([each for sample in wanted for each in sample]))
        samples = [[next(tokens) for _ in sample] for sample in wanted]
        return [sample * 2 for sample in samples] if self.width == 1 else samples

    @cached_property
    def keys(self) -> np.ndarray:
        """A number for each text of each sample, [n, K], int64; equal for equal token ids. Reads all samples.

        A sample with fewer texts than another has that of its anchor several times. Rows of a table are not tokenised for it if
        they are more than `KEPT`, which would take minutes: equal texts have the same number, in upper or lower case.
        """
        samples = self.samples
        parts: Iterable[tuple[np.ndarray, np.ndarray]]
        if isinstance(samples, TextRows) and len(self) > KEPT:
            parts = (text_hashes(samples, role, lower=True) for role in samples.roles)
        else:
            parts = [self._token_hashes()]
        keys, counts = np.zeros((len(self), self.texts), np.uint64), np.zeros(len(self), np.int32)
        for owner, hashes in parts:
            sizes = np.bincount(owner, minlength=len(self))
            place = np.arange(len(owner)) + np.repeat(counts - sizes.cumsum() + sizes, sizes)
            keys[owner, place] = hashes
            counts += sizes
        np.copyto(keys, keys[:, :1], where=np.arange(self.texts) >= counts[:, None])
        return keys[:, : counts.max()].view(np.int64)

    def _token_hashes(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns sample and hash of the token ids of each text, [m] int64 and uint64."""
        owner, hashes = array("q"), array("Q")
        for start in range(0, len(self), CHUNK):
            part = range(start, min(start + CHUNK, len(self)))
            wanted = [(position, number) for position in part for number in range(len(_texts(self.samples[position])))]
            owner.extend(position for position, _ in wanted)
            hashes.extend(
                int.from_bytes(hashlib.blake2b(array("i", tokens).tobytes(), digest_size=8).digest(), "little")
                for tokens in self._tokens(wanted)
            )
        return np.frombuffer(owner, np.int64), np.frombuffer(hashes, np.uint64)


def text_hashes(samples: TextRows, role: str, lower: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns sample and hash of each text of a role, [m] int64 and uint64, in the order of the samples.

    Args:
        samples: the samples.
        role: name of the role.
        lower: whether texts that differ in upper and lower case alone have equal hashes.
    """

    def hashed(texts: Any) -> np.ndarray:
        lowered = pc.utf8_lower(texts) if lower else texts
        hashes: np.ndarray = hash_array(lowered.to_numpy(zero_copy_only=False), categorize=False)
        return hashes

    table, names = samples.assigned.table, samples.assigned.columns.get(role, ())
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.uint64))]
    parts += [(rows.astype(np.int32), hashed(texts)) for rows, texts in flat_texts(table, names)]
    row, hashes = (np.concatenate(each) for each in zip(*parts, strict=True))
    if len(names) > 1:
        order = row.argsort(kind="stable")
        row, hashes = row[order], hashes[order]
    counts = np.bincount(row, minlength=len(table))
    del parts, row  # a tenth of the memory of a training on millions of rows
    starts, sizes = (counts.cumsum() - counts)[samples.rows], counts[samples.rows]
    if role == samples.roles[1] and len(samples.chosen):
        starts, sizes = starts + samples.chosen, np.ones_like(sizes)
    owner = np.repeat(np.arange(len(samples), dtype=np.int32), sizes)
    hashes = hashes[np.arange(len(owner)) + np.repeat(starts - sizes.cumsum() + sizes, sizes)]
    if samples.excluded and role != samples.roles[0]:
        kept = ~np.isin(hashes, hashed(pa.array(list(samples.excluded), pa.string())))
        owner, hashes = owner[kept], hashes[kept]
    return owner, hashes


def _texts(sample: Any) -> tuple[str, ...]:
    return sample.texts if isinstance(sample, Sample) else sample


class ViewCollator:
    """Pads the views of a batch into one matrix, view by view: all of view a, then all of view b, then hard negatives.

    Args:
        tokenizer: for its padding and mask tokens.
        mlm_probability: fraction of tokens to mask for the masked language model; None for no such inputs.
    """

    def __init__(self, tokenizer: Any, mlm_probability: float | None = None) -> None:
        self.tokenizer = tokenizer
        self.mlm_probability = mlm_probability

    def __call__(self, samples: list[list[list[int]]]) -> dict[str, Tensor]:
        """Returns ``input_ids`` and ``attention_mask`` [V·B, T], with masked tokens ``mlm_input_ids`` and ``mlm_labels``."""
        widest = max(map(len, samples))
        rows = [sample[view] for view in range(widest) for sample in samples if view < len(sample)]
        lengths = torch.tensor([len(ids) for ids in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        input_ids = torch.full(mask.shape, self.tokenizer.pad_token_id)
        input_ids[mask] = torch.tensor(list(chain.from_iterable(rows)))
        batch = {"input_ids": input_ids, "attention_mask": mask.long()}
        if self.mlm_probability is not None:
            batch["mlm_input_ids"], batch["mlm_labels"] = self._mask(batch["input_ids"], self.mlm_probability)
        return batch

    def _mask(self, input_ids: Tensor, probability: float) -> tuple[Tensor, Tensor]:
        """Masks as BERT does: of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay."""
        special = torch.isin(input_ids, torch.tensor(self.tokenizer.all_special_ids))
        chosen = (torch.rand(input_ids.shape) < probability) & ~special
        fate = torch.rand(input_ids.shape)
        masked = torch.where(chosen & (fate < 0.8), self.tokenizer.mask_token_id, input_ids)
        random_tokens = torch.randint(len(self.tokenizer), input_ids.shape)
        masked = torch.where(chosen & (fate >= 0.9), random_tokens, masked)
        return masked, torch.where(chosen, input_ids, NOT_PREDICTED)


class Sentences:
    """The training data with tokenizer, configuration and collator; ``len`` is the number of samples.

    Args:
        samples: see `TokenizedViews`.
        recipe: recipe of SimCSE or MABEL: gives the model, the maximum length and the masking.
        data_dir: folder of the evaluation data; None for the Hugging Face hub.
        dropout: dropout rate of the model; None for its own.

    Raises:
        ConfigError: the model's tokenizer or configuration cannot be loaded.
    """

    def __init__(
        self,
        samples: Sequence[Sample] | Sequence[tuple[str, ...]],
        recipe: Any,
        data_dir: Path | None,
        dropout: float | None = None,
    ) -> None:
        self.tokenizer = load_tokenizer(recipe.model_name_or_path)
        self.config = load_config(recipe.model_name_or_path, dropout)
        limit = getattr(recipe, "hard_negatives", None) or HARD_NEGATIVES
        self.views = TokenizedViews(samples, self.tokenizer, recipe.max_length, limit)
        self.tables: tuple[Assigned, ...] = (samples.assigned,) if isinstance(samples, TextRows) else ()
        self.notes = samples.notes if isinstance(samples, TextRows) else ()
        self.taught = getattr(recipe, "teacher_temperature", None) is not None
        self.collator = ViewCollator(self.tokenizer, recipe.mlm_probability if recipe.mlm_weight else None)
        self.kind = _kind(samples, self.views)
        self.data_dir = data_dir

    def __len__(self) -> int:
        return len(self.views)

    def batch(self, index: Tensor) -> dict[str, Any]:
        """Returns the padded views of the samples ``index``, [B], and a copy with masked tokens if the recipe needs it.

        Where samples have different texts, ``drawn`` is the result of `TokenizedViews.draw`. With a teacher, ``teacher`` has
        its scores.
        """
        positions = index.tolist()
        drawn = self.views.draw(positions)
        batch = {"index": index, **self.collator(self.views.rows(positions, drawn))}
        if self.taught:
            batch["teacher"] = self.views.scores(positions, drawn)
        return {**batch, "drawn": drawn} if self.views.uneven else batch


def _kind(samples: Sequence[Any], views: TokenizedViews) -> str:
    if not views.uneven and views.width <= 4:
        return ("sentences", "pairs", "triplets", "quadruples")[views.width - 1]
    rows: Any = samples
    parts = [f"up to {rows.most_positives} positives, of which each epoch draws one"] if rows.most_positives > 1 else []
    if rows.most_negatives:
        drawn = f", of which each epoch draws {views.width - 2}" if rows.most_negatives > views.width - 2 else ""
        parts.append(f"up to {rows.most_negatives} hard negatives{drawn}")
    return f"pairs, with {', and '.join(parts)}"
