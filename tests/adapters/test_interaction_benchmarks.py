"""RecBole's benchmark files of interactions, and what commands say of the tables that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from recommendation_toys import SMALL, walks, write_log
from table_files import of_lines

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import TempplugError, UnknownNameError
from tempplug_adapters.recommendation.interaction_files import load_sequences
from tempplug_adapters.recommendation.interactions import Interactions

HEADER = "session_id:token\titem_id_list:token_seq\titem_id:token"
Examples = set[tuple[str, tuple[str, ...], str]]


def benchmark(folder: Path, header: str = HEADER, **files: list[str]) -> str:
    """Writes RecBole's benchmark files: rows of session, history and target."""
    folder.mkdir()
    for split, rows in files.items():
        of_lines(header, *("\t".join(row.split("|")) for row in rows))(folder / f"{folder.name}.{split}.inter")
    return str(folder)


def examples(data: Interactions, split: str) -> Examples:
    """The users, histories and targets of a split by their names; each is there once."""
    chosen = getattr(data, split)
    histories, lengths, targets = data.batch(chosen)
    rows = [
        (data.users[user], tuple(data.names[item - 1] for item in history[:length]), data.names[target - 1])
        for user, history, length, target in zip(chosen.users, histories, lengths, targets, strict=True)
    ]
    assert len(rows) == len(set(rows))
    return set(rows)


def read(folder: str, share: float = 0.3) -> Interactions:
    histories, users, names, *more = load_sequences(folder, None)
    return Interactions(histories, len(names), 50, share, users, names, *more)


SESSIONS = [f"s{number}|A{number % 7} B{number % 5}|C{number % 3}" for number in range(30)]


def rows_of(lines: list[str]) -> Examples:
    return {(user, tuple(history.split()), target) for user, history, target in (line.split("|") for line in lines)}


def test_files_of_other_sessions_train_and_test_with_their_rows(tmp_path: Path) -> None:
    tested = ["t1|A1|D", "t1|A1 D|B9", "t2|C0|A1"]
    data = read(benchmark(tmp_path / "s", train=SESSIONS, test=tested))
    assert examples(data, "test") == rows_of(tested), "each with its own history"
    trained, validated = examples(data, "train"), examples(data, "validation")
    assert trained | validated == rows_of(SESSIONS)
    assert not trained & validated
    assert 3 <= len(validated) <= 15
    assert set(data.names) == {name for line in (*SESSIONS, *tested) for name in line.replace("|", " ").split()[1:]}
    known = data.histories("test")
    of_first = data.users.index("t1")
    assert known.ends[of_first] - known.starts[of_first] == 1, "what is known before its first target"


def test_rows_that_validate_are_those_of_their_file(tmp_path: Path) -> None:
    validated = ["v1|A1 A2|B1", "s3|A3 B3 C0|B1"]
    data = read(benchmark(tmp_path / "s", train=SESSIONS, valid=validated, test=["t|A1|B1"]))
    assert examples(data, "train") == rows_of(SESSIONS)
    assert examples(data, "validation") == rows_of(validated)
    assert examples(data, "test") == {("t", ("A1",), "B1")}


@pytest.mark.parametrize("backwards", [False, True])
def test_the_prefixes_of_a_session_are_one_sequence(tmp_path: Path, backwards: bool) -> None:
    lines = [f"u{user}|{' '.join('abcde'[:end])}|{'abcde'[end]}" for user in range(9) for end in range(1, 5)]
    given = lines[::-1] if backwards else lines
    data = read(benchmark(tmp_path / "s", train=given, test=["t|a|b"]))
    assert data.user_count == 10
    assert len(data.items) == 9 * 5 + 2
    trained, validated = examples(data, "train"), examples(data, "validation")
    assert trained | validated == rows_of(lines)
    assert {len(history) for _, history, _ in validated} == {4}, "the longest row of a session validates"


