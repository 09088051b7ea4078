"""The seven transfer tasks: their files, and sentences with classes in SentEval's order, which determines its folds.

The layout is ``MR.tsv.gz`` … ``TREC.test.tsv.gz``, gzipped or not, tables with ``label`` and ``text`` (MRPC: ``sentence1``,
``sentence2``), words separated by spaces; or SentEval's own data folder, which contains ``downstream``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tempplug.errors import DataError, UnknownNameError, nearest
from tempplug_adapters.data_files.corpus_files import find_folder, read_tsv
from tempplug_adapters.sentence_evaluation.senteval_files import TRANSFER_FILES, Row, read_transfer_files, senteval_folder


@dataclass(frozen=True, slots=True)
class TransferTask:
    """One of the seven tasks.

    Attributes:
        name: name in results and of its files.
        about: meaning of its classes.
        splits: names of its splits; MR, CR, SUBJ and MPQA have a single unnamed one, evaluated by cross-validation.
        classes: names of the labels, by class number.
        columns: columns of a file: the label, then one or two sentences.
    """

    name: str
    about: str
    splits: tuple[str, ...] = ("",)
    classes: tuple[str, ...] = ("0", "1")
    columns: tuple[str, ...] = ("label", "text")


_TASKS = (
    TransferTask("MR", "praise or blame of films"),
    TransferTask("CR", "praise or blame of products"),
    TransferTask("SUBJ", "statement or opinion"),
    TransferTask("MPQA", "positive or negative phrases"),
    TransferTask("SST2", "praise or blame of films", ("train", "dev", "test")),
    TransferTask("TREC", "kind of a question", ("train", "test"), ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")),
    TransferTask("MRPC", "paraphrase or not", ("train", "test"), columns=("label", "sentence1", "sentence2")),
)
TASKS = {task.name: task for task in _TASKS}
TRANSFER_TASKS = tuple(TASKS)


@dataclass(frozen=True, slots=True)
class Labelled:
    """One split of a task, sorted as in SentEval: by the number of words, then by class.

    Attributes:
        texts: one or two sentences per row.
        labels: class numbers.
    """

    texts: list[tuple[str, ...]]
    labels: list[int]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.labels)


def find_transfer_task(name: str) -> TransferTask:
    """Returns the task of that name; raises `UnknownNameError` for an unknown one."""
    if name not in TASKS:
        raise UnknownNameError(f"unknown transfer task '{name}'.{nearest(name, TASKS)} Known: {', '.join(TASKS)}.")
    return TASKS[name]


def load_transfer(name: str, data_dir: str | Path) -> dict[str, Labelled]:
    """Returns the splits of a task, each sorted as in SentEval; see `load_rows`."""
    return {split: _sorted(rows, find_transfer_task(name)) for split, rows in load_rows(name, data_dir).items()}


def load_rows(name: str, data_dir: str | Path) -> dict[str, list[Row]]:
    """Returns the splits ``train``, ``dev``, ``test`` of a task, or all rows under an empty name, in the order of its files.

    Args:
        name: one of `TRANSFER_TASKS`; SST2 trains on the phrases, as in SentEval.
        data_dir: the folder with the files, its parent with ``text/transfer`` or ``transfer``, or SentEval's.

    Raises:
        UnknownNameError: the task is unknown.
        DataError: a file is missing, empty or malformed.
    """
    task = find_transfer_task(name)
    if folder := senteval_folder(data_dir):
        found = {split: read_transfer_files(folder, name, split) for split in task.splits}
    else:
        tables = find_transfer_folder(data_dir)
        found = {split: _table(task, tables, split) for split in task.splits}
    return {split: [_checked(task, place, row) for place, row in rows] for split, rows in found.items()}


def files_of(name: str, data_dir: str | Path) -> list[Path]:
    """Returns the files that `load_rows` reads."""
    task = find_transfer_task(name)
    if folder := senteval_folder(data_dir):
        return [folder / file for split in task.splits for file in TRANSFER_FILES[name, split]]
    return [_wanted(find_transfer_folder(data_dir), task, split) for split in task.splits]


def find_transfer_folder(data_dir: str | Path) -> Path:
    """Returns ``data_dir``, its ``text/transfer`` or its ``transfer``: the first with a task; `DataError` without one."""

    def holds(folder: Path) -> bool:
        return any(_file(folder, task, split) for task in _TASKS for split in task.splits)

    return find_folder(data_dir, "transfer", "the files MR.tsv.gz …", holds)


def _stem(task: TransferTask, split: str) -> str:
    part = "SST2_phrases" if (task.name, split) == ("SST2", "train") else task.name
    return f"{part}.{split}" if split else part


def _file(folder: Path, task: TransferTask, split: str) -> Path | None:
    files = (folder / f"{_stem(task, split)}.tsv{packed}" for packed in ("", ".gz"))
    return next((file for file in files if file.is_file()), None)


def _wanted(folder: Path, task: TransferTask, split: str) -> Path:
    file = _file(folder, task, split)
    if file is None:
        raise DataError(f"{folder} has no {_stem(task, split)}.tsv or {_stem(task, split)}.tsv.gz, which {task.name} needs.")
    return file


def _table(task: TransferTask, folder: Path, split: str) -> Iterator[tuple[str, Row]]:
    return ((place, tuple(row)) for place, row in read_tsv(_wanted(folder, task, split), task.columns))


def _checked(task: TransferTask, place: str, row: Row) -> Row:
    label, *texts = row
    if label not in task.classes:
        raise DataError(f"{place}: label '{label}' is none of {', '.join(task.classes)}.")
    return label, *(" ".join(text.split()) for text in texts)


def _sorted(rows: list[Row], task: TransferTask) -> Labelled:
    numbered = [(task.classes.index(label), texts) for label, *texts in rows]
    numbered.sort(key=lambda row: (*(len(text.split()) for text in row[1]), row[0]))
    # SentEval's encoders get a full stop for a text without words
    return Labelled([tuple(text or "." for text in texts) for _, texts in numbered], [label for label, _ in numbered])
