"""Our Trainers use public methods, callback events and attributes of transformers alone, which a minor release keeps."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from huggingface_toys import MyTrainer
from method_toys import METHOD, assert_same_end, run
from sentence_transformers import SentenceTransformerTrainer
from transformers import Trainer, TrainerCallback, trainer, trainer_callback

from tempplug_adapters.huggingface.callback import Sealing
from tempplug_adapters.sentence_transformers import TemperatureSentenceTransformerTrainer
from tempplug_adapters.storage.manifest import seal, verify
from tempplug_adapters.training import trainer as ours
from tempplug_adapters.training.checkpoints import checkpoints
from tempplug_adapters.training.trainer import MethodTrainer

PRIVATE: frozenset[str] = frozenset()
"""Private names of transformers' Trainer that the adapters use or override. A name that is added here needs its own test."""
FOLDER = Path(ours.__file__).parents[1]
TRAINERS = (MethodTrainer, MyTrainer, TemperatureSentenceTransformerTrainer)
OVERRIDES = [
    (kind, base, name)
    for kind in TRAINERS
    for base in (Trainer, SentenceTransformerTrainer)
    if issubclass(kind, base)
    for owner in kind.__mro__
    if owner.__module__.startswith("tempplug_adapters")
    for name in vars(owner)
    if callable(getattr(base, name, None)) and not name.startswith("__")
]


def private_names(source: str) -> set[str]:
    """Attributes and methods with one leading underscore that a module gives to its classes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_no_private_name_of_the_trainer_is_used_or_overridden() -> None:
    theirs = private_names(inspect.getsource(trainer)) | private_names(inspect.getsource(trainer_callback))
    assert {"_save_checkpoint", "_inner_training_loop", "_tr_loss"} <= theirs, "the source is read"
    for package in ("training", "huggingface", "sentence_transformers"):
        for file in (FOLDER / package).glob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert used & theirs <= PRIVATE, f"{file.name} depends on {sorted(used & theirs - PRIVATE)}"


@pytest.mark.parametrize(("kind", "base", "name"), OVERRIDES, ids=lambda each: getattr(each, "__name__", each))
def test_an_override_takes_the_arguments_of_the_method_that_it_replaces(kind: type, base: type, name: str) -> None:
    theirs = inspect.signature(getattr(base, name)).parameters.values()
    given = [each.name for each in theirs if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"]
    method = inspect.signature(getattr(kind, name))
    method.bind(None, **dict.fromkeys(given))
    method.bind(None, *given)


class Events(TrainerCallback):
    """Notes which files of the newest checkpoint are there when it is announced."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, set[str]]] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        self.noted.append(("on_save", {each.name for each in folder.iterdir()}))


def test_a_checkpoint_begins_with_save_model_and_ends_before_on_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that sealing relies on: every file lies between the two calls."""
    events, original = Events(), MethodTrainer.save_model

    def noted(self: MethodTrainer, output_dir: str | None = None, _internal_call: bool = False) -> None:
        assert _internal_call, "so the Trainer tells a checkpoint from a model that the user saves"
        events.noted.append(("save_model", {each.name for each in Path(str(output_dir)).glob("*")}))
        original(self, output_dir, _internal_call)

    monkeypatch.setattr(MethodTrainer, "save_model", noted)
    run(tmp_path, num_train_epochs=1, training={"save_steps": 3}, callbacks=[events])
    files = {"pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "settings.json"}
    assert events.noted == [("save_model", set()), ("on_save", files | {"manifest.json"})]


class Gone(BaseException):
    """Stands for a process that is killed: nothing cleans up after it."""


@pytest.mark.parametrize("resumed", ["auto", None])
def test_an_unfinished_checkpoint_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: str | None) -> None:
    run(tmp_path / "whole")
    save, last = torch.save, {"auto": 8, None: 2}[resumed]

    def killed(content: Any, file: Any, *more: Any) -> None:
        if f"checkpoint-{last}" in str(file) and "scheduler" in str(file):
            raise Gone
        save(content, file, *more)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        with pytest.raises(Gone):
            run(tmp_path / "killed")
    unfinished = tmp_path / "killed" / f"checkpoint-{last}"
    assert unfinished.is_dir()
    assert not (unfinished / "manifest.json").exists()
    run(tmp_path / "killed", resume_from_checkpoint=resumed)
    assert_same_end(tmp_path)
    assert [each.name for each in checkpoints(tmp_path / "killed")] == ["checkpoint-8", "checkpoint-9"]


def test_old_checkpoints_stay_until_the_new_one_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(folder: Path) -> None:
        if folder.name == "checkpoint-6":
            raise Gone
        seal(folder)

    monkeypatch.setattr("tempplug_adapters.huggingface.callback.seal", killed)
    with pytest.raises(Gone):
        run(tmp_path, training={"save_total_limit": 2})
    whole = [each for each in checkpoints(tmp_path) if (each / "manifest.json").is_file()]
    assert [each.name for each in whole] == ["checkpoint-2", "checkpoint-4"]


def test_what_is_uploaded_is_sealed_before(tmp_path: Path) -> None:
    sealing, args = Sealing(), SimpleNamespace(should_save=True)
    (tmp_path / "weights").write_text("1")
    sealing.begin(tmp_path, writes=True)
    sealing.on_push_begin(args, None, None)
    verify(tmp_path, ["weights"])
    written = (tmp_path / "manifest.json").stat()
    sealing.on_save(args, None, None)
    assert (tmp_path / "manifest.json").stat() == written, "once"
    sealing.begin(tmp_path, writes=True)
    assert not (tmp_path / "manifest.json").exists(), "it is written anew"


def test_a_checkpoint_of_another_module_is_refused(tmp_path: Path) -> None:
    """The Trainer itself warns of weights that it did not find."""
    run(tmp_path, num_train_epochs=1)
    newest = checkpoints(tmp_path)[-1]
    state = torch.load(newest / "pytorch_model.bin")
    del state["head.1.bias"]
    torch.save(state, newest / "pytorch_model.bin")
    module = METHOD.load().build(METHOD.recipe(), [], None)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin does not fit this training: .* Missing key.* \"head\.1\.bias\""):
        ours.load_module(module, newest)


def test_the_bound_of_transformers_is_the_release_after_the_newest_tested_one() -> None:
    """CI tests with `constraints.txt`, and `.ci/versions` with the newest and the oldest release."""
    root = FOLDER.parents[1]
    assert f"transformers=={transformers.__version__}\n" in (root / "constraints.txt").read_text()
    oldest, newest = (
        re.search(r"^transformers==(\d+)\.(\d+)", (root / ".ci" / f"{name}.txt").read_text(), re.MULTILINE)
        for name in ("oldest", "newest")
    )
    assert oldest
    assert newest
    bounds = re.findall(r'"transformers>=([\d.]+),<([\d.]+)"', (root / "pyproject.toml").read_text())
    assert bounds
    assert {upper for _, upper in bounds} == {f"{newest[1]}.{int(newest[2]) + 1}"}
    assert {lower for lower, _ in bounds} == {"5", f"{oldest[1]}.{oldest[2]}"}
