"""StereoSet: scores by hand and by a slow loop of its own, and files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from bias_toys import frequency_model, random_model

from tempplug.errors import DataError
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel, load_masked_language_model
from tempplug_adapters.bias_evaluation.stereoset import DEVELOPMENT_FILE, FILE, Row, evaluate_stereoset, read_stereoset, scored

# Out of 98.5; "banjoist" is ban ##jo ##ist, whose probabilities .08, .01 and .03 have the mean .04.
MEN = {"he": 20, "she": 14, "is": 21, "nurse": 6, "doctor": 9}
COUNTS = {**MEN, "strong": 5, "kind": 7, "tree": 4.5, "ban": 8, "##jo": 1, "##ist": 3}
WORDS = [*COUNTS, "man", "the", "a", "."]
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
    result = evaluate_stereoset(frequency_model(COUNTS), ITEMS)
    assert result.ss == pytest.approx(100 * (2 / 4 + 1.5 / 3 + 2.5 / 3) / 3)
    assert result.lm == pytest.approx(100 * (5 / 8 + 5 / 6 + 1.5 / 6) / 3)
    assert result.icat == pytest.approx(result.lm * (100 - result.ss) / 50)
    assert (result.rows, result.targets, result.ties) == (10, 3, 5)


def test_a_uniform_model_prefers_nothing() -> None:
    """All words are equally probable, words of several tokens too; ties are one half."""
    result = evaluate_stereoset(frequency_model(dict.fromkeys(WORDS, 1.0)), ITEMS)
    assert (result.ss, result.lm, result.icat, result.ties) == (50, 50, 50, 30)


def slowly(model: MaskedLanguageModel, context: str, word: str) -> float:
    """The mean probability of a word's tokens, filled in from the left, each in a sentence written as text, without batches."""
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
    for seed in range(3):
        check_against_a_slow_loop(random_model(WORDS, seed), [row for row in ITEMS if len(set(row.words)) == 3])


def test_real_rows_are_complete_and_score_as_in_a_slow_loop(data_dir: Path) -> None:
    rows, developed = read_stereoset(data_dir), read_stereoset(data_dir, DEVELOPMENT_FILE)
    assert (len(rows), len({row.target for row in rows}), len(developed)) == (771, 30, 255)
    assert not {each.target for each in rows} & {each.target for each in developed}
    assert rows[0].words == ("hysterical", "strong", "banjo")
    check_against_a_slow_loop(load_masked_language_model(data_dir / "text/bert-wiki-mini", "cpu"), rows[::60])


def row(**changes: Any) -> dict[str, Any]:
    sentences = {"stereotype": "He is, strong.", "anti-stereotype": "he is, kind.", "unrelated": "he is, tree."}
    return {"target": "he", "context": "he is, BLANK.", **sentences, **changes}


def write(folder: Path, *rows: dict[str, Any], name: str = FILE) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in rows).encode()))


def test_the_word_stands_where_the_blank_is_and_other_biases_are_left_out(tmp_path: Path) -> None:
    blank = row(context="he BLANK, now", stereotype="he is-not, now", unrelated="he tree, now")
    write(tmp_path / "text/bias", row(), blank)
    write(tmp_path / "text/bias", row(bias_type="race"), row(bias_type="gender", target="she"), name=DEVELOPMENT_FILE)
    first = Row("he", "he is, BLANK.", ("strong", "kind", "tree"))
    assert read_stereoset(tmp_path) == [first, Row("he", "he BLANK, now", ("isnot", "is", "tree"))]
    assert [each.target for each in read_stereoset(tmp_path, DEVELOPMENT_FILE)] == ["she"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "which is not in .*, its text/bias or its bias"),
        ([], "is empty"),
        (
            [{"target": "he"}],
            "rows must have target, context, stereotype, .*; they lack context, stereotype, anti-stereotype, unre",
        ),
        ([row(), {"target": "he", "context": "he is, BLANK."}], "line 2: target, context and the three sentences must be text"),
        ([row(), row(context="he is")], "line 2: the context must hold BLANK once"),
        ([row(context="BLANK is BLANK")], "must hold BLANK once"),
        ([row(unrelated="he is,")], "line 1: unrelated has no word where the context has BLANK"),
        ([row(unrelated="he is, ...")], "unrelated has no word"),
        ([row(target=None)], "must be text"),
        ([row(context="[MASK] is, BLANK.")], "more than one masked place"),
    ],
)
def test_faults_of_files_are_named(tmp_path: Path, rows: list[dict[str, Any]] | None, message: str) -> None:
    if rows is not None:
        write(tmp_path, *rows)
    with pytest.raises(DataError, match=message):
        evaluate_stereoset(random_model(WORDS), read_stereoset(tmp_path))


def test_without_a_folder_the_option_is_named() -> None:
    with pytest.raises(DataError, match=r"StereoSet needs stereoset_test_gender_intrasentence\.jsonl\.gz: name the folder"):
        read_stereoset(None)
