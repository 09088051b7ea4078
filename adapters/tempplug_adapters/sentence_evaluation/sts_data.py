"""The seven STS data sets: their files, and reading them from a folder or from the Hugging Face hub.

The layout is ``STS12/MSRpar.tsv`` … ``STSB/test.tsv``: UTF-8, tabs, a header with ``score``, ``sentence1`` and ``sentence2``,
nothing quoted; or SentEval's own data folder, which contains ``downstream``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tempplug.errors import ConfigError, DataError, unknown
from tempplug_adapters.data_files.corpus_files import find_folder, read_tsv
from tempplug_adapters.sentence_evaluation.senteval_files import read_sts_files, senteval_folder, sts_files

COLUMNS = ("score", "sentence1", "sentence2")


@dataclass(frozen=True, slots=True)
class StsTask:
    """One of the seven data sets.

    Attributes:
        name: its folder, and its name in results.
        hub: its repository on the Hugging Face hub.
        revision: the commit of that repository.
        hub_splits: the hub's name of each split that it has.
    """

    name: str
    hub: str
    revision: str
    hub_splits: Mapping[str, str] = field(default_factory=lambda: {"test": "test"})

    @property
    def subsets(self) -> tuple[str, ...]:
        """The parts of its test set, a file each; empty if the splits are files."""
        return _SUBSETS.get(self.name, ())

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be evaluated."""
        return ("test",) if self.subsets else ("test", "dev")

    def files(self, split: str) -> tuple[str, ...]:
        """Returns the files of a split in the folder of the data set; raises `ConfigError` for an unknown split."""
        if split not in self.splits:
            raise ConfigError(f"split='{split}' of {self.name} does not exist; it has {' and '.join(self.splits)}.")
        return tuple(f"{subset}.tsv" for subset in self.subsets) or (f"{split}.tsv",)


_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    # Without the SMT part, whose sentences are not free to distribute: the usual protocol leaves it out.
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_TASKS = (
    StsTask("STS12", "mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384"),
    StsTask("STS13", "mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    StsTask("STS14", "mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    StsTask("STS15", "mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
    StsTask("STS16", "mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513"),
    StsTask("STSB", "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", {"test": "test", "dev": "validation"}),
    StsTask("SICKR", "mteb/sickr-sts", "20a6d6f312dd54037fe07a32d58e5e168867909d"),
)
TASKS = {task.name: task for task in _TASKS}
STS_TASKS = tuple(TASKS)


@dataclass(frozen=True, slots=True)
class StsPairs:
    """Pairs of sentences with the similarity that annotators gave them.

    Attributes:
        sentences_a: the first sentence of each pair.
        sentences_b: the second.
        scores: the gold similarity, 0 to 5 (SICK-R: 1 to 5).
    """

    sentences_a: list[str]
    sentences_b: list[str]
    scores: list[float]

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.scores)


def find_task(name: str) -> StsTask:
    """Returns the data set of that name; raises `UnknownNameError` for an unknown one."""
    if name not in TASKS:
        raise unknown("STS task", name, TASKS)
    return TASKS[name]


def load_sts(name: str, data_dir: str | Path | None = None, split: str = "test") -> StsPairs:
    """Returns the pairs of one data set, the subsets of a year concatenated; see `load_sts_subsets`."""
    parts = load_sts_subsets(name, data_dir, split).values()
    return StsPairs(*([entry for part in parts for entry in getattr(part, side)] for side in StsPairs.__slots__))


def load_sts_subsets(name: str, data_dir: str | Path | None = None, split: str = "test") -> dict[str, StsPairs]:
    """Returns the pairs of each subset of a year in order, or all pairs under an empty name.

    Args:
        name: one of `STS_TASKS`.
        data_dir: the folder with the data sets, its parent with ``text/sts`` or ``sts``, or SentEval's; ``None`` loads from the
            Hugging Face hub, whose texts are not tokenised as SentEval's, and whose SICK-R is all of SICK.
        split: ``test``, or ``dev`` for STSB and SICKR.

    Raises:
        UnknownNameError: there is no such data set.
        ConfigError: the data set has no such split.
        DataError: a file is missing, empty or malformed, or the hub cannot be reached.
    """
    task = find_task(name)
    task.files(split)  # raises for an unknown split
    if data_dir is None:
        return {"": _load_from_hub(task, split)}
    subsets = task.subsets or ("",)
    if folder := senteval_folder(data_dir):
        return {subset: _pairs(read_sts_files(folder, name, subset, split)) for subset in subsets}
    tables = zip(subsets, files_of(name, data_dir, split), strict=True)
    return {subset: _pairs(read_tsv(file, COLUMNS)) for subset, file in tables}


def files_of(name: str, data_dir: str | Path, split: str = "test") -> list[Path]:
    """Returns the files that `load_sts` reads."""
    task = find_task(name)
    if folder := senteval_folder(data_dir):
        return [file for subset in task.subsets or ("",) for file in sts_files(folder, name, subset, split)]
    return [find_sts_folder(data_dir) / task.name / file for file in task.files(split)]


def find_sts_folder(data_dir: str | Path) -> Path:
    """Returns ``data_dir``, its ``text/sts`` or its ``sts``: the first with a data set; raises `DataError` without any."""
    wanted = f"the folders {', '.join(STS_TASKS)}"
    return find_folder(data_dir, "sts", wanted, lambda folder: any((folder / name).is_dir() for name in STS_TASKS))


def _pairs(rows: Iterable[tuple[str, Sequence[object]]]) -> StsPairs:
    checked = [_checked(place, *row) for place, row in rows]
    return StsPairs([a for _, a, _ in checked], [b for _, _, b in checked], [score for score, _, _ in checked])


def _checked(place: str, score: object, sentence_a: object, sentence_b: object) -> tuple[float, str, str]:
    """Returns a pair whose score is finite and whose sentences are not blank."""
    number = math.nan
    with suppress(ValueError):
        number = float(str(score))
    if not math.isfinite(number):
        raise DataError(f"{place}: score {str(score)[:40]!r} is not a finite number.")
    for column, sentence in (("sentence1", sentence_a), ("sentence2", sentence_b)):
        if not isinstance(sentence, str) or not sentence.strip():
            raise DataError(f"{place}: {column} is empty.")
    return number, str(sentence_a), str(sentence_b)


def _load_from_hub(task: StsTask, split: str) -> StsPairs:
    from datasets import load_dataset  # type: ignore[import-untyped]

    remedy = f"Pass the folder that holds {task.name} as data_dir (--data-dir or TEMPPLUG_DATA)."
    hub_split = task.hub_splits.get(split)
    if hub_split is None:
        raise DataError(f"{task.hub} on the Hugging Face hub has no {split} split. {remedy}")
    try:
        rows = load_dataset(task.hub, revision=task.revision, split=hub_split)
        columns = [list(rows[column]) for column in COLUMNS]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{task.hub}, {hub_split}, cannot be loaded from the Hugging Face hub: {error}. {remedy}") from error
    if not columns[0]:
        raise DataError(f"{task.hub}, {hub_split}, holds no pairs. {remedy}")
    rows = enumerate(zip(*columns, strict=True), start=1)
    return _pairs((f"{task.hub}, {hub_split}, row {number}", row) for number, row in rows)
