"""Retrieval collections: documents, queries, and which documents are relevant to a query.

A collection NAME is a folder in BEIR's layout (``NAME/corpus.jsonl``, ``NAME/queries.jsonl``, ``NAME/qrels/test.tsv``), or the
files ``NAME.corpus.jsonl``, ``NAME.queries.jsonl`` and ``NAME.qrels.tsv``; each file also with ``.gz``. NAME-dev and NAME-train
are other queries for the documents of NAME.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tempplug.errors import ConfigError, DataError, UnknownNameError, listed, nearest, quoted
from tempplug_adapters.data_files.corpus_files import find_folder, read_tsv
from tempplug_adapters.data_files.roles import ANY, Role, assign

_ROLES = (Role("id", ANY, ("id", "_id")), Role("text", ANY, ("text",)), Role("title", ANY, ("title",), required=False))
_PARTS = {"corpus": ("corpus.jsonl",), "queries": ("queries.jsonl",), "qrels": ("qrels.tsv", "qrels/test.tsv")}


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents to search, and queries with at least one relevant document.

    Attributes:
        documents: text by id, title first.
        queries: text by id.
        relevance: by query, the degree of relevance of each relevant document, at least 1.
        columns: those that were read of documents and queries, in words.
    """

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]
    columns: str = ""


def find_retrieval_folder(data_dir: str | Path) -> Path:
    """Returns ``data_dir``, its ``text/retrieval`` or its ``retrieval``: the first with a collection; else `DataError`."""
    return find_folder(data_dir, "retrieval", "retrieval collections (NAME.corpus.jsonl.gz …)", lambda each: bool(_names(each)))


def collections_in(data_dir: str | Path) -> tuple[str, ...]:
    """Returns the names of the collections in a folder, in alphabetical order."""
    return _names(find_retrieval_folder(data_dir))


def load_collection(name: str, data_dir: str | Path) -> Collection:
    """Returns a collection; queries without relevant documents are left out, as in the literature.

    Args:
        name: of the files, or of the folder.
        data_dir: the folder with the collections, or its parent with ``text/retrieval`` or ``retrieval``.

    Raises:
        UnknownNameError: there is no such collection.
        DataError: a file is missing or malformed, an id occurs twice, or a judgement names an unknown id.
    """
    corpus, asked, judged = files_of(name, data_dir)
    (documents, of_documents), (queries, of_queries) = _texts(corpus), _texts(asked)
    relevance: dict[str, dict[str, int]] = {}
    for place, (query, document, score) in read_tsv(judged, ("query-id", "corpus-id", "score")):
        if query not in queries or document not in documents:
            raise DataError(f"{place}: there is no {'query' if query not in queries else 'document'} of that id.")
        if not score.isdecimal():
            raise DataError(f"{place}: score '{score}' must be a whole number of at least 0.")
        if int(score) > 0:
            relevance.setdefault(query, {})[document] = int(score)
    if not relevance:
        raise DataError(f"collection '{name}' of {find_retrieval_folder(data_dir)} has no query with a relevant document.")
    columns = f"documents {of_documents}; queries {of_queries}"
    return Collection(documents, {each: queries[each] for each in relevance}, relevance, columns)


def files_of(name: str, data_dir: str | Path) -> tuple[Path, Path, Path]:
    """Returns the files of documents, queries and judgements that `load_collection` reads; raises like it."""
    folder = find_retrieval_folder(data_dir)
    known = _names(folder)
    if name not in known:
        raise UnknownNameError(f"unknown collection '{name}'.{nearest(name, known)} {folder} has: {listed(known)}.")
    whole = name if _file(folder, name, "corpus") else name.rpartition("-")[0]
    return _wanted(folder, whole, "corpus"), _wanted(folder, name, "queries"), _wanted(folder, name, "qrels")


def _names(folder: Path) -> tuple[str, ...]:
    files = {each.name.partition(".qrels.tsv")[0] for each in folder.glob("*.qrels.tsv*")}
    return tuple(sorted(files | {each.parent.name for each in folder.glob("*/corpus.jsonl*")}))


def _file(folder: Path, name: str, part: str) -> Path | None:
    places = [folder / f"{name}{join}{file}{packed}" for file in _PARTS[part] for join in "./" for packed in ("", ".gz")]
    return next((each for each in places if each.is_file()), None)


def _wanted(folder: Path, name: str, part: str) -> Path:
    file = _file(folder, name, part)
    if file is None:
        raise DataError(f"{folder} has no {name}.{_PARTS[part][0]}, also as .gz, and no {name}/{_PARTS[part][-1]}.")
    return file


def _texts(file: Path) -> tuple[dict[str, str], str]:
    """Returns the texts of a table by id, and the names of its columns; title and text are joined by a blank."""
    from tempplug_adapters.data_files.tables import open_table  # needs pyarrow, which --help does not

    table = open_table(file)
    try:
        assigned = assign(table, _ROLES)
    except ConfigError as error:  # the names are those of the format, which no flag changes
        raise DataError(f"{file} must have 'id' (or '_id') and 'text'. It has: {table.described()}.") from error
    names = [name for role in ("id", "title", "text") for name in assigned.columns.get(role, ())]
    columns = [table.values(name) for name in names[1:]]
    texts: dict[str, str] = {}
    for row, (key, *parts) in enumerate(zip(table.ids(names[0]), *columns, strict=True)):
        if key is None or key in texts:
            raise DataError(f"{table.place(row)}: {'id is missing' if key is None else f'id {quoted(key)} occurs twice'}.")
        texts[key] = " ".join(str(part) for part in parts if part is not None).strip()
    empty = sum(not text for text in texts.values())
    return texts, ", ".join(map(quoted, names)) + (f" ({empty:,} of {len(texts):,} without text)" if empty else "")
