"""What a test puts in place of what a page says, so that its snippets take seconds and need no network.

`RULES` are substitutions on each shell command, its continuation lines joined and its comment gone, and on each piece of
Python: a model of the hub becomes a folder, a training gets two steps. `NUMBERS` are set in the product itself. `FILES` are
made in the folder of a page where its snippets name them. All hold for all pages, and a rule or a file that no page has any use
for fails a test.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from clip_toys import COLOURS, save_clip, save_pictures
from snippets import snippets

from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

PAIRS = paraphrase_pairs(64, 0)
TWO_STEPS = "--max-steps 2 --per-device-train-batch-size 8"

# (regular expression, what replaces it); `^` and `$` are the ends of a line
RULES: list[tuple[str, str]] = [
    (r"^(tempplug train simcse .*)$", rf"\1 --model-name-or-path bert {TWO_STEPS} --no-evaluate"),
    (r"^(tempplug train retrieval .*)$", rf"\1 --max-length 32 {TWO_STEPS}"),
    (r"^(tempplug train mabel .*)$", rf"\1 --model-name-or-path masked-bert {TWO_STEPS} --no-evaluate"),
    (r"^(tempplug train clip .*)--model-name-or-path \S+(.*)$", rf"\1--model-name-or-path tiny-clip\2 {TWO_STEPS}"),
    (r"^(tempplug train (?:grace|graphcl) .*)$", r"\1 --num-train-epochs 1"),
    (r"^(tempplug train molecule .*)$", r"\1 --max-pretrain-molecules 64 --num-train-epochs 1 --width 16 --finetune-epochs 1"),
    (r"^(tempplug train dcrec) --dataset beauty", r"\1 --dataset ratings.csv"),
    (r"^(tempplug train dcrec .*)$", r"\1 --num-train-epochs 1 --hidden 8 --inner 16"),
    (r"^(tempplug train msc .*)--dataset cifar10 --normal-class cat", r"\1--dataset digits --normal-class 3"),
    (r"^(tempplug train msc .*)$", r"\1 --num-train-epochs 1 --image-size 32 --train-images 32 --test-images 40"),
    (
        r"^((?:\S+ .*)?tempplug train sim(?:clr|siam) .*)$",
        r"\1 --num-train-epochs 1 --count 256 --width 8 --per-device-train-batch-size 32",
    ),
    (r"^((?:torchrun|accelerate) .*tempplug train .*)$", r"\1 --no-evaluate"),
    (r"^torchrun ", "torchrun --standalone "),  # a free port, as other tests may run beside these
    (r"^accelerate launch ", "accelerate launch --main_process_port 0 "),
    (r"^(tempplug train supcon .*)$", r"\1 --num-train-epochs 1 --width 8 --count 256 --per-device-train-batch-size 64"),
    (r"^(tempplug eval sts .*)$", r"\1 --tasks STS12 STSB"),
    (r"^(tempplug eval vision .*)$", r"\1 --test-images 64 --view-images 64"),
    (r"^(tempplug advise --train .*) 0\.05 0\.1 0\.5 1 --confirm 5 ", r"\1 1 --confirm 2 "),
    (r"^(tempplug advise\b(?! --train).*)$", r"\1 --max-pairs 60 --batch-size 24"),
    (r"^(tempplug bench .*--tasks citeseer) ", r"\1@num_train_epochs=2 "),
    (r"^(tempplug sweep .*) 0\.2 1 (.*) --seeds 0 1 ", r"\1 1 \2 --seeds 0 "),
    (r"^(tempplug sweep .*) 0\.02 0\.05 (.*) --seeds 0 1 2 ", r"\1 \2 --seeds 0 "),
    (r"google-bert/bert-base-uncased|sentence-transformers/all-MiniLM-L6-v2", "bert"),
    (r"(sentence_transformers_nli\.py .*)", r"\1 --triplets 512 --max_steps 2 --report_to none"),
    (r"(\btrain\.py --pairs .*)", r"\1 --use_cpu true --report_to none --max_steps 8 --logging_steps 2"),
]
# numbers that no option changes: each advice trains two dozen models
NUMBERS = {f"tempplug_adapters.advise.training.{name}": 4 for name in ("LONGEST", "LEAST_STEPS")}

_LONG = ["assistants", "benchmarks", "distributed", "first-five-minutes", "graphs", "images", "sentences", "trainers", "watch"]
# pages over five seconds, which `make fast` leaves out
SLOW = {"README.md", *(f"docs/{page}.md" for page in (*_LONG, "which-loss", "which-temperature", "writing-a-plugin"))}
# pages that read the folder named by TEMPPLUG_DATA
REAL_DATA = {f"docs/{page}.md" for page in ("anomalies", "debiasing", "graphs", "sentences", "trainers", "training")}
LIGHTNING = "ignore::DeprecationWarning:lightning"
# warnings of other people's packages that a page's snippets give rise to, as pytest's filters have them
LIGHTNINGS = ["ignore:.*(many workers|logging interval|treespec|torch.jit.script|dropout_adj)", LIGHTNING]
PIN = "ignore:.*pin_memory"  # of torch, where there is no GPU
WARNINGS: dict[str, list[str]] = {
    "docs/assistants.md": LIGHTNINGS,
    "docs/trainers.md": LIGHTNINGS,
    "docs/first-five-minutes.md": [PIN],
}


def lines(*rows: str) -> Callable[[Path], object]:
    """A file of these lines."""
    return lambda path: path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def embeddings(path: Path) -> None:
    """64 embeddings of width 16; those of two such files belong together row by row."""
    common, noise = np.random.default_rng(0).standard_normal((2, 64, 16), dtype="float32")
    np.save(path, common + (0.3 if path.stem == "positives" else 0.0) * noise)


def save_collection(folder: Path) -> None:
    """A collection in BEIR's layout, whose documents are the second sentences of pairs."""
    (folder / "qrels").mkdir(parents=True)
    for name, column in (("queries", 0), ("corpus", 1)):
        rows = (json.dumps({"_id": str(number), "text": pair[column]}) for number, pair in enumerate(PAIRS))
        lines(*rows)(folder / f"{name}.jsonl")
    lines("query-id\tcorpus-id\tscore", *(f"{number}\t{number}\t1" for number in range(len(PAIRS))))(
        folder / "qrels" / "test.tsv"
    )


