"""The suite ``sentence``: SimCSE with every temperature strategy, supervised and unsupervised, evaluated on STS and
transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug_adapters.simcse.recipe import METHOD, SimCSERecipe
from tempplug_benchmarks.arm import UNTRAINED, arms, fixed
from tempplug_benchmarks.data import sentences
from tempplug_benchmarks.papers import PaperRow
from tempplug_benchmarks.profile import PROFILES, Metric, Profile
from tempplug_benchmarks.resources import GPU
from tempplug_benchmarks.suite import Suite
from tempplug_benchmarks.task import Task

if TYPE_CHECKING:
    from tempplug_adapters.simcse.data import Sentences
    from tempplug_adapters.training.method import Source

BASELINE = "fixed:temperature=0.05+infonce"

TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
SPLITS = {
    "SST2": ("SST2_phrases.train", "SST2.dev", "SST2.test"),
    "TREC": ("TREC.train", "TREC.test"),
    "MRPC": ("MRPC.train", "MRPC.test"),
}
"""Files of the transfer tasks that have more than one."""
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")


def generated_pairs(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with paraphrases for the run's seed."""
    pairs = sentences.paraphrase_pairs(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, "pairs.tsv", ["view_a\tview_b", *map("\t".join, pairs)])


def generated_sentences(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with sentences for the run's seed."""
    lines = sentences.plain_sentences(recipe.max_train_samples or 0, recipe.seed)
    return _generated(recipe, source, "sentences.txt", lines)


def _generated(recipe: SimCSERecipe, source: Source, name: str, lines: Sequence[str]) -> tuple[SimCSERecipe, Sentences]:
    """Writes encoder, training data and evaluation data; the evaluation data are the same for every seed."""
    from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

    folder = source.cache_dir
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_tiny_encoder(folder / "encoder", seed=recipe.seed)
    sentences.write_sts(folder / "sts", seed=0, dev=1000)
    sentences.write_transfer(folder / "sts" / "transfer", seed=0)
    recipe = recipe.changed(model_name_or_path=str(folder / "encoder"))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / name), data_dir=folder / "sts"))


def read_text(recipe: SimCSERecipe, source: Source) -> tuple[SimCSERecipe, Sentences]:
    """Returns the recipe and data with paths in the data folder; a missing encoder is loaded from the hub."""
    folder = source.data_dir or Path()
    if (folder / recipe.model_name_or_path).is_dir():
        recipe = recipe.changed(model_name_or_path=str(folder / recipe.model_name_or_path))
    return recipe, METHOD.load().load(recipe, replace(source, dataset=str(folder / source.dataset)))


_GENERATED_PAIRS = Metric(
    name="similarity",
    figure="stsb_dev",
    summary="Spearman × 100 of cosines with the share of concepts in common, 1,000 generated pairs",
    smallest_difference=0.1,
)
_CHOICE = Metric(
    name="STSB-dev",
    figure="stsb_dev",
    summary="Spearman × 100 on the development set of STS-B, by which the checkpoint is chosen",
)
_REAL_STS = (
    _CHOICE,
    *(
        Metric(name=name, figure=name.lower(), summary=f"Spearman × 100 on the test set of {name}, subsets concatenated")
        for name in STS
    ),
    Metric(name="Avg", figure="sts_average", summary="mean Spearman × 100 of the seven test sets", smallest_difference=0.1),
)
_FIXED = fixed("infonce", 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.2)
_ADAPTIVE = ("macl+infonce", "macl+reweighted", "dystress+infonce", "temperature-free+infonce")
_ARMS = (*_FIXED, *fixed("dcl", 0.05), *_ADAPTIVE, "learnable+infonce", "schedule+infonce")
# Unreasonable temperatures, which show the cost of a wrong choice.
_QUICKSTART_FIXED = fixed("infonce", 0.01, 1)
_QUICKSTART = (
    *(UNTRAINED.label, *fixed("infonce", 0.01, 0.05, 1)),
    *("macl+infonce", "dystress+infonce", "temperature-free+infonce"),
)
_REPORTED = {
    BASELINE: (
        PaperRow("macl", "B.4", "SimCSE-BERT", "STS"),
        PaperRow("macl", "B.5", "SimCSE-BERT (repro)", "STS"),
        PaperRow("dystress", "5", "SimCSE (repro.)", "STS"),
    ),
    "macl+infonce": (PaperRow("macl", "B.4", "w/ MACL", "STS"),),
    # DySTreSS's code for its "MACL (repro.)" row reweights, which MACL's own sentence experiments do not.
    "macl+reweighted": (PaperRow("dystress", "5", "w/ MACL (repro.)", "STS"),),
    "dystress+infonce": (PaperRow("dystress", "5", "w/ DySTreSS", "STS"),),
}
_TRANSFER_REPORTED = {
    BASELINE: (PaperRow("dystress", "5", "SimCSE (repro.)", "transfer"),),
    "macl+reweighted": (PaperRow("dystress", "5", "w/ MACL (repro.)", "transfer"),),
    "dystress+infonce": (PaperRow("dystress", "5", "w/ DySTreSS", "transfer"),),
    "dystress:profile=shifted,shift=-0.2,width=0.6+infonce": (PaperRow("dystress", "11", "w/ DySTreSS+", "transfer"),),
    "dystress:profile=shifted,shift=-0.6,width=0.8+infonce": (PaperRow("dystress", "11", "w/ DySTreSS**", "transfer"),),
}
# Classifiers and embeddings of 67,349 phrases take minutes per run, so the small profile omits SST2 and most arms.
_TRANSFER_SMALL = tuple(name for name in TRANSFER if name != "SST2")
_TRANSFER_ARMS = (*_FIXED[1:6], *_ADAPTIVE)
_GENERATED: Mapping[str, Any] = {
    "model_name_or_path": "generated",
    "pooling": "avg",
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 32,
    "max_train_samples": 2560,
}
# The tiny encoder of the data folder.
_SMALL: Mapping[str, Any] = {"model_name_or_path": "text/bert-wiki-mini", "bf16": True}


