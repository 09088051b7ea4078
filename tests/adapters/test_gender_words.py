"""Gender words: what a sentence becomes, what is ambiguous, and faults of lists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tempplug.errors import ConfigError, DataError
from tempplug_adapters.data_files.text_rows import open_texts
from tempplug_adapters.mabel.gender_words import GenderWords

PAIRS = [("he", "she"), ("him", "her"), ("his", "her"), ("his", "hers"), ("dad", "mom"), ("man", "woman"), ("dad", "mum")]


@pytest.mark.parametrize(
    ("sentence", "counterfactual"),
    [
        ("He saw the man's dog.", "She saw the woman's dog."),
        ("SHE said: Women-only? A womanly woman!", "HE said: Women-only? A womanly man!"),
        ("the\the  ", "the\tshe  "),
        ("human mankind (man)", "human mankind (woman)"),
        ("naïve Émile's mum, élan", "naïve Émile's dad, élan"),
        ("DAD, iT, hE", "MOM, iT, she"),
        ("the human there", "the human there"),
        ("Her dad saw her with his dad.", "Him mom saw him with her mom."),
    ],
)
def test_words_are_exchanged_case_and_all_else_kept(sentence: str, counterfactual: str) -> None:
    words = GenderWords(PAIRS)
    assert words.swapped(sentence) == counterfactual
    assert words.has_any(sentence) == (sentence != counterfactual)


def test_the_first_pair_of_the_list_decides_and_such_words_are_counted() -> None:
    assert GenderWords(reversed(PAIRS)).swapped("Her dad, his") == "His mum, hers"
    assert GenderWords(PAIRS).ambiguous(["Her dad saw her", "he and his mum"]) == Counter(her=2, dad=1, his=1)
    assert GenderWords([("he", "she"), ("He", "SHE")]).ambiguous(["he"]) == Counter()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("he", ""), ("him", "her")], "gender word '' must be one word of letters only"),
        ([("step-dad", "mom")], "gender word 'step-dad' must be one word"),
        ([("he", "she"), ("Her", "his"), ("him", "her")], "gender word 'her' is among the words for men and among those"),
    ],
)
def test_faults_of_lists_are_named(tmp_path: Path, pairs: list[tuple[str, str]], message: str) -> None:
    (tmp_path / "words.tsv").write_text("male\tfemale\n" + "".join(f"{male}\t{female}\n" for male, female in pairs))
    with pytest.raises(DataError, match=rf"words\.tsv: {message}"):
        GenderWords.read(tmp_path / "words.tsv")


def test_lists_are_tables_with_a_pair_at_least(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gender_words='\S+' is not a file; wanted a table with the columns male and female"):
        GenderWords.read(tmp_path)
    with pytest.raises(DataError, match="must hold at least one pair"):
        GenderWords([])
    for name, text in {
        "words.tsv": "note\tfemale\tmale\nx\tshe \the\n",
        "words.csv": "\ufeffMale;Female\r\nhe;she\r\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert GenderWords.read(tmp_path / name).swapped("He") == "She"
    (tmp_path / "words.csv").write_text("he,she\nhim,her\n")
    with pytest.raises(ConfigError, match=r"no column is clearly the male\. .* It has: 'he' \(text, such as 'him'\)"):
        GenderWords.read(tmp_path / "words.csv")


def test_the_real_list_and_pairs(data_dir: Path) -> None:
    words = GenderWords.read(data_dir / "text/bias/gender_words.tsv")
    sentence = "Two young boys and Mrs. Smith gave her husband's uncle his hat."
    assert words.swapped(sentence) == "Two young girls and Mr. Smith gave him wife's aunt her hat."
    ambiguous = {word for word, others in words.counterparts.items() if len(others) > 1}
    assert ambiguous == {"bride", "brides", "dad", "dads", "her", "his", "ladies", "lady", "mr"}
    pairs = [sample.texts for sample in open_texts(data_dir / "text/nli/gender_entailment.tsv.gz")]
    assert len(pairs) == sum(any(map(words.has_any, pair)) for pair in pairs) == 12_253
    counts = words.ambiguous(sentence for pair in pairs for sentence in pair)
    assert (counts["his"], counts["her"], counts.total()) == (2469, 1473, 4611)
