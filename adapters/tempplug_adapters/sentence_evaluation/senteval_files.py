"""Reads and writes the files of SentEval's own data folder, ``downstream/MR/rt-polarity.pos`` and so on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tempplug.errors import DataError
from tempplug_adapters.data_files.archives import read_whole

Row = tuple[str, ...]
"""The label or score, then one or two sentences."""

TRANSFER_FILES = {
    ("MR", ""): ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    ("CR", ""): ("CR/custrev.pos", "CR/custrev.neg"),
    ("SUBJ", ""): ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    ("MPQA", ""): ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    ("SST2", "train"): ("SST/binary/sentiment-train",),
    ("SST2", "dev"): ("SST/binary/sentiment-dev",),
    ("SST2", "test"): ("SST/binary/sentiment-test",),
    ("TREC", "train"): ("TREC/train_5500.label",),
    ("TREC", "test"): ("TREC/TREC_10.label",),
    ("MRPC", "train"): ("MRPC/msr_paraphrase_train.txt",),
    ("MRPC", "test"): ("MRPC/msr_paraphrase_test.txt",),
}
"""Files by task and split, in ``downstream``. Of two files, the first contains the rows of class 1."""

_STS_FILES = {
    ("STSB", "dev"): ("STS/STSBenchmark/sts-dev.csv", (4, 5, 6)),
    ("STSB", "test"): ("STS/STSBenchmark/sts-test.csv", (4, 5, 6)),
    ("SICKR", "dev"): ("SICK/SICK_trial.txt", (3, 1, 2)),
    ("SICKR", "test"): ("SICK/SICK_test_annotated.txt", (3, 1, 2)),
}
_MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
_LATIN_1 = ("MR", "CR", "SUBJ", "MPQA", "TREC")


def senteval_folder(data_dir: str | Path) -> Path | None:
    """Returns ``data_dir/downstream`` if it is a folder, that is, if ``data_dir`` is SentEval's task path."""
    folder = Path(data_dir) / "downstream"
    return folder if folder.is_dir() else None


def read_transfer_files(folder: Path, task: str, split: str) -> Iterator[tuple[str, Row]]:
    """Yields the location and fields of each line, in SentEval's order; raises `DataError` for a missing file or a bad line."""
    files = TRANSFER_FILES[task, split]
    for number, file in enumerate(files):
        for place, line in _lines(folder / file, _encoding(task), task == "MRPC"):
            yield place, (str(1 - number), line) if len(files) == 2 else _fields(place, line, task)


def _encoding(task: str) -> str:
    return "latin-1" if task in _LATIN_1 else "utf-8"


def write_transfer_files(folder: Path, task: str, split: str, rows: Iterable[Row]) -> None:
    """Writes rows as SentEval's files.

    Args:
        folder: ``downstream``; missing folders are created.
        task: one of the transfer tasks.
        split: split of the task, empty for all rows.
        rows: the label, ``0``, ``1`` or a name of TREC's, then one or two sentences.

    Raises:
        DataError: a letter cannot be written in SentEval's encoding of that file.
    """
    files, rows = TRANSFER_FILES[task, split], list(rows)
    for number, name in enumerate(files):
        lines = [text[0] for label, *text in rows if label == str(1 - number)] if len(files) == 2 else _written(task, rows)
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.write_bytes("".join(f"{line}\n" for line in lines).encode(_encoding(task)))
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise DataError(f"{task} holds the letter {letter!r}, but SentEval reads {name} as {_encoding(task)}.") from error


def read_sts_files(folder: Path, task: str, subset: str, split: str) -> Iterator[tuple[str, Row]]:
    """Yields the location of each pair of a task, a subset of its year and a split, and its score and two sentences.

    Raises:
        DataError: a file is missing, or a line is malformed.
    """
    first, *others = sts_files(folder, task, subset, split)
    if not subset:
        columns = _STS_FILES[task, split][1]
        for place, line in _lines(first, "utf-8", task == "SICKR"):
            yield place, _chosen(place, line, columns)
        return
    pairs, scores = (list(_lines(file, "utf-8")) for file in (first, *others))
    if len(pairs) != len(scores):
        raise DataError(f"{first.parent} has {len(pairs)} pairs of {subset}, but {len(scores)} scores.")
    # Some years publish pairs without a score.
    for (place, line), (_, score) in zip(pairs, scores, strict=True):
        if score:
            yield place, (score, *_chosen(place, line, (0, 1)))


def sts_files(folder: Path, task: str, subset: str, split: str) -> tuple[Path, ...]:
    """Returns the files that `read_sts_files` reads; of two files, the second contains the scores."""
    if not subset:
        return (folder / _STS_FILES[task, split][0],)
    year = folder / "STS" / f"{task}-en-test"
    return year / f"STS.input.{subset}.txt", year / f"STS.gs.{subset}.txt"


def _lines(file: Path, encoding: str, header: bool = False) -> Iterator[tuple[str, str]]:
    try:
        text = read_whole(file).decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not {encoding} ({error.reason} at byte {error.start}).") from error
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    for number, line in enumerate(lines[header:], start=1 + header):
        yield f"{file}, line {number}", line


def _fields(place: str, line: str, task: str) -> Row:
    if task == "MRPC":
        return _chosen(place, line, (0, 3, 4))
    if task == "SST2":
        return _chosen(place, line.strip(), (1, 0))
    label, _, rest = line.strip().partition(":")
    _, space, text = rest.partition(" ")
    if not space:
        raise DataError(f"{place}: wanted LABEL:kind and a question, not {line[:40]!r}.")
    return label, text


def _chosen(place: str, line: str, columns: tuple[int, ...]) -> Row:
    fields = line.split("\t")
    if len(fields) <= max(columns):
        raise DataError(f"{place}: {len(fields)} tab-separated fields, wanted at least {max(columns) + 1}.")
    return tuple(fields[column].strip() for column in columns)


def _written(task: str, rows: list[Row]) -> list[str]:
    forms = {"SST2": "{1}\t{0}", "TREC": "{0}:any {1}", "MRPC": "{0}\t0\t0\t{1}\t{2}"}
    return [_MRPC_HEADER] * (task == "MRPC") + [forms[task].format(*row) for row in rows]