def _quick(recipe: str, load: Any, **changes: Any) -> Profile:
    return Profile(
        dataset=f"generated sentences, version {sentences.VERSION}",
        stands_in="generated sentences",
        recipe=METHOD.recipe(recipe, num_train_epochs=1, **_GENERATED, **changes),
        arms=(UNTRAINED, *arms(*_ARMS, *_QUICKSTART_FIXED)),
        metrics=(_GENERATED_PAIRS,),
        primary=_GENERATED_PAIRS.name,
        load=load,
        training={"eval_strategy": "no", "save_strategy": "no"},
    )


def _accuracies(tasks: Sequence[str]) -> tuple[Metric, ...]:
    mean = "Avg" if tuple(tasks) == TRANSFER else f"Avg of {len(tasks)}"
    return (
        *(Metric(name=name, figure=name.lower(), summary=f"accuracy in per cent, {name} as SentEval has it") for name in tasks),
        Metric(name=mean, figure="transfer_average", summary="mean accuracy of these tasks", smallest_difference=0.1),
    )


def _transfer(profile: Profile, tasks: Sequence[str], labels: Sequence[str], reported: bool = True) -> Profile:
    """Returns a copy of a profile that is evaluated on transfer tasks instead of STS."""
    metrics = _accuracies(tasks)
    files = (f"text/transfer/{file}.tsv.gz" for name in tasks for file in SPLITS.get(name, (name,)))
    return replace(
        profile,
        dataset=f"{profile.dataset.partition(';')[0]}; {', '.join(tasks)} as SentEval has them",
        recipe=profile.recipe.changed(tasks=tuple(tasks)),
        arms=(UNTRAINED, *arms(*labels, reported=_TRANSFER_REPORTED if reported else None)),
        metrics=(_CHOICE, *metrics),
        primary=metrics[-1].name,
        needs=(*(name for name in profile.needs if not name.startswith("text/sts/")), "text/sts/STSB", *files),
    )


def _real(
    dataset: str,
    source: str,
    recipe: str,
    *,
    needs: tuple[str, ...] = (),
    reported: bool = False,
    training: Mapping[str, Any],
    **changes: Any,
) -> Profile:
    return Profile(
        dataset=f"{dataset}; STS12-16, STS-B and SICK-R as SentEval has them",
        recipe=METHOD.recipe(recipe, tasks=STS, **changes),
        arms=(UNTRAINED, *arms(*_ARMS, reported=_REPORTED if reported else None)),
        metrics=_REAL_STS,
        primary="Avg",
        validation=_CHOICE.name,
        source=source,
        load=read_text,
        needs=(source, *needs, *(f"text/sts/{name}" for name in STS)),
        training=training,
    )


