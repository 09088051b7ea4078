"""Tables of images: the Hugging Face hub, with a stand-in, and parquet files, written here as the hub writes them."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from image_toys import BROKEN, encoded, labels_of, reds, write_image

from tempplug.errors import ConfigError, DataError, MissingDependencyError
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.images.image_set import ImageArray, ImageFiles

WORDS = ["ant", "bee", "cat", "dog"]


def table(contents: list[bytes], labels: list[int] | None = None, **more: datasets.ClassLabel) -> datasets.Dataset:
    """A table as the hub has them; further columns of classes are all zeros."""
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=WORDS), **more})
    numbers = list(range(len(contents))) if labels is None else labels
    rows = {"img": [{"bytes": content, "path": None} for content in contents], "label": numbers}
    return datasets.Dataset.from_dict({**rows, **{name: [0] * len(contents) for name in more}}, features=features)


def colours(*levels: int) -> list[bytes]:
    return [encoded((level, 0, 0), (8, 8)) for level in levels]


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for parquet files; what the library keeps of them lies beside it. Nothing is fetched."""
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "pets [1]").mkdir()
    return tmp_path / "pets [1]"


def write(folder: Path, **files: datasets.Dataset) -> None:
    """Writes tables to data/NAME-00000-of-00001.parquet, or to the path that a name with slashes is."""
    for name, rows in files.items():
        path = folder / (name if "/" in name else f"data/{name}-00000-of-00001.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(path)


def test_a_folder_of_parquet_is_read_by_splits(parquet: Path) -> None:
    write(parquet, train=table(colours(10, 20, 30), [3, 1, 1]), validation=table(colours(40), [2]))
    (parquet / "README.md").write_text("pets", encoding="utf-8")
    (parquet / f"{parquet.name}.py").write_text("raise SystemExit('code of a data set was run')", encoding="utf-8")
    train, test = load_images(str(parquet), "train", None, size=4), load_images(str(parquet), "test", None, size=4)
    assert isinstance(train, ImageFiles)
    assert (labels_of(train), labels_of(test)) == ([3, 1, 1], [2])
    assert train.classes == test.classes == tuple(WORDS)
    assert train.name == f"{parquet} train"
    assert (reds(train.batch(torch.tensor([2, 0]))), reds(test.batch(torch.tensor([0])))) == ([30, 10], [40])
    assert reds(pickle.loads(pickle.dumps(train)).batch(torch.tensor([1]))) == [20], "as it is sent to a worker"
    drawn = load_images(str(parquet), "train", None, size=4, count=2, seed=1)
    order = torch.randperm(3, generator=torch.Generator().manual_seed(1))[:2]
    assert reds(drawn.batch(torch.arange(2))) == [(10, 20, 30)[place] for place in order]
    write_image(parquet / "train" / "dog" / "1.png", 8)
    assert reds(load_images(str(parquet), "train", None, size=4).batch(torch.arange(1))) == [8], "class folders come first"


def test_splits_may_be_named_by_folders_and_come_in_parts(parquet: Path) -> None:
    parts = {"pets/train/0000.parquet": table(colours(1), [0]), "pets/train/0001.parquet": table(colours(2), [1])}
    write(parquet, **parts, **{"pets/test/0000.parquet": table(colours(3), [2])})
    assert reds(load_images(str(parquet), "train", None, size=4).batch(torch.arange(2))) == [1, 2]
    assert labels_of(load_images(str(parquet), "test", None)) == [2]
    file = parquet / "pets" / "train" / "0001.parquet"
    assert reds(load_images(str(file), "train", None, size=4).batch(torch.arange(1))) == [2], "one file is a training set"
    with pytest.raises(
        DataError, match=re.escape(f"{file} has no test set with labels, only train: a file, or its folder, must")
    ):
        load_images(str(file), "test", None)


def test_a_data_set_may_lie_as_a_copy_of_the_hub(parquet: Path) -> None:
    coarse = {"superclass": datasets.ClassLabel(names=["insect", "mammal"])}
    write(parquet / "cifar100", train=table(colours(5, 6), [3, 0], **coarse))
    images = load_images("cifar100", "train", parquet)
    assert isinstance(images, ImageArray)
    assert (reds(images.images), labels_of(images), images.classes) == ([5, 6], [3, 0], tuple(WORDS))


def test_a_test_set_without_labels_is_passed_over(parquet: Path) -> None:
    write(parquet, train=table(colours(1)), test=table(colours(2, 3), [-1, -1]))
    with pytest.raises(DataError, match="has no test set with labels, only train, test"):
        load_images(str(parquet), "test", None)
    write(parquet, validation=table(colours(4), [3]))
    test = load_images(str(parquet), "test", None, size=4)
    assert (reds(test.batch(torch.arange(1))), labels_of(test)) == ([4], [3])


def test_damaged_images_and_parquet_are_named(parquet: Path) -> None:
    write(parquet, train=table([BROKEN, *colours(*range(49))], [1] * 50))
    images = load_images(str(parquet), "train", None, size=4)
    with pytest.warns(UserWarning, match=r"00000-of-00001\.parquet, row 1 cannot be decoded.* row 2 is used in its place"):
        assert reds(images.batch(torch.arange(2))) == [0, 0]
    file = parquet / "data" / "train-00000-of-00001.parquet"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no parquet"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=f"^{re.escape(str(file))} (cannot be read: .+|is empty.|is not a parquet file.*)$"):
            load_images(str(parquet), "train", None)
    file.write_bytes(whole[:4] + bytes(len(whole) // 2 - 4) + whole[len(whole) // 2 :])
    with pytest.raises(DataError, match=f"^{re.escape(str(file))} cannot be read: .+$"):
        load_images(str(parquet), "train", None)


def hub(monkeypatch: pytest.MonkeyPatch, rows: Any) -> list[tuple[str, ...]]:
    """Stands in for the hub with one table, and returns what is asked of it."""
    asked: list[tuple[str, ...]] = []

    def load(repository: str, *, revision: str, split: str) -> Any:
        asked.append((repository, revision, split))
        return rows

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def test_without_a_folder_the_hub_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for dataset, repository, test in [
        ("cifar10", "uoft-cs/cifar10", "test"),
        ("cifar100", "uoft-cs/cifar100", "test"),
        ("tiny-imagenet", "zh-plus/tiny-imagenet", "valid"),
        ("imagenet", "ILSVRC/imagenet-1k", "validation"),
    ]:
        asked = hub(monkeypatch, table(colours(0, 10, 20, 30)))
        images = load_images(dataset, "train", None, size=8)
        load_images(dataset, "test", None)
        assert [(name, split) for name, _, split in asked] == [(repository, "train"), (repository, test)]
        assert all(re.fullmatch(r"[0-9a-f]{40}", revision) for _, revision, _ in asked)
        assert isinstance(images, ImageFiles if dataset == "imagenet" else ImageArray)
        assert (reds(images.batch(torch.tensor([2, 0]))), labels_of(images)) == ([20, 0], [0, 1, 2, 3])
        assert images.classes == tuple(WORDS)


def test_rows_of_the_hub_are_decoded_by_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, table([encoded(7, mode="L"), BROKEN]))
    with pytest.warns(UserWarning, match=r"1 of 2 images of 'cifar10 train' .*uoft-cs/cifar10, row 2 cannot be decoded"):
        images = load_images("cifar10", "train", None)
    assert images.batch(torch.tensor([0]))[0, :, 0, 0].tolist() == [7, 7, 7]


def test_faults_of_the_hub_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError("it is gone")

    monkeypatch.setattr(datasets, "load_dataset", gone)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r": it is gone HF_HUB_OFFLINE is set, which allows no download\. Pass the folder that"):
        load_images("cifar10", "train", None)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(DataError, match=r"uoft-cs/cifar10 at 0b27\w+ cannot be loaded from the Hugging Face hub: .*data_dir"):
        load_images("cifar10", "train", None)
    hub(monkeypatch, table([]).remove_columns("img"))
    with pytest.raises(ConfigError, match=r"uoft-cs/cifar10: no column is clearly the image\. .*It has: 'label'"):
        load_images("cifar10", "train", None)
    rows = {"img": [{"bytes": None, "path": "gone.png"}], "label": [0]}
    hub(monkeypatch, datasets.Dataset.from_dict(rows, features=table([]).features))
    with pytest.raises(DataError, match=r"no image of .* can be decoded\. gone\.png cannot be read: No such file"):
        load_images("cifar10", "train", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingDependencyError,
        match=r"pip install -c constraints\.txt -e '\.\[vision\]' in the folder of tempplug\. Pass the folder",
    ):
        load_images("cifar10", "train", None)
