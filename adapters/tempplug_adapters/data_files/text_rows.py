"""Rows of texts: an anchor, and perhaps positives and hard negatives, from a table or from a file of one text a line.

The texts stay in the mapped table and are read by position, so that millions of rows need little memory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from tempplug.errors import ConfigError, DataError, nearest, quoted
from tempplug_adapters.data_files.column_kinds import is_text
from tempplug_adapters.data_files.delimited_text import first_rows
from tempplug_adapters.data_files.roles import TEXT, Assigned, Role, assign
from tempplug_adapters.data_files.tables import Table, open_lines, open_table
from tempplug_adapters.data_files.text_roles import GRADES, LINES, TEACHER, TEXTS, texts_of
from tempplug_adapters.data_files.text_streams import file_kind

_TOGETHER: Final = 1 << 12
"""Rows that are read together where all are."""


class Sample(NamedTuple):
    """The texts of a row.

    Attributes:
        anchor: its first text, which may be its only one.
        positives: texts that belong to the anchor.
        negatives: its hard negatives.
        scores: a teacher's, of each positive and then of each hard negative; none if they are not read.
    """

    anchor: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All of its texts."""
        return (self.anchor, *self.positives, *self.negatives)


@dataclass(frozen=True, eq=False)
class TextRows(Sequence[Sample]):
    """The samples of a table, read by position.

    Attributes:
        assigned: the table with its columns by role.
        roles: names of the roles of anchors, positives and hard negatives.
        rows: [n] positions in the table.
        positive_counts: [N] positives of each row of the table.
        negative_counts: [N] hard negatives, likewise.
        chosen: [n] number of the positive of each sample; empty if a sample has all of its row.
        excluded: texts that are neither positives nor negatives.
        notes: what was left out, and why.
    """

    assigned: Assigned
    roles: tuple[str, str, str]
    rows: np.ndarray
    positive_counts: np.ndarray
    negative_counts: np.ndarray
    chosen: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    excluded: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, position: int) -> Sample: ...
    @overload
    def __getitem__(self, position: slice) -> TextRows: ...
    def __getitem__(self, position: int | slice) -> Sample | TextRows:
        if isinstance(position, slice):
            return self.taken(np.arange(len(self))[position])
        return self._samples(np.array([position]))[0]

    def __iter__(self) -> Iterator[Sample]:
        # rows near each other are read together, which is several times faster
        for start in range(0, len(self), _TOGETHER):
            positions = np.arange(start, min(start + _TOGETHER, len(self)))
            near = np.ptp(self.rows[positions]) < 100 * _TOGETHER
            for several in [positions] if near else positions[:, None]:
                yield from self._samples(several)

    def _samples(self, positions: np.ndarray) -> list[Sample]:
        """Returns the samples at some positions, [m] int64, whose rows are near each other."""
        rows = self.rows[positions]
        first, count = int(rows.min()), int(np.ptp(rows)) + 1
        local, texts = pa.array(rows - first), list[list[tuple[str, ...]]]()
        for role in self.roles:
            columns = [self.assigned.table.column(name).slice(first, count) for name in self.assigned.columns.get(role, ())]
            columns = [column.take(local) for column in columns] if len(rows) > 1 else columns
            cells = zip(*(column.to_pylist() for column in columns), strict=True)
            of_role = [tuple(text.strip() for value in values for text in texts_of(value)) for values in cells]
            texts.append(of_role if columns else [()] * len(rows))
        anchors, positives, negatives = texts
        of_positives, of_negatives = (self._scores(role, first, count, local) for role in TEACHER)
        if len(self.chosen):
            numbers = self.chosen[positions].tolist()
            positives = [(each[number],) for each, number in zip(positives, numbers, strict=True)]
            of_positives = [each[number : number + 1] for each, number in zip(of_positives, numbers, strict=True)]
        samples = []
        for (anchor,), own, hard, scores, hard_scores in zip(
            anchors, positives, negatives, of_positives, of_negatives, strict=True
        ):
            left, left_hard = ([text not in self.excluded for text in each] for each in (own, hard))
            own_scores = (*compress(scores, left), *compress(hard_scores, left_hard))
            samples.append(Sample(anchor, tuple(compress(own, left)), tuple(compress(hard, left_hard)), own_scores))
        return samples

    def _scores(self, role: Role, first: int, count: int, local: Any) -> list[tuple[float, ...]]:
        """Returns a teacher's scores of some rows; none where its columns are not read."""
        if role.name not in self.assigned:
            return [()] * len(local)
        column = self.assigned.table.column(self.assigned.column(role.name)).slice(first, count)
        return [tuple(scores or ()) for scores in column.take(local).to_pylist()]

    def taken(self, positions: np.ndarray) -> TextRows:
        """Returns the samples at some positions, [m] int64."""
        return replace(self, rows=self.rows[positions], chosen=self.chosen[positions] if len(self.chosen) else self.chosen)

    def without(self, texts: frozenset[str], notes: tuple[str, ...]) -> TextRows:
        """Returns the samples without some texts as positives and hard negatives."""
        return replace(self, excluded=texts, notes=notes)

    @property
    def most_positives(self) -> int:
        """The largest number of positives of a sample."""
        return 1 if len(self.chosen) else int(self.positive_counts[self.rows].max(initial=0))

    @property
    def most_negatives(self) -> int:
        """The largest number of hard negatives of a sample, before those that are excluded."""
        return int(self.negative_counts[self.rows].max(initial=0))

    @property
    def uneven(self) -> bool:
        """Whether samples may differ in the number of their texts."""
        counts = [self.negative_counts] if len(self.chosen) else [self.positive_counts, self.negative_counts]
        return bool(self.excluded) or any(len(np.unique(each[self.rows])) > 1 for each in counts)

    def paired(self) -> TextRows:
        """Returns a sample for each positive of each row."""
        counts = self.positive_counts[self.rows]
        first = np.repeat(counts.cumsum() - counts, counts)
        return replace(self, rows=np.repeat(self.rows, counts), chosen=np.arange(counts.sum()) - first)


