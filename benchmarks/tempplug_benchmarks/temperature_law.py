"""Which temperature, strategy and negatives are best, by length of the training, batch, start, false and hard negatives.

    python -m tempplug_benchmarks.temperature_law PLAN.toml --data-dir DATA --output DIR

trains a static encoder (the mean of word vectors) on the pairs of each data set of a plan, once for each cell, arm and seed,
and writes a line of JSON for each into ``DIR/SET.jsonl``: nDCG@10 × 100 on held-out pairs and on the test collection. The same
command goes on where an earlier one ended. Adam's rate falls from 0.03·√(batch/128) to 0; InfoNCE is symmetric.

An arm is ``STRATEGY[+OBJECTIVE[+TERM...]][@OPTIONS of cross-view]``. The key of a pair is its document. The guide of a term,
which also finds hard negatives, is the encoder before its training, or the sentence encoder that the plan names.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

import tempplug
from tempplug.arguments import split_specs
from tempplug.cli import shell
from tempplug.errors import DataError
from tempplug_adapters.contexts import in_context
from tempplug_adapters.sentence_evaluation.encoder import load_encoder
from tempplug_adapters.sentence_evaluation.retrieval import measure
from tempplug_adapters.sentence_evaluation.retrieval_data import Collection, load_collection
from tempplug_adapters.simcse.data import read_samples
from tempplug_adapters.simcse.retrieval_method import hold_out
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.data.static_encoder import static_words
from tempplug_benchmarks.run.fields import check_fields
from tempplug_benchmarks.run.fixed_plan import read_plan
from tempplug_benchmarks.run.store import describe_machine, hardware, versions

RATE, AT = 0.03, 128
"""The learning rate, and the batch that has it."""
LONGEST, QUERIES = 64, 2000
"""Most words of a text that are read, and most queries of a test collection."""
HELD_OUT = 0.1
"""Share of the documents that are held out with their queries."""
HARD = 10
"""A hard negative is the document at this rank for its query by the guide, its own left out."""
STARTS = ("vectors", "centred", "random")
KEPT = 0.5
"""Share of the words that the copy of a pair keeps; the copy is a false negative of the pair."""
LAST = ("temperature_mean", "positive_probability", "effective_negatives", "negatives_left_out")
"""Statistics of the last step that a result has."""
EVERY = 8
"""Steps between two temperatures of the mean over the training."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """How a data set is trained on.

    Attributes:
        passes: over the pairs.
        batch: pairs of a step.
        noise: share of a batch's pairs that are copies of others of it with half of their words: false negatives.
        hard: whether every query has a hard negative.
        start: ``vectors`` (GloVe), ``centred`` (the same minus their mean over the words of the training pairs) or ``random``,
            normally distributed with their deviation.

    Raises:
        DataError: ``start`` is none of these.
    """

    passes: int
    batch: int = AT
    noise: float = 0.0
    hard: bool = False
    start: str = "vectors"

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise DataError(f"start={self.start!r} of a cell must be one of {', '.join(STARTS)}.")


@dataclass(frozen=True, kw_only=True)
class LawPlan:
    """What runs, fixed beforehand; see ``benchmarks/plans/temperature_law.toml``.

    Attributes:
        date: ISO 8601.
        question: what the runs are to answer.
        sets: names of ``SET.train.tsv.gz`` and of the test collection.
        cells: settings of `Cell`.
        pairs: most pairs of a data set, drawn from all.
        temperatures: fixed ones of every cell.
        guide: folder of a sentence encoder below the data folder; empty: the vectors before the training.
        variants: what follows the spec of each fixed temperature in further arms, such as ``+infonce+same-key``.
        candidates: further arms of every cell.
        strategies: specs that run in the cells that differ in passes alone.
        seeds: of order, copies and random starts.
        decisions: rules that turn the results into answers.
    """

    date: str
    question: str
    sets: Mapping[str, str]
    cells: Sequence[Mapping[str, Any]]
    pairs: int
    temperatures: Sequence[float]
    candidates: Sequence[str]
    strategies: Sequence[str]
    seeds: Sequence[int]
    guide: str = ""
    variants: Sequence[str] = ()
    decisions: Sequence[str] = ()

    def runs(self) -> Iterator[tuple[Cell, str, int]]:
        """Yields cell, strategy and seed of every run of a data set; raises `DataError` for fields that `Cell` lacks."""
        for seed in self.seeds:
            for cell in (Cell(**check_fields(Cell, each, "a cell of the plan")) for each in self.cells):
                plain = cell == Cell(passes=cell.passes)
                fixed = [f"fixed:temperature={each:g}{more}" for more in ("", *self.variants) for each in self.temperatures]
                for spec in [*fixed, *self.candidates, *(self.strategies if plain else ())]:
                    yield cell, spec, seed


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts as numbers of words, one after the other: ``words`` [sum of lengths], ``lengths`` [n]."""

    words: Tensor
    lengths: Tensor

    def of(self, rows: Tensor) -> Texts:
        """Returns the texts of some rows, [m] of integers, in their order."""
        lengths = self.lengths[rows]
        first = self.lengths.cumsum(0)[rows] - lengths
        within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return Texts(self.words[first.repeat_interleave(lengths) + within], lengths)

    def halved(self, which: Tensor, generator: torch.Generator) -> Texts:
        """Returns all texts, those of ``which``, [n] of bool, with the first and a random half of their other words."""
        owner = torch.arange(len(self.lengths)).repeat_interleave(self.lengths)
        first = torch.zeros(len(self.words), dtype=torch.bool)
        first[self.lengths.cumsum(0) - self.lengths] = True
        kept = ~which[owner] | first | (torch.rand(len(self.words), generator=generator) < KEPT)
        return Texts(self.words[kept], torch.zeros_like(self.lengths).index_add_(0, owner[kept], torch.ones_like(owner[kept])))

    def vectors(self, weight: Tensor) -> Tensor:
        """Returns the means of their words' vectors, [n, D]."""
        return functional.embedding_bag(self.words, weight, self.lengths.cumsum(0) - self.lengths, mode="mean")


