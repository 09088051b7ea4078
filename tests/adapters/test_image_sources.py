"""Data sets of images as people and other tools have them: read by content, or refused with a remedy.

Folders are written as cameras, MVTec and torchvision's users lay them out; tables by pandas, polars, pyarrow, `datasets` and
spreadsheets; tars as webdataset and img2dataset do, by Python's `tarfile`.
"""

from __future__ import annotations

from pathlib import Path

import pandas
import pyarrow
import pytest
from image_sources import (
    BARE,
    BOTH,
    BYTES,
    FORMS,
    METADATA,
    NAMES,
    NUMBERS,
    PARTS,
    PATHS,
    THREE,
    TWO,
    Make,
    Rows,
    beside,
    both,
    hub,
    inner,
    no_images,
    photos,
    picture,
    read,
    samples,
    saved,
    shard,
    splits,
    table_of,
    words,
)
from table_files import of_arrow, of_csv, of_lines, of_pandas, of_polars

from tempplug.errors import TempplugError

READ: dict[str, tuple[Make, str, str, Rows]] = {
    **{
        f"folders: {train} and {test}, {split}": (
            splits(train, test),
            "",
            split,
            [(1, "cat"), (2, "dog")] if split == "train" else [(3, "dog")],
        )
        for train, test in (("Training", "Testing"), ("TRAIN", "Val"), ("train", "validation"), ("Train", "VALID"))
        for split in ("train", "test")
    },
    "folders: a class is called train": (
        photos("train/1.png", "car/2.png", "plane/3.png"),
        "",
        "train",
        [(2, None), (3, None), (1, None)],
    ),
    "folders: classes with train in their names": (
        photos("train_station/1.png", "bus_station/2.png"),
        "",
        "train",
        [(2, None), (1, None)],
    ),
    "folders: train_images and test_images": (
        photos("train_images/cat/1.png", "test_images/dog/2.png", "test_images/cat/3.png"),
        "",
        "test",
        [(3, "cat"), (2, "dog")],
    ),
    "folders: nested classes and equal names": (
        photos("train/cat/x/1.png", "train/cat/y/1.png", "train/dog/x/2.png"),
        "",
        "train",
        [(1, "cat"), (1, "cat"), (2, "dog")],
    ),
    "folders: MVTec": (
        photos("train/good/1.png", "test/good/2.png", "test/crack/3.png"),
        "",
        "test",
        [(3, "crack"), (2, "good")],
    ),
    "folders: macOS and Windows": (
        both(
            photos("train/cat/1.png", "train/cat/2.png"),
            no_images("train/cat/._1.png", "train/.DS_Store", "train/cat/Thumbs.db"),
        ),
        "",
        "train",
        [(1, "cat"), (2, "cat")],
    ),
    "folders: whatever Pillow reads": (
        lambda folder: [(folder / name).write_bytes(picture(200, form)) for name, form in FORMS.items()],
        "",
        "train",
        [(200, None)] * 8,
    ),
    "imagefolder: metadata.csv in each split": (
        both(METADATA, beside(of_lines("file_name,label", "1.png,dog"), "train/metadata.csv", "train/1.png")),
        "",
        "test",
        THREE[:2],
    ),
    "imagefolder: one metadata.jsonl": (
        beside(of_lines(*BOTH), "metadata.jsonl", "train/1.png", "test/2.png"),
        "",
        "test",
        [(2, "dog")],
    ),
    "pandas: csv with row numbers": (beside(of_pandas(PATHS, "to_csv")), "t.csv", "train", THREE),
    "pandas: tabs": (beside(of_pandas(PATHS, "to_csv", sep="\t", index=False), "t.tsv"), "t.tsv", "train", THREE),
    "pandas: jsonl": (beside(of_pandas(PATHS, "to_json", orient="records", lines=True), "t.jsonl"), "t.jsonl", "train", THREE),
    "pandas: integers": (NUMBERS, "t.csv", "train", [(1, "3"), (2, "10"), (3, "3")]),
    "pandas: integers that a missing one made numbers": (
        beside(lambda path: pandas.DataFrame({**PATHS, "label": [1.0, 2.0, 1.0]}).to_csv(path)),
        "t.csv",
        "train",
        [(1, "1"), (2, "2"), (3, "1")],
    ),
    "pandas: booleans": (inner(label=[True, False, True]), "t.parquet", "train", [(1, "True"), (2, "False"), (3, "True")]),
    "pandas: bytes": (
        inner(label=[b"cat", "Käfer".encode(), b"cat"]),
        "t.parquet",
        "train",
        [(1, "cat"), (2, "Käfer"), (3, "cat")],
    ),
    "pandas: categories": (inner(label=pandas.Categorical(PATHS["label"])), "t.parquet", "train", THREE),
    "pandas: no classes": (inner(score=[0.5, 1, 2]), "t.parquet", "train", BARE),
    "pandas: a missing image": (
        beside(of_pandas({"image": [BYTES[0], None, BYTES[2]], "label": PATHS["label"]}, "to_parquet"), "t.parquet"),
        "t.parquet",
        "train",
        [THREE[0], THREE[2]],
    ),
    "pandas: train.csv and test.csv": (
        both(
            beside(of_pandas(PATHS, "to_csv"), "train.csv"),
            beside(of_pandas({"path": ["2.png"], "label": ["dog"]}, "to_csv"), "test.csv"),
        ),
        "",
        "test",
        [(2, "dog")],
    ),
    "pandas: a column split": (
        beside(of_pandas({**PATHS, "split": ["train", "VAL", "train"]}, "to_csv")),
        "t.csv",
        "test",
        [(2, "dog")],
    ),
    "Excel: semicolons and a byte order mark": (
        beside(of_csv([["image", "class"], ["1.png", "cat"], ["2.png", "dog"], ["3.png", "cat"]], "utf-8-sig", delimiter=";")),
        "t.csv",
        "train",
        THREE,
    ),
    "Excel: paths of Windows": (
        beside(of_csv([["image", "class"], [r"a\1.png", "cat"]], dialect="excel"), "t.csv", "a/1.png"),
        "t.csv",
        "train",
        [(1, "cat")],
    ),
    "polars: csv": (beside(of_polars(PATHS, "write_csv")), "t.csv", "train", THREE),
    "polars: parquet of bytes": (
        beside(of_polars({"img": BYTES, "cls": PATHS["label"]}, "write_parquet"), "t.parquet"),
        "t.parquet",
        "train",
        THREE,
    ),
    "pyarrow: feather": (
        beside(of_arrow({"image": BYTES, "target": [0, 1, 0]}, "feather"), "t.arrow"),
        "t.arrow",
        "train",
        [(1, "0"), (2, "1"), (3, "0")],
    ),
    "pyarrow: ids and paths beside bytes": (
        beside(of_arrow({"id": [7, 8, 9], "path": ["x", "y", "z"], "picture": BYTES, "label": PATHS["label"]}), "t.parquet"),
        "t.parquet",
        "train",
        THREE,
    ),
    "datasets: classes of other names in the test file": (TWO, "", "test", [(2, "dog"), (1, "emu")]),
    "datasets: classes of other names in each part": (PARTS, "", "train", [(1, "cat"), (2, "dog")]),
    "datasets: save_to_disk": (saved, "d", "train", [(1, "collie"), (2, "pug")]),
    "datasets: save_to_disk, validation": (saved, "d", "test", [(2, "pug")]),
    "datasets: labels as texts": (hub("t.parquet", [1, 2], ["cat", "dog"]), "t.parquet", "train", [(1, "cat"), (2, "dog")]),
    "webdataset: words as classes": (
        shard("train/test-000.tar", *samples(1, 2, cls=words)),
        "",
        "test",
        [(1, "cat"), (2, "dog")],
    ),
    "webdataset: classes that one split lacks": (
        both(
            shard("train-0.tar", *samples(1, 2, 3, cls=lambda level: b"%d" % (5 * level))),
            shard("test-0.tar", *samples(2, cls=lambda level: b"10")),
        ),
        "",
        "test",
        [(2, "10")],
    ),
    "webdataset: a label in json": (
        shard("a.tar", *samples(1, json=lambda level: b'{"label": 4, "w": [1]}')),
        "a.tar",
        "train",
        [(1, "4")],
    ),
    "webdataset: by macOS": (
        shard("a.tar", ("./._000001.jpg", b"x"), *samples(1), ("000001.seg.png", b"y")),
        "a.tar",
        "train",
        [(1, None)],
    ),
}
"""By the tool and what it wrote: how it is made, the data set, the split, and what is in it."""