def open_texts(
    path: str | Path,
    columns: Sequence[str] = (),
    where: Sequence[str] = (),
    *,
    min_score: float | None = None,
    teacher: bool = False,
    roles: Sequence[Role] = TEXTS,
    whole: bool = False,
    least: int = 2,
    most: int | None = None,
) -> TextRows:
    """Returns the rows of a file.

    Args:
        path: ``.txt`` with one text a line, without the blank lines; or a table, see `open_table`, also one of the hub.
        columns: ``role=column`` or plain names, see `assign`.
        where: conditions ``column=value``, all of which a row must meet.
        min_score: lowest score, or label that is a number, of a positive pair.
        teacher: whether to read the scores of a teacher, which must be there of every text.
        roles: those of anchors, positives and hard negatives, and others, see `text_roles`; some may be required.
        whole: whether a missing text is an error, because results have a row for each row; otherwise it is left out.
        least: fewest rows; contrastive training needs two.
        most: rows that are used at most, the first ones; None: all.

    Raises:
        DataError: the file is missing or malformed, or too few rows are left.
        ConfigError: the columns are not clear, or grade the pairs and no grade is chosen; or a flag goes with tables only.
    """
    path = Path(path)
    if file_kind(path) == ".txt":
        if columns or where or min_score is not None:
            raise ConfigError(f"columns, where and min_score belong to tables (.csv, .jsonl, .parquet …), not to {path}.")
        _refuse_table(path, roles)
        assigned = assign(open_lines(path), LINES)
    else:
        first = None if where or min_score is not None else most
        table = open_table(path, hub=True, rows=first)
        assigned = assign(table, roles, columns)
    table, (anchor, positive, negative) = assigned.table, (role.name for role in roles[:3])
    if roles[1].required and positive not in assigned:
        raise DataError(f"{path} contains single texts; wanted are pairs, a table with columns for {anchor} and {positive}.")
    if negative in assigned and positive not in assigned and not whole:
        raise ConfigError(
            f"{path}: {quoted(assigned.column(negative))} is a hard {negative}, but no column is the {positive}. Name it: "
            f"{roles[1].option('COLUMN')}; or take the texts alone: --columns {shlex.quote(assigned.column(anchor))}. It has: "
            f"{table.described()}."
        )
    kept, notes = _met(table, where)
    if positive in assigned:
        graded, more = _graded(assigned, min_score, bool(columns or where or whole))
        kept, notes = kept & graded, [*notes, *more]
    counts = {role: _counts(table, assigned.columns.get(role, ())) for role in (anchor, positive, negative)}
    for role in (anchor, positive) if positive in assigned else (anchor,):
        lacking = kept & (counts[role] == 0)
        if lacking.any():
            place = table.place(int(lacking.argmax())).removeprefix(f"{path}, ")
            said = f"{lacking.sum():,} of {len(table):,} rows have no {role}, {place} first"
            if whole:
                other = f" Or name the columns that all rows have: --columns {shlex.quote(assigned.column(anchor))}."
                raise DataError(
                    f"{path}: {said}: remove them, or fill them in, so that each row has a vector.{other * (role == positive)}"
                )
            kept, notes = kept & (counts[role] > 0), [*notes, f"left out: {said}"]
    if teacher:
        _check_scores(assigned, kept, (counts[positive], counts[negative]))
    used = {
        *counts,
        *((role.name for role in TEACHER) if teacher else ()),
        *(GRADES if min_score is not None else ()),
        *(("id",) if whole else ()),
    }
    assigned, positions = assigned.of(used), np.flatnonzero(kept)[:most]
    rows = TextRows(assigned, (anchor, positive, negative), positions, counts[positive], counts[negative], notes=tuple(notes))
    if len(rows) < least:
        what = f" that meet {' and '.join(where)}" if where else ""
        needed = f"contrastive training needs at least {least}" if least > 1 else f"at least {least} is needed"
        raise DataError(f"{path} holds {len(rows)} samples{what}; {needed}." + "".join(f" {note}." for note in notes))
    return rows


