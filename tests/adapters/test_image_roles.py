"""Captions, classes and columns of images; what cannot be read gets nothing of another image, and is counted."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from image_sources import BYTES, METADATA, NUMBERS, TWO, Make, beside, both, hub, inner, photos, read, samples, shard, table_of
from image_toys import BROKEN, reds, write_image
from PIL import Image
from table_files import of_arrow, of_bytes, of_csv, of_lines, of_pandas, of_polars
from trained_toys import VISION

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError
from tempplug_adapters.clip.captions import load_pairs
from tempplug_adapters.data_files import table_blocks
from tempplug_adapters.images.decoding import decode_image
from tempplug_adapters.images.image_data import files_of, find_images, load_images
from tempplug_adapters.images.image_set import ImageFiles

CAPTIONS: dict[str, tuple[Make, str, list[tuple[int, list[str]]]]] = {
    "open_clip: tabs": (
        beside(
            of_pandas({"filepath": ["1.png", "2.png", "1.png"], "title": ["a", "b", "c"]}, "to_csv", sep="\t", index=False),
            "t.csv",
        ),
        "t.csv",
        [(1, ["a", "c"]), (2, ["b"])],
    ),
    "Excel: semicolons": (
        beside(of_csv([["image", "caption"], ["1.png", "a, b"]], "utf-8-sig", delimiter=";")),
        "t.csv",
        [(1, ["a, b"])],
    ),
    "pandas: parquet of bytes": (
        inner(caption=["a", "b", "c"], url=["u", "v", "w"]),
        "t.parquet",
        [(1, ["a"]), (2, ["b"]), (3, ["c"])],
    ),
    "polars: several captions": (
        beside(of_polars({"image": BYTES[:2], "captions": [["a", "b"], ["c"]]}, "write_parquet"), "t.parquet"),
        "t.parquet",
        [(1, ["a", "b"]), (2, ["c"])],
    ),
    "datasets: parquet": (hub("train.parquet", [1, 2], ["a", "b"], None, "text"), "", [(1, ["a"]), (2, ["b"])]),
    "imagefolder: metadata.jsonl": (
        beside(
            of_lines({"file_name": "1.png", "text": "a"}, {"file_name": "2.png", "text": ["b", "c"]}),
            "train/metadata.jsonl",
            "train/1.png",
            "train/2.png",
        ),
        "",
        [(1, ["a"]), (2, ["b", "c"])],
    ),
    "img2dataset: txt, json and parquet": (
        both(
            shard(
                "00000.tar",
                *samples(
                    1, 2, txt=lambda level: b"no. %d" % level, json=lambda level: b'{"caption": "x", "url": "y", "width": 3}'
                ),
            ),
            lambda folder: of_arrow({"url": ["y", "y"], "caption": ["x", "x"]})(folder / "00000.parquet"),
            lambda folder: (folder / "00000_stats.json").write_text("{}"),
        ),
        "",
        [(1, ["no. 1"]), (2, ["no. 2"])],
    ),
    "webdataset: json with captions of two kinds": (
        shard("a.tar", *samples(1, 2, json=lambda level: json.dumps({"captions": ["a", "b"] if level == 1 else "c"}).encode())),
        "a.tar",
        [(1, ["a", "b"]), (2, ["c"])],
    ),
}
"""By the tool and what it wrote: how it is made, the data set, and the captions of each red."""


@pytest.mark.parametrize("case", CAPTIONS)
def test_captions_are_read_by_content(tmp_path: Path, case: str) -> None:
    make, dataset, expected = CAPTIONS[case]
    make(tmp_path)
    pairs = load_pairs(str(tmp_path / dataset), "train", None, size=8, templates=())
    assert pairs is not None
    words = [[pairs.texts[place] for place in each] for each in pairs.captions]
    assert list(zip(reds(pairs.images.batch(torch.arange(len(pairs)))), words, strict=True)) == expected


@pytest.mark.filterwarnings("ignore:.* has images of:UserWarning")
def test_classes_have_one_numbering_that_of_names_or_of_their_order(tmp_path: Path) -> None:
    TWO(tmp_path)
    train, test = (load_images(str(tmp_path), split, None) for split in ("train", "test"))  # type: ignore[arg-type]
    assert train.classes == test.classes == ("cat", "dog", "emu")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 0], [1, 2])
    NUMBERS(tmp_path)
    assert load_images(str(tmp_path / "t.csv"), "train", None).classes == ("3", "10")
    hub("z/train.parquet", [1], [0], ["zebra", "ant"])(tmp_path)
    hub("z/test.parquet", [1], [0], ["bee"])(tmp_path)
    assert load_images(str(tmp_path / "z"), "test", None).classes == ("zebra", "ant", "bee")


def test_a_class_of_the_test_set_alone_is_told(tmp_path: Path) -> None:
    TWO(tmp_path)
    with pytest.warns(UserWarning, match="test' has images of 'emu', of which the training set has none"):
        load_images(str(tmp_path), "test", None)


def test_columns_are_given_by_role(tmp_path: Path) -> None:
    table_of(before=["1.png", "2.png"], after=["2.png", "1.png"], kind=["x", "y"])(tmp_path)
    assert read(tmp_path, "t.csv", "train", ("image=after", "label=kind")) == [(2, "x"), (1, "y")]


def test_a_changed_table_is_read_anew(tmp_path: Path) -> None:
    table_of(path=["1.png"])(tmp_path)
    assert read(tmp_path, "t.csv", "train") == [(1, None)]
    table_of(path=["2.png", "3.png"])(tmp_path)
    assert read(tmp_path, "t.csv", "train") == [(2, None), (3, None)]


def test_the_files_of_a_table_are_those_of_its_images_and_itself(tmp_path: Path) -> None:
    table_of(path=["1.png", "3.png"])(tmp_path)
    images = load_images(str(tmp_path / "t.csv"), "train", None)
    assert {name: file.name for name, file in files_of(images, str(tmp_path / "t.csv"), "train", None).items()} == {  # type: ignore[union-attr]
        name: name for name in ("t.csv", "1.png", "3.png")
    }


def test_what_is_skipped_is_counted(tmp_path: Path) -> None:
    photos("train/cat/1.png", "train/2.png")(tmp_path)
    for name in ("notes.txt", "Thumbs.db", ".hidden"):
        (tmp_path / "train" / "cat" / name).write_text("no image")
    images = load_images(str(tmp_path), "train", None)
    assert isinstance(images, ImageFiles)
    assert images.encoded.notes == (
        f"left out: 2 file(s) that are no images, such as {tmp_path}/train/cat/Thumbs.db",
        f"left out: 1 file(s) outside of the class folders, such as {tmp_path}/train/2.png",
    )
    inner(label=["a", "b", "c"])(tmp_path)
    of_pandas({"image": [None, *BYTES[1:]]}, "to_parquet")(tmp_path / "t.parquet")
    images = load_images(str(tmp_path / "t.parquet"), "train", None)
    assert isinstance(images, ImageFiles)
    assert images.encoded.notes == (f"left out: 1 of 3 rows have no image, {tmp_path / 't.parquet'}, row 1 first",)


@pytest.mark.parametrize("dataset", ["", "test", "t.csv"])
def test_an_image_that_cannot_be_read_gets_no_vector_of_another(tmp_path: Path, dataset: str) -> None:
    photos("test/cat/1.png", "test/cat/2.png", "test/cat/3.png", "train/cat/4.png")(tmp_path)
    (tmp_path / "test" / "cat" / "2.png").write_bytes(BROKEN)
    of_csv([["id", "path"], *(["abc"[place - 1], f"./test/cat/{place}.png"] for place in (1, 2, 3))])(tmp_path / "t.csv")
    word = str(tmp_path / dataset)
    split: Any = "train" if dataset == "t.csv" else "test"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images, names, columns, notes = find_images(word, 8, lambda: load_images(word, split, None, size=8))
    assert reds(images.batch(torch.arange(2))) == [1, 3]
    assert names == [str(tmp_path / "test" / "cat" / f"{place}.png") for place in (1, 3)]
    assert columns == ({"id": ["a", "c"]} if dataset == "t.csv" else {})
    [note] = notes
    assert note.startswith("1 of 3 images of ")
    assert "cat/2.png cannot be decoded as an image: Truncated File Read" in note


def test_a_folder_of_images_with_their_metadata_is_embedded_whole(tmp_path: Path) -> None:
    METADATA(tmp_path)
    images, names, *_ = find_images(str(tmp_path / "test"), 8, lambda: pytest.fail("no data set"))
    assert reds(images.batch(torch.arange(2))) == [1, 2]
    assert names == [str(tmp_path / "test" / f"{place}.png") for place in (1, 2)]


def test_embed_writes_ids_and_names_and_says_what_it_left_out(
    tmp_path: Path, trained_folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    photos("1.png", "2.png", "3.png")(tmp_path)
    (tmp_path / "2.png").write_bytes(b"")
    of_csv([["id", "path"], ["a", "1.png"], ["b", "2.png"], ["c", "3.png"]])(tmp_path / "t.csv")
    folder, output = trained_folder("simclr"), tmp_path / "v.parquet"
    assert main(["embed", str(folder), str(tmp_path / "t.csv"), "--split", "train", "--output", str(output)]) == 0
    rows = pandas.read_parquet(output)
    assert rows["id"].tolist() == ["a", "c"]
    assert rows["name"].tolist() == [str(tmp_path / "1.png"), str(tmp_path / "3.png")]
    expected = tempplug_adapters.load(folder).embed(rows["name"].tolist())
    torch.testing.assert_close(torch.tensor(np.stack(rows["vector"])), expected)
    assert "1 of 3 images of '" in capsys.readouterr().out
    other = tmp_path / "w.parquet"
    words = ["embed", str(folder), str(tmp_path / "t.csv"), "--split", "train", "--output", str(other), "--columns", "image=id"]
    assert main(words) == 2
    assert "the image 'a' does not exist" in capsys.readouterr().err


def test_a_training_prints_its_columns_and_keeps_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{place % 3}{place:02}.png" for place in range(12)]
    for place, name in enumerate(names):
        write_image(tmp_path / name, 20 * place, (8, 8))
    rows = {"photo": names, "kind": ["cat", "dog"] * 6, "split": ["train"] * 8 + ["test"] * 4, "score": range(12)}
    of_pandas(rows, "to_csv")(tmp_path / "t.csv")
    words = [word for word in VISION.split() if word not in ("--dataset", "digits", "--count", "200")]
    words = " ".join(words).replace("--per-device-train-batch-size 50", "--per-device-train-batch-size 4").split()
    given = ["--dataset", str(tmp_path / "t.csv"), "--columns", "label=kind", "--output-dir", str(tmp_path / "out")]
    assert main(["train", "simclr", *words, *given]) == 0
    said = capsys.readouterr()
    for line in (
        "8 images, 4 to be measured with",
        f"image: column 'photo' (text), 12 values, 0 missing, first '{names[0]}'",
        "label: column 'kind' (text), 12 values, 0 missing, first 'cat'",
        "split: column 'split' (text), 12 values, 0 missing, first 'train'",
        "not read: 'Unnamed: 0', 'score'",
    ):
        assert line in said.out + said.err
    kept = json.loads((tmp_path / "out" / "tempplug.json").read_text())
    assert kept["labels"] == ["cat", "dog"]
    assert kept["tables"] == [{"file": "t.csv", "columns": {"image": ["photo"], "label": ["kind"], "split": ["split"]}}]


def test_values_of_12_bits_are_told(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4), 4095, np.uint16)).save(stream, "PNG")
    with pytest.warns(UserWarning, match="no value above 4095, of 65535, and are read as nearly black: .* multiply them by 16"):
        assert decode_image(stream.getvalue(), "a.png").unique().tolist() == [15]


def test_a_format_that_runs_another_program_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "EPS")
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("another program was run"))
    with pytest.raises(DataError, match=r"a\.png cannot be decoded as an image: its bytes are no image"):
        decode_image(stream.getvalue(), "a.png")
    (tmp_path / "a.eps").write_bytes(stream.getvalue())
    with pytest.raises(ConfigError, match="has no image files"):
        find_images(str(tmp_path), 8, lambda: pytest.fail("no data set"))


def test_images_of_parquet_are_read_in_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_blocks, "_BYTES", 1 << 16)
    content = [np.random.default_rng(place).bytes(1 << 10) for place in range(150)]
    of_arrow({"image": content, "label": ["a"] * 150}, row_group_size=150)(tmp_path / "t.parquet")
    images = load_images(str(tmp_path / "t.parquet"), "train", None)
    assert isinstance(images, ImageFiles)
    assert images.encoded.source.read(149) == content[149]
    blocks = images.encoded.tables[0].table.column("image").chunks
    assert max(map(len, blocks)) <= 64


def test_bytes_that_are_no_table_are_named(tmp_path: Path) -> None:
    of_bytes(b"PAR1")(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet cannot be read"):
        load_images(str(tmp_path / "t.parquet"), "train", None)