def test_files_of_dcrec_train_on_all_prefixes_of_a_row(tmp_path: Path) -> None:
    trained = ["0|a b|c", "1|c|a", "2|b c|a", "3|a b|b"]
    data = read(benchmark(tmp_path / "s", train=trained, test=["0|a b c|d", "1|c a|b", "9|a b c|a"]), share=0.9)
    assert examples(data, "test") == {("0", ("a", "b", "c"), "d"), ("1", ("c", "a"), "b"), ("9", ("a", "b", "c"), "a")}
    both = examples(data, "train") | examples(data, "validation")
    assert both == rows_of([*trained, "0|a|b", "2|b|c", "3|a|b"]), "also of the users that are not tested"
    assert "as in DCRec's files" in data.notes[0]


def test_a_row_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    data = read(benchmark(tmp_path / "s", train=[*SESSIONS, *SESSIONS[:4]], test=["t|A1|B1"]))
    assert examples(data, "train") | examples(data, "validation") == rows_of(SESSIONS)
    assert "4 rows repeat another one and were left out" in data.notes


def test_sessions_of_one_name_in_two_files_are_two_and_known_targets_are_counted(tmp_path: Path) -> None:
    trained = ["0|a b|c", "1|a b c|d", "2|e|f", *SESSIONS]
    tested = ["0|a b|c", "1|a b|c", "1|a b c|d", "2|g|h", "s3|A3 B3 C0|A1"]
    data = read(benchmark(tmp_path / "s", train=trained, test=tested))
    assert examples(data, "test") == rows_of(tested)
    assert examples(data, "train") | examples(data, "validation") == rows_of(trained)
    assert data.user_count == len(trained) + 3, "a history that goes on is one sequence"
    assert "2 sessions have a target that an earlier file has in them, too" in data.notes
    assert data.known("2") == [1 + data.names.index(name) for name in "gh"], "the newest"


def test_the_split_is_kept_with_the_training(tmp_path: Path) -> None:
    data = read(benchmark(tmp_path / "s", train=SESSIONS, test=["t1|A1|D", "t1|A1 D|B1"]))
    again = Interactions.restored(data.saved(), 50, 0.3)
    for split in ("train", "validation", "test"):
        assert examples(again, split) == examples(data, split)
    old = {name: value for name, value in data.saved().items() if name != "splits"}
    assert len(Interactions.restored(old, 50, 0.3).test) == data.user_count, "as folders of earlier versions"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": ["0|a b|", "1|a|b"], "test": ["0|a b|c"]}, r"s\.train\.inter, line 2: column 'item_id' is empty"),
        ({"train": ["0|a b"], "test": ["0|a b|c"]}, r"s\.train\.inter, line 2: 2 fields, but line 1 has 3"),
        ({"train": ["0|a b|c"], "test": []}, r"s\.test\.inter holds no rows"),
        ({"train": ["0|a b|c"]}, r"s\.test\.inter does not exist"),
        ({"test": ["0|a b|c"]}, r"s\.train\.inter does not exist"),
        ({}, "is a folder, and not one that datasets saved"),
        (
            {"train": ["0|a|b"], "test": ["1|a|b"], "header": "user_id:token\titem_id:token\ttimestamp:float"},
            r"in one file NAME\.inter",
        ),
        (
            {"train": ["0|a|b"], "test": ["1|a|b"], "header": HEADER.replace("_seq", "")},
            r"'item_id_list', the history, is 'token', but must be token_seq",
        ),
    ],
)
def test_faults_of_benchmark_files_are_named(tmp_path: Path, files: Any, message: str) -> None:
    with pytest.raises(TempplugError, match=message):
        read(benchmark(tmp_path / "s", **files))


def flags(dataset: str, output: Path) -> list[str]:
    words = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["train", "sasrec", "--dataset", dataset, *words, "--num-train-epochs", "1", "--output-dir", str(output)]


