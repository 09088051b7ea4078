"""Training data of SimCSE and MABEL: reads sentences, pairs or triplets, and tokenises and collates the views of a batch.

Every error in a file is a `DataError` with the file and the line.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tempplug.errors import ConfigError, DataError, nearest
from tempplug_adapters.huggingface.loading import load_tokenizer
from tempplug_adapters.huggingface.masked_tokens import NOT_PREDICTED
from tempplug_adapters.simcse.model import load_config

TABLES = (".tsv", ".csv", ".jsonl")
KEPT = 50_000  # the largest number of samples whose token ids stay in memory; larger data sets are tokenised batch by batch
CHUNK = 1000  # samples tokenised at a time where all are; larger chunks need more memory and are not faster


def read_samples(
    path: str | Path, columns: Sequence[str] = (), where: Sequence[str] = (), *, least: int = 2
) -> Iterator[tuple[str, ...]]:
    """Yields the samples of a file: each a tuple of one sentence, of a pair, or of a pair and a hard negative.

    The file is read lazily, so errors are raised during iteration.

    Args:
        path: ``.txt`` with one sentence a line (blank lines are skipped), or a table: ``.tsv`` (the first line contains the
            column names, nothing is quoted), ``.csv`` (header and standard quoting) or ``.jsonl``; each also with ``.gz``.
        columns: two or three column names of a table; by default all columns of a table that has two or three.
        where: conditions ``column=value``, all of which a row must meet.
        least: fewest samples; contrastive training needs two.

    Raises:
        DataError: the file is missing, not UTF-8, malformed, or contains a value that is not text; or fewer rows than
            ``least`` meet the conditions.
        ConfigError: a column does not exist, or columns are given for a file of sentences.
    """
    file = Path(path)
    suffix = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if suffix not in (".txt", *TABLES):
        raise DataError(f"{file}: the name must end in .txt, {', '.join(TABLES)}, or one of them and .gz.")
    if not file.is_file():
        raise DataError(f"{file} does not exist or is not a file.")
    if suffix == ".txt":
        if columns or where:
            raise ConfigError(f"columns and where belong to tables ({', '.join(TABLES)}), not to {file}.")
        found: Iterator[tuple[str, ...]] = ((line.strip(),) for _, line in _lines(file) if line.strip())
    else:
        found = _table_samples(file, suffix, list(columns), _conditions(where))
    number = 0
    for sample in found:
        number += 1
        yield sample
    if number < least:
        what = f" that meet {' and '.join(where)}" if where else ""
        needed = f"contrastive training needs at least {least}" if least > 1 else f"at least {least} is needed"
        raise DataError(f"{file} holds {number} samples{what}; {needed}.")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines without line ends, numbered from 1."""
    number = 0
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if "\0" in line:
                    raise DataError(f"{file}, line {number}: holds a NUL character; the file is damaged or not text.")
                yield number, line
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: not UTF-8 ({error.reason}).") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file}, after line {number}: not a complete gzip file ({error}).") from error
    except OSError as error:
        raise DataError(f"{file}, after line {number}: cannot be read: {error.strerror or error}.") from error


def _conditions(where: Sequence[str]) -> dict[str, str]:
    found = {}
    for condition in where:
        column, equals, value = condition.partition("=")
        if not equals or not column:
            raise ConfigError(f"where='{condition}' must be written column=value.")
        found[column] = value
    return found


