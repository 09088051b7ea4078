"""CrowS-Pairs: both published variants by hand and by a slow loop of its own, and files."""

from __future__ import annotations

import difflib
import math
from pathlib import Path

import pytest
import torch
from bias_toys import frequency_model, random_model, write_crows_pairs

from tempplug.errors import DataError
from tempplug_adapters.bias_evaluation.crows_pairs import Pair, evaluate_crows_pairs, read_crows_pairs
from tempplug_adapters.bias_evaluation.masked_language_model import MaskedLanguageModel, load_masked_language_model

WORDS = [
    "he",
    "she",
    "man",
    "old",
    "young",
    "is",
    "the",
    "a",
    "nurse",
    "doctor",
    "strong",
    "kind",
    "very",
    "##ly",
    "her",
    "##e",
    ".",
]
PAIRS = [
    Pair("she is a nurse .", "he is a nurse .", "stereo", "gender"),
    Pair("he is strong", "she is strong", "stereo", "gender"),
    Pair("she is a doctor .", "he is a doctor .", "antistereo", "gender"),
    Pair("she is very kindly .", "he is kind", "antistereo", "gender"),  # several tokens, and as many as not
    Pair("the man is very old .", "the man is old .", "stereo", "age"),  # the second lacks no token of the first
    Pair("the old man is kind", "the young man is kind", "stereo", "age"),
]
COUNTS = {"he": 4, "she": 2, "man": 1, "old": 3, "young": 3, "is": 1, "the": 1, "a": 1, "nurse": 1, "doctor": 1, "strong": 1}


def test_a_frequency_baseline_scores_as_computed_by_hand() -> None:
    """Differing tokens: she 2 < he 4 (not preferred), he > she (preferred), not preferred, old = young (neutral)."""
    model = frequency_model(COUNTS | {"kind": 2, "very": 1, ".": 1})
    pairs = [*PAIRS[:3], PAIRS[5]]
    result = evaluate_crows_pairs(model, pairs, "differing")
    assert (result.score, result.stereo, result.antistereo) == (25, 50, 0)
    assert (result.pairs, result.neutral, result.skipped) == (4, 1, 0)
    assert result.by_bias_type == {"age": 0, "gender": pytest.approx(100 / 3)}
    # The tokens that both have are the same ones, and so probable in either sentence for a model that looks at neither.
    shared = evaluate_crows_pairs(model, pairs, "shared")
    assert (shared.score, shared.stereo, shared.antistereo, shared.neutral) == (0, None, None, 4)


def test_a_mean_of_differing_tokens_is_compared() -> None:
    """Kind (2) and ly (1) against strong (1.3): the mean of ln 2 and ln 1 is more than ln 1.3, their sum as well; a max not."""
    model = frequency_model({"he": 9, "is": 9, "kind": 2, "##ly": 1, "strong": 1.3, "very": 1.5})
    assert math.log(2) / 2 > math.log(1.3)
    assert math.log(2) / 2 < math.log(1.5)
    pair = Pair("he is kindly", "he is strong", "stereo", "gender")
    assert evaluate_crows_pairs(model, [pair], "differing").score == 100
    assert evaluate_crows_pairs(model, [Pair("he is kindly", "he is very", "stereo", "gender")], "differing").score == 0


def test_scores_are_rounded_to_three_decimals() -> None:
    for more, neutral in ((1.0002, 1), (1.002, 0)):
        model = frequency_model({"he": more, "she": 1.0, "is": 1000 - more})
        assert evaluate_crows_pairs(model, [Pair("he is", "she is", "stereo", "gender")], "differing").neutral == neutral


