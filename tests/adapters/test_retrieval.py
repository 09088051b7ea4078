"""Retrieval: figures of trec_eval, the formula of BM25, files and their faults, held-out pairs, a training, its commands."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytrec_eval
import torch
from table_files import of_lines

from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.data_files.text_roles import PAIRS
from tempplug_adapters.data_files.text_rows import Sample, TextRows, open_texts
from tempplug_adapters.sentence_evaluation.retrieval import bm25, evaluate_retrieval, measure
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, load_collection
from tempplug_adapters.simcse.retrieval_method import CANDIDATES, RetrievalMethod, hold_out
from tempplug_adapters.simcse.retrieval_recipe import METHOD
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.trained import load
from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning")


def collection(documents: int, queries: int, graded: bool = True, seed: int = 0) -> tuple[Collection, torch.Tensor]:
    """A random collection, and scores with many ties, zeros of both signs and negative ones."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(queries, documents, generator=generator) * 3).round() / 2
    relevance = {}
    for query in range(queries):
        count = int(torch.randint(1, min(documents, 15), (), generator=generator))
        chosen = torch.randperm(documents, generator=generator)[:count].tolist()
        relevance[f"q{query}"] = {f"d{each}": (query + each) % 3 + 1 if graded else 1 for each in chosen}
    texts = {f"d{each}": f"text {each}" for each in range(documents)}
    return Collection(texts, {query: query for query in relevance}, relevance), scores


@pytest.mark.parametrize(("documents", "queries"), [(3, 2), (150, 300), (1200, 20)])
def test_the_figures_are_those_of_trec_eval_also_with_equal_scores(documents: int, queries: int) -> None:
    known, scores = collection(documents, queries)
    found = measure(lambda first, last: scores[first:last], known)
    ranked = {
        query: dict(zip(known.documents, row, strict=True)) for query, row in zip(known.queries, scores.tolist(), strict=True)
    }
    judged = {query: dict(relevant) for query, relevant in known.relevance.items()}
    oracle = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recip_rank", "recall.100"}).evaluate(ranked).values()
    wanted = {
        "ndcg@10": [each["ndcg_cut_10"] for each in oracle],
        "mrr@10": [each["recip_rank"] if each["recip_rank"] > 1 / 10.5 else 0.0 for each in oracle],
        "recall@100": [each["recall_100"] for each in oracle],
    }
    assert found == pytest.approx({name: 100 * sum(values) / queries for name, values in wanted.items()}, abs=1e-5)


def test_bm25_is_the_formula() -> None:
    texts = ["the cat sat on the mat", "The dog, the DOG!", "", "a cat and a dog", "x1 x2"]
    known = Collection(
        {str(number): text for number, text in enumerate(texts)}, {"a": "cat dog", "b": "the unknown x1"}, {"a": {"0": 1}}
    )
    words = [re.findall(r"[a-z0-9]+", text.lower()) for text in texts]
    mean = sum(map(len, words)) / len(words)
    wanted = []
    for query in known.queries.values():
        row = []
        for own in words:
            score = 0.0
            for word in query.split():
                found = sum(word in each for each in words)
                count = Counter(own)[word]
                idf = math.log(1 + (len(words) - found + 0.5) / (found + 0.5))
                score += idf * count * 1.9 / (count + 0.9 * (0.6 + 0.4 * len(own) / mean))
            row.append(score)
        wanted.append(row)
    torch.testing.assert_close(bm25(known)(0, 2), torch.tensor(wanted, dtype=torch.float64))


def write(folder: Path, name: str, *, beir: bool = False, packed: bool = False, **parts: str) -> None:
    content = {
        "corpus": '{"_id": "1", "title": "A title", "text": "one"}\n\n{"_id": "2", "title": "", "text": "two"}\n',
        "queries": '{"_id": "q", "text": "which"}\n{"_id": "unjudged", "text": "what"}\n',
        "qrels": "query-id\tcorpus-id\tscore\nq\t2\t2\nq\t1\t0\n",
        **parts,
    }
    for part, text in content.items():
        place = {"qrels": "qrels/test.tsv"}.get(part, f"{part}.jsonl") if beir else part
        file = folder / (f"{name}/{place}" if beir else f"{name}.{part}.{'tsv' if part == 'qrels' else 'jsonl'}")
        file.parent.mkdir(parents=True, exist_ok=True)
        data = text.replace('"_id"', '"id"' if not beir else '"_id"').encode()
        if packed:
            file = file.with_name(f"{file.name}.gz")
        file.write_bytes(gzip.compress(data) if packed else data)


