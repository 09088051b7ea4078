"""What a training leaves is enough: another process that has the folder and the data computes the same figures and vectors."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import method_toys as toys
import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from recommendation_toys import SMALL, walks
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from trained_toys import COMMANDS, DATA, forgotten
from transformers import AutoModel, ResNetConfig, ResNetModel

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.ending import LINES, WIDTH, ending, number
from tempplug_adapters.graph.grace_method import GraceMethod
from tempplug_adapters.graph.nodes import Nodes
from tempplug_adapters.graph.recipes import GRACE
from tempplug_adapters.huggingface import TemperatureArguments
from tempplug_adapters.images.image_data import load_images
from tempplug_adapters.training.train import train
from tempplug_benchmarks.tasks.node import citation_graph


def evaluated(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "metrics.json").read_text())["evaluation"]
    return found


FRESH = """
import json, sys, traceback, tempplug_adapters
for line in sys.stdin:
    try:
        folder, data = line.strip().split("\t")
        found = tempplug_adapters.load(folder).evaluate(data)
    except Exception:
        found = traceback.format_exc()
    print("\\nfound", json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def in_a_fresh_process(warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path, Path], Any]]:
    """Gives the figures of a folder in a process that has trained nothing, or the error; one process, as it starts slowly."""
    words = [os.environ["PYTHON_EXEC"], "-c", FRESH]
    where = tmp_path_factory.mktemp("elsewhere")
    with subprocess.Popen(words, cwd=where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def figures(folder: Path, data: Path) -> Any:
            process.stdin.write(f"{folder}\t{data}\n")
            process.stdin.flush()
            answer = next((line for line in process.stdout if line.startswith("found ")), "found null")
            return json.loads(answer.removeprefix("found "))

        yield figures
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 SMILES of")
@pytest.mark.parametrize("method", COMMANDS)
def test_a_fresh_process_that_has_folder_and_data_finds_the_same_figures(
    method: str,
    tmp_path: Path,
    toy_data: Path,
    in_a_fresh_process: Callable[[Path, Path], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    data = request.getfixturevalue("data_dir") if method == "msc" else toy_data / DATA.get(method, "")
    folder = forgotten(method, tmp_path, toy_data, data)
    end = capsys.readouterr().out
    found, before = in_a_fresh_process(folder, data), evaluated(folder)
    assert found == before, found
    assert len(found) > 0
    kept = json.loads((folder / "tempplug.json").read_text())
    assert {"method": method, "recipe": json.loads((folder / "metrics.json").read_text())["recipe"]}.items() <= kept.items()
    card = (folder / "README.md").read_text()
    assert "\nlibrary_name: " in card or "\npipeline_tag: " in card
    assert all(f"| {name} | {number(value)} |" in card for name, value in before.items() if method != "simcse")
    assert "FOLDER" not in card
    # the command that is printed last can be typed
    assert len(few(end, before)) <= LINES
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPPLUG_DATA", str(data))
    then = end.splitlines()[-1].removeprefix("next: tempplug ").replace(str(tmp_path / "out"), str(folder))
    assert main(shlex.split(then)) == 0
    assert len(capsys.readouterr().out.splitlines()) <= LINES
    if "vectors.npy" in then:
        vectors = np.load(tmp_path / "vectors.npy")
        assert np.isfinite(vectors).all()
        assert len(np.unique(vectors.round(4), axis=0)) > 1


def few(out: str, figures: dict[str, float]) -> list[str]:
    """The last lines of a training, from the temperature or the folder on."""
    lines = out.splitlines()
    (start,) = [place for place, line in enumerate(lines) if line.startswith("wrote ")]
    return lines[start - lines[start - 1].startswith("temperature at the end") :]


@pytest.fixture(scope="module")
def anomalies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector of digits that are no 3, by a pretrained network that is gone."""
    folder = tmp_path_factory.mktemp("anomalies")
    network = folder / "network"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2]}
        ResNetModel(ResNetConfig(**sizes, layer_type="basic")).save_pretrained(network)
    words = (
        f"train msc --dataset digits --normal-class 3 --backbone {network} --image-size 32 --train-images 40 --frozen-blocks 1"
    )
    words += " --test-images 50 --num-train-epochs 1 --save-strategy no"
    assert main([*words.split(), "--output-dir", str(folder / "out")]) == 0
    shutil.rmtree(network)
    return folder / "out"


def pictures(folder: Path, count: int = 5) -> list[str]:
    """Files of digits, at two depths."""
    images = load_images("digits", "test", None).batch(torch.arange(count))
    files = []
    for row, pixels in enumerate(images):
        place = folder / ("deep" if row % 2 else "") / f"{row}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place)
        files.append(str(place))
    return sorted(files)


def test_scores_have_a_threshold_and_a_picture(anomalies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = pictures(tmp_path / "images")
    given = ["score", str(anomalies), str(tmp_path / "images"), "--output", str(tmp_path / "scores.csv")]
    assert main([*given, "--false-alarms", "0.1"]) == 0
    out = capsys.readouterr().out
    rows = [row.split(",") for row in (tmp_path / "scores.csv").read_text().splitlines()]
    assert rows[0] == ["image", "score", "anomaly"]
    assert sorted(row[0] for row in rows[1:]) == files
    trained = tempplug_adapters.load(anomalies)
    scores = trained.run("score", files)
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(sorted(scores.tolist(), reverse=True), rel=1e-5)
    normal = trained.module.normal
    distances = torch.cdist(normal, normal).square().sort(1).values[:, 1:3].sum(1)  # the first is that to itself
    threshold = distances.quantile(0.9)
    assert trained.run("normal_scores") == pytest.approx(distances, abs=1e-5)
    assert [row[2] for row in rows[1:]] == [str(int(float(row[1]) > threshold)) for row in rows[1:]]
    assert f"threshold {number(float(threshold))}: 10 % of 40 normal training images" in out
    with Image.open(tmp_path / "scores.png") as picture:
        assert picture.size == (4 * 160, 2 * 174)
    assert main([*given, "--validation", str(tmp_path / "images" / "deep")]) == 0
    held = trained.run("score", [each for each in files if "deep" in each])
    assert f"threshold {number(float(held.quantile(0.95)))}: 5 % of 2 normal images of " in capsys.readouterr().out
    Path(files[1]).write_bytes(b"no picture")
    assert main(given) == 0
    assert f"{files[1]} cannot be decoded as an image" in capsys.readouterr().out
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == len(files)
    assert files[1] not in (tmp_path / "scores.csv").read_text()


def test_images_have_the_same_vectors_as_files_as_bytes_and_from_the_command(anomalies: Path, tmp_path: Path) -> None:
    files = pictures(tmp_path / "images")
    trained = tempplug_adapters.load(anomalies)
    sets = load_images("digits", "test", None)
    everything = trained.embed(sets)
    assert everything.shape == (len(sets), 16)
    torch.testing.assert_close(trained.embed(sets.batch(torch.arange(7))), everything[:7])
    for name in ("vectors.npy", "vectors.parquet"):
        assert main(["embed", str(anomalies), str(tmp_path / "images"), "--output", str(tmp_path / name)]) == 0
    table = parquet.read_table(tmp_path / "vectors.parquet")
    assert table["name"].to_pylist() == files
    vectors = torch.from_numpy(np.load(tmp_path / "vectors.npy"))
    assert table["vector"].to_pylist() == vectors.tolist()
    torch.testing.assert_close(trained.embed([Path(each) for each in files]), vectors)


@pytest.mark.parametrize("method", ["msc", "supcon"])
def test_transformers_opens_its_own_networks(method: str, anomalies: Path, tmp_path: Path) -> None:
    folder = anomalies
    if method == "supcon":
        folder = tmp_path
        words = "--dataset digits --backbone vit-tiny --image-size 8 --count 40 --no-channels-last --num-train-epochs 1"
        small = "--per-device-train-batch-size 20 --embedding-dimension 8 --no-evaluate --save-strategy no"
        assert main(["train", method, *words.split(), *small.split(), "--output-dir", str(tmp_path)]) == 0
        assert json.loads((folder / "tempplug.json").read_text())["labels"] == list("0123456789")
    backbone = tempplug_adapters.load(folder).module.encoder
    network = AutoModel.from_pretrained(folder).eval()
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    size = processor["size"]["height"]
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(processor[f"image_{name}"]).reshape(3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        output = network((images - mean) / std)
        found = output.last_hidden_state[:, 0] if method == "supcon" else output.pooler_output.flatten(1)
        torch.testing.assert_close(found, backbone.eval()(images))
        large = torch.randint(256, (3, 3, 64, 64), dtype=torch.uint8)
        seen = F.interpolate(large / 255, (size, size), mode="bilinear", antialias=True)
        if method == "supcon":
            torch.testing.assert_close(tempplug_adapters.load(folder).embed(large), backbone(seen))


def test_recommendations_are_by_the_users_own_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{user},{item},{time}" for user, items in enumerate(walks()) for time, item in enumerate(items)]
    named = [f"u{row.replace(',', ',i', 1)}" for row in rows]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *named]) + "\n")
    words = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    given = ["train", "sasrec", "--dataset", str(tmp_path / "log.csv"), *words, "--num-train-epochs", "15"]
    assert main([*given, "--learning-rate", "0.02", "--output-dir", str(tmp_path / "out")]) == 0
    (tmp_path / "log.csv").unlink()
    capsys.readouterr()
    assert main(["recommend", str(tmp_path / "out"), "--user", "u3", "--top", "4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    own = [f"i{item}" for item in walks()[3]]
    found = [line[1] for line in lines[:-1]]
    assert len(set(found) - set(own)) == 4
    following = walks()[3][-1] % 12 + 1
    assert f"i{following}" in found + own, "the next item on the ring"
    trained = tempplug_adapters.load(tmp_path / "out")
    state = trained.embed([own])
    items = trained.module.encoder.items.weight.detach()
    scores = dict(zip(trained.module.data.names, (state @ items.T)[0, 1:].tolist(), strict=True))
    assert found == sorted(scores.keys() - set(own), key=lambda item: -scores[item])[:4]
    output = ["--output", str(tmp_path / "all.csv")]
    assert main(["recommend", str(tmp_path / "out"), "--top", "2", "--user", "u0", "u3", *output]) == 0
    written = (tmp_path / "all.csv").read_text().splitlines()
    assert (written[0], written[3].split(",")[:3]) == ("user,rank,item,score", ["u3", "1", found[0]])
    assert main(["recommend", str(tmp_path / "out"), "--user", "v3"]) == 2
    assert "no user 'v3' in the training. Did you mean 'u3'?" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="no item 'j1' in the training"):
        trained.embed([["j1"]])


def test_an_encoder_from_python_is_given_again(tmp_path: Path) -> None:
    graph, recipe = citation_graph(0), GRACE.recipe(num_train_epochs=1, hidden=8)
    given = GraceMethod(GRACE, GCN)
    train(given, recipe, Nodes(graph), TemperatureArguments("fixed", [], None), tmp_path, evaluate=False)
    with pytest.raises(ConfigError, match="an encoder that was passed from Python: pass it again"):
        tempplug_adapters.load(tmp_path)
    found = tempplug_adapters.load(tmp_path, given).embed(graph)
    torch.testing.assert_close(found, torch.load(tmp_path / "representations.pt", weights_only=True))
    with pytest.raises(DataError, match="the graph has 1 features a node, but the encoder was trained with"):
        tempplug_adapters.load(tmp_path, given).embed(Data(x=torch.ones(3, 1), edge_index=graph.edge_index[:, :0]))


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda folder: (folder / "tempplug.json").unlink(), DataError, r"has no tempplug\.json: give the output folder"),
        (lambda folder: (folder / "tempplug.json").write_text("[]"), DataError, r"tempplug\.json is damaged: it lacks method"),
        (lambda folder: (folder / "normal.pt").write_bytes(b""), DataError, r"normal\.pt cannot be read: it is empty"),
        (lambda folder: (folder / "encoder.pt").unlink(), DataError, "is no folder of a training: it must hold"),
        (lambda folder: edit(folder, recipe={"seeds": 1}), UnknownNameError, "no setting 'seeds'"),
        (lambda folder: edit(folder, preprocessing=None, roc_auc_before=None, method="mcs"), UnknownNameError, "train mcs"),
    ],
)
def test_a_damaged_folder_is_refused(
    anomalies: Path, tmp_path: Path, spoil: Callable[[Path], Any], error: type[Exception], message: str
) -> None:
    shutil.copytree(anomalies, tmp_path / "out")
    spoil(tmp_path / "out")
    with pytest.raises(error, match=message):
        tempplug_adapters.load(tmp_path / "out")


def test_a_method_of_ones_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = toys.METHOD.load()
    toys.run(tmp_path)
    with pytest.raises(UnknownNameError, match="was trained by `tempplug train toy`, which is not installed: unknown command"):
        tempplug_adapters.load(tmp_path)
    points = toys.Points()
    model = tempplug_adapters.load(tmp_path, toy)
    assert float(model.embed(points.x).std()) == json.loads((tmp_path / "metrics.json").read_text())["evaluation"]["spread"]
    assert model.evaluate(dataset="points") == evaluated(tmp_path)
    monkeypatch.setattr(toys.ToyMethod, "evaluate", lambda *given: {"drawn": float(torch.rand(()))})
    toys.run(tmp_path / "drawn")
    assert tempplug_adapters.load(tmp_path / "drawn", toy).evaluate(dataset="points") == evaluated(tmp_path / "drawn")
    with pytest.raises(ConfigError, match="method 'toy' reads no data for vectors: call embed"):
        toy.read(model.recipe, None, "test")  # type: ignore[arg-type]


def edit(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "tempplug.json").read_text())
    (folder / "tempplug.json").write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed OUT digits --output vectors.txt", "output=vectors.txt must end in .npy or .parquet"),
        ("embed OUT nothing --output v.npy", "no data set 'nothing'"),
        ("recommend OUT --user 1", "was trained by msc, which has no `tempplug recommend`"),
        ("score OUT digits --output scores.txt", "must end in .csv"),
        ("score OUT digits --false-alarms 1", "false_alarms=1.0 must be greater than 0 and less than 1"),
        ("eval trained nowhere", "'nowhere' has no tempplug.json"),
    ],
)
def test_wrong_words_are_named(
    anomalies: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.replace("OUT", str(anomalies)).split()) == 2
    assert message in capsys.readouterr().err


def test_a_folder_is_measured_anew_by_a_command(anomalies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "trained", str(anomalies)]) == 0
    shown = capsys.readouterr()
    assert "3 figures; largest difference from metrics.json: 0\n" in shown.out
    assert re.search(rf"^roc_auc +{evaluated(anomalies)['roc_auc']:.4g}$", shown.out, re.M)
    assert "Loading weights" not in shown.err


@pytest.mark.parametrize("count", [0, 3, 12, 20, 36, 99])
def test_an_ending_has_few_lines_and_columns(count: int) -> None:
    figures = {f"a figure with a long name {each}": -each * 1.23456789 for each in range(count)}
    lines = ending(["one", "two"], figures, "tempplug x").splitlines()
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert (lines[:2], lines[-1]) == (["one", "two"], "next: tempplug x")
    shown = sum(line.count("a figure") for line in lines)
    assert shown == count or f"and {count - shown} more in metrics.json" in lines[-2]
