"""Modules of the user by MODULE:NAME with keyword arguments, in every command; a file does not choose what is imported."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from bias_toys import random_model, save
from clip_toys import WORDS, save_clip, save_pictures
from graphcl_toys import toy_set
from recommendation_toys import walks, write_log
from simcse_toys import write_toys
from torch import nn

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.backbones import create_backbone
from tempplug_adapters.own_modules import create_module, find
from tempplug_benchmarks.data.gendered_sentences import vocabulary, write_gendered
from tempplug_benchmarks.tasks.node import citation_graph

pytestmark = pytest.mark.filterwarnings("ignore")

MINE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, image_size=32):
        super().__init__()
        self.own = nn.Linear(3 * image_size**2, width)

    def forward(self, images):
        return self.own(images.flatten(1))

class Mean(nn.Module):
    def __init__(self, hidden, gain=1.0):
        super().__init__()
        self.own, self.gain = nn.Linear(hidden, hidden), gain

    def forward(self, items, lengths):
        return self.gain * self.own(items.sum(1) / lengths[:, None])

class Graph(nn.Module):
    def __init__(self, in_channels, hidden, gain=1.0):
        super().__init__()
        self.own, self.gain = nn.Linear(in_channels, hidden), gain

    def forward(self, x, edge_index):
        return self.gain * self.own(x)

def narrow(model, scale=1.0):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return model

def other(model):
    return nn.Linear(2, 2)

def noisy(data, share):
    data.x = data.x * share
    return data
"""
SMALL = ["--num-train-epochs", "1", "--no-evaluate", "--report-to", "none"]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    write_toys(folder)
    write_gendered(folder / "gendered", pairs=32, seed=0, tested=4)
    save(random_model(vocabulary()), folder / "masked")
    save_clip(folder / "clip", WORDS)
    save_pictures(folder / "pictures", count=8, tested=False)
    write_log(folder / "log.csv", walks())
    torch.save(citation_graph(0), folder / "node.pt")
    torch.save(toy_set(20).graphs(), folder / "graphs.pt")
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)


DIGITS = ["--dataset", "digits", "--image-size", "12"]
COMMANDS = {
    "simclr": [*DIGITS, "--count", "64", "--backbone", "mine:Net:width=6"],
    "msc": [*DIGITS, "--normal-class", "3", "--train-images", "20", "--test-images", "20", "--backbone", "mine:Net:width=6"],
    "sasrec": ["--dataset", "{toys}/log.csv", "--hidden", "8", "--encoder", "mine:Mean:gain=0.5"],
    "dcrec": [
        "--dataset",
        "{toys}/log.csv",
        "--hidden",
        "8",
        "--encoder",
        "torch.nn:GRU:input_size=8,hidden_size=8,batch_first=true",
    ],
    "grace": ["--dataset", "{toys}/node.pt", "--encoder", "mine:Graph:gain=0.5", "--augmentations", "mine:noisy:share=0.5"],
    "graphcl": ["--dataset", "{toys}/graphs.pt", "--encoder", "torch_geometric.nn:GAT:heads=2"],
    "simcse": [
        *("--dataset", "{toys}/pairs.tsv", "--data-dir", "{toys}/sts", "--model-name-or-path", "{toys}/encoder"),
        *("--encoder", "mine:narrow:scale=0.5"),
    ],
    "mabel": [
        *("--dataset", "{toys}/gendered/pairs.tsv", "--data-dir", "{toys}/gendered", "--model-name-or-path", "{toys}/masked"),
        *("--encoder", "mine:narrow:scale=0.5"),
    ],
    "clip": ["--dataset", "{toys}/pictures", "--model-name-or-path", "{toys}/clip", "--encoder", "mine:narrow:scale=0.5"],
}


@pytest.mark.parametrize("method", COMMANDS)
def test_every_command_trains_a_module_of_the_user(toys: Path, tmp_path: Path, method: str) -> None:
    words = [each.format(toys=toys) for each in COMMANDS[method]]
    words += [] if method in ("grace", "sasrec", "dcrec") else ["--per-device-train-batch-size", "8"]
    assert main(["train", method, *words, *SMALL, "--output-dir", str(tmp_path / "out")]) == 0
    recipe = json.loads((tmp_path / "out" / "metrics.json").read_text())["recipe"]
    assert (recipe.get("backbone") or recipe["encoder"]) == words[
        words.index("--backbone" if "--backbone" in words else "--encoder") + 1
    ]