@pytest.mark.parametrize("beir", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_collection_is_read_in_both_layouts(tmp_path: Path, beir: bool, packed: bool) -> None:
    write(tmp_path / "retrieval", "toy", beir=beir, packed=packed)
    columns = "documents '{0}', 'title', 'text'; queries '{0}', 'text'".format("_id" if beir else "id")
    wanted = Collection({"1": "A title one", "2": "two"}, {"q": "which"}, {"q": {"2": 2}}, columns)
    assert load_collection("toy", tmp_path) == wanted
    with pytest.raises(UnknownNameError, match=r"unknown collection 'toi'.*toy"):
        load_collection("toi", tmp_path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"corpus": '{"id": "1", "text": "a"}\n{"id": "1", "text": "b"}\n'}, r"line 2: id '1' occurs twice"),
        ({"corpus": '{"id": "1", "text": "a"}\n{"text": "b"}\n'}, r"line 2: id is missing"),
        ({"corpus": '{"id": "1"}\n'}, r"must have 'id' \(or '_id'\) and 'text'\. It has: 'id' \(integer"),
        ({"queries": "[]\n"}, r"toy.queries.jsonl holds no rows"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq\t9\t1\n"}, r"line 2: there is no document of that id"),
        ({"qrels": "query-id\tcorpus-id\tscore\nr\t1\t1\n"}, r"line 2: there is no query of that id"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq\t1\tyes\n"}, r"score 'yes' must be a whole number"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq\t1\t0\n"}, r"'toy' of .* has no query with a relevant document"),
        ({"qrels": "query\tdocument\nq\t1\n"}, r"the header lacks query-id"),
    ],
)
def test_faults_of_a_collection_name_file_and_line(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    write(tmp_path, "toy", **parts)
    with pytest.raises(DataError, match=message):
        load_collection("toy", tmp_path)


def test_a_missing_file_and_a_folder_without_collections_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="retrieval collections"):
        load_collection("toy", tmp_path)
    write(tmp_path, "toy")
    (tmp_path / "toy.queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"no toy\.queries\.jsonl, also as \.gz"):
        load_collection("toy", tmp_path)


def rows_of(folder: Path, samples: Sequence[Sample]) -> TextRows:
    """The samples as rows of a file."""
    of_lines(*({"query": sample.anchor, "pos": list(sample.positives)} for sample in samples))(folder / "rows.jsonl")
    return open_texts(folder / "rows.jsonl", roles=PAIRS)


def components(samples: Sequence[Sample]) -> list[set[str]]:
    """Queries and documents that belong together, by merging their sets."""
    groups: list[set[str]] = []
    for sample in samples:
        joined = {f"query {sample.anchor}", *(f"document {each}" for each in sample.positives)}
        for group in [each for each in groups if each & joined]:
            joined |= group
            groups.remove(group)
        groups.append(joined)
    return groups


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_what_belongs_together_is_held_out_together(tmp_path: Path, share: float) -> None:
    generator = random.Random(1)
    samples = [Sample(f"q{n}", tuple({f"d{n * 7 + generator.randrange(9)}" for _ in range(3)})) for n in range(40)]
    rows = rows_of(tmp_path, samples)
    split = hold_out(rows, share)
    hidden = {document for relevant in split.collection.relevance.values() for document in relevant}
    documents = {each for sample in samples for each in sample.positives}
    assert abs(len(hidden) - share * len(documents)) <= max(map(len, components(samples)))
    for group in components(samples):
        held = {name.removeprefix("document ") for name in group if name.startswith("document ")} & hidden
        queries = {name.removeprefix("query ") for name in group if name.startswith("query ")}
        assert not held or (f"document {held.pop()}" in group and queries <= split.collection.queries.keys())
    trained = [samples[position] for position in split.trained]
    assert len(trained) + len(split.collection.queries) == 40, "nothing is left out"
    assert hidden.isdisjoint(each for sample in trained for each in sample.positives)
    assert set(split.collection.documents) == documents, "training documents are searched, too"
    for query, relevant in split.collection.relevance.items():
        assert set(relevant) == {each for sample in samples if sample.anchor == query for each in sample.positives}
    assert hold_out(rows, share).collection == split.collection


def test_forty_queries_of_three_hundred_documents_are_held_out_by_the_share(tmp_path: Path) -> None:
    samples = [Sample(f"q{number % 40}", (f"d{number}",)) for number in range(300)]
    split = hold_out(rows_of(tmp_path, samples), 0.1)
    assert len(split.collection.queries) == 4
    assert split.note == f"held out: 4 queries and {300 - len(split.trained)} of 300 documents"
    assert 268 <= len(split.trained) <= 272, "a query has 7 or 8 documents"


def test_pairs_alone_are_held_out_by_a_random_order_of_their_documents(tmp_path: Path) -> None:
    samples = [Sample(f"q{number}", (f"d{number}",)) for number in range(100)]
    order = [f"d{number}" for number in range(100)]
    random.Random(0).shuffle(order)
    split = hold_out(rows_of(tmp_path, samples), 0.1)
    assert list(split.collection.documents) == order
    assert {each for relevant in split.collection.relevance.values() for each in relevant} == set(order[:10])
    assert len(hold_out(rows_of(tmp_path, samples), 7.0).collection.relevance) == 7, "from 1 on a number of documents"


def test_where_all_belong_together_queries_are_cut_out_and_their_pairs_are_counted(tmp_path: Path) -> None:
    samples = [Sample(f"q{query}", (f"d{(query * 2 + place) % 60}",)) for query in range(30) for place in range(3)]
    assert len(components(samples)) == 1
    split = hold_out(rows_of(tmp_path, samples), 0.2)
    hidden = {document for relevant in split.collection.relevance.values() for document in relevant}
    trained = [samples[position] for position in split.trained]
    lost = len(samples) - len(trained) - sum(map(len, split.collection.relevance.values()))
    assert 10 <= len(hidden) <= 12
    assert lost > 0
    assert f"of 60 documents; left out: {lost} pairs of these documents with other queries" in split.note
    assert hidden.isdisjoint(each for sample in trained for each in sample.positives)
    assert split.collection.queries.keys().isdisjoint(sample.anchor for sample in trained)
    for query, relevant in split.collection.relevance.items():
        assert set(relevant) == {each for sample in samples if sample.anchor == query for each in sample.positives}


def test_held_out_documents_are_no_hard_negatives_of_the_training(toys: Path, tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "pos": [f"d {n}"], "neg": [f"d {(n + k) % 100}" for k in (1, 2)]} for n in range(100)]
    of_lines(*rows)(tmp_path / "t.jsonl")
    recipe = METHOD.recipe().changed(model_name_or_path=str(toys / "encoder"), held_out=0.3)
    data = RetrievalMethod(METHOD).load(recipe, Source(str(tmp_path / "t.jsonl"), None, tmp_path, evaluated=False))
    hidden = {document for relevant in data.split.collection.relevance.values() for document in relevant}
    negatives = [set(sample.negatives) for sample in data.views.samples]
    assert len(hidden) == 30
    assert all(hidden.isdisjoint(each) for each in negatives)
    lost = 2 * 70 - sum(map(len, negatives))
    assert f"left out: {lost} hard negatives that are such documents" in RetrievalMethod(METHOD).describe(data)