def script(path: Path) -> None:
    """The training script that the guide to sweeps shows whole."""
    (shown,) = (each for each in snippets("docs/watch.md") if each.title == path.name)
    path.write_text(shown.code, encoding="utf-8")


_draw = random.Random(0)
_ENTAILED = ("premise\thypothesis\tlabel", *(f"the man and {a}\tthe man and {b}\tentailment" for a, b in PAIRS))
# name: what makes it
FILES: dict[str, Callable[[Path], object]] = {
    "anchors.npy": embeddings,
    "positives.npy": embeddings,
    "bert": partial(write_tiny_encoder, seed=0, layers=1, width=32),
    "masked-bert": partial(write_tiny_encoder, seed=0, layers=1, width=32, words=["he", "she", "man", "woman"], masked=True),
    "tiny-clip": lambda path: save_clip(path, ["a", "picture", "all", *COLOURS]),
    "pictures": save_pictures,
    "collections": lambda path: save_collection(path / "own"),
    "pairs.jsonl": lines(*(json.dumps({"anchor": a, "positive": b}) for a, b in PAIRS)),
    "faq.csv": lines("id,question,answer", *(f"{n},{a},{b}" for n, (a, b) in enumerate(PAIRS))),
    "articles.csv": lines("worse,wrong,body,title", *(f"no,none,{b},{a}" for a, b in PAIRS)),
    "nli_for_simcse.csv": lines(
        "sent0,sent1,hard_neg", *(f"{a},{b},{other}" for (a, b), (other, _) in zip(PAIRS, reversed(PAIRS), strict=True))
    ),
    "nli.tsv": lines(*_ENTAILED),
    "gender_entailment.tsv": lines(*_ENTAILED),
    "wiki1m_for_simcse.txt": lines(*(a for a, _ in PAIRS)),
    "gender_words.tsv": lines("male\tfemale", "he\tshe", "man\twoman"),
    "ratings.csv": lines(
        "userId,movieId,timestamp", *(f"{user},{_draw.randrange(30)},{moment}" for user in range(40) for moment in range(12))
    ),
    # a ring of 60 nodes with chords
    "edges.csv": lines("source,target", *(f"{node},{(node + step) % 60}" for node in range(60) for step in (1, 7))),
    "x.npy": lambda path: np.save(path, np.random.default_rng(0).random((60, 8), dtype="float32")),
    "y.csv": lines(*(str(node // 20) for node in range(60))),
    "train.py": script,
}


def shortened(code: str) -> str:
    """A command or a piece of Python, by all rules."""
    for pattern, replacement in RULES:
        code = re.sub(pattern, replacement, code, flags=re.MULTILINE)
    return code


def named(code: str) -> list[str]:
    """The files of `FILES` that code names, after the rules."""
    short = shortened(code)
    return [name for name in FILES if re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", short)]
