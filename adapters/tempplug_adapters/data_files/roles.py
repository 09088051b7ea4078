"""Which column of a table is what: the only place where a column becomes a role. Needs no pyarrow.

A column is given by name, or has one of the usual names of its role, or is the only one of its kind. Else the table is refused,
with its columns and the flag to give. Nothing is decided by position.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tempplug.errors import ConfigError, nearest, quoted

if TYPE_CHECKING:
    from tempplug_adapters.data_files.tables import Table

TEXT: Final = "text"
TEXTS: Final = "list of texts"
NUMBER: Final = "number"
INTEGER: Final = "integer"
CATEGORY: Final = "category"
TIME: Final = "time"
IMAGE: Final = "image"
VECTOR: Final = "vector"
MISSING: Final = "missing"
LISTED: Final = "list written as text"
OTHER: Final = "object"
ANY: Final = (TEXT, INTEGER, NUMBER, CATEGORY, TIME)
"""Kinds of an id or a class."""
UNNAMED: Final = re.compile(r"|unnamed: ?\d+|__index_level_\d+__", re.IGNORECASE)
"""Names of columns without one, such as pandas' row numbers."""
_NUMBER: Final = re.compile(r"[+-]?\d+([.,]\d+)?")
_REMEDIES: Final = {
    LISTED: "Write the lists as JSON lines or parquet, which keep them",
    OTHER: "Write its texts alone, as a list",
}
"""Of kinds that no role of texts can have; others are of columns that mean something else."""
_EACH: Final = 9
"""Columns of a role, at most, that have a line each in messages."""


@dataclass(frozen=True)
class Role:
    """What a modality reads of a table.

    Attributes:
        name: in flags and messages.
        kinds: of columns that may have it.
        names: usual names of its columns; upper and lower case, ``_``, ``-`` and blanks are the same.
        many: whether several columns may have it, in the order of the file or of the numbers after their names.
        required: whether a table without it is refused.
        flag: of the command line, which takes the name of the column; empty: ``--columns`` with ``role=column``.
    """

    name: str
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    many: bool = False
    required: bool = True
    flag: str = ""

    @property
    def of_texts(self) -> bool:
        """Whether only texts can have the role."""
        return set(self.kinds) <= {TEXT, TEXTS}

    def option(self, column: str) -> str:
        """Returns how the command line names a column of the role."""
        return f"{self.flag} {shlex.quote(column)}" if self.flag else f"--columns {shlex.quote(f'{self.name}={column}')}"

    def is_usual(self, column: str) -> bool:
        """Returns whether a column has a usual name of the role, where several may also with a number behind."""
        plain = _plain(column)
        names = {_plain(name) for name in self.names}
        return plain in names or (self.many and re.sub(r"\d+$", "", plain) in names)


