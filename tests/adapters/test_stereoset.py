"""StereoSet: scores by hand and by a slow loop of its own, and files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from bias_toys import frequency_model, random_model, write_stereoset

from tempplug.errors import DataError
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel, load_masked_language_model
from tempplug_adapters.bias_evaluation.stereoset import (
    DEVELOPMENT_FILE,
    Row,
    evaluate_stereoset,
    read_stereoset,
    scored,
    word_questions,
)
from tempplug_adapters.huggingface.loading import load_tokenizer

WORDS = ["he", "she", "man", "is", "the", "a", "nurse", "ban", "##jo", "##ist", "doctor", "strong", "kind", "tree", "."]
# Counts out of 100; "banjoist" is ban ##jo ##ist, whose probabilities .08, .01 and .03 have the mean .04.
COUNTS = {
    "he": 20,
    "she": 14,
    "is": 21,
    "nurse": 6,
    "doctor": 9,
    "strong": 5,
    "kind": 7,
    "tree": 4.5,
    "ban": 8,
    "##jo": 1,
    "##ist": 3,
}
ITEMS = [
    # target, stereotype, opposite, unrelated: what wins of (stereotype, opposite), and of both against the unrelated
    Row("he", "he is BLANK .", ("doctor", "nurse", "tree")),  # stereotype; both
    Row("he", "he is a BLANK", ("strong", "kind", "tree")),  # opposite; both
    Row("he", "BLANK is he", ("banjoist", "tree", "doctor")),  # opposite; none
    Row("he", "he is BLANK", ("kind", "banjoist", "strong")),  # stereotype; stereotype
    Row("she", "she is a BLANK.", ("nurse", "doctor", "tree")),  # opposite; both
    Row("she", "she is BLANK", ("kind", "strong", "nurse")),  # stereotype; stereotype
    Row("she", "she is BLANK", ("nurse", "nurse", "tree")),  # tie; both
    Row("man", "a man is BLANK", ("banjoist", "banjoist", "banjoist")),  # ties
    Row("man", "a man is BLANK", ("doctor", "kind", "doctor")),  # stereotype; tie and none
    Row("man", "the BLANK man", ("strong", "banjoist", "kind")),  # stereotype; none
]


def test_a_frequency_baseline_scores_as_computed_by_hand() -> None:
    """Target he: SS 2/4, LM (2+2+0+1)/8. she: SS 1.5/3, LM (2+1+2)/6. man: SS 2.5/3, LM (1+.5+0)/6. Then the means."""
    assert sum(COUNTS.values()) == pytest.approx(98.5)
    result = evaluate_stereoset(frequency_model(COUNTS), ITEMS)
    assert result.ss == pytest.approx(100 * (2 / 4 + 1.5 / 3 + 2.5 / 3) / 3)
    assert result.lm == pytest.approx(100 * (5 / 8 + 5 / 6 + 1.5 / 6) / 3)
    assert result.icat == pytest.approx(result.lm * (100 - result.ss) / 50)
    assert (result.rows, result.targets, result.ties) == (10, 3, 5)


def test_a_model_that_knows_nothing_prefers_nothing() -> None:
    """All words are equally probable, words of several tokens too; ties are one half."""
    uniform = frequency_model(dict.fromkeys(WORDS, 1.0))
    result = evaluate_stereoset(uniform, ITEMS)
    assert (result.ss, result.lm, result.icat, result.ties) == (50, 50, 50, 30)


def test_models_that_ignore_their_input_score_about_fifty(data_dir: Path) -> None:
    """Random distributions over the tokens, on the 771 rows. Of 40 the mean was 49.6, the lowest 43.5, the highest 53.0."""

    class Unseeing(MaskedLanguageModel):
        def log_probabilities(self, questions: Any) -> torch.Tensor:
            return logits[[question.answer for question in questions]].double()

    rows, found = read_stereoset(data_dir)[::3], []
    model = Unseeing(None, load_tokenizer(str(data_dir / "text/bert-wiki-mini")))
    model.tokens = cache(model.tokens)  # type: ignore[method-assign]
    for seed in range(6):
        logits = torch.randn(len(model.tokenizer), generator=torch.Generator().manual_seed(seed)).log_softmax(0)
        found.append(evaluate_stereoset(model, rows).ss)
    assert sum(found) / len(found) == pytest.approx(50, abs=3)
    assert all(abs(score - 50) < 12 for score in found)


def slowly(model: MaskedLanguageModel, context: str, word: str) -> float:
    """The mean probability of a word's tokens, each in a sentence written as text, without batches."""
    answers = model.tokenizer(word, add_special_tokens=False)["input_ids"]
    found = []
    for done, answer in enumerate(answers):
        text = context.replace("BLANK", model.tokenizer.decode(answers[:done]) + "[MASK]")
        inputs = model.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model.model(**inputs).logits[inputs["input_ids"] == model.tokenizer.mask_token_id]
        found.append(float(logits[0].softmax(0)[answer]))
    return sum(found) / len(found)


