"""Fingerprints of data: every method names all files that it reads, and a run resumes on data of the same contents only."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from clip_toys import WORDS, save_clip, save_pictures
from graphcl_toys import packed, toy_set, write_tu
from image_toys import write_image
from launcher import launch, torchrun
from method_toys import Kill, Killed, assert_same_end, run
from molecule_toys import write_files
from recommendation_toys import walks, write_log
from simcse_toys import write_toys
from test_saved_graphs import graph
from torch_geometric.data import Data
from transfer_toys import write_tables

from tempplug.cli import shell
from tempplug.errors import ConfigError
from tempplug_adapters.clip.recipe import METHOD as CLIP
from tempplug_adapters.graph.recipes import GRACE, GRAPHCL, MOLECULE
from tempplug_adapters.mabel.recipe import METHOD as MABEL
from tempplug_adapters.msc.recipe import METHOD as MSC
from tempplug_adapters.recommendation.recipes import DCREC, SASREC
from tempplug_adapters.simcse.recipe import METHOD as SIMCSE
from tempplug_adapters.simcse.retrieval_recipe import METHOD as RETRIEVAL
from tempplug_adapters.storage import fingerprint as fingerprints
from tempplug_adapters.storage.fingerprint import Fingerprint as LazyFingerprint, Sources, changed_groups, files_below
from tempplug_adapters.training.checkpoints import DATA_FILE
from tempplug_adapters.training.method import Source
from tempplug_adapters.training.method_info import MethodInfo
from tempplug_adapters.vision.recipes import METHODS
from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered
from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

AGAIN = "Restore them, choose another output folder, or pass --resume-on-changed-data to go on with these data."


def Fingerprint(sources: Sources) -> LazyFingerprint:
    return LazyFingerprint(lambda: sources)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_names_sizes_and_contents_count_but_no_places(tmp_path: Path) -> None:
    for name, text in {"a/x": "1", "a/y": "22", "table": "333"}.items():
        write(tmp_path / "first" / name, text)
    sources = {"dataset": tmp_path / "first" / "table", "hub": "commit 7", "test/x": tmp_path / "first" / "a" / "x"}
    before = json.loads(json.dumps(Fingerprint(sources).content()))
    assert before["files"]["dataset"] == [3, digest("333")]
    (tmp_path / "first").rename(tmp_path / "moved")
    moved = {"dataset": (tmp_path / "moved" / "table").rename(tmp_path / "renamed"), "hub": "commit 7"}
    assert Fingerprint(moved).changes(before) == [], "test is in one of them only"
    write(tmp_path / "renamed", "334")
    changed = Fingerprint({**moved, "hub": "commit 8", "test/y": tmp_path / "moved" / "a" / "y"})
    bytes_of = "{} bytes with checksum {}"
    assert changed.changes(before) == [
        f"dataset ({tmp_path / 'renamed'}) has {bytes_of.format(3, digest('334'))}, not {bytes_of.format(3, digest('333'))}",
        "hub (commit 8) has 'commit 8', not 'commit 7'",
        "test/y was added",
        "test/x was removed",
    ]
    assert Fingerprint({"dataset": tmp_path / "gone"}).entries == {"dataset": "unreadable"}
    groups = [Fingerprint(files).summary() for files in (moved, {"dataset": tmp_path / "moved" / "a" / "x"})]
    (phrase,) = changed_groups(*groups)
    assert phrase.startswith("dataset has 1 file(s) of 1 bytes with checksum ")
    assert changed_groups(groups[0], groups[0]) == []


def test_a_folder_is_listed_without_hidden_files_and_each_folder_once(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.PNG", "a/note.txt", ".hidden.png", ".git/d.png"):
        write(tmp_path / "data" / name, name)
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    assert [*files_below(tmp_path / "data")] == ["b.png", "a/c.PNG", "a/note.txt"]
    assert [*files_below(tmp_path / "data", {".png"})] == ["b.png", "a/c.PNG"]
    assert files_below(tmp_path / "data" / "b.png") == {"": tmp_path / "data" / "b.png"}


def test_large_data_are_read_again_only_where_their_times_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a", "12345")
    before, time = Fingerprint({"dataset": file}).content(), file.stat().st_mtime_ns
    read: list[Path] = []
    original = fingerprints.checksum
    monkeypatch.setattr(fingerprints, "checksum", lambda path: read.append(path) or original(path))
    monkeypatch.setattr(fingerprints, "ALWAYS_READ", 4)
    same = Fingerprint({"dataset": file})
    assert (same.changes(before), same.content(), read) == ([], before, [])
    os.utime(file, ns=(time + 1, time + 1))
    assert (Fingerprint({"dataset": file}).changes(before), len(read)) == ([], 1)
    write(file, "12346")
    assert len(Fingerprint({"dataset": file}).changes(before)) == 1
    os.utime(file, ns=(time, time))
    monkeypatch.setattr(fingerprints, "ALWAYS_READ", 5)
    assert len(Fingerprint({"dataset": file}).changes(before)) == 1, "small data are compared by contents, whatever the times"


class Case(NamedTuple):
    """A training on files: its recipe's settings, the data set, the folder of data, and what reads images on disk."""

    info: MethodInfo
    dataset: str
    settings: Mapping[str, Any] = MappingProxyType({})
    data_dir: Path | None = None
    use: Callable[[Any], Any] = len