_SMALL_UNSUPERVISED = _real(
    "25,600 sentences of Wikipedia (wiki_sentences.txt.gz)",
    "text/wiki/wiki_sentences.txt.gz",
    "unsupervised-bert",
    needs=("text/bert-wiki-mini",),
    reported=True,
    training={"eval_steps": 100, "save_steps": 100},
    **_SMALL,
    learning_rate=1e-4,
    max_train_samples=25_600,
)
_WIKI1M = ("1,000,000 sentences of Wikipedia (wiki1m_for_simcse.txt)", "text/wiki/wiki1m_for_simcse.txt")
_PAPER_UNSUPERVISED = _real(*_WIKI1M, "unsupervised-bert", reported=True, training={"fp16": True})
_PAPER_ROBERTA = _real(*_WIKI1M, "macl-roberta", training={"fp16": True})
_QUICK_UNSUPERVISED = _quick("unsupervised-bert", generated_sentences)
_QUICK_TRANSFER = replace(
    _quick("unsupervised-bert", generated_sentences, tasks=("TREC",)),
    metrics=(
        Metric(
            name="TREC",
            figure="trec",
            summary="accuracy in per cent, six kinds of generated sentences",
            smallest_difference=0.1,
        ),
    ),
    primary="TREC",
)
_SMALL_TRANSFER = _transfer(_SMALL_UNSUPERVISED, _TRANSFER_SMALL, _TRANSFER_ARMS)


def _unreported(profile: Profile) -> Profile:
    return replace(profile, arms=tuple(replace(arm, reported=()) for arm in profile.arms))


def _task(name: str, summary: str, quick: Profile, small: Profile, paper: Profile, **more: Any) -> Task:
    profiles = {"quick": quick, "small": small, "paper": paper}
    shared: dict[str, Any] = {"method": METHOD, "baseline": BASELINE, "resources": {"paper": GPU}, "profiles": profiles}
    return Task(name=name, summary=summary, **shared, **more)


_SMALL_SUPERVISED = _real(
    "20,600 entailment pairs of SNLI, MultiNLI and SICK (some share Flickr captions with STS images)",
    "text/nli/nli_pairs.tsv.gz",
    "supervised-bert",
    needs=("text/bert-wiki-mini",),
    training={"eval_steps": 80, "save_steps": 80},
    **_SMALL,
    columns=("premise", "hypothesis"),
    where=("label=entailment",),
    pooling="avg",
    learning_rate=6e-4,
    warmup_steps=0.05,
    per_device_train_batch_size=64,
    num_train_epochs=1,
)
_PAPER_SUPERVISED = _real(
    "275,601 triplets of SNLI and MultiNLI (nli_for_simcse.csv)",
    "text/nli/nli_for_simcse.csv",
    "supervised-bert",
    training={"fp16": True},
)
_ALL_TRANSFER_ARMS = tuple(dict.fromkeys((*_ARMS, *_TRANSFER_REPORTED)))
SUITE = Suite(
    "sentence",
    "SimCSE sentence embeddings on STS and transfer, supervised and unsupervised",
    (
        _task(
            "supervised",
            "pairs that say the same are positives, the other sentences of the batch are negatives",
            *(_quick("supervised-bert", generated_pairs), _SMALL_SUPERVISED, _PAPER_SUPERVISED),
        ),
        _task(
            "unsupervised",
            "a sentence twice through dropout is a positive pair, the other sentences of the batch are negatives",
            *(_QUICK_UNSUPERVISED, _SMALL_UNSUPERVISED, _PAPER_UNSUPERVISED),
            quickstart=_QUICKSTART,
            papers="sentence",
        ),
        _task(
            "transfer",
            "trained as unsupervised is; then a linear classifier learns to tell classes apart by the frozen vectors",
            *(_QUICK_TRANSFER, _SMALL_TRANSFER, _transfer(_PAPER_UNSUPERVISED, TRANSFER, _ALL_TRANSFER_ARMS)),
            papers="sentence",
        ),
        _task(
            "unsupervised-roberta",
            "as unsupervised, with RoBERTa as MACL has it; the smaller profiles have the encoder of that task",
            *(_QUICK_UNSUPERVISED, _unreported(_SMALL_UNSUPERVISED), _PAPER_ROBERTA),
            by_name=PROFILES,
        ),
        _task(
            "transfer-roberta",
            "as transfer, with RoBERTa as MACL has it; the smaller profiles have the encoder of that task",
            *(_QUICK_TRANSFER, _unreported(_SMALL_TRANSFER), _transfer(_PAPER_ROBERTA, TRANSFER, _ARMS, reported=False)),
            by_name=PROFILES,
        ),
    ),
)
