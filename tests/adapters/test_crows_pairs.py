"""CrowS-Pairs: both published variants by hand and by a slow loop of its own, and files."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
import torch
from bias_toys import frequency_model, random_model

from tempplug.errors import DataError
from tempplug_adapters.bias_evaluation.crows_pairs import Pair, Variant, evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel, load_masked_language_model

VARIANTS: tuple[Variant, Variant] = ("differing", "shared")
PAIRS = [
    Pair("she is a nurse .", "he is a nurse .", "stereo", "gender"),
    Pair("he is strong", "she is strong", "stereo", "gender"),
    Pair("she is a doctor .", "he is a doctor .", "antistereo", "gender"),
    Pair("the old man is kind", "the young man is kind", "stereo", "age"),
    Pair("she is very kindly .", "he is kind", "antistereo", "gender"),  # several tokens, and as many as not
    Pair("the man is very old .", "the man is old .", "stereo", "age"),  # the second lacks no token of the first
]
COUNTS = {"he": 4, "she": 2, "man": 1, "old": 3, "young": 3, "is": 1, "the": 1, "a": 1, "nurse": 1, "doctor": 1, "strong": 1}
WORDS = [*COUNTS, "kind", "very", "##ly", "."]


def test_a_frequency_baseline_scores_as_computed_by_hand() -> None:
    """Differing tokens: she 2 < he 4 (not preferred), he > she (preferred), not preferred, old = young (neutral)."""
    model = frequency_model(COUNTS | {"kind": 2, "very": 1, ".": 1})
    result = evaluate_crows_pairs(model, PAIRS[:4], "differing")
    assert (result.score, result.stereo, result.antistereo) == (25, 50, 0)
    assert (result.pairs, result.neutral, result.skipped) == (4, 1, 0)
    assert result.by_bias_type == {"age": 0, "gender": pytest.approx(100 / 3)}
    # The tokens that both have are the same ones, and as probable in either sentence for a model that ignores its input.
    shared = evaluate_crows_pairs(model, PAIRS[:4], "shared")
    assert (shared.score, shared.stereo, shared.antistereo, shared.neutral) == (0, None, None, 4)


@pytest.mark.parametrize(
    ("counts", "more", "less", "score", "neutral"),
    [
        ({"kind": 2, "##ly": 1, "strong": 1.3}, "he is kindly", "he is strong", 100, 0),
        ({"kind": 2, "##ly": 1, "very": 1.5}, "he is kindly", "he is very", 0, 0),
        ({"he": 1.0002, "she": 1, "is": 998.9998}, "he is", "she is", 0, 1),
        ({"he": 1.002, "she": 1, "is": 998.998}, "he is", "she is", 100, 0),
    ],
)
def test_means_of_differing_tokens_are_compared_to_three_decimals(
    counts: dict[str, float], more: str, less: str, score: float, neutral: int
) -> None:
    """The mean of ln 2 and ln 1 is more than ln 1.3 and less than ln 1.5."""
    model = frequency_model({"he": 9, "is": 9, **counts})
    result = evaluate_crows_pairs(model, [Pair(more, less, "stereo", "gender")], "differing")
    assert (result.score, result.neutral) == (score, neutral)


def slowly(model: MaskedLanguageModel, pairs: list[Pair], variant: str) -> tuple[float, int]:
    """The score in per cent and the number of pairs, one token at a time, as described by the authors."""
    model.model.eval()
    wins = number = 0
    for pair in pairs:
        stereo = pair.direction == "stereo"
        ids = [model.tokenizer(text)["input_ids"] for text in ((pair.more, pair.less) if stereo else (pair.less, pair.more))]
        places: list[list[int]] = [[], []]
        for tag, a, b, c, d in difflib.SequenceMatcher(None, list(map(str, ids[0])), list(map(str, ids[1]))).get_opcodes():
            if (tag == "equal") == (variant == "shared"):
                places[0] += range(a, b)
                places[1] += range(c, d)
        if variant == "shared":
            places = [each[1:-1] for each in places]
        elif not all(places):
            continue
        scores = []
        for tokens, wanted in zip(ids, places, strict=True):
            found = []
            for place in wanted:
                masked = [*tokens[:place], model.tokenizer.mask_token_id, *tokens[place + 1 :]]
                with torch.no_grad():
                    found.append(float(model.model(torch.tensor([masked])).logits[0, place].log_softmax(0)[tokens[place]]))
            scores.append(round(sum(found) / (len(found) if variant == "differing" else 1), 3))
        number += 1
        wins += scores[0] > scores[1] if stereo else scores[1] > scores[0]
    return 100 * wins / number, number


@pytest.mark.parametrize(("direction", "answers"), [("stereo", ["he", "he", "he", "he"]), ("antistereo", ["is", "is"])])
def test_common_tokens_are_found_in_the_order_of_the_publications(
    direction: str, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Difflib finds he…he…he…is and is…he…a…he to share two words, but is…he…a…he and he…he…he…is only one."""
    model, found = random_model(WORDS), []
    monkeypatch.setattr(
        model, "log_probabilities", lambda questions: found.extend(questions) or torch.zeros(len(questions)).double()
    )
    evaluate_crows_pairs(model, [Pair("he he he is", "is he a he", direction, "gender")], "shared")
    assert model.tokenizer.convert_ids_to_tokens([question.answer for question in found]) == answers