def texts(folder: Path, models: Path) -> Iterator[Case]:
    write_tiny_encoder(models / "encoder", seed=0, layers=1, width=32)
    write_toys(folder)
    write_tables(folder / "transfer")
    model = {"model_name_or_path": str(models / "encoder")}
    pairs = str(folder / "pairs.tsv")
    yield Case(SIMCSE, pairs, {**model, "tasks": ("STSB", "MR", "TREC")}, folder)
    rows = [{"id": str(number), "text": f"text {number}"} for number in range(5)]
    for part in ("corpus", "queries"):
        write(folder / "retrieval" / "toy" / f"{part}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    write(folder / "retrieval" / "toy" / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n1\t2\t1\n")
    yield Case(RETRIEVAL, pairs, {**model, "tasks": ("toy",)}, folder)
    write_gendered(folder / "bias", 40, seed=0)
    write_tiny_encoder(models / "masked", 0, words=vocabulary(), masked=True)
    bias = {"model_name_or_path": str(models / "masked")}
    for settings in ({}, {"gender_words": str(folder / "bias" / "gender_words.tsv")}):
        yield Case(MABEL, str(folder / "bias" / "pairs.tsv"), {**bias, **settings}, folder)


def images(folder: Path, models: Path) -> Iterator[Case]:
    for split, count in (("train", 12), ("test", 6)):
        for number in range(count):
            write_image(folder / "classes" / split / f"c{number % 2}" / f"{number}.png", number * 9, (32, 32))
    every = torch.arange(4)

    def use(data: Any) -> None:
        for part in (data.train, data.test):
            part.batch(torch.arange(len(part)))

    small = {"image_size": 32, "evaluations": ("knn",)}
    yield Case(METHODS["simclr"], str(folder / "classes"), small, None, use)
    yield Case(METHODS["simclr"], str(folder / "classes"), {**small, "count": 5}, None, use)
    rows = np.random.default_rng(0).integers(256, size=(8, 3073), dtype=np.uint8)
    rows[:, 0] %= 2
    for name in (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"):
        write(folder / "cifar-10-batches-bin" / f"{name}.bin", "").write_bytes(rows.tobytes())
    write(folder / "cifar-10-batches-bin" / "batches.meta.txt", "cat\ndog\n")
    yield Case(METHODS["moco"], "cifar10", {"evaluations": ("knn",)}, folder)
    save_clip(models / "clip", WORDS)
    clip = {"model_name_or_path": str(models / "clip")}

    def use_pairs(data: Any) -> None:
        data.train.images.batch(every)

    yield Case(CLIP, str(save_pictures(folder / "captioned")), clip, None, use_pairs)
    yield Case(CLIP, str(folder / "classes"), clip, None, use_pairs)
    lines = [f"{folder / 'captioned' / 'train' / f'{row}.png'},a red picture" for row in range(4)]
    yield Case(CLIP, str(write(folder / "table.csv", "\n".join(["filepath,title", *lines]))), clip, None, use_pairs)
    from msc_toys import save_tiny_resnet

    settings = {"backbone": str(save_tiny_resnet(models / "resnet")), "image_size": 32, "normal_class": "c0"}
    yield Case(MSC, str(folder / "classes"), settings, None, lambda data: data.images.train.batch(every))


def graphs(folder: Path, models: Path) -> Iterator[Case]:
    torch.save(graph(), folder / "graph.pt")
    yield Case(GRACE, str(folder / "graph.pt"))
    edges = write(folder / "edges.csv", "source,target\n" + "".join(f"{node},{(node + 1) % 20}\n" for node in range(20)))
    tables = {"node_features": folder / "x.csv", "node_labels": folder / "y.csv"}
    write(tables["node_features"], "".join(f"{node % 5},{node % 3}\n" for node in range(20)))
    write(tables["node_labels"], "".join(f"{node % 2}\n" for node in range(20)))
    yield Case(GRACE, str(edges), {name: str(path) for name, path in tables.items()})
    torch.save([Data(x=each.x, edge_index=each.edge_index) for each in map(graph, range(4))], folder / "graphs.pt")
    yield Case(GRAPHCL, str(folder / "graphs.pt"), {"folds": 2})
    write_tu(folder / "graph" / "tu", "TOY", toy_set())
    yield Case(GRAPHCL, "TOY", {"folds": 2}, folder)
    raw = folder / "ogb" / "ogbn_toy" / "raw"
    nodes = range(12)
    packed(raw, edge=[(node, (node + 1) % 12) for node in nodes], num_node_list=[(12,)], num_edge_list=[(12,)])
    packed(raw, node_feat=[(node, 1.5) for node in nodes], node_label=[(node % 2,) for node in nodes])
    packed(raw.parent / "split" / "time", train=[(node,) for node in range(6)], valid=[(6,), (7,)], test=[(8,), (9,)])
    yield Case(GRACE, "ogbn-toy", {}, folder)
    write_files(folder)
    pretrained = {"pretrain_file": str(folder / "unlabelled.smi")}
    yield Case(MOLECULE, f"{folder / 'one.csv'},{folder / 'Three.csv'}", pretrained)


def interactions(folder: Path, models: Path) -> Iterator[Case]:
    yield Case(SASREC, str(write_log(folder / "log.csv", walks())))
    header = "session_id:token\titem_id_list:token_seq\titem_id:token\n"
    for end, split in ((-2, "train"), (-1, "test")):
        rows = [
            f"{user}\t{' '.join(map(str, walk[:end]))}\t{walk[end]}\n" for user, walk in enumerate(walks()) if len(walk) > 3
        ]
        write(folder / "toy" / f"toy.{split}.inter", header + "".join(rows))
    yield Case(DCREC, str(folder / "toy"))


_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | os.PathLike):
        _opened.append(os.fspath(arguments[0]))


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Notes the files that Python opens during the block."""
    global _opened
    if not hasattr(opened_files, "hooked"):
        sys.addaudithook(_note)
        opened_files.hooked = True  # type: ignore[attr-defined]
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


@pytest.mark.parametrize("cases", [texts, images, graphs, interactions])
def test_methods_name_all_files_that_they_open(cases: Callable[[Path, Path], Iterator[Case]], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for case in cases(folder, tmp_path / "models"):
        method, recipe = case.info.load(), case.info.recipe(**case.settings)
        source = Source(case.dataset, case.data_dir, tmp_path / "cache")
        with opened_files() as opened:
            data = method.load(recipe, source)
            case.use(data)
        read = {Path(name).resolve() for name in opened if str(folder) in name and Path(name).is_file()}
        sources = method.files(recipe, source, data)
        named = {path.resolve() for path in sources.values() if isinstance(path, Path)}
        assert named, case
        assert read <= named, case
        assert all(path.is_file() for path in named), case
        assert "unreadable" not in Fingerprint(sources).entries.values()
        if case.info is MABEL:
            assert "stereoset_dev_intrasentence.jsonl.gz" in sources, "which only the evaluation reads"
        if case.settings.get("count") == 5:
            assert len([name for name in sources if name.startswith("dataset train")]) == 5, "no images that are not used"


def table(folder: Path, text: str = "one table") -> dict[str, Path]:
    return {"dataset": write(folder / "table.csv", text)}


def test_a_run_resumes_on_data_of_the_same_contents_only(tmp_path: Path) -> None:
    files = table(tmp_path)
    run(tmp_path / "whole", files=lambda: files, dataset=str(files["dataset"]))
    with pytest.raises(Killed):
        run(tmp_path / "killed", files=lambda: files, dataset=str(files["dataset"]), callbacks=[Kill(5)])
    moved = {"dataset": files["dataset"].rename(tmp_path / "moved.csv")}
    write(moved["dataset"], "two table")
    resumed: dict[str, Any] = {"files": lambda: moved, "dataset": str(moved["dataset"]), "resume_from_checkpoint": "auto"}
    told = rf"^the data have changed since checkpoint-4 was written: dataset \({moved['dataset']}\) has 9 bytes.*\. {AGAIN}$"
    with pytest.raises(ConfigError, match=told):
        run(tmp_path / "killed", **resumed)
    write(moved["dataset"], "one table")
    results = run(tmp_path / "killed", **resumed)
    assert results["dataset"] == str(moved["dataset"])
    settings = tmp_path / "whole" / "metrics.json"
    settings.write_text(settings.read_text().replace(str(files["dataset"]), str(moved["dataset"])))
    assert_same_end(tmp_path)
    summary = {"files": 1, "bytes": 9}
    assert json.loads((tmp_path / "killed" / "tempplug.json").read_text())["data"]["dataset"].items() >= summary.items()


def test_changed_data_are_allowed_by_a_flag_and_unknown_ones_are_told(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "run", files=partial(table, tmp_path), callbacks=[Kill(5)])
    changed = table(tmp_path, "other")
    with pytest.warns(UserWarning, match=r"^the data have changed since .* The training goes on with these data\.$"):
        run(tmp_path / "run", files=lambda: changed, resume_from_checkpoint="auto", resume_on_changed_data=True, callbacks=[])
    stored = json.loads((tmp_path / "run" / "checkpoint-9" / DATA_FILE).read_text())
    assert stored["files"]["dataset"][0] == len("other"), "later checkpoints are of the data of now"
    with pytest.raises(Killed):
        run(tmp_path / "old", callbacks=[Kill(5)])
    with pytest.warns(UserWarning, match=r"^checkpoint-4 has no fingerprint of its data, .* goes on without comparing them\.$"):
        run(tmp_path / "old", files=lambda: changed, resume_from_checkpoint="auto")


def test_data_of_the_evaluation_may_be_left_out(tmp_path: Path) -> None:
    files = table(tmp_path)
    with pytest.raises(Killed):
        run(
            tmp_path / "run", files=lambda: {**files, "STSB dev/dev.tsv": write(tmp_path / "dev.tsv", "x")}, callbacks=[Kill(5)]
        )
    assert run(tmp_path / "run", files=lambda: files, resume_from_checkpoint="auto", evaluate=False)["steps"] == 9


@pytest.mark.filterwarnings("ignore")
def test_a_killed_training_of_a_graph_that_was_overwritten_does_not_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The graph that takes the place of the first one has the same shape."""
    file = tmp_path / "graph.pt"
    torch.save(graph(0), file)
    first = file.read_bytes()
    words = ["--dataset", str(file), "--output-dir", str(tmp_path / "out"), "--save-steps", "2", "--num-train-epochs", "8"]
    if (process := os.fork()) == 0:
        from tempplug_adapters.training.callbacks import EpochFlow

        def kill(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 7:
                os.kill(os.getpid(), signal.SIGKILL)

        EpochFlow.on_step_end = kill  # type: ignore[method-assign]
        torch.set_num_threads(1)
        os._exit(shell(lambda: GRACE(words)))
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    torch.save(graph(1), file)
    again = [*words, "--resume-from-checkpoint", "auto"]
    assert shell(lambda: GRACE(again)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: the data have changed since checkpoint-6 was written: dataset ({file}) has ")
    assert error.endswith(AGAIN)
    assert not (tmp_path / "out" / "metrics.json").exists()
    file.write_bytes(first)
    file.rename(tmp_path / "renamed.pt")
    renamed = [str(tmp_path / "renamed.pt") if word == str(file) else word for word in again]
    assert shell(lambda: GRACE(renamed)) == 0
    torch.save(graph(1), tmp_path / "renamed.pt")
    from tempplug.cli import main

    capsys.readouterr()
    with pytest.warns(UserWarning, match=r"^the data are not those of the training: dataset has 1 file\(s\) of .*\.$"):
        assert main(["eval", "trained", str(tmp_path / "out")]) == 0


@pytest.mark.slow
def test_all_processes_refuse_data_that_one_machine_finds_changed(tmp_path: Path) -> None:
    for name in ("table.csv", "other.csv"):
        write(tmp_path / name, "one")
    assert launch(torchrun(2), "train_data.py", tmp_path, "5")[0] != 0
    write(tmp_path / "table.csv", "two")
    status, errors = launch(torchrun(2), "train_data.py", tmp_path, "0")
    assert status != 0
    told = [line for line in errors.splitlines() if line.startswith("rank ")]
    assert sorted(line.split(":")[0] for line in told) == ["rank 0", "rank 1"]
    assert all(
        f"the data have changed since checkpoint-4 was written: dataset ({tmp_path}/table.csv) has " in line for line in told
    )
    write(tmp_path / "table.csv", "one")
    status, errors = launch(torchrun(2), "train_data.py", tmp_path, "0")
    assert status == 0, errors
