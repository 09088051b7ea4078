"""SentEval's own data folder: read like our tables, and written from them as SentEval reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from transfer_toys import write_tables

from tempplug.errors import DataError
from tempplug_adapters.sentence_evaluation.senteval_files import TRANSFER_FILES, write_transfer_files
from tempplug_adapters.sentence_evaluation.sts_data import StsPairs, load_sts, load_sts_subsets
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS, load_rows, load_transfer


def put(folder: Path, name: str, content: bytes) -> None:
    (folder / "downstream" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "downstream" / name).write_bytes(content)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    tables, made = write_tables(tmp_path), tmp_path / "made"
    # Texts without a word come first in SentEval's order, so that they must not turn into a full stop on the way.
    (tables / "CR.tsv").write_text("label\ttext\n0\tb\n1\t\n1\tdéjà  vu\n0\t\n1\ta\n")
    for task in TRANSFER_TASKS:
        for split, rows in load_rows(task, tables).items():
            write_transfer_files(made / "downstream", task, split, rows)
        assert load_transfer(task, made) == load_transfer(task, tables)
    assert load_transfer("CR", made)[""].texts == [(".",), (".",), ("b",), ("a",), ("déjà vu",)]
    assert all((made / "downstream" / file).is_file() for files in TRANSFER_FILES.values() for file in files)


def test_each_form_is_read_as_senteval_reads_it(tmp_path: Path) -> None:
    put(tmp_path, "MPQA/mpqa.pos", "caf\xe9 good\n\nfine\n".encode("latin-1"))
    put(tmp_path, "MPQA/mpqa.neg", b"bad\r\n")
    for split in ("train", "dev", "test"):
        put(tmp_path, f"SST/binary/sentiment-{split}", f"a caf\xe9 {split} \t1\n b\t0\n".encode())
    put(tmp_path, "TREC/train_5500.label", b"NUM:date When : now ?\nDESC:def What ?\n")
    put(tmp_path, "TREC/TREC_10.label", b"ABBR:exp Why ?\n")
    header = b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    put(tmp_path, "MRPC/msr_paraphrase_train.txt", header + b'1\t7\t8\ta "b\tc\n')
    put(tmp_path, "MRPC/msr_paraphrase_test.txt", header + b"0\t7\t8\td\te f\n")
    rows = {task: load_rows(task, tmp_path) for task in ("MPQA", "SST2", "TREC", "MRPC")}
    assert rows["MPQA"][""] == [("1", "café good"), ("1", ""), ("1", "fine"), ("0", "bad")]
    assert rows["SST2"]["train"] == [("1", "a café train"), ("0", "b")]
    assert rows["TREC"] == {"train": [("NUM", "When : now ?"), ("DESC", "What ?")], "test": [("ABBR", "Why ?")]}
    assert rows["MRPC"] == {"train": [("1", 'a "b', "c")], "test": [("0", "d", "e f")]}


def test_sts_is_read_as_senteval_reads_it(tmp_path: Path) -> None:
    for subset in ("FNWN", "headlines", "OnWN"):
        put(tmp_path, f"STS/STS13-en-test/STS.input.{subset}.txt", f"{subset} a\tb\nc\td\nnobody\tscored\n".encode())
        put(tmp_path, f"STS/STS13-en-test/STS.gs.{subset}.txt", b"1.5\n0\n\n")
    put(tmp_path, "STS/STSBenchmark/sts-test.csv", b"g\ts\t2015\t3\t4.2\tleft one\tright one\n")
    put(tmp_path, "SICK/SICK_test_annotated.txt", b"pair_ID\tA\tB\tscore\tj\n4\tleft\tright\t3.5\tNEUTRAL\n")
    subsets = load_sts_subsets("STS13", tmp_path)
    assert list(subsets) == ["FNWN", "headlines", "OnWN"]
    assert subsets["OnWN"] == StsPairs(["OnWN a", "c"], ["b", "d"], [1.5, 0.0])
    assert load_sts("STS13", tmp_path).sentences_a == ["FNWN a", "c", "headlines a", "c", "OnWN a", "c"]
    assert load_sts("STSB", tmp_path) == StsPairs(["left one"], ["right one"], [4.2])
    assert load_sts("SICKR", tmp_path) == StsPairs(["left"], ["right"], [3.5])


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        (
            "TREC/train_5500.label",
            b"NUM:date When ?\nwrong\n",
            "TREC",
            r"5500\.label, line 2: wanted LABEL:kind and a question",
        ),
        ("TREC/train_5500.label", b"ODD:date When ?\n", "TREC", r"train_5500\.label, line 1: label 'ODD' is none of ABBR"),
        (
            "MRPC/msr_paraphrase_train.txt",
            b"Quality\n1\t2\t3\ta\n",
            "MRPC",
            r"train\.txt, line 2: 4 tab-separated fields, wanted",
        ),
        ("SST/binary/sentiment-train", b"caf\xe9\t1\n", "SST2", r"-train is not utf-8 \(invalid continuation byte at byte 3\)"),
        ("empty", b"", "MR", r"rt-polarity\.pos cannot be read: No such file"),
    ],
)
def test_faults_name_the_file_and_the_line(tmp_path: Path, name: str, content: bytes, task: str, message: str) -> None:
    put(tmp_path, name, content)
    with pytest.raises(DataError, match=message):
        load_rows(task, tmp_path)


def test_a_letter_that_senteval_cannot_read_and_missing_scores_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"MR holds the letter '…', but SentEval reads MR/rt-polarity\.pos as latin-1"):
        write_transfer_files(tmp_path, "MR", "", [("1", "well …")])
    put(tmp_path, "STS/STS12-en-test/STS.input.MSRpar.txt", b"a\tb\n")
    put(tmp_path, "STS/STS12-en-test/STS.gs.MSRpar.txt", b"1\n2\n")
    with pytest.raises(DataError, match="STS12-en-test has 1 pairs of MSRpar, but 2 scores"):
        load_sts("STS12", tmp_path)
