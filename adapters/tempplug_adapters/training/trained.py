"""Describes the output folder of a training in ``tempplug.json`` and README.md, and loads it again.

An output folder describes itself: with it and the data alone, another process computes the same vectors and the same figures.
The text of the README.md, a model card for the Hugging Face hub, is in `card.md`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from huggingface_hub import ModelCardData
from packaging.version import InvalidVersion, Version
from torch import Tensor, nn
from transformers import set_seed

from tempplug import __version__
from tempplug.errors import DataError, TempplugError, UnknownNameError
from tempplug.plugins import AdapterInfo, CommandInfo, registry
from tempplug_adapters.announcement import bibtex
from tempplug_adapters.encoder_checks import check_finite_rows
from tempplug_adapters.ending import number
from tempplug_adapters.modes import Progress, evaluating, silent
from tempplug_adapters.quoting import code, escape_markdown, fenced, shell_word
from tempplug_adapters.storage.files import one_line, write_json, write_text
from tempplug_adapters.storage.fingerprint import Fingerprint, changed_groups, listed
from tempplug_adapters.training.batches import seed_of
from tempplug_adapters.training.method import FOLDER, Method, Run, Source

FOLDER_FILE = "tempplug.json"
"""In an output folder: method, class, data set, recipe, preprocessing, and the names of labels."""
METRICS_FILE = "metrics.json"


def describe_folder(
    method: Method[Any, Any],
    recipe: Any,
    module: Any,
    data: Any,
    results: Mapping[str, Any],
    folder: Path,
    fingerprint: Fingerprint | None = None,
) -> None:
    """Writes ``tempplug.json``, with the fingerprint of the data if there is one, and README.md into an output folder."""
    kind = type(module.encoder)
    tables = [{"file": Path(each.table.path).name, "columns": each.to_dict()} for each in method.tables(data)]
    content = {
        "method": method.info.name,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "tempplug": __version__,
        "dataset": results["dataset"],
        "recipe": recipe.values(),
        **({} if fingerprint is None else {"data": fingerprint.summary()}),
        **({"tables": tables} if tables else {}),
        **method.kept(recipe, module, data),
    }
    write_text(folder / "README.md", model_card(method, recipe, module, data, results, folder.resolve().name))
    write_json(folder / FOLDER_FILE, content)


class Trained(nn.Module):
    """A trained encoder with its method and recipe, as `load` returns it.

    Args:
        method: the method.
        folder: output folder of a training.
        content: of its ``tempplug.json``.

    Attributes:
        method: as given.
        recipe: settings of the training.
        kept: contents of ``tempplug.json``, such as ``labels`` and ``preprocessing``.
        folder: as given.
        module: the encoder, and what its method needs beside it.
    """

    def __init__(self, method: Method[Any, Any], folder: Path, content: Mapping[str, Any]) -> None:
        super().__init__()
        self.method, self.folder, self.kept = method, folder, content
        self.recipe = method.reopened(method.info.recipe().changed(**content["recipe"]), folder)
        self.module = method.restore(self.recipe, content, folder).eval()

    def embed(self, given: Any) -> Tensor:
        """Returns one vector for each text, image, graph, node, molecule or history, [n, D] in float32 or more, on the CPU.

        Args:
            given: a list of texts (``simcse``, ``mabel``, ``clip``) or of SMILES (``molecule``); images, as a list of files,
                bytes [n, 3, H, W] or an `ImageSet` (vision methods, ``msc``, ``clip``); a graph of PyTorch Geometric
                (``grace``) or a list of graphs (``graphcl``); lists of items, oldest first, by their own names (``dcrec``,
                ``sasrec``).

        Raises:
            TempplugError: it is of another kind, or cannot be read.
        """
        found: Tensor = self.run("embed", given)
        return found

    def run(self, name: str, *given: Any) -> Any:
        """Calls a function of the method by name (``embed``; ``score`` of msc; ``recommend`` of recommenders) with an input.

        The module is in evaluation mode, nothing has a gradient, and tensors are on the CPU in float32 or more.

        Raises:
            NonFiniteError: a row of the result is not finite, as where half precision overflows.
        """
        with evaluating(self), torch.no_grad():
            found = getattr(self.method, name)(self.recipe, self.module, *given)
        if not isinstance(found, Tensor):
            return found
        check_finite_rows(found, "the vectors" if name == "embed" else "the scores")
        return found.to("cpu", torch.promote_types(found.dtype, torch.float32))

    def evaluate(
        self, data_dir: str | Path | None = None, dataset: str | None = None, *, progress: Progress = silent
    ) -> dict[str, float]:
        """Returns the figures under ``evaluation`` in ``metrics.json``, measured anew with the random numbers of the training.

        A warning says which data are not those of the training.

        Args:
            data_dir: folder of real data; None: as for a training without ``--data-dir``.
            dataset: name or path of the data; None: as in the training.
            progress: called with the fraction done.

        Raises:
            TempplugError: the data are missing or malformed.
        """
        folder = None if data_dir is None else Path(data_dir)
        results = read_folder_file(self.folder, METRICS_FILE)
        source = Source(dataset or self.kept["dataset"], folder, self.folder / "data")
        data = self.method.evaluation_data(self.recipe, self.module, source)
        before = self.kept.get("data", {})
        fingerprint = Fingerprint(partial(self.method.files, self.recipe, source, data) if before else dict)
        fingerprint.start()
        training = {"gradient_accumulation_steps": results["gradient_accumulation_steps"]}  # of evaluations that train
        with evaluating(self), TemporaryDirectory() as scratch:
            run = Run(Path(scratch), progress=progress, training=training)
            set_seed(seed_of(self.recipe.seed, "evaluation", results["steps"]) % 2**32)
            figures = self.method.evaluate(self.recipe, self.module, data, run)
        if changes := changed_groups(before, fingerprint.summary()):
            warnings.warn(f"the data are not those of the training: {listed(changes)}.", stacklevel=2)
        return figures


def load(folder: str | Path, method: Method[Any, Any] | None = None, *, trust: bool = False) -> Trained:
    """Returns the trained encoder of an output folder, on the CPU and in evaluation mode.

    Args:
        folder: output folder of ``tempplug train``, or of `tempplug_adapters.training.train.train`.
        method: the method, where its encoder came from Python; None: that of the folder.
        trust: whether modules of the user that the folder names, ``MODULE:NAME``, may be imported, which runs their code.

    Warns if a newer version has written the folder.

    Raises:
        DataError: there is no such folder, it is incomplete or damaged, or it names a module and is not trusted.
        UnknownNameError: no installed plugin has its method.
        TempplugError: a package or a file that the encoder needs is missing.
    """
    content = read_folder_file(Path(folder), FOLDER_FILE)
    _warn_of_newer(folder, content.get("tempplug", __version__))
    if method is None:
        name = f"train {content['method']}"
        try:
            info = registry().get(CommandInfo, name)
        except UnknownNameError as error:
            raise UnknownNameError(f"{folder} was trained by `tempplug {name}`, which is not installed: {error}") from error
        declared = registry().load(info)
        with registry().explaining(info):
            method = declared.load()
    try:
        named = method.named_module(method.info.recipe().changed(**content["recipe"]))
        if named and not trust:
            raise DataError(
                f"'{folder}' was trained with '{named}', whose import runs code: pass trust=True, or --trust, if you trust it."
            )
        return Trained(method, Path(folder), content)
    except (KeyError, TypeError, RuntimeError) as error:
        raise DataError(f"{folder} does not fit its {FOLDER_FILE}: {one_line(error, lines=2)}") from error


def _warn_of_newer(folder: str | Path, version: Any) -> None:
    """Warns if a folder was written by a newer version; raises DataError if it names none."""
    try:
        newer = Version(version) > Version(__version__)
    except (InvalidVersion, TypeError) as error:
        raise DataError(f"{folder}/{FOLDER_FILE} is damaged: tempplug={version!r:.40} is no version.") from error
    if newer:
        warnings.warn(
            f"{folder} was written by tempplug {version}, and this is {__version__}: its vectors may differ; update tempplug.",
            stacklevel=3,
        )


def read_folder_file(folder: Path, name: str) -> dict[str, Any]:
    """Returns a JSON file of an output folder; raises DataError if it is missing or damaged."""
    if not (folder / name).is_file():
        raise DataError(
            f"'{folder}' has no {name}: give the output folder of a finished `tempplug train`, of this version or a later one."
        )
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"method", "dataset", "recipe"} <= content.keys():
            raise ValueError("it lacks method, dataset or recipe")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder / name} is damaged: {one_line(error)}.") from error
    found: dict[str, Any] = content
    return found


def model_card(
    method: Method[Any, Any], recipe: Any, module: Any, data: Any, results: Mapping[str, Any], output_name: str = "out"
) -> str:
    """Returns the card of an output folder with a name: metadata in YAML, usage, training details, scores and citations."""
    card = method.card(recipe, module, data, results)
    base: str | None = card.base
    strategy: Any = getattr(getattr(module, "loss_fn", None), "strategy", None)
    on_the_hub = base and not Path(base).exists() and re.fullmatch(r"([\w.-]+/)?[\w.-]+", base)
    own = {"tags": [], "base_model": base if on_the_hub else None, "model_name": output_name, **card.metadata}
    own["tags"] = [*own["tags"], method.info.name, "tempplug"]
    training = {
        **{name: results[name] for name in ("strategy", "objective", "negatives") if results.get(name)},
        "samples": f"{results['items']} of {Path(results['dataset']).name or 'data'}",
        "steps": f"{results['steps']} ({results['epochs']:.3g} epochs)",
        **{name.replace("_", " "): _word(value) for name, value in recipe.values().items() if value not in (None, [], "")},
    }
    scores = card.scores if card.scores is not None else {"value": results["evaluation"]}
    tables = [_table(head, {name: number(value) for name, value in rows.items()}) for head, rows in scores.items() if rows]
    citation = [fenced("bibtex", each) for each in (card.citation, "" if _plain(strategy) else bibtex(strategy)) if each]
    lines = f"{card.imports}\nimport tempplug_adapters".lstrip() + "\n\n"
    lines += f"model = tempplug_adapters.load({FOLDER})  # this folder\nvectors = model.embed({card.example})"
    use = [fenced("python", lines), f"For a file or a data set:\n\n{fenced('bash', _EMBED)}", card.use.strip()]
    metadata: Any = ModelCardData(**own)
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(
        metadata=_yaml(metadata.to_dict()),
        name=escape_markdown(output_name),
        about=card.about,
        base=f"from {code(Path(base).name if Path(base).exists() else base)} " if base else "",
        method=code(method.info.name) + _reference(method.info.name),
        strategy=f"the temperature strategy\n{code(strategy.name)}" if strategy is not None else "no temperature strategy",
        use="\n\n".join(_with_folder(each, output_name) for each in use if each),
        training=_table("value", {name: code(value) for name, value in training.items()}, "setting"),
        scores="\n\n".join(tables) or "None were measured.",
        citation="\n\n".join(citation) or "See the paper of the method.",
    )


_EMBED = f"tempplug embed {FOLDER} DATA --output vectors.npy"


def _with_folder(text: str, name: str) -> str:
    """Returns Markdown with the name of a folder in the place of `FOLDER`, written as the language of the block requires."""
    words = {"python": repr(name), "bash": shell_word(f"./{name}" if name.startswith("-") else name)}

    def filled(block: re.Match[str]) -> str:
        return block[0].replace(FOLDER, words.get(block["language"], escape_markdown(name)))

    return re.sub(r"^(?P<fence>```+)(?P<language>\w*)\n.*?^(?P=fence)$", filled, text, flags=re.MULTILINE | re.DOTALL)


def _yaml(content: Mapping[str, Any]) -> str:
    """Returns metadata as YAML, in which characters that cannot be seen are written by their numbers."""
    visible = all(each.isprintable() for each in json.dumps(content, ensure_ascii=False, default=str))
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=visible)).strip()


def _plain(strategy: Any) -> bool:
    return strategy is None or strategy.name == "fixed"


def _reference(name: str) -> str:
    try:
        return f", {escape_markdown(registry().get(AdapterInfo, name).reference)},"
    except TempplugError:
        return ""


def _word(value: Any) -> Any:
    """Returns a setting for display; of a path only its last part, because the rest exists on one machine only."""
    if isinstance(value, list):
        return " ".join(str(_word(each)) for each in value)
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _table(head: str, rows: Mapping[str, str], first: str = "figure") -> str:
    """Returns a table of Markdown; the values of the rows are Markdown."""
    named = (f"| {escape_markdown(name)} | {value} |" for name, value in rows.items())
    return "\n".join([f"| {first} | {head} |", "| :-- | :-- |", *named])
