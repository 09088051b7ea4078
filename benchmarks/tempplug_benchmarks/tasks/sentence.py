"""The suite ``sentence``: SimCSE with every temperature strategy, supervised and unsupervised, measured on STS.

Declares tasks, recipes and arms; `sentence_runs` executes them. Importing this loads no framework.
"""

from __future__ import annotations

from tempplug_benchmarks.data import sentences
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Arm, Metric, Profile, Task
from tempplug_benchmarks.tasks.sentence_runs import GENERATED, STS, train_supervised, train_unsupervised

BASELINE = "fixed-0.05"

_GENERATED_STS = (Metric(name="STSB", summary="Spearman × 100 on 1,000 generated pairs"),)
_REAL_STS = (
    Metric(name="STSB-dev", summary="Spearman × 100 on the development set of STS-B, by which the checkpoint is chosen"),
    *(Metric(name=name, summary=f"Spearman × 100 on the test set of {name}, subsets concatenated") for name in STS),
    Metric(name="Avg", summary="mean Spearman × 100 of the seven test sets"),
)
_REPORTED = {
    BASELINE: (
        PaperRow("macl", "B.4", "SimCSE-BERT", "STS"),
        PaperRow("macl", "B.5", "SimCSE-BERT (repro)", "STS"),
        PaperRow("dystress", "5", "SimCSE (repro.)", "STS"),
    ),
    "macl": (PaperRow("macl", "B.4", "w/ MACL", "STS"),),
    # DySTreSS's code for its "MACL (repro.)" row reweights, which MACL's own sentence experiments do not.
    "macl-reweighted": (PaperRow("dystress", "5", "w/ MACL (repro.)", "STS"),),
    "dystress": (PaperRow("dystress", "5", "w/ DySTreSS", "STS"),),
}


def _arms(epochs: float, reported: bool = False) -> tuple[Arm, ...]:
    """Returns the arms of a profile.

    Args:
        epochs: of its recipe; a schedule's period is a fifth of them.
        reported: whether the papers' rows answer the same question.
    """
    macl = "macl:base_temperature=0.05,alpha=2,threshold=0.8"
    specs = (
        ("fixed-0.02", "fixed:temperature=0.02", "infonce"),
        (BASELINE, "fixed:temperature=0.05", "infonce"),
        ("fixed-0.1", "fixed:temperature=0.1", "infonce"),
        ("fixed-0.2", "fixed:temperature=0.2", "infonce"),
        ("fixed-0.05-dcl", "fixed:temperature=0.05", "dcl"),
        ("macl", macl, "infonce"),
        ("macl-reweighted", macl, "reweighted"),
        ("dystress", "dystress:temperature_min=0.03,temperature_max=0.05", "infonce"),
        ("temperature-free", "temperature-free", "infonce"),
        ("learnable", "learnable:initial_temperature=0.05", "infonce"),
        ("schedule", f"schedule:temperature_min=0.025,temperature_max=0.1,period={epochs / 5:g}", "infonce"),
    )
    return tuple(Arm(*spec, reported=_REPORTED.get(spec[0], ()) if reported else ()) for spec in specs)


def _quick(samples: int, learning_rate: float) -> Profile:
    return Profile(
        dataset=f"generated sentences, version {sentences.VERSION}",
        recipe={
            "model": GENERATED,
            "pooler": "avg",
            "learning_rate": learning_rate,
            "warmup": 0.0,
            "batch_size": 32,
            "epochs": 1.0,
            "max_length": 32,
            "train_samples": samples,
            "eval_steps": None,
            "precision": "fp32",
        },
        arms=_arms(epochs=1.0),
        metrics=_GENERATED_STS,
        primary="STSB",
    )


def _real(
    dataset: str, needs: tuple[str, ...], reported: bool, epochs: float, **recipe: str | int | float | bool | None
) -> Profile:
    return Profile(
        dataset=f"{dataset}; STS12-16, STS-B and SICK-R as SentEval has them",
        recipe={**recipe, "epochs": epochs},
        arms=_arms(epochs, reported),
        metrics=_REAL_STS,
        primary="Avg",
        needs=(*needs, *(f"text/sts/{name}" for name in STS)),
    )


SUITE = Suite(
    "sentence",
    "SimCSE sentence embeddings on STS, supervised and unsupervised",
    (
        Task(
            name="supervised",
            summary="pairs that say the same are positives, the other sentences of the batch are negatives",
            baseline=BASELINE,
            train=train_supervised,
            profiles={
                "quick": _quick(samples=2560, learning_rate=1e-3),
                "small": _real(
                    "20,600 entailment pairs of SNLI, MultiNLI and SICK (some share Flickr captions with STS images)",
                    ("text/nli/nli_pairs.tsv.gz", "text/bert-wiki-mini"),
                    reported=False,
                    model="bert-wiki-mini",
                    pooler="avg",
                    learning_rate=6e-4,
                    warmup=0.05,
                    batch_size=64,
                    epochs=1.0,
                    max_length=32,
                    train_samples=None,
                    eval_steps=80,
                    precision="bf16",
                ),
                "paper": _real(
                    "275,601 triplets of SNLI and MultiNLI (nli_for_simcse.csv)",
                    ("text/nli/nli_for_simcse.csv",),
                    reported=False,
                    model="bert-base-uncased",
                    pooler="cls",
                    learning_rate=5e-5,
                    warmup=0.0,
                    batch_size=512,
                    epochs=3.0,
                    max_length=32,
                    train_samples=None,
                    eval_steps=125,
                    precision="fp16",
                ),
            },
        ),
        Task(
            name="unsupervised",
            summary="a sentence twice through dropout is a positive pair, the other sentences of the batch are negatives",
            baseline=BASELINE,
            papers="sentence",
            train=train_unsupervised,
            profiles={
                "quick": _quick(samples=2560, learning_rate=1e-3),
                "small": _real(
                    "25,600 sentences of Wikipedia (wiki_sentences.txt.gz)",
                    ("text/wiki/wiki_sentences.txt.gz", "text/bert-wiki-mini"),
                    reported=True,
                    model="bert-wiki-mini",
                    pooler="cls_mlp",
                    learning_rate=1e-4,
                    warmup=0.0,
                    batch_size=64,
                    epochs=1.0,
                    max_length=32,
                    train_samples=25600,
                    eval_steps=100,
                    precision="bf16",
                ),
                "paper": _real(
                    "1,000,000 sentences of Wikipedia (wiki1m_for_simcse.txt)",
                    ("text/wiki/wiki1m_for_simcse.txt",),
                    reported=True,
                    model="bert-base-uncased",
                    pooler="cls_mlp",
                    learning_rate=3e-5,
                    warmup=0.0,
                    batch_size=64,
                    epochs=1.0,
                    max_length=32,
                    train_samples=None,
                    eval_steps=125,
                    precision="fp16",
                ),
            },
        ),
    ),
)