def slowly(model: MaskedLanguageModel, pairs: list[Pair], kind: str) -> tuple[float, int]:
    """The score in per cent and the number of pairs, one token at a time, as the authors' prose says."""
    model.model.eval()
    wins = number = 0
    for pair in pairs:
        stereo = pair.direction == "stereo"
        texts = (pair.more, pair.less) if stereo else (pair.less, pair.more)
        ids = [model.tokenizer(text)["input_ids"] for text in texts]
        places: list[list[int]] = [[], []]
        for tag, a, b, c, d in difflib.SequenceMatcher(None, list(map(str, ids[0])), list(map(str, ids[1]))).get_opcodes():
            if (tag == "equal") == (kind == "shared"):
                places[0] += range(a, b)
                places[1] += range(c, d)
        if kind == "shared":
            places = [each[1:-1] for each in places]
        elif not places[0] or not places[1]:
            continue
        scores = []
        for tokens, wanted in zip(ids, places, strict=True):
            found = []
            for place in wanted:
                masked = list(tokens)
                masked[place] = model.tokenizer.mask_token_id
                with torch.no_grad():
                    logits = model.model(torch.tensor([masked])).logits[0, place]
                found.append(float(logits.log_softmax(0)[tokens[place]]))
            scores.append(round(sum(found) / (len(found) if kind == "differing" else 1), 3))
        number += 1
        wins += scores[0] > scores[1] if stereo else scores[1] > scores[0]
    return 100 * wins / number, number


@pytest.mark.parametrize(("direction", "asked"), [("stereo", ["he", "he", "he", "he"]), ("antistereo", ["is", "is"])])
def test_common_tokens_are_found_in_the_order_of_the_publications(
    direction: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Difflib finds he…he…he…is and is…he…a…he to share two words, but is…he…a…he and he…he…he…is only one."""
    model, found = random_model(WORDS), []
    monkeypatch.setattr(
        model, "log_probabilities", lambda questions: found.extend(questions) or torch.zeros(len(questions)).double()
    )
    evaluate_crows_pairs(model, [Pair("he he he is", "is he a he", direction, "gender")], "shared")
    assert model.tokenizer.convert_ids_to_tokens([question.answer for question in found]) == asked


@pytest.mark.parametrize("variant", ["differing", "shared"])
def test_scores_are_those_of_a_slow_loop(variant: str) -> None:
    found = set()
    for seed in range(6):
        model = random_model(WORDS, seed)
        result = evaluate_crows_pairs(model, PAIRS, variant)  # type: ignore[arg-type]
        assert (result.score, result.pairs) == slowly(model, PAIRS, variant)
        assert result.skipped == (1 if variant == "differing" else 0)
        found.add(result.score)
    assert len(found) > 1


@pytest.mark.parametrize("variant", ["differing", "shared"])
def test_real_pairs_score_as_in_a_slow_loop(data_dir: Path, variant: str) -> None:
    pairs = read_crows_pairs(data_dir)
    gender = [pair for pair in pairs if pair.bias_type == "gender"]
    assert (len(pairs), len(gender)) == (1508, 262)
    assert sum(pair.direction == "stereo" for pair in gender) == 159
    some = gender[::90]
    model = load_masked_language_model(data_dir / "text/bert-wiki-mini", "cpu")
    result = evaluate_crows_pairs(model, some, variant)  # type: ignore[arg-type]
    assert (result.score, result.pairs) == slowly(model, some, variant)


def test_where_nothing_can_be_compared_it_is_said() -> None:
    with pytest.raises(DataError, match="none of 1 pairs can be compared"):
        evaluate_crows_pairs(random_model(WORDS), [PAIRS[4]], "differing")


def test_faults_of_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CrowS-Pairs needs crows_pairs_anonymized\.csv, which"):
        read_crows_pairs(tmp_path)
    write_crows_pairs(tmp_path, [("he, is", "she, is", "stereo", "gender")])
    assert read_crows_pairs(tmp_path) == [Pair("he, is", "she, is", "stereo", "gender")]
    for row, message in [
        (("he", "she", "both", "gender"), "line 2: wanted two sentences, a bias_type, and stereo_antistereo out of stereo and"),
        (("", "she", "stereo", "gender"), "line 2: wanted two sentences"),
        (("he", 'she" is', "stereo", "gender"), "after line 1: "),
    ]:
        write_crows_pairs(tmp_path, [row])
        with pytest.raises(DataError, match=message):
            read_crows_pairs(tmp_path)
    write_crows_pairs(tmp_path, [])
    with pytest.raises(DataError, match="holds no pairs"):
        read_crows_pairs(tmp_path)
    (tmp_path / "crows_pairs_anonymized.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="the header lacks sent_more, sent_less, stereo_antistereo, bias_type"):
        read_crows_pairs(tmp_path)