def test_texts_of_held_out_pairs_are_read_when_they_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(tmp_path, [Sample(f"q{number}", (f"d{number}", f"e{number}")) for number in range(50)])

    def read(*_: object) -> NoReturn:
        raise AssertionError("millions of texts need more memory than their table")

    with monkeypatch.context() as patch:
        patch.setattr(TextRows, "__iter__", read)
        patch.setattr(TextRows, "__getitem__", read)
        split = hold_out(rows, 0.2)
    assert split.collection.relevance == {
        f"q{row[1:]}": {f"d{row[1:]}": 1, f"e{row[1:]}": 1} for row in split.collection.queries
    }
    assert len(split.collection.queries) == 10


def test_few_documents_are_searched_and_too_few_pairs_are_refused(tmp_path: Path) -> None:
    many = [Sample(f"q{number}", (f"d{number}",)) for number in range(2 * CANDIDATES)]
    held_out = hold_out(rows_of(tmp_path, many), 0.1).collection
    assert (len(held_out.documents), len(held_out.queries)) == (CANDIDATES, CANDIDATES // 5)
    four = rows_of(tmp_path, [Sample(query, (f"d{query}",)) for query in "abcd"])
    with pytest.raises(DataError, match=r"held_out=0\.7 leaves 1 of 4 samples"):
        hold_out(four, 0.7)
    with pytest.raises(DataError, match=r"held_out=0\.1 of 4 documents holds out none with its query: give a larger share"):
        hold_out(four, 0.1)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, 200 training pairs, and a collection of 40 other pairs."""
    folder = tmp_path_factory.mktemp("toys")
    write_tiny_encoder(folder / "encoder", seed=0, layers=1, width=32)
    pairs = paraphrase_pairs(240, 0)
    (folder / "pairs.tsv").write_text("query\tdocument\n" + "".join(f"{a}\t{b}\n" for a, b in pairs[:200]))
    tested = dict(enumerate(pairs[200:]))
    write(
        folder,
        "toy",
        corpus="".join(json.dumps({"id": f"d{number}", "text": b}) + "\n" for number, (_, b) in tested.items()),
        queries="".join(json.dumps({"id": f"q{number}", "text": a}) + "\n" for number, (a, _) in tested.items()),
        qrels="query-id\tcorpus-id\tscore\n" + "".join(f"q{number}\td{number}\t1\n" for number in tested),
    )
    return folder


def test_a_training_improves_chooses_by_held_out_pairs_and_opens_again(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(output: Path, *more: str) -> dict[str, Any]:
        words = ["--model-name-or-path", toys / "encoder", "--dataset", toys / "pairs.tsv", "--data-dir", toys]
        words += ["--tasks", "toy", "--output-dir", output, "--max-length", "32", "--learning-rate", "2e-3"]
        assert main(["train", "retrieval", *map(str, words), "--per-device-train-batch-size", "16", *more]) == 0
        found: dict[str, Any] = json.loads((output / "metrics.json").read_text())
        return found

    before = train(tmp_path / "before", "--num-train-epochs", "0")["evaluation"]
    result = train(
        tmp_path / "out",
        "--temperature-strategy",
        "macl",
        "--num-train-epochs",
        "6",
        "--eval-steps",
        "11",
        "--save-steps",
        "11",
    )
    after = result["evaluation"]
    assert set(after) == {"held_out_ndcg@10", "toy_ndcg@10", "toy_mrr@10", "toy_recall@100"}
    assert after["held_out_ndcg@10"] > before["held_out_ndcg@10"] + 10
    assert after["toy_ndcg@10"] > before["toy_ndcg@10"] + 5
    courses = [entry["eval_held_out_ndcg@10"] for entry in result["history"] if "eval_held_out_ndcg@10" in entry]
    assert len(courses) == 8, "the untrained one, and seven evaluations"
    assert max(courses) == after["held_out_ndcg@10"], "the best encoder is kept"
    assert result["strategy"].startswith("macl:base_temperature=0.05")
    assert load(tmp_path / "out").evaluate(toys) == pytest.approx(after, abs=1e-3)
    capsys.readouterr()
    output = tmp_path / "result.json"
    words = ["eval", "retrieval", tmp_path / "out", "--data-dir", toys, "--bm25", "--output", output]
    assert main(list(map(str, words))) == 0
    found = json.loads(output.read_text())
    assert found["scores"]["toy"] == pytest.approx({name.removeprefix("toy_"): after[name] for name in after if "toy" in name})
    assert found["bm25"]["toy"] == measure(bm25(load_collection("toy", toys)), load_collection("toy", toys))
    said = capsys.readouterr().out
    assert "columns  toy: documents 'id', 'text'; queries 'id', 'text'\n" in said
    row = next(line.split() for line in said.splitlines() if line.startswith("toy "))
    assert row[:4] == ["toy", "40", "40", f"{after['toy_ndcg@10']:.2f}"]
    assert found["max_length"] == 32


def test_bad_input_is_named(toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "retrieval", "--model-name-or-path", str(toys / "encoder"), "--output-dir", str(tmp_path / "out")]
    (tmp_path / "single.txt").write_text("one\ntwo\n")
    cases = [
        (["--dataset", str(tmp_path / "single.txt"), "--data-dir", str(toys)], "contains single texts; wanted are pairs"),
        (["--dataset", str(toys / "pairs.tsv"), "--data-dir", str(toys), "--tasks", "tay"], "unknown collection 'tay'"),
        (["--dataset", str(toys / "pairs.tsv"), "--held-out", "0"], "held_out=0 must be greater than 0"),
        (
            ["--dataset", str(toys / "pairs.tsv"), "--held-out", "2.5"],
            "held_out=2.5 must be a share below 1 or a whole number",
        ),
    ]
    for more, message in cases:
        assert main([*words, *more]) != 0
        assert message in capsys.readouterr().err, message
    with pytest.raises(ConfigError, match="batch_size=0"):
        evaluate_retrieval(None, toys, ["toy"], batch_size=0)


def test_bm25_on_real_collections(data_dir: Path) -> None:
    """Without stems and stop words a little below the figures of BM25 with both: 67.7 on SciFact, 66.3 on Medline."""
    found = evaluate_retrieval(None, data_dir, ["medline", "scifact"])
    assert {name: scores["ndcg@10"] for name, scores in found.scores.items()} == pytest.approx(
        {"medline": 64.84, "scifact": 66.11}, abs=0.01
    )
    assert found.queries == {"medline": 30, "scifact": 300}