@pytest.mark.filterwarnings("ignore:.* has images of:UserWarning")
@pytest.mark.parametrize("case", READ)
def test_images_and_classes_are_read_by_content(tmp_path: Path, case: str) -> None:
    make, dataset, split, expected = READ[case]
    make(tmp_path)
    assert read(tmp_path, dataset, split) == expected


REFUSED: dict[str, tuple[Make, str, str, str]] = {
    "numbers and words": (
        both(hub("train.parquet", [1, 2], ["cat", "dog"]), hub("test.parquet", [1, 2], [0, 1])),
        "",
        "train",
        r"labels are numbers in .*test\.parquet \(such as '0'\) and words in .*train\.parquet \(such as 'cat'\): write",
    ),
    "parts of two kinds": (
        both(hub("train-0.parquet", [1, 2], ["cat", "dog"]), hub("train-1.parquet", [1, 2], [0, 1])),
        "",
        "train",
        r"train-0\.parquet and others differ in their columns: ",
    ),
    "a missing label": (
        table_of(path=["1.png", "2.png", "3.png"], label=["cat", None, "dog"]),
        "t.csv",
        "train",
        r"1 of 3 rows have no label, .*t\.csv, line 3 first: fill them in, or leave these rows out",
    ),
    "two columns of labels": (
        table_of(path=["1.png"], **{"class": [1], "category": ["cat"]}),
        "t.csv",
        "train",
        r"'class' and 'category' could each be the label\. Choose one: --columns label=class",
    ),
    "two columns of paths": (
        table_of(before=["1.png"], after=["2.png"]),
        "t.csv",
        "train",
        r"no column is clearly the image\. Name it: --columns image=before\. It has: 'before' \(text, such as '1\.png'\)",
    ),
    "another split": (
        table_of(path=["1.png", "2.png"], split=["train", "north"]),
        "t.csv",
        "train",
        r"line 3: column 'split' is 'north'; wanted train, test or validation",
    ),
    "paths of another place": (
        table_of(path=["x/1.png"]),
        "t.csv",
        "train",
        r"line 2: the image 'x/1\.png' does not exist, neither in",
    ),
    "addresses": (
        table_of(image=["https://x.org/1.png"]),
        "t.csv",
        "train",
        "does not exist.*addresses on the web are not downloaded",
    ),
    "no test file": (
        hub("t.parquet", [1], ["cat"]),
        "t.parquet",
        "test",
        "no test set with labels, only train: a file, or its folder",
    ),
    "a file of no split": (
        both(hub("train.parquet", [1], ["cat"]), hub("more.parquet", [1], ["cat"])),
        "",
        "train",
        r"more\.parquet belongs to no split: name it train or test, or move it away",
    ),
    "a split beside nested folders": (
        photos("train/cat/1.png", "car/2.png"),
        "",
        "train",
        "has images in 'train' and in 'car': if 'train' is a split, move the others out .*; if all are classes, put them into",
    ),
    "both splits beside others": (
        photos("train/1.png", "test/2.png", "car/3.png"),
        "",
        "train",
        "has images in 'train' and in 'car': ",
    ),
    "two folders of a split": (
        photos("train/cat/1.png", "Training/cat/2.png"),
        "",
        "train",
        "has train and Training, which are one split",
    ),
    "a packed tar": (
        shard("a.tar.gz", *samples(1), mode="w:gz"),
        "",
        "train",
        r"a\.tar\.gz cannot be read as a tar: .*Unpack a compressed",
    ),
    "json that is cut": (
        shard("a.tar", *samples(1, json=lambda level: b'{"label": ')),
        "",
        "train",
        r"000001\.json of .*a\.tar cannot be read",
    ),
    "a pickle": (beside(of_pandas(PATHS, "to_pickle"), "t.csv"), "t.csv", "train", "a pickle, which could run code"),
    "classes beyond the names": (
        beside(of_arrow(pyarrow.table({"image": BYTES, "label": [0, 1, 7]}, metadata=NAMES)), "t.parquet"),
        "t.parquet",
        "train",
        r"t\.parquet: column 'label' has numbers beyond its classes",
    ),
}
"""By what is wrong: how it is made, the data set, the split, and the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_images_are_refused_with_a_remedy(tmp_path: Path, case: str) -> None:
    make, dataset, split, message = REFUSED[case]
    make(tmp_path)
    with pytest.raises(TempplugError, match=message) as raised:
        read(tmp_path, dataset, split)
    assert "\n" not in str(raised.value)
    assert str(tmp_path) in str(raised.value)