def _table_samples(file: Path, suffix: str, columns: list[str], where: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for number, row in _json_rows(file) if suffix == ".jsonl" else _rows(file, quoted=suffix == ".csv"):
        if not columns:
            if len(row) not in (2, 3):
                raise ConfigError(f"{file} has the columns {', '.join(row)}: choose two or three of them with columns.")
            columns = list(row)
        for column in (*columns, *where):
            if column not in row:
                hint = f"{nearest(column, row)} It has: {', '.join(row)}."
                raise ConfigError(f"{file}, line {number}: no column '{column}'.{hint}")
        if all(row[column] == value for column, value in where.items()):
            sample = tuple(row[column].strip() for column in columns)
            if not all(sample):
                raise DataError(f"{file}, line {number}: column '{columns[sample.index('')]}' is empty.")
            yield sample


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields each object with its line number, as a mapping from key to text."""
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # the second is raised for deeply nested lists
            raise DataError(f"{file}, line {number}: not JSON ({getattr(error, 'msg', error)}).") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number}: must be a JSON object with one key a column.")
        yield number, {key: _json_text(f"{file}, line {number}: '{key}'", value) for key, value in row.items()}


def _json_text(what: str, value: Any) -> str:
    if isinstance(value, list | dict):
        raise DataError(f"{what} is a JSON {'list' if isinstance(value, list) else 'object'}; it must be text.")
    text = "" if value is None else str(value)
    # JSON escapes can encode both, and tokenizers reject the first
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(f"{what} holds half a surrogate pair, which is not a character.")
    if "\0" in text:
        raise DataError(f"{what} holds a NUL character.")
    return text


def _rows(file: Path, *, quoted: bool) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields each row with the number of its first line, as a mapping from column to text."""
    lines = (line + "\n" for _, line in _lines(file))
    reader = csv.reader(lines, strict=True) if quoted else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    header, first = None, 1
    try:
        for fields in reader:
            if header is None:
                header = fields
            elif fields:
                if len(fields) != len(header):
                    raise DataError(f"{file}, line {first}: {len(fields)} fields where the header names {len(header)}.")
                yield first, dict(zip(header, fields, strict=True))
            first = reader.line_num + 1
    except csv.Error as error:
        where = f" on line {reader.line_num}" if reader.line_num > first else ""
        raise DataError(f"{file}, in the row that begins on line {first}: {error}{where}; is a quote left open?") from error


class TokenizedViews:
    """The token ids of each sample's views, from a tokenizer that is called when they are first read; a single sentence becomes
    two views, which differ by dropout.

    The texts are stored in one array of bytes, the token ids of up to `KEPT` samples in memory.

    Args:
        samples: result of `read_samples`; all samples must have the same number of sentences.
        tokenizer: a fast or slow Hugging Face tokenizer.
        max_length: maximum number of tokens in a sentence, special ones included.

    Attributes:
        width: sentences per sample: 1, 2 or 3.
        views: views per sample: 2 or 3.
    """

    def __init__(self, samples: Iterable[tuple[str, ...]], tokenizer: Any, max_length: int) -> None:
        self.tokenizer, self.max_length, self.width = tokenizer, max_length, 1
        self._text, ends = bytearray(), array("q")
        for sample in samples:
            self.width = len(sample)
            for sentence in sample:
                self._text += sentence.encode()
                ends.append(len(self._text))
        self._ends = np.frombuffer(ends, np.int64)
        self._kept: dict[int, list[array[int]]] = {}
        self.views = max(2, self.width)

    def __len__(self) -> int:
        return len(self._ends) // self.width

    def _tokens(self, positions: Sequence[int]) -> list[list[list[int]]]:
        """Returns the token ids of the sentences of some samples; those that are new are tokenised together."""
        new = [position for position in positions if position not in self._kept]
        sentences = [position * self.width + number for position in new for number in range(self.width)]
        texts = [self._text[self._ends[each - 1] if each else 0 : self._ends[each]].decode() for each in sentences]
        options = {"truncation": True, "max_length": self.max_length, "add_special_tokens": True}
        ids: list[list[int]] = self.tokenizer(texts, **options)["input_ids"] if texts else []
        read = {position: ids[place * self.width : (place + 1) * self.width] for place, position in enumerate(new)}
        if len(self) <= KEPT:
            self._kept |= {position: [array("i", each) for each in sample] for position, sample in read.items()}
        return [read[each] if each in read else [ids.tolist() for ids in self._kept[each]] for each in positions]

    def rows(self, positions: Sequence[int]) -> list[list[list[int]]]:
        """Returns the token ids of each view of some samples."""
        return [sample * 2 if self.width == 1 else sample for sample in self._tokens(positions)]

    @cached_property
    def keys(self) -> np.ndarray:
        """A number for each sentence of each sample, [n, 1 to 3], int64; equal for equal token ids. Reads all samples."""
        numbers = [
            int.from_bytes(hashlib.blake2b(array("i", ids).tobytes(), digest_size=8).digest(), "little", signed=True)
            for start in range(0, len(self), CHUNK)
            for sample in self._tokens(range(start, min(start + CHUNK, len(self))))
            for ids in sample
        ]
        return np.array(numbers, np.int64).reshape(len(self), self.width)


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
        rows = [ids for view in zip(*samples, strict=True) for ids in view]
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
        samples: result of `read_samples`.
        recipe: recipe of SimCSE or MABEL: gives the model, the maximum length and the masking.
        data_dir: folder of the evaluation data; None for the Hugging Face hub.
        dropout: dropout rate of the model; None for its own.

    Raises:
        ConfigError: the model's tokenizer or configuration cannot be loaded.
    """

    def __init__(
        self, samples: Iterable[tuple[str, ...]], recipe: Any, data_dir: Path | None, dropout: float | None = None
    ) -> None:
        self.tokenizer = load_tokenizer(recipe.model_name_or_path)
        self.config = load_config(recipe.model_name_or_path, dropout)
        self.views = TokenizedViews(samples, self.tokenizer, recipe.max_length)
        self.collator = ViewCollator(self.tokenizer, recipe.mlm_probability if recipe.mlm_weight else None)
        self.kind = ("sentences", "pairs", "triplets", "quadruples")[self.views.width - 1]
        self.data_dir = data_dir

    def __len__(self) -> int:
        return len(self.views)

    def batch(self, index: Tensor) -> dict[str, Any]:
        """Returns the padded views of the samples ``index``, [B], and a copy with masked tokens if the recipe needs it."""
        return {"index": index, **self.collator(self.views.rows(index.tolist()))}
