"""``tempplug eval sts``, ``transfer`` and ``retrieval``: scores of a sentence encoder as a table and as JSON."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError
from tempplug_adapters.evaluation.command import EvalCommand, Flags, Measure, Progress, Table, tasks_flag, text_command
from tempplug_adapters.huggingface.pooling import POOLINGS
from tempplug_adapters.sentence_evaluation.sts_data import STS_TASKS
from tempplug_adapters.sentence_evaluation.transfer_data import TRANSFER_TASKS

if TYPE_CHECKING:
    from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, SentenceEncoder

HUB_NOTE = (
    "note     the hub's texts are not tokenised as in SentEval, and its SICK-R is all of SICK;\n"
    "         for numbers that compare with the literature, give --data-dir"
)


def encoder_command(*, measure: Measure, table: Table, flags: Flags, **more: Any) -> EvalCommand:
    """Returns a command that measures a sentence encoder; see `text_command`."""

    def load(options: Namespace) -> SentenceEncoder | LibraryEncoder:
        # imported here, so that --help and a mistyped option answer at once
        from tempplug_adapters.sentence_evaluation.encoder import load_encoder

        return load_encoder(options.model, options.pooling, options.max_length, options.device, options.prompt_name)

    def measured(options: Namespace, encoder: SentenceEncoder | LibraryEncoder, progress: Progress) -> dict[str, Any]:
        about = {name: getattr(encoder, name) for name in ("pooling", "pooling_source", "max_length")}
        return {"model": options.model, **about, **measure(options, encoder, progress)}

    def whole_table(options: Namespace, found: dict[str, Any]) -> list[str]:
        length = "any length" if found["max_length"] is None else f"at most {found['max_length']} tokens"
        head = [f"model    {found['model']}", f"pooling  {found['pooling']} ({found['pooling_source']}), {length}"]
        data, *rows = table(options, found)
        return [*head, f"{data}; {found['sentences']} sentences in {found['seconds']:.1f} s", *rows]

    pooling = f"of the transformer, without the model's other modules: {', '.join(POOLINGS)} (default: the model's own, else "
    pooling += "cls_before_pooler)"
    own: Flags = {
        "--pooling": {"choices": POOLINGS, "metavar": "NAME", "help": pooling},
        "--prompt-name": {"help": "name of the model's prompt that is put before each sentence (default: the model's own)"},
        "--max-length": {"type": int, "help": "longest sentence in tokens (default: the model's own)"},
    }
    return text_command(
        model="folder of a transformers or sentence-transformers model, or its name on the hub",
        batch=(512, "sentences per call of the encoder"),
        flags={**own, **flags},
        load=load,
        measure=measured,
        table=whole_table,
        **more,
    )


def _check_sts(options: Namespace) -> None:
    from tempplug_adapters.sentence_evaluation.sts import prepare_sts

    prepare_sts(options.data_dir, options.tasks, options.split, options.backend)


def _sts(options: Namespace, encoder: SentenceEncoder | LibraryEncoder, progress: Progress) -> dict[str, Any]:
    from tempplug_adapters.sentence_evaluation.sts import evaluate_sts

    more = {"split": options.split, "batch_size": options.batch_size, "backend": options.backend}
    return evaluate_sts(encoder, options.data_dir, options.tasks, progress=progress, **more).to_dict()


def _sts_table(options: Namespace, found: dict[str, Any]) -> list[str]:
    data = f"data     {options.data_dir or 'Hugging Face hub'}, {found['split']}, correlations by {found['backend']}"
    lines = [data, *([HUB_NOTE] if found["source"] == "hub" else []), f"{'task':<8} {'pairs':>6} {'Spearman x 100':>15}"]
    lines += [f"{task:<8} {found['pairs'][task]:>6} {value:>15.2f}" for task, value in found["spearman"].items()]
    average = found["average"]
    return lines if average is None else [*lines, f"{'average':<8} {'':>6} {average:>15.2f}"]


def _check_transfer(options: Namespace) -> None:
    from tempplug_adapters.sentence_evaluation.transfer import prepare_transfer

    if options.data_dir is None:
        raise ConfigError("--data-dir is missing: name the folder with MR.tsv.gz and the other tasks, or set TEMPPLUG_DATA.")
    prepare_transfer(options.data_dir, options.tasks, **_protocol(options))


def _transfer(options: Namespace, encoder: SentenceEncoder | LibraryEncoder, progress: Progress) -> dict[str, Any]:
    from tempplug_adapters.sentence_evaluation.transfer import evaluate_transfer

    more = {"batch_size": options.batch_size, "device": next(encoder.model.parameters()).device, **_protocol(options)}
    return evaluate_transfer(encoder, options.data_dir, options.tasks, progress=progress, **more).to_dict()


def _protocol(options: Namespace) -> dict[str, Any]:
    from tempplug_adapters.sentence_evaluation.transfer import FAST, REPORTED

    return {"protocol": FAST if options.fast else REPORTED, "backend": options.backend}


def _transfer_table(options: Namespace, found: dict[str, Any]) -> list[str]:
    data = f"data     {options.data_dir}, {found['folds']} folds, classifiers by {found['backend']}"
    lines = [data, f"{'task':<8} {'rows':>6} {'accuracy':>9} {'dev':>7} {'F1':>7}"]
    for task, value in found["accuracy"].items():
        f1 = f"{found['f1'][task]:>7.2f}" if task in found["f1"] else ""
        lines.append(f"{task:<8} {found['rows'][task]:>6} {value:>9.2f} {found['dev'][task]:>7.2f} {f1}".rstrip())
    average = found["average"]
    return lines if average is None else [*lines, f"{'average':<8} {'':>6} {average:>9.2f}"]


def _check_retrieval(options: Namespace) -> None:
    from tempplug_adapters.sentence_evaluation.retrieval_data import collections_in, load_collection

    if options.data_dir is None:
        raise ConfigError("--data-dir is missing: name the folder with the collections, or set TEMPPLUG_DATA.")
    options.tasks = options.tasks or list(collections_in(options.data_dir))
    options.columns = {name: load_collection(name, options.data_dir).columns for name in options.tasks}


def _retrieval(options: Namespace, encoder: SentenceEncoder | LibraryEncoder, progress: Progress) -> dict[str, Any]:
    from tempplug_adapters.sentence_evaluation.retrieval import evaluate_retrieval

    found = evaluate_retrieval(encoder, options.data_dir, options.tasks, options.batch_size, progress).to_dict()
    if options.bm25:
        found["bm25"] = evaluate_retrieval(None, options.data_dir, options.tasks, progress=progress).scores
    return found


def _retrieval_table(options: Namespace, found: dict[str, Any]) -> list[str]:
    heads = ("nDCG@10", "MRR@10", "Recall@100", *(["BM25 nDCG@10"] if options.bm25 else []))
    lines = [
        f"data     {options.data_dir}, cosine similarity",
        *(f"columns  {name}: {columns}" for name, columns in options.columns.items()),
        f"{'task':<16} {'queries':>8} {'documents':>10}" + "".join(f"{head:>{len(head) + 3}}" for head in heads),
    ]
    for task, scores in found["scores"].items():
        values = [*scores.values(), *([found["bm25"][task]["ndcg@10"]] if options.bm25 else [])]
        shown = "".join(f"{value:>{len(head) + 3}.2f}" for head, value in zip(heads, values, strict=True))
        lines.append(f"{task:<16} {found['queries'][task]:>8} {found['documents'][task]:>10}{shown}")
    return lines


def _backend(other: str, what: str) -> dict[str, Any]:
    return {"choices": ("tempplug", other), "default": "tempplug", "help": f"{what} (default: tempplug)"}


STS = encoder_command(
    name="sts",
    then="tempplug eval transfer {model}",
    description="Spearman correlation x 100 of a sentence encoder on STS12-16, STS-B and SICK-R.",
    epilog="STS12-16: subsets of a year concatenated, one correlation. The average is over all seven.",
    data="folder with the data sets, or SentEval's (default: TEMPPLUG_DATA, else the Hugging Face hub)",
    flags={
        "--tasks": tasks_flag(STS_TASKS, help=f"out of {', '.join(STS_TASKS)} (default: all that have the split)"),
        "--split": {"choices": ("test", "dev"), "default": "test", "help": "dev: STS-B and SICK-R only (default: test)"},
        "--backend": _backend("mteb", "correlations by tempplug, or by an installed mteb's task classes on the same pairs"),
    },
    check=_check_sts,
    measure=_sts,
    table=_sts_table,
)
TRANSFER = encoder_command(
    name="transfer",
    then="tempplug eval sts {model}",
    description="Accuracy of a linear classifier on a sentence encoder's vectors, by SentEval's protocol.",
    epilog="accuracy: on held-out rows. dev: on the rows that select the strength of the weight decay.",
    data="folder with the data sets, or SentEval's (default: TEMPPLUG_DATA)",
    flags={
        "--tasks": tasks_flag(TRANSFER_TASKS),
        "--backend": _backend("senteval", "classifiers trained by tempplug, or by an installed senteval with the same vectors"),
        "--fast": {"action": "store_true", "help": "five folds and short fits, for the dev accuracy during training"},
    },
    check=_check_transfer,
    measure=_transfer,
    table=_transfer_table,
)
RETRIEVAL = encoder_command(
    name="retrieval",
    then="tempplug eval sts {model}",
    description="nDCG@10, MRR@10 and Recall@100, x 100, of documents that a sentence encoder ranks for queries.",
    epilog="A collection NAME is a folder in BEIR's layout, or NAME.corpus.jsonl, NAME.queries.jsonl and NAME.qrels.tsv.",
    data="folder with the collections (default: TEMPPLUG_DATA)",
    flags={
        "--tasks": {"nargs": "+", "metavar": "NAME", "help": "collections to search (default: all of the folder)"},
        "--bm25": {"action": "store_true", "help": "also rank by BM25, which compares words alone"},
    },
    check=_check_retrieval,
    measure=_retrieval,
    table=_retrieval_table,
)
