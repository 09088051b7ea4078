"""The part of `shortened` that is about tempplug's own commands: small models for those of the hub, a few steps, tables.

It must not know what a page says around a command.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

from tempplug_benchmarks.data.sentences import paraphrase_pairs
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

TWO_STEPS = "--max-steps 2 --per-device-train-batch-size 8"

# `^` and `$` are the ends of a line
RULES: list[tuple[str, str]] = [
    (r"^(tempplug train simcse .*)$", rf"\1 --model-name-or-path bert {TWO_STEPS} --no-evaluate"),
    (r"^(tempplug train mabel .*)$", rf"\1 --model-name-or-path masked-bert {TWO_STEPS} --no-evaluate"),
    (r"^(tempplug train clip .*)--model-name-or-path \S+(.*)$", rf"\1--model-name-or-path tiny-clip\2 {TWO_STEPS}"),
    (r"^(tempplug train (?:grace|graphcl) .*)$", r"\1 --num-train-epochs 1"),
    (r"^(tempplug train molecule .*)$", r"\1 --max-pretrain-molecules 64 --num-train-epochs 1 --width 16 --finetune-epochs 1"),
    (r"^(tempplug train dcrec) --dataset beauty", r"\1 --dataset ratings.csv --columns userId movieId timestamp"),
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
    (r"^(tempplug train supcon .*)$", r"\1 --num-train-epochs 1 --width 8"),
    (r"^(tempplug eval vision .*)$", r"\1 --test-images 64 --view-images 64"),
    (r"^(tempplug advise\b.*)$", r"\1 --max-pairs 60 --batch-size 24"),
    (r"^(tempplug sweep .*) 0\.2 1 (.*) --seeds 0 1 ", r"\1 1 \2 --seeds 0 "),
]

_LONG = ["benchmarks", "distributed", "graphs", "images", "sentences", "watch", "which-temperature"]
SLOW = {f"docs/{page}.md" for page in _LONG}
REAL_DATA = {"docs/anomalies.md", "docs/debiasing.md", "docs/graphs.md", "docs/sentences.md", "docs/training.md"}


def masked_bert(path: Path) -> None:
    """A folder with a BERT of one layer, a head for masked tokens, and its tokenizer."""
    write_tiny_encoder(path, seed=0, layers=1, width=32, words=["he", "she", "man", "woman"], masked=True)


def sentences(path: Path) -> None:
    """64 sentences, one a line."""
    path.write_text("".join(f"{a}\n" for a, _ in paraphrase_pairs(64, 0)), encoding="utf-8")


def table(path: Path) -> None:
    """64 pairs or triplets of sentences in the columns that a page's command names."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    pairs = list(paraphrase_pairs(64, 0))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if path.suffix == ".tsv":
            writer.writerow(["premise", "hypothesis", "label"])
            writer.writerows([f"the man and {a}", f"the man and {b}", "entailment"] for a, b in pairs)
        else:
            writer.writerow(["sent0", "sent1", "hard_neg"])
            writer.writerows([a, b, other] for (a, b), (other, _) in zip(pairs, reversed(pairs), strict=True))


def gender_words(path: Path) -> None:
    """Two pairs of words."""
    path.write_text("male\tfemale\nhe\tshe\nman\twoman\n", encoding="utf-8")


def ratings(path: Path) -> None:
    """40 users with histories over 30 items."""
    draw = random.Random(0)
    rows = [f"{user},{draw.randrange(30)},{moment}" for user in range(40) for moment in range(12)]
    path.write_text("\n".join(["userId,movieId,timestamp", *rows]) + "\n", encoding="utf-8")


def edges(path: Path) -> None:
    """A ring of 60 nodes with chords."""
    rows = [f"{node},{(node + step) % 60}" for node in range(60) for step in (1, 7)]
    path.write_text("\n".join(["source,target", *rows]) + "\n", encoding="utf-8")


def node_features(path: Path) -> None:
    """Eight features for each of 60 nodes."""
    import numpy as np

    np.save(path, np.random.default_rng(0).random((60, 8), dtype="float32"))


def node_labels(path: Path) -> None:
    """The class of each of 60 nodes."""
    path.write_text("".join(f"{node // 20}\n" for node in range(60)), encoding="utf-8")


def pictures(path: Path) -> None:
    """Pictures of one colour with captions."""
    from clip_toys import save_pictures

    save_pictures(path)


def tiny_clip(path: Path) -> None:
    """A random CLIP for them."""
    from clip_toys import COLOURS, save_clip

    save_clip(path, ["a", "picture", "all", *COLOURS])


FILES: dict[str, Callable[[Path], None]] = {
    "masked-bert": masked_bert,
    "tiny-clip": tiny_clip,
    "pictures": pictures,
    "nli_for_simcse.csv": table,
    "nli.tsv": table,
    "gender_entailment.tsv": table,
    "wiki1m_for_simcse.txt": sentences,
    "gender_words.tsv": gender_words,
    "ratings.csv": ratings,
    "edges.csv": edges,
    "x.npy": node_features,
    "y.csv": node_labels,
}