def test_scores_are_those_of_a_slow_loop() -> None:
    for variant, skipped in zip(VARIANTS, (1, 0), strict=True):
        found = set()
        for seed in range(6):
            model = random_model(WORDS, seed)
            result = evaluate_crows_pairs(model, PAIRS, variant)
            assert (result.score, result.pairs) == slowly(model, PAIRS, variant)
            assert result.skipped == skipped
            found.add(result.score)
        assert len(found) > 1


def test_real_pairs_score_as_in_a_slow_loop(data_dir: Path) -> None:
    pairs = read_crows_pairs(data_dir)
    gender = [pair for pair in pairs if pair.bias_type == "gender"]
    assert (len(pairs), len(gender), sum(pair.direction == "stereo" for pair in gender)) == (1508, 262, 159)
    model = load_masked_language_model(data_dir / "text/bert-wiki-mini", "cpu")
    for variant in VARIANTS:
        result = evaluate_crows_pairs(model, gender[::90], variant)
        assert (result.score, result.pairs) == slowly(model, gender[::90], variant)


HEADER = ",sent_more,sent_less,stereo_antistereo,bias_type\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"CrowS-Pairs needs crows_pairs_anonymized\.csv, which"),
        ("a,b\n1,2\n", "the header lacks sent_more, sent_less, stereo_antistereo, bias_type"),
        (HEADER, "holds no pairs"),
        (HEADER + "0,he,she,both,gender\n", "line 2: wanted two sentences, a bias_type, and stereo_antistereo out of stereo"),
        (HEADER + "0,,she,stereo,gender\n", "line 2: wanted two sentences"),
        (HEADER + '0,he,"she" is,stereo,gender\n', "row that begins on line 2: "),
        (HEADER.replace(",", ";") + "0;he;she;stereo\n", "line 2: 4 fields, but line 1 has 5"),
        (HEADER + "0,the man is very old,the man is old,stereo,age\n", "none of 1 pairs can be compared"),
    ],
)
def test_faults_of_files_are_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content:
        (tmp_path / "crows_pairs_anonymized.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        evaluate_crows_pairs(random_model(WORDS), read_crows_pairs(tmp_path), "differing")


def test_sentences_may_be_quoted(tmp_path: Path) -> None:
    (tmp_path / "crows_pairs_anonymized.csv").write_text(HEADER + '0,"he, is","she, is",stereo,gender\n')
    assert read_crows_pairs(tmp_path) == [Pair("he, is", "she, is", "stereo", "gender")]