@dataclass(frozen=True, slots=True)
class Data:
    """A data set.

    Attributes:
        start: [V, D] the pretrained vectors of its words.
        queries: those of the n training pairs.
        documents: those of the n training pairs.
        keys: [n] the numbers of their documents.
        guide: [n, D] of the queries and of the documents by the encoder that a plan names; those of a copy are its pair's.
        hard: [n] the pair whose document is the hard negative of each query.
        measured: ``held_out`` and ``test``: a collection, its queries and its documents.
    """

    start: Tensor
    queries: Texts
    documents: Texts
    keys: Tensor
    guide: tuple[Tensor, Tensor] | None
    hard: Tensor
    measured: Mapping[str, tuple[Collection, Texts, Texts]]


@cache
def load(name: str, collection: str, data_dir: Path, most: int, guide: str = "") -> Data:
    """Returns at most ``most`` training pairs of ``name``, and a test collection; raises `DataError` without files.

    ``guide`` is that of `LawPlan`; `ConfigError` is raised if it cannot be loaded.
    """
    samples = [each[:2] for each in read_samples(data_dir / "text" / "retrieval" / f"{name}.train.tsv.gz")]
    pairs, held_out = hold_out(random.Random(0).sample(samples, min(most, len(samples))), HELD_OUT)
    whole = load_collection(collection, data_dir)
    asked = dict(islice(whole.queries.items(), QUERIES))
    searched = {"held_out": held_out, "test": replace(whole, queries=asked)}
    texts = [text for pair in pairs for text in pair]
    for each in searched.values():
        texts += [*each.documents.values(), *each.queries.values()]
    tokenizer, start = static_words(data_dir / "text" / "glove-6b-50d-100k", texts)
    split = _splitter(tokenizer)

    def numbers(those: Iterable[str]) -> Texts:
        found = [each[:LONGEST] or [1] for each in split(list(those), add_special_tokens=False)["input_ids"]]
        return Texts(torch.tensor([word for each in found for word in each]), torch.tensor([len(each) for each in found]))

    queries, documents = (numbers(each) for each in zip(*pairs, strict=True))
    parts = {key: (each, numbers(each.queries.values()), numbers(each.documents.values())) for key, each in searched.items()}
    own = {text: number for number, text in enumerate(dict.fromkeys(pair[1] for pair in pairs))}
    keys = torch.tensor([own[pair[1]] for pair in pairs])
    seen = None
    if guide:
        encoder = load_encoder(data_dir / guide, max_length=LONGEST)
        seen = (encoder([pair[0] for pair in pairs]), encoder([pair[1] for pair in pairs]))
    hard = _hard(*(seen or (queries.vectors(start), documents.vectors(start))), keys)
    return Data(start, queries, documents, keys, seen, hard, parts)


