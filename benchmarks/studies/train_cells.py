"""Which temperature, strategy and negatives are best, by length of the training, batch, start, false and hard negatives.

    python -m studies.train_cells PLAN.toml --data-dir DATA --output DIR

trains a model on the pairs of each data set of a plan, once for each cell, arm and seed, and writes a line of JSON for each
into ``DIR/SET.jsonl``, with a figure on held-out data and on a test. The same command goes on where an earlier one ended. The
models are the mean of word vectors and a small BERT (`studies.texts`; nDCG@10 × 100), a small ResNet-18 on images and a
graph network on nodes (`studies.views`; accuracy of kNN × 100). Adam's rate, √(batch/128) times that of the cell or the model,
falls to 0; InfoNCE is symmetric.

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
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from statistics import fmean
from typing import Any, Protocol

import torch
from torch import Tensor, nn

import tempplug
from studies.cells import AT, Cell, read_lines, run_of
from studies.text_settings import TextSettings
from tempplug.arguments import split_specs
from tempplug.cli import shell
from tempplug.errors import DataError
from tempplug_adapters.contexts import in_context
from tempplug_adapters.storage.files import write_text
from tempplug_benchmarks.run.fields import check_fields
from tempplug_benchmarks.run.fixed_plan import read_plan
from tempplug_benchmarks.run.store import describe_machine, hardware, versions

LAST = ("temperature_mean", "positive_probability", "effective_negatives", "negatives_left_out")
"""Statistics of the last step that a result has."""
TOLERANCE = 0.02
"""Most that a figure may differ from that of another training with the same seed, as a share of it."""
EVERY = 8
"""Steps between two temperatures of the mean over the training."""


class Data(Protocol):
    """A data set, its length being the number of its pairs, with the model that is trained on it.

    Attributes:
        rate: Adam's, for batches of `AT`.
        starts: those of `STARTS` that the model has.
    """

    rate: float
    starts: tuple[str, ...]

    def __len__(self) -> int: ...

    def model(self, start: str, generator: torch.Generator) -> nn.Module:
        """Returns the model before its training."""
        ...

    def inputs(self, rows: Tensor, copied: Tensor, hard: bool, generator: torch.Generator) -> Mapping[str, Any]:
        """Returns what the model turns into the embeddings of a batch, by argument of the loss.

        Args:
            rows: [n] the pairs.
            copied: [n] of bool, which are repetitions of others, to be shown in another way: false negatives.
            hard: whether each pair has a hard negative.
            generator: of what is random.
        """
        ...

    def known(self, takes: Iterable[str], rows: Tensor, inputs: Any) -> dict[str, Any]:
        """Returns further arguments of the loss, those that it ``takes`` and others."""
        ...

    def targets(self, kind: str, rows: Tensor) -> dict[str, Any]:
        """Returns the targets of a batch, as the argument of the loss; none for the kind ''."""
        ...

    def figures(self, model: nn.Module) -> dict[str, float]:
        """Returns ``held_out`` and ``test``, from 0 to 100."""
        ...


MODELS = {
    "static": "studies.texts:load_static",
    "bert": "studies.texts:load_bert",
    "images": "studies.views:load_image_views",
    "nodes": "studies.views:load_nodes",
}
"""What loads a `Data`, given the two names of a set, the data folder, the most pairs, the guide and, for `TEXT_MODELS` alone,
`TextSettings`; a report needs none."""
TEXT_MODELS = ("static", "bert")


@dataclass(frozen=True, kw_only=True)
class CellsPlan:
    """What runs, fixed beforehand; see ``benchmarks/studies/temperature_law/plans/temperature_law.toml``.

    Attributes:
        date: ISO 8601.
        question: what the runs are to answer.
        sets: names of ``SET.train.tsv.gz`` and of the test collection; of images that of the set whose labels
            pretrain the network, of a graph nothing.
        cells: settings of `Cell`.
        pairs: most pairs of a data set, drawn from all.
        temperatures: fixed ones of every cell.
        guide: folder of a sentence encoder below the data folder; empty: the encoder before the training.
        variants: what follows the spec of each fixed temperature in further arms, such as ``+infonce+same-key``.
        candidates: further arms of every cell.
        strategies: specs that run in the cells that differ from the first one in passes alone; ``{passes}`` and ``{twice}`` in
            them stand for their number and twice that.
        seeds: of order, copies and random starts.
        decisions: rules that turn the results into answers.
        model: one of `MODELS`.
        rates: learning rates that every cell runs with; none: that of the cell.
        fraction: every data set trains one in ``fraction`` of the pairs of an arm and a rate in each cell: those where the
            places of arm, rate, cell and data set, counted from 0, have a sum that it divides. With ``fraction`` arms and as
            many rates, a set trains with each of them once in a cell (a Latin square).
        texts: fields of `TextSettings`.
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
    model: str = "static"
    rates: Sequence[float] = ()
    fraction: int = 1
    texts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise DataError(f"model={self.model!r} of a plan must be one of {', '.join(MODELS)}.")
        if self.guide and self.model not in TEXT_MODELS:
            raise DataError(f"guide={self.guide!r} of a plan must be empty for model={self.model!r}: texts alone have one.")
        if self.texts and self.model not in TEXT_MODELS:
            raise DataError(f"texts of a plan must be absent for model={self.model!r}: {', '.join(TEXT_MODELS)} read texts.")

    def load(self, name: str, collection: str, data_dir: Path) -> Data:
        """Returns a data set of the plan; raises `DataError` for fields that `TextSettings` lacks, and without files."""
        load = resolve_name(MODELS[self.model])
        if self.model not in TEXT_MODELS:
            return load(name, collection, data_dir, self.pairs, self.guide)  # type: ignore[no-any-return]
        settings = TextSettings(**check_fields(TextSettings, self.texts, "texts of the plan"))
        return load(name, collection, data_dir, self.pairs, self.guide, settings)  # type: ignore[no-any-return]

    def runs(self, name: str) -> Iterator[tuple[Cell, str, int]]:
        """Yields cell, strategy and seed of every run of a data set; raises `DataError` for fields that `Cell` lacks."""
        cells = [Cell(**check_fields(Cell, each, "a cell of the plan")) for each in self.cells]
        of_set = [*self.sets].index(name)
        for seed in self.seeds:
            for of_cell, cell in enumerate(cells):
                plain = cell == replace(cells[0], passes=cell.passes)
                fixed = [f"fixed:temperature={each:g}{more}" for more in ("", *self.variants) for each in self.temperatures]
                specs = [*fixed, *self.candidates, *(self.strategies if plain else ())]
                for of_rate, rate in enumerate(self.rates or (cell.rate,)):
                    for of_spec, spec in enumerate(specs):
                        if (of_set + of_cell + of_rate + of_spec) % self.fraction == 0:
                            yield replace(cell, rate=rate), spec, seed


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
    """Trains once; returns the figures on held-out data and on the test, the number of steps, the mean temperature of the
    training, the mean similarity of negatives in the first batch, and the statistics `LAST`; raises `DataError` for a
    start that the model lacks.

    Args:
        data: see `MODELS`.
        cell: how it is trained on.
        arm: see the module; with ``{passes}`` and ``{twice}`` as in `CellsPlan`.
        seed: of order, copies, views and random starts.
    """
    if cell.start not in data.starts:
        raise DataError(f"start={cell.start!r} of a cell must be one of {', '.join(data.starts)} for this model.")
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = data.model(cell.start, generator).train()
    loss_fn = create_loss(arm.format(passes=cell.passes, twice=2 * cell.passes), len(data)).to(next(model.parameters()).device)
    loss_fn.set_length(cell.passes)
    rate = (cell.rate or data.rate) * (cell.batch / AT) ** 0.5
    groups: list[dict[str, Any]] = [{"params": [*model.parameters()]}, {"params": [*loss_fn.parameters()], "lr": 1e-2}]
    optimizer = torch.optim.Adam([each for each in groups if each["params"]], lr=rate, fused=True)
    batch, done = min(cell.batch, len(data)), 0
    steps = len(data) // batch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (steps * cell.passes))
    copies = round(cell.noise * batch)
    copied = torch.arange(batch) >= batch - copies
    temperatures, first = [], {}
    for number in range(cell.passes):
        order = torch.randperm(len(data), generator=generator)
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            rows = torch.cat([rows[: batch - copies], rows[:copies]])
            inputs = data.inputs(rows, copied, cell.hard, generator)
            views = {name: model(each) for name, each in inputs.items()}
            more: dict[str, Any] = loss_fn.accepted(index=rows, **data.known(loss_fn.takes, rows, inputs))
            more |= data.targets(cell.targets, rows)
            loss_fn.set_progress(epoch=number + step / steps)
            loss: Tensor = loss_fn(**views, **more)
            if done == 0:
                first = loss_fn.record.to_dict()
            if done % EVERY == 0:
                temperatures.append(float(loss_fn.record.to_dict()["temperature_mean"]))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
    record = loss_fn.record.to_dict()
    figures = data.figures(model) | {"steps": done, "temperature": fmean(temperatures)}
    if "negative_similarity" in first:  # a teacher's targets make every candidate a positive
        figures["first_similarity"] = float(first["negative_similarity"])
    return figures | {name: float(record[name]) for name in LAST if name in record}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what a plan has and the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plan", type=Path, help="TOML file with the fields of CellsPlan")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of real data")
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--verify", type=int, metavar="N", help="train N stored runs again in place of what is missing")
    options = parser.parse_args(arguments)
    plan = read_plan(options.plan, CellsPlan)
    if options.verify:
        verify(plan, options.data_dir, options.output, options.verify)
        return
    about = {"versions": versions(), "machine": describe_machine(hardware())}
    options.output.mkdir(parents=True, exist_ok=True)
    for seed in plan.seeds:
        for name in plan.sets:
            run_set(plan, name, seed, options.data_dir, options.output, about)