def _check_scores(assigned: Assigned, kept: np.ndarray, counts: tuple[np.ndarray, np.ndarray]) -> None:
    """Raises `DataError` unless each positive and each hard negative of the kept rows has a finite score."""
    table = assigned.table
    if not counts[1][kept].any():
        raise DataError(f"{table.path} has no hard negatives, and a teacher's scores rank several texts of a query.")
    for role, texts in zip(TEACHER, counts, strict=True):
        if role.name not in assigned:
            raise DataError(
                f"{table.path} lacks a teacher's {role.name}, lists of numbers. Name their column: {role.option('COLUMN')}. It "
                f"has: {table.described()}."
            )
        column = table.column(assigned.column(role.name))
        numbers, start = np.zeros(len(table), np.int64), 0
        for chunk in column.chunks:
            finite = np.asarray(pc.fill_null(pc.is_finite(chunk.flatten().cast(pa.float64())), False))
            np.add.at(numbers, start + np.asarray(pc.list_parent_indices(chunk))[finite], 1)
            start += len(chunk)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        wrong = kept & ((numbers != texts) | (lengths != texts))
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"{table.place(row)}: column {quoted(assigned.column(role.name))} has {lengths[row]} scores, of which "
                f"{numbers[row]} are finite numbers, for {texts[row]} texts; a teacher needs one for each."
            )


def _refuse_table(path: Path, roles: Sequence[Role]) -> None:
    """Raises `DataError` if a file of lines begins with the header of a table."""
    header = (first_rows(path) or [[]])[0]
    if len(header) > 1 and all(any(role.is_usual(name) for role in roles) for name in header):
        raise DataError(f"{path} begins with the header of a table ({', '.join(header)}): call it .tsv or .csv, not .txt.")


def flat_texts(table: Table, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields the row of each text that is not blank in some columns, [m] int64, and the texts without blanks around them."""
    for name in names:
        start = 0
        for chunk in table.column(name).chunks:
            single = is_text(chunk.type)
            rows = np.arange(len(chunk)) if single else pc.list_parent_indices(chunk).to_numpy()
            # the cast is for lists that are all empty
            texts = pc.utf8_trim_whitespace((chunk if single else chunk.flatten()).cast(pa.string()))
            filled = pc.fill_null(pc.not_equal(texts, ""), False)
            yield start + rows[filled.to_numpy(zero_copy_only=False)], texts.filter(filled)
            start += len(chunk)


def _counts(table: Table, names: Sequence[str]) -> np.ndarray:
    """Returns the number of texts of each row in some columns, [N] int32."""
    counts = np.zeros(len(table), np.int32)
    for rows, _ in flat_texts(table, names):
        np.add.at(counts, rows, 1)
    return counts


def _met(table: Table, where: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Returns which rows meet all conditions, [N] bool, and a note if there are any."""
    kept = np.ones(len(table), bool)
    for condition in where:
        column, equals, value = condition.partition("=")
        if not equals or not column:
            raise ConfigError(f"where='{condition}' must be written column=value.")
        if column not in table.names:
            hint = f"{nearest(column, table.names)} It has: {', '.join(table.names)}."
            raise ConfigError(f"where: {table.path} has no column {quoted(column)}.{hint}")
        kept &= np.asarray(pc.fill_null(pc.equal(table.column(column).cast(pa.string()), value), False))
    return kept, [f"{kept.sum():,} of {len(table):,} rows meet {' and '.join(where)}"] if where else []


def _graded(assigned: Assigned, min_score: float | None, declared: bool) -> tuple[np.ndarray, list[str]]:
    """Returns which pairs are positive by their score or label, [N] bool.

    Raises:
        ConfigError: they differ and it is not declared which are positive, or there is no score, or several.
    """
    table = assigned.table
    grades = [(role, name) for role in GRADES for name in assigned.columns.get(role, ())]
    if min_score is not None:
        if not grades:
            raise ConfigError(f"min_score={min_score:g}: {table.path} has no score. It has: {table.described()}.")
        role, name = grades[0]
        if len(assigned.columns[role]) > 1:
            several = " or ".join(map(quoted, assigned.columns[role]))
            raise ConfigError(f"min_score={min_score:g}: of {several} in {table.path}, name one: --columns {role}={name}.")
        kept = table.numbers(name).astype(float) >= min_score
        return kept, [f"{kept.sum():,} of {len(table):,} pairs have a {role} of at least {min_score:g}"]
    for role, name in () if declared else grades:
        different = pc.unique(table.column(name)).drop_null()
        if len(different) > 1:
            example = different[0].as_py()
            flag = f"--where {shlex.quote(f'{name}={example}')}" if table.kind(name) == TEXT else "--min-score N"
            if re.fullmatch(r"[\d.,]+", str(example)) and table.kind(name) == TEXT:
                flag = f"--min-score N after you write {name} with decimal points"
            pair = shlex.join(names[0] for names in list(assigned.columns.values())[:2])
            raise ConfigError(
                f"{table.path}: the pairs differ in their {role}, column {quoted(name)} (such as {quoted(str(example))} and "
                f"{quoted(str(different[1].as_py()))}), and only some may be positive. Choose them, {flag}, or take all: "
                f"--columns {pair}."
            )
    return np.ones(len(table), bool), []