def check_against_a_slow_loop(model: MaskedLanguageModel, rows: list[Row]) -> None:
    model.model.eval()
    slow = torch.tensor([[slowly(model, row.context, word) for word in row.words] for row in rows], dtype=torch.float64)
    expected, result = scored(slow, [row.target for row in rows]), evaluate_stereoset(model, rows)
    assert (result.lm, result.ss) == pytest.approx((expected.lm, expected.ss))


def test_scores_are_those_of_a_slow_loop() -> None:
    rows = [row for row in ITEMS if len(set(row.words)) == 3]
    for seed in range(3):
        check_against_a_slow_loop(random_model(WORDS, seed), rows)


def test_real_rows_score_as_in_a_slow_loop(data_dir: Path) -> None:
    rows = read_stereoset(data_dir)
    assert (len(rows), len({row.target for row in rows})) == (771, 30)
    assert rows[0].words == ("hysterical", "strong", "banjo")
    check_against_a_slow_loop(load_masked_language_model(data_dir / "text/bert-wiki-mini", "cpu"), rows[::60])


def test_a_word_of_several_tokens_is_filled_in_from_the_left() -> None:
    model = random_model(WORDS)
    found = [model.tokenizer.decode(question.tokens) for question in word_questions(model, "he is BLANK .", "banjoist")]
    assert found == [
        "[CLS] he is [MASK]. [SEP]",
        "[CLS] he is ban [MASK]. [SEP]",
        "[CLS] he is banjo [MASK]. [SEP]",
    ]
    with pytest.raises(DataError, match="makes no tokens"):
        word_questions(model, "he is BLANK", " ")
    with pytest.raises(DataError, match="more than one masked place"):
        word_questions(model, "[MASK] is BLANK", "kind")


def row(**changes: Any) -> dict[str, Any]:
    sentences = {"stereotype": "He is, strong.", "anti-stereotype": "he is, kind.", "unrelated": "he is, tree."}
    return {"target": "he", "context": "he is, BLANK.", **sentences, **changes}


def test_the_word_stands_where_the_blank_is(tmp_path: Path) -> None:
    write_stereoset(tmp_path, [row(), row(context="he BLANK, now", stereotype="he is-not, now", unrelated="he tree, now")])
    assert read_stereoset(tmp_path) == [
        Row("he", "he is, BLANK.", ("strong", "kind", "tree")),
        Row("he", "he BLANK, now", ("isnot", "is", "tree")),
    ]


def test_the_development_set_is_another_and_its_other_biases_are_left_out(tmp_path: Path) -> None:
    write_stereoset(tmp_path, [row()])
    write_stereoset(tmp_path, [row(bias_type="race"), row(bias_type="gender", target="she")], DEVELOPMENT_FILE)
    assert [each.target for each in read_stereoset(tmp_path, DEVELOPMENT_FILE)] == ["she"]
    assert [each.target for each in read_stereoset(tmp_path)] == ["he"]


def test_real_development_rows_share_nothing_with_the_test_set(data_dir: Path) -> None:
    tested, developed = read_stereoset(data_dir), read_stereoset(data_dir, DEVELOPMENT_FILE)
    assert len(developed) == 255
    assert not {each.target for each in tested} & {each.target for each in developed}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"context": "he is"}, "line 1: the context must hold BLANK once"),
        ({"context": "BLANK is BLANK"}, "must hold BLANK once"),
        ({"unrelated": "he is,"}, "line 1: unrelated has no word where the context has BLANK"),
        ({"unrelated": "he is, ..."}, "unrelated has no word"),
        ({"target": None}, "must be text"),
        ({"target": ["he"]}, "must be text"),
    ],
)
def test_faults_of_rows_name_the_line(tmp_path: Path, fault: dict[str, Any], message: str) -> None:
    write_stereoset(tmp_path, [row(**fault)])
    with pytest.raises(DataError, match=message):
        read_stereoset(tmp_path)


def test_faults_of_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"StereoSet needs stereoset_test_gender_intrasentence\.jsonl\.gz: name the folder"):
        read_stereoset(None)
    with pytest.raises(DataError, match="lacks, and so do its text/bias and bias"):
        read_stereoset(tmp_path)
    write_stereoset(tmp_path, [])
    with pytest.raises(DataError, match="is empty"):
        read_stereoset(tmp_path)
    write_stereoset(tmp_path, [{"target": "he"}])
    with pytest.raises(DataError, match=r"line 1: must be a JSON object with target, .* \(KeyError: 'context'\)"):
        read_stereoset(tmp_path)
    (tmp_path / "text/bias").mkdir(parents=True)
    (tmp_path / "stereoset_test_gender_intrasentence.jsonl.gz").rename(tmp_path / "text/bias/moved")
    write_stereoset(tmp_path / "text/bias", [row()])
    assert len(read_stereoset(tmp_path)) == 1