def verify(plan: CellsPlan, data_dir: Path, output: Path, count: int) -> None:
    """Trains stored runs drawn at random again and prints how far their figures are from the stored ones.

    Raises:
        DataError: there are fewer runs, or a figure differs by more than `TOLERANCE` of it.
    """
    stored = [(name, line) for name in plan.sets for line in read_lines(output / f"{name}.jsonl")]
    if len(stored) < count:
        raise DataError(f"{output} has {len(stored)} runs of the plan; --verify {count} needs as many.")
    worst = 0.0
    for name, line in random.Random(0).sample(stored, count):
        cell, spec, seed = run_of(line)
        result = train(plan.load(name, plan.sets[name], data_dir), cell, spec, seed)
        difference = max(abs(result[figure] / line[figure] - 1) for figure in ("held_out", "test"))
        worst = max(worst, difference)
        print(f"{name} {spec} seed {seed}: stored {line['test']:.2f}, now {result['test']:.2f}; {difference:.2%} apart at most")
    if worst > TOLERANCE:
        raise DataError(
            f"figures of {output} differ by up to {worst:.1%} from those of a new training; allowed are {TOLERANCE:.0%}."
        )


def run_set(plan: CellsPlan, name: str, seed: int, data_dir: Path, output: Path, about: Mapping[str, Any]) -> None:
    """Runs what ``NAME.jsonl`` lacks of a data set and seed of a plan, and appends a line with ``about`` for each run."""
    file = output / f"{name}.jsonl"
    lines = read_lines(file)
    write_text(file, "".join(f"{json.dumps(line)}\n" for line in lines))  # without a torn last line
    done = {run_of(line) for line in lines}
    with file.open("a", encoding="utf-8") as results:
        for cell, spec, own in plan.runs(name):
            if own != seed or (cell, spec, seed) in done:
                continue
            data = plan.load(name, plan.sets[name], data_dir)
            began = time.process_time()
            result = train(data, cell, spec, seed)
            line = {**asdict(cell), "strategy": spec, "seed": seed, **{k: float(f"{v:.5g}") for k, v in result.items()}}
            line |= {"seconds": round(time.process_time() - began, 1), "date": datetime.now(UTC).isoformat("T", "seconds")}
            print(json.dumps({**line, **about}), file=results, flush=True)
            print(name, line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(shell(main))
