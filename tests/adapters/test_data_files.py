"""Packed files and pickles of data: what they hold is read, a bomb is refused before it takes memory, and damage is named."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempplug.errors import DataError
from tempplug_adapters.data_files import archives
from tempplug_adapters.data_files.archives import read_archived_texts, read_arrays, read_text, read_whole
from tempplug_adapters.data_files.pickled_arrays import load_pickled

ARRAYS = [
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1.5], np.dtype(">f4")),
    np.zeros((0, 3), np.int64),
    np.array([True, False]),
]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickled_arrays_come_back(protocol: int) -> None:
    plain = {"words": ["a", "é", b"\xff"], "numbers": [1, -70000, 1.5, None, True, 2**40]}
    found = load_pickled(pickle.dumps({**plain, "arrays": ARRAYS, "again": ARRAYS}, protocol))
    assert {key: found[key] for key in plain} == plain
    for array, *copies in zip(ARRAYS, found["arrays"], found["again"], strict=True):
        assert copies[0].dtype == pickle.loads(pickle.dumps(array)).dtype
        assert all(np.array_equal(each, array) for each in copies)


class Called:
    def __init__(self, target: Any, *arguments: Any) -> None:
        self.made = target, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Called(print, "x"), 2),
        pickle.dumps(Called(np.ndarray, (10**12,)), 2),
        pickle.dumps(Called(np.dtype, "O"), 2),
        pickle.dumps(np.array([{}], object), 2),
        pickle.dumps(np.array([(1, 2.0)], "i4,f4"), 2),
        pickle.dumps(np.array(["word"]), 2),
        pickle.dumps(Path("x"), 2),
        pickle.dumps({(1, 2): 3}, 2),
        pickle.dumps({1, 2}, 4),
        b"\x80\x02]r\xff\xff\xff\x7f",  # room for 2**31 things kept
        b"\x80\x02B\xff\xff\xff\x7f",  # 2**31 bytes
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02.",
        b"\x80\x02(.",
        b"\x80\x02h\x05.",
        b"\x80\x02e.",
        b"\x80\x02}K\x01s.",
        b"\x80\x02cnumpy\nndarray\n.",
        b"\x80\x02cnumpy\ndtype\n}b.",
        b"I" + b"9" * 5000 + b"\n.",
        b"",
        b"no pickle",
    ],
)
def test_what_is_no_pickle_of_arrays_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^it .*\.$"):
        load_pickled(content)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    content = pickle.dumps({"data": Called(os.mkdir, str(tmp_path / "made"))})
    with pytest.raises(DataError, match="mkdir', which is not allowed"):
        load_pickled(content)
    assert not (tmp_path / "made").exists()
    pickle.loads(content)  # it would have
    assert (tmp_path / "made").exists()


def test_tuples_whose_hash_would_not_end_are_refused() -> None:
    shared = b"".join(b"h%c\x86q%c" % (place, place + 1) for place in range(22))
    for content in (b"\x80\x02})q\x00" + shared + b"Ns.", b"\x80\x02})" + b"\x85" * 2000 + b"Ns."):
        with pytest.raises(DataError, match="more tuples than data need"):
            load_pickled(content)


@pytest.mark.parametrize("state", [b"(K\x03U\x01|N(U\x01at}K\x08K\x08K\x00tb", b"(K\x03U\x01|NNNK\x08K\x08K\x3ftb", b"K\x01b"])
def test_a_type_cannot_be_made_to_point_anywhere(state: bytes) -> None:
    """NumPy's own unpickling takes bytes for addresses where the flags of a type were changed."""
    for kind, flags in ((b"U\x02V8", state), (b"U\x02i8", state.replace(b"K\x03", b"K\x09"))):
        with pytest.raises(DataError):
            load_pickled(b"\x80\x02cnumpy\ndtype\n" + kind + b"K\x00K\x01\x87R" + flags + b".")


def bomb(path: Path, size: int) -> Path:
    """A small archive that holds an array of zeros."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", head.getvalue() + bytes(size))
    return path


def test_what_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 2**20)
    with pytest.raises(DataError, match=r"bomb\.npz holds more than .* unpacked, which is more than tempplug reads at once"):
        read_arrays(bomb(tmp_path / "bomb.npz", 2**21), ["images"])
    assert read_arrays(bomb(tmp_path / "fits.npz", 10**6), ["images"])["images"].nbytes == 10**6
    large, small = b"1\n" * 2**19 + b"1", b"1\n"
    (tmp_path / "large.gz").write_bytes(gzip.compress(large))
    (tmp_path / "large.txt").write_bytes(large)
    for name in ("large.gz", "large.txt"):
        with pytest.raises(DataError, match=f"{name} holds more than"):
            read_whole(tmp_path / name)
    for mode in ("w:xz", "w"):
        with tarfile.open(tmp_path / "t", mode) as archive:  # type: ignore[call-overload]
            for name, content in (("other", large), ("wanted", small)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        with pytest.raises(DataError, match="t holds more than"):
            read_archived_texts(tmp_path / "t", ["wanted"])
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("other", large)
        packed.writestr("wanted", small)
    assert read_archived_texts(tmp_path / "z", ["wanted"]) == {"wanted": "1\n"}, "a zip archive is read where the file is"
    with pytest.raises(DataError, match="z holds more than"):
        read_archived_texts(tmp_path / "z", ["other"])


def test_the_limit_holds_for_what_an_archive_says_and_what_it_has(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", 2**20)
    whole = path.read_bytes()
    place = whole.rindex(b"PK\x01\x02") + 24  # of the size in the list of files
    for claimed, message in (
        (int(2.3 * 2**30), "a.npz holds more than 2 GiB, unpacked"),
        (1000, "is not a readable NumPy archive"),
    ):
        path.write_bytes(whole[:place] + claimed.to_bytes(4, "little") + whole[place + 4 :])
        with pytest.raises(DataError, match=message):
            read_arrays(path, ["images"])


def write_npy(path: Path, head: str, content: bytes) -> Path:
    body = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + content
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", body)
    return path


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 3}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '|u1'}",
        "[" * 3000,
        "-" * 9999,
        "",
    ],
)
def test_heads_of_arrays_that_do_not_fit_are_refused(tmp_path: Path, head: str) -> None:
    with pytest.raises(DataError, match=r"a\.npz is not a readable NumPy archive: "):
        read_arrays(write_npy(tmp_path / "a.npz", head, b"abc"), ["images"])


def test_arrays_are_those_of_numpy(tmp_path: Path) -> None:
    made = {f"array{place}": array for place, array in enumerate([*ARRAYS, np.array(["a", "bc"]), np.array(3)])}
    np.savez(tmp_path / "a.npz", **made)
    found = read_arrays(tmp_path / "a.npz", [*made, "absent"])
    assert found.keys() == made.keys()
    for name, array in made.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def test_texts_are_read_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("é", encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("é".encode()))
    assert read_text(tmp_path / "a.txt") == read_text(tmp_path / "a.txt.gz") == "é"
    packed = gzip.compress(b"abc" * 99)
    for name, content, message in (
        ("b.gz", b"\x1f\x8bno gzip", r"b\.gz cannot be read: "),
        ("b.gz", packed[:-9], r"b\.gz cannot be read: "),
        ("b.gz", packed[:20] + b"\xff" * 30, r"b\.gz cannot be read: "),
        ("b.txt", b"\xff", r"b\.txt is not UTF-8: "),
        ("none", None, "none cannot be read: No such file"),
        (".", None, "cannot be read: Is a directory"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_text(tmp_path / name)