@pytest.mark.parametrize(
    ("method", "flag", "value", "message"),
    [
        ("simclr", "--backbone", "mine:Nett", "backbone='mine:Nett' cannot be imported: AttributeError"),
        (
            "simclr",
            "--backbone",
            "mine:Net:widht=3",
            "backbone Net has no argument 'widht'. Did you mean 'width'? It takes: width,",
        ),
        (
            "simclr",
            "--backbone",
            "mine:Mean:hidden=3",
            "A backbone takes images [B, 3, H, W], normalised, and returns [B, F] or",
        ),
        ("msc", "--backbone", "mine:Mean", "backbone Mean needs hidden: give them as MODULE:NAME:hidden=VALUE, or"),
        ("sasrec", "--encoder", "mine:Net", "encoder Net cannot run ("),
        (
            "sasrec",
            "--encoder",
            "torch.nn:Linear:in_features=8,out_features=4",
            "encoder Linear returned (2, 3, 4): it must take e",
        ),
        ("sasrec", "--encoder", "torch.nn:GRU:input_size=8,hidden_size=8", "encoder GRU mixes the histories of a batch"),
        (
            "simcse",
            "--encoder",
            "mine:other",
            "made a Linear with config.hidden_size=None; it must make a model of transformers",
        ),
        ("grace", "--encoder", "mine:Mean", "encoder Mean cannot run"),
    ],
)
def test_what_does_not_fit_is_named_with_the_contract(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, flag: str, value: str, message: str
) -> None:
    words = [each.format(toys=toys) for each in COMMANDS[method]]
    words[words.index(flag) + 1] = value
    words += [] if method in ("grace", "sasrec") else ["--per-device-train-batch-size", "8"]
    assert main(["train", method, *words, *SMALL, "--output-dir", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_a_checkpoint_does_not_choose_what_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert (
        main(["train", "simclr", *COMMANDS["simclr"], *SMALL, "--per-device-train-batch-size", "8", "--output-dir", out]) == 0
    )
    words = ["eval", "vision", "--checkpoint", out, "--dataset", "digits", "--test-images", "40", "--evaluations", "knn"]
    assert main(words) == 2
    assert "whose import runs code: pass --backbone mine:Net:width=6 if you trust it" in capsys.readouterr().err
    assert main([*words, "--backbone", "mine:Net:width=7"]) == 2
    assert main([*words, "--backbone", "mine:Net:width=6"]) == 0


def test_keyword_arguments_and_what_is_known() -> None:
    def of(width: int, layers: int = 1, *, bias: bool = True) -> nn.Module:
        return nn.Linear(width, layers, bias=bias)

    def named(spec: str) -> nn.Module:
        given = find(f"json:loads:{spec}", "encoder").keywords
        return create_module(partial(of, **given), "encoder", {"width": 5, "layers": 2})

    assert (named("bias=false").weight.shape, named("bias=false").bias) == ((2, 5), None)
    assert named("layers=4").weight.shape == (4, 5), "the user's word counts"
    module = nn.Linear(2, 2)
    assert create_module(module, "encoder", {}) is not module
    for given, message in [
        (partial(module, bias=1), "must be a module, or a class or function that makes one"),
        (partial(of, width="a"), r"encoder of\(layers=2, width=a\) cannot be made: TypeError"),
    ]:
        with pytest.raises(ConfigError, match=message):
            create_module(given, "encoder", {"layers": 2})
    with pytest.raises(ConfigError, match="'heads' is not an option: write key=value"):
        find("torch_geometric.nn:GAT:heads", "encoder")


def test_a_folder_with_a_colon_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "c:net").mkdir()
    with pytest.raises(UnknownNameError, match="no backbone"):
        create_backbone("c:net")


@pytest.mark.parametrize(
    ("method", "option", "name"),
    [
        ("simclr", "backbone", "my_networks:Small"),
        ("grace", "encoder", "my_networks:GNN:heads=2"),
        ("msc", "backbone", "a.b:C"),
    ],
)
def test_a_folder_does_not_choose_what_is_imported(method: str, option: str, name: str, tmp_path: Path) -> None:
    content = {"method": method, "dataset": "digits", "recipe": {option: name}}
    (tmp_path / "tempplug.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"was trained with '{name}', whose import runs code: pass trust=True, or --trust"):
        tempplug_adapters.load(tmp_path)
    with pytest.raises((DataError, ConfigError), match=r"is no folder of a training|cannot be imported|does not fit"):
        tempplug_adapters.load(tmp_path, trust=True)