@dataclass(frozen=True)
class Assigned:
    """A table with the columns of each role.

    Attributes:
        table: the table.
        columns: names of the columns, by role; roles without one are missing.
        unused: names of the other columns.
    """

    table: Table
    columns: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]

    def __contains__(self, role: str) -> bool:
        """Whether a column has the role."""
        return role in self.columns

    def column(self, role: str) -> str:
        """Returns the name of the first column of a role."""
        return self.columns[role][0]

    def of(self, roles: Collection[str]) -> Assigned:
        """Returns the table with some of the roles; columns of the others count as unused."""
        columns = {role: names for role, names in self.columns.items() if role in roles}
        used = {name for names in columns.values() for name in names}
        return Assigned(self.table, columns, tuple(name for name in self.table.names if name not in used))

    def having(self, **columns: Sequence[str]) -> Assigned:
        """Returns the table with other columns for some roles; a role without columns is left out."""
        chosen = {role: tuple(names) for role, names in {**self.columns, **columns}.items() if names}
        return Assigned(self.table, chosen, ()).of(chosen)

    def lines(self) -> list[str]:
        """Returns a line a column: role, name, kind, values, missing values, and the first value; the last names the others.

        More than `_EACH` columns of a role share a line.
        """
        lines = []
        for role, names in self.columns.items():
            each = [names] if len(names) > _EACH else [(name,) for name in names]
            for several in each:
                missing = sum(map(self.table.missing, several))
                which = f"column {quoted(several[0])}" if len(several) == 1 else f"{len(several):,} columns"
                which += "" if len(several) == 1 else f" {quoted(several[0])} to {quoted(several[-1])}"
                kinds = " or ".join(dict.fromkeys(map(self.table.kind, several)))
                lines.append(
                    f"{role}: {which} ({kinds}), {len(self.table) * len(several) - missing:,} values, {missing:,} missing, "
                    f"first {self.table.sample(several[0])}"
                )
        if self.unused:
            lines.append(f"not read: {', '.join(map(quoted, self.unused))}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Returns the names of the columns by role, for JSON."""
        return {role: list(names) for role, names in self.columns.items()}


def assign(table: Table, roles: Sequence[Role], given: Sequence[str] = ()) -> Assigned:
    """Returns which columns of a table have which role.

    Args:
        table: the table.
        roles: those of the modality, in the order in which plain names are given.
        given: ``role=column`` each, several columns with commas, beside which other roles are found by their usual names; or
            plain names of columns in the order of the roles, which are all that is read.

    Raises:
        ConfigError: a given column does not exist or is of a kind that its role cannot have; or the column of a required role,
            or of one of texts, is not clear. The message names the columns and the flag.
    """
    by_role, complete = _by_role(table, roles, given)
    chosen = {}
    for role in roles:
        if role.name in by_role:
            chosen[role.name] = tuple(_checked(table, role, column) for column in by_role[role.name])
    for role in () if complete else roles:
        if role.name not in chosen:
            taken = {column for columns in chosen.values() for column in columns}
            if usual := _usual(table, role, [column for column in table.names if column not in taken]):
                chosen[role.name] = usual
    for role in roles:
        if role.required and role.name not in chosen:
            chosen[role.name] = (_only_one(table, role, roles, chosen),)
    return Assigned(table, {role.name: chosen[role.name] for role in roles if role.name in chosen}, ()).of(chosen)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()


def _by_role(table: Table, roles: Sequence[Role], given: Sequence[str]) -> tuple[dict[str, list[str]], bool]:
    """Returns the columns that were given for each role, and whether they are plain names."""
    known = {role.name: role for role in roles}
    named = [word for word in given if "=" in word and word.partition("=")[0] in known]
    if named and (plain := [word for word in given if word not in named]):
        raise ConfigError(f"columns={' '.join(given)}: {quoted(plain[0])} must be ROLE=COLUMN, ROLE one of {', '.join(known)}.")
    columns: dict[str, list[str]] = {}
    for place, word in enumerate(given):
        role, _, column = word.partition("=")
        if named:
            columns.setdefault(role, []).extend([column] if column in table.names else column.split(","))
        else:
            last = next((each for each in roles[:place] if each.many), roles[min(place, len(roles) - 1)])
            columns.setdefault(last.name, []).append(word)
    if crowded := next((role for role, names in columns.items() if len(names) > 1 and not known[role].many), None):
        raise ConfigError(
            f"columns={' '.join(given)}: {crowded} is one column, not {len(columns[crowded])}; roles: {', '.join(known)}."
        )
    return columns, bool(given) and not named


def _checked(table: Table, role: Role, column: str) -> str:
    """Returns a given column; raises `ConfigError` unless it exists and its kind fits."""
    if column not in table.names:
        raise ConfigError(
            f"columns: {table.path} has no column {quoted(column)}.{nearest(column, table.names)} It has: {table.described()}."
        )
    if table.kind(column) not in role.kinds:
        raise ConfigError(f"columns: {_unfit(table, role, column)}; columns of {table.path}: {table.described()}.")
    return column


def _unfit(table: Table, role: Role, column: str) -> str:
    kind, sample = table.kind(column), table.sample(column)
    holds = "has no values" if kind == MISSING else f"is {_indefinite(kind)}, such as {sample}"
    return f"{quoted(column)} {holds}, but {role.name} must be {' or '.join(map(_indefinite, role.kinds))}"


def _indefinite(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _usual(table: Table, role: Role, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns with a usual name of a role; raises `ConfigError` where one of texts is not clear."""
    named = [column for column in columns if role.is_usual(column) and table.kind(column) != MISSING]
    if exact := [column for column in named if _plain(column) == _plain(role.name)]:
        named = exact if not role.many else named
    unfit = [column for column in named if table.kind(column) not in role.kinds]
    if not role.of_texts:
        named = [column for column in named if column not in unfit]
        return tuple(named) if len(named) == 1 or role.many else ()
    if unfit:
        other = f"Name another column, {role.option('COLUMN')}, or rename this one"
        remedy = _REMEDIES.get(table.kind(unfit[0]), other)
        raise ConfigError(f"{table.path}: {_unfit(table, role, unfit[0])}. {remedy}. It has: {table.described()}.")
    if len(named) > 1 and not role.many:
        raise ConfigError(
            f"{table.path}: {' and '.join(map(quoted, named))} could each be the {role.name}. Choose one: "
            f"{role.option(named[0])}. It has: {table.described()}."
        )
    return tuple(sorted(named, key=lambda column: int((re.findall(r"\d+$", column) or ["0"])[0])))


def _only_one(table: Table, role: Role, roles: Sequence[Role], chosen: Collection[str]) -> str:
    """Returns the only column whose kind fits a role; raises `ConfigError` if none fits or several do."""
    others = [each for each in roles if each is not role]
    usual = {column for column in table.names if any(each.is_usual(column) for each in others)}
    fitting = [
        column
        for column in table.names
        if table.kind(column) in role.kinds and not UNNAMED.fullmatch(column) and column not in usual
    ]
    # beside a column for a role of the same kinds, another column need not be what this role wants
    alike = (each.name for each in others if each.kinds == role.kinds or (each.of_texts and role.of_texts))
    if len(fitting) == 1 and not any(name in chosen for name in alike) and not _is_first_row(table, fitting[0]):
        return fitting[0]
    if table.delimited and all(table.kind(column) == MISSING for column in table.names):
        raise ConfigError(f"{table.path} holds no values below its names of columns, {', '.join(map(quoted, table.names))}.")
    example = next(filter(role.is_usual, fitting), fitting[0] if fitting else "COLUMN")
    header = "" if usual or not table.delimited else " If its first line is no header, write one."
    raise ConfigError(
        f"{table.path}: no column is clearly the {role.name}. Name it: {role.option(example)}. It has: {table.described()}."
        f"{header}"
    )


def _is_first_row(table: Table, name: str) -> bool:
    """Returns whether the first line looks like a row and not like a header: a sentence, or a number beside other names."""
    named = [each for each in table.names if not UNNAMED.fullmatch(each)]
    numbers = sum(bool(_NUMBER.fullmatch(each)) for each in named)
    sentence = len(name.split()) > 4 or name.endswith((".", "?", "!", "。", "？", "！"))
    return table.delimited and (sentence or 0 < numbers < len(named))