def test_the_command_says_what_it_reads_and_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"u{user}", f"00{item}", 4.5, time) for user, walk in enumerate(walks()) for time, item in enumerate(walk)]
    longer = [("long", "001", 1.0, time) for time in range(20)]
    table = pandas.DataFrame([*rows, *longer, ("alone", "003", 2.0, 0)], columns=["userId", "movieId", "rating", "timestamp"])
    table.to_csv(tmp_path / "log.csv")
    assert main(flags(str(tmp_path / "log.csv"), tmp_path / "out")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[2].startswith(f"{tmp_path / 'log.csv'}: 42 users, 12 items, {len(rows) + 13 + 1} interactions; ")
    assert said[3:9] == [
        "left out: 7 items before the newest 13 of their user",
        "without an example: 1 of 42 users, who have one item",
        f"user: column 'userId' (text), {len(table)} values, 0 missing, first 'u0'",
        f"item: column 'movieId' (integer), {len(table)} values, 0 missing, first '00{walks()[0][0]}'",
        f"time: column 'timestamp' (integer), {len(table)} values, 0 missing, first '0'",
        "not read: 'Unnamed: 0', 'rating'",
    ]
    trained = tempplug_adapters.load(tmp_path / "out")
    read_as = {"user": ["userId"], "item": ["movieId"], "time": ["timestamp"]}
    assert trained.kept["tables"] == [{"file": "log.csv", "columns": read_as}]
    # another file: other users, the same items in another order, without times
    table[::-1][["userId", "movieId"]].replace({"userId": {"u3": "v"}}).to_csv(tmp_path / "new.csv", index=False)
    given = ["embed", str(tmp_path / "out"), str(tmp_path / "new.csv"), "--output", str(tmp_path / "v.parquet")]
    assert main(given) == 0
    said = capsys.readouterr().out
    assert f"{len(table)} rows are the histories of 42 users, in the order of their first rows, with a vector each" in said
    assert "no column of times: the items of each user are in the order of the file" in said
    vectors = pandas.read_parquet(tmp_path / "v.parquet").set_index("name")["vector"]
    assert list(vectors.index[:2]) == ["alone", "long"]
    own = trained.embed([[f"00{item}" for item in walks()[3][::-1]]])
    assert vectors["v"] == pytest.approx(own[0].tolist())


def test_another_file_is_evaluated_with_the_numbers_of_the_training(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", walks())
    assert main(flags(str(log), tmp_path / "out")) == 0
    trained = tempplug_adapters.load(tmp_path / "out")
    expected = trained.evaluate()
    table = pandas.read_csv(log)
    table.iloc[::-1].to_parquet(tmp_path / "new.parquet")  # items have other numbers by their first rows
    with pytest.warns(UserWarning, match="the data are not those of the training"):
        figures = trained.evaluate(dataset=str(tmp_path / "new.parquet"))
    tested = [name for name in expected if not name.startswith("validation")]  # users that validate are drawn by their order
    assert {name: figures[name] for name in tested} == pytest.approx({name: expected[name] for name in tested})
    table.assign(item=table["item"] + 1).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(UnknownNameError, match="no item '13' in the training"):
        trained.evaluate(dataset=str(tmp_path / "other.csv"))


def test_a_training_on_benchmark_files_says_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = benchmark(tmp_path / "s", train=SESSIONS, valid=["v|A1 A2|B1"], test=["t|A1|B1", "t|A1 B1|C2"])
    assert main(flags(folder, tmp_path / "out")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[2].endswith(f"; {len(SESSIONS)} examples to train on, 1 to validate, 2 to test")
    assert said[3] == ("rows of a history and its target, as in RecBole's benchmark files: train 30, valid 1, test 2")
    assert said[4:7] == [
        "s.train.inter, user: column 'session_id' (text), 30 values, 0 missing, first 's0'",
        "s.train.inter, history: column 'item_id_list' (text), 30 values, 0 missing, first 'A0 B0'",
        "s.train.inter, item: column 'item_id' (text), 30 values, 0 missing, first 'C0'",
    ]
    assert main(["recommend", str(tmp_path / "out"), "--user", "t", "--top", "3"]) == 0
    items = [line.split()[1] for line in capsys.readouterr().out.splitlines()[:3]]
    assert not {"A1", "B1", "C2"} & set(items)
