"""The seven transfer tasks: their files, and sentences with classes in SentEval's order, which determines its folds.

The layout is ``MR.tsv.gz`` … ``TREC.test.tsv.gz``, gzipped or not, tables with ``label`` and ``text`` (MRPC: ``sentence1``,
``sentence2``), words separated by spaces; or SentEval's own data folder, which contains ``downstream``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tempplug.errors import DataError, unknown
from tempplug_adapters.data_files.corpus_files import find_folder, read_tsv
from tempplug_adapters.sentence_evaluation.senteval_files import TRANSFER_FILES, Row, read_transfer_files, senteval_folder


@dataclass(frozen=True, slots=True)
class TransferTask:
    """One of the seven tasks.

    Attributes:
        name: name in results and of its files.
        splits: names of its splits; MR, CR, SUBJ and MPQA have a single unnamed one, evaluated by cross-validation.
        classes: names of the labels, by class number.
        columns: columns of a file: the label, then one or two sentences.
    """

    name: str
    splits: tuple[str, ...] = ("",)
    classes: tuple[str, ...] = ("0", "1")
    columns: tuple[str, ...] = ("label", "text")


_TASKS = (
    *map(TransferTask, ("MR", "CR", "SUBJ", "MPQA")),
    TransferTask("SST2", ("train", "dev", "test")),
    TransferTask("TREC", ("train", "test"), ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")),
    TransferTask("MRPC", ("train", "test"), columns=("label", "sentence1", "sentence2")),
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
        raise unknown("transfer task", name, TASKS)
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
    rows: dict[str, Iterator[tuple[str, Sequence[str]]]]
    if folder := senteval_folder(data_dir):
        rows = {split: read_transfer_files(folder, name, split) for split in task.splits}
    else:
        tables = zip(task.splits, files_of(name, data_dir), strict=True)
        rows = {split: read_tsv(file, task.columns) for split, file in tables}
    return {split: [_checked(task, place, row) for place, row in of_split] for split, of_split in rows.items()}


def files_of(name: str, data_dir: str | Path) -> list[Path]:
    """Returns the files that `load_rows` reads."""
    task = find_transfer_task(name)
    if folder := senteval_folder(data_dir):
        return [folder / file for split in task.splits for file in TRANSFER_FILES[name, split]]
    folder = find_transfer_folder(data_dir)
    files = {_stem(task, split): _file(folder, task, split) for split in task.splits}
    for stem, file in files.items():
        if file is None:
            raise DataError(f"{folder} has no {stem}.tsv or {stem}.tsv.gz, which {name} needs.")
    return list(filter(None, files.values()))


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


def _checked(task: TransferTask, place: str, row: Sequence[str]) -> Row:
    label, *texts = row
    if label not in task.classes:
        raise DataError(f"{place}: label '{label}' is none of {', '.join(task.classes)}.")
    return label, *(" ".join(text.split()) for text in texts)


def _sorted(rows: list[Row], task: TransferTask) -> Labelled:
    numbered = [(task.classes.index(label), texts) for label, *texts in rows]
    numbered.sort(key=lambda row: (*(len(text.split()) for text in row[1]), row[0]))
    # SentEval's encoders get a full stop for a text without words
    return Labelled([tuple(text or "." for text in texts) for _, texts in numbered], [label for label, _ in numbered])
