"""Output folders of other versions and of other people: what a file of a folder says is checked before it is used."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tempplug
import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import DataError, TempplugError
from tempplug_adapters.sentence_evaluation.encoder_folder import read_encoder_settings
from tempplug_adapters.storage.files import inside
from tempplug_adapters.storage.manifest import seal, verify


@pytest.fixture
def folder(trained_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a trained recommender, which may be changed."""
    return Path(shutil.copytree(trained_folder("sasrec"), tmp_path / "folder"))


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "tempplug.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("version", ["99.0", "0.1.1", "0.2.0.dev3", "1.0rc1"])
def test_a_folder_of_a_newer_version_warns_of_both(version: str, folder: Path) -> None:
    edit(folder, tempplug=version)
    told = rf"folder was written by tempplug {version}, and this is {tempplug.__version__}: "
    with pytest.warns(UserWarning, match=told):
        tempplug_adapters.load(folder)
    with pytest.warns(UserWarning, match=told):
        assert main(["recommend", str(folder), "--user", "user-1"]) == 0


@pytest.mark.parametrize("version", [tempplug.__version__, "0.0.9", "0.1.0.dev1"])
def test_a_folder_of_this_or_an_older_version_does_not_warn(version: str, folder: Path) -> None:
    edit(folder, tempplug=version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tempplug_adapters.load(folder)


@pytest.mark.parametrize("version", ["newest", "", 3, None, ["0.1.0"]])
def test_what_is_no_version_is_refused(version: Any, folder: Path) -> None:
    edit(folder, tempplug=version)
    with pytest.raises(DataError, match=r"tempplug\.json is damaged: tempplug=.* is no version"):
        tempplug_adapters.load(folder)


OUTSIDE = [
    "../other.pt",
    "sub/../../other.pt",
    "/OTHER",
    "..\\other.pt",
    "C:\\other.pt",
    "\\\\host\\other.pt",
    "link.pt",
    "out/other.pt",
    "a\0b",
    3,
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_of_a_folder_stay_inside_of_it(name: Any, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    shutil.move(folder / "interactions.pt", other)
    (folder / "link.pt").symlink_to(other)
    (folder / "out").symlink_to(tmp_path)
    edit(folder, users_and_items=str(other) if name == "/OTHER" else name)
    with pytest.raises(DataError, match=r"users_and_items of tempplug\.json names '.*', which must be a path inside of"):
        tempplug_adapters.load(folder)


def test_paths_inside_of_a_folder_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    shutil.move(folder / "interactions.pt", folder / "sub" / "items.pt")
    edit(folder, users_and_items="sub/items.pt")
    assert len(tempplug_adapters.load(folder).run("recommend", ["user-1"], 3)[0]) > 0
    # files of a snapshot in the hub's cache are links to the blobs beside it
    snapshot = tmp_path / "models--who--what" / "snapshots" / "a1b2"
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir(parents=True)
    shutil.copytree(folder, snapshot)
    shutil.move(snapshot / "sub" / "items.pt", blobs / "0f")
    (snapshot / "sub" / "items.pt").symlink_to("../../../blobs/0f")
    assert len(tempplug_adapters.load(snapshot).run("recommend", ["user-1"], 3)[0]) > 0
    (snapshot / "sub" / "items.pt").unlink()
    (snapshot / "sub" / "items.pt").symlink_to(folder / "sub" / "items.pt")
    with pytest.raises(DataError, match="must be a path inside of"):
        tempplug_adapters.load(snapshot)


def test_modules_and_manifests_name_nothing_outside(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    modules = [{"type": "sentence_transformers.models.Transformer", "path": "../other"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(DataError, match=r"modules\.json names '\.\./other', which must be a path inside of"):
        read_encoder_settings(folder)
    seal(folder)
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DataError, match=r"its manifest\.json names '\.\./secret', which must be"):
        verify(folder, ["../secret"])
    assert inside(folder, "", "it") == folder


@pytest.mark.parametrize("method", ["grace", "graphcl"])
def test_augmentations_that_a_folder_names_are_imported_only_if_trusted(
    method: str, trained_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_data: Path
) -> None:
    folder = Path(shutil.copytree(trained_folder(method), tmp_path / "folder"))
    recipe = json.loads((folder / "tempplug.json").read_text())["recipe"]
    edit(folder, recipe={**recipe, "augmentations": ["of_a_stranger:change"]})
    (tmp_path / "of_a_stranger.py").write_text("def change(graph):\n    return graph\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_a_stranger", raising=False)
    with pytest.raises(DataError, match="was trained with 'of_a_stranger:change', whose import runs code: pass trust=True"):
        tempplug_adapters.load(folder)
    assert main(["eval", "trained", str(folder)]) == 2
    assert "of_a_stranger" not in sys.modules
    name, given = {"grace": ("node", lambda graph: graph), "graphcl": ("graphs", list)}[method]
    trained = tempplug_adapters.load(folder, trust=True)
    assert len(trained.embed(given(torch.load(toy_data / f"{name}.pt", weights_only=False))))


def test_wrong_fields_are_refused_in_one_line(folder: Path) -> None:
    for changes in (
        {"users_and_items": None},
        {"recipe": 3},
        {"recipe": {"hidden": "wide"}},
        {"preprocessing": 1, "method": 4},
    ):
        edit(folder, **changes)
        with pytest.raises(TempplugError) as told:
            tempplug_adapters.load(folder)
        assert "\n" not in str(told.value)