def _splitter(tokenizer: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    made = Tokenizer.from_str(json.dumps(tokenizer))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")  # type: ignore[no-untyped-call]


def _hard(queries: Tensor, documents: Tensor, document: Tensor) -> Tensor:
    """Returns the row of each query's hard negative, given vectors and the number of each pair's document."""
    units = functional.normalize(documents, dim=1)
    found = []
    for first in range(0, len(document), 1000):
        scores = functional.normalize(queries[first : first + 1000], dim=1) @ units.T
        scores[document[first : first + 1000, None] == document] = -torch.inf
        found.append(scores.topk(HARD, dim=1).indices[:, -1])
    return torch.cat(found)


def create_loss(arm: str, size: int) -> tempplug.ContrastiveLoss:
    """Returns the loss of an arm for this many training pairs; raises `ConfigError` and `UnknownNameError` for a wrong arm."""
    parts, _, options = arm.partition("@")
    strategy, *others = split_specs(parts)
    objective: Any = others[0] if others else "infonce"
    layout: Any = f"cross-view:{options}" if options else "cross-view"
    return tempplug.ContrastiveLoss(
        in_context(strategy, {}, size=size),
        objective,
        layout,
        negatives="+".join(others[1:]) or None,
        symmetric=not options,
    )


def train(data: Data, cell: Cell, arm: str, seed: int) -> dict[str, float]:
    """Trains once; returns nDCG@10 × 100 on held-out pairs and on the test, the number of steps, the mean temperature of the
    training, and the statistics `LAST`.

    Args:
        data: see `load`.
        cell: how it is trained on.
        arm: see the module.
        seed: of order, copies and random vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    weight = _start(data, cell, generator).requires_grad_()
    loss_fn = create_loss(arm, len(data.queries.lengths))
    loss_fn.set_length(cell.passes)
    rate = RATE * (cell.batch / AT) ** 0.5
    groups: list[dict[str, Any]] = [{"params": [weight]}, {"params": list(loss_fn.parameters()), "lr": 1e-2}]
    optimizer = torch.optim.Adam([each for each in groups if each["params"]], lr=rate, fused=True)
    pairs, done = len(data.queries.lengths), 0
    batch = min(cell.batch, pairs)
    steps = pairs // batch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (steps * cell.passes))
    copies = round(cell.noise * batch)
    temperatures = []
    for number in range(cell.passes):
        order = torch.randperm(pairs, generator=generator)
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            rows = torch.cat([rows[: batch - copies], rows[:copies]])
            copied = torch.arange(batch) >= batch - copies
            texts = {"view_a": data.queries.of(rows), "view_b": data.documents.of(rows)}
            if copies:
                texts = {name: each.halved(copied, generator) for name, each in texts.items()}
            if cell.hard:
                texts["hard_negatives"] = data.documents.of(data.hard[rows])
            views = {name: each.vectors(weight) for name, each in texts.items()}
            more: dict[str, Any] = loss_fn.accepted(index=rows, keys=data.keys[rows])
            if "guide" in loss_fn.takes:
                more["guide"] = _guided(data, rows, texts)
            loss_fn.set_progress(epoch=number + step / steps)
            loss: Tensor = loss_fn(**views, **more)
            if done % EVERY == 0:
                temperatures.append(float(loss_fn.record.to_dict()["temperature_mean"]))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
    record = loss_fn.record.to_dict()
    figures = _figures(data, weight.detach()) | {"steps": done, "temperature": fmean(temperatures)}
    return figures | {name: float(record[name]) for name in LAST if name in record}


def _start(data: Data, cell: Cell, generator: torch.Generator) -> Tensor:
    """Returns the word vectors before the training."""
    if cell.start == "random":
        return torch.randn(data.start.shape, generator=generator) * data.start[2:].std()
    start = data.start.clone()
    if cell.start == "centred":  # not those of padding and unknown words, which are 0
        start[2:] -= start[torch.cat([data.queries.words, data.documents.words])].mean(0)
    return start


def _guided(data: Data, rows: Tensor, texts: Mapping[str, Texts]) -> dict[str, Tensor]:
    """Returns the vectors of a step's texts by the guide."""
    if data.guide is None:
        return {name: each.vectors(data.start) for name, each in texts.items()}
    queries, documents = data.guide
    of = {"view_a": queries[rows], "view_b": documents[rows], "hard_negatives": documents[data.hard[rows]]}
    return {name: of[name] for name in texts}


@torch.no_grad()
def _figures(data: Data, weight: Tensor) -> dict[str, float]:
    return {name: _ndcg(weight, *measured) for name, measured in data.measured.items()}


def _ndcg(weight: Tensor, collection: Collection, *texts: Texts) -> float:
    """Returns nDCG@10 × 100, given the queries and the documents of a collection."""
    queries, documents = (functional.normalize(each.vectors(weight), dim=1) for each in texts)
    return measure(lambda first, last: queries[first:last] @ documents.T, collection)["ndcg@10"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what a plan has and the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plan", type=Path, help="TOML file with the fields of LawPlan")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of real data")
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    options = parser.parse_args(arguments)
    plan = read_plan(options.plan, LawPlan)
    about = {"versions": versions(), "machine": describe_machine(hardware())}
    options.output.mkdir(parents=True, exist_ok=True)
    for name, collection in plan.sets.items():
        file = options.output / f"{name}.jsonl"
        lines = read_lines(file)
        write_text(file, "".join(f"{json.dumps(line)}\n" for line in lines))  # without a torn last line
        have = {run_of(line) for line in lines}
        with file.open("a", encoding="utf-8") as output:
            for cell, spec, seed in plan.runs():
                if (cell, spec, seed) in have:
                    continue
                data, began = load(name, collection, options.data_dir, plan.pairs, plan.guide), time.process_time()
                result = train(data, cell, spec, seed)
                line = {**asdict(cell), "strategy": spec, "seed": seed, **{k: float(f"{v:.5g}") for k, v in result.items()}}
                line |= {"seconds": round(time.process_time() - began, 1), "date": datetime.now(UTC).isoformat("T", "seconds")}
                print(json.dumps(line | about), file=output, flush=True)
                print(name, line, file=sys.stderr)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Returns the results of a file, without a last line that was not written to its end."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run_of(line: Mapping[str, Any]) -> tuple[Cell, str, int]:
    """Returns the cell, the strategy and the seed of a result."""
    return Cell(**{each.name: line[each.name] for each in fields(Cell)}), line["strategy"], line["seed"]


if __name__ == "__main__":
    sys.exit(shell(main))
