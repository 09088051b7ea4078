"""Modules of the user by MODULE:NAME with keyword arguments, in every command; a file does not choose what is imported."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from torch import nn

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, UnknownNameError
from tempplug_adapters.images.backbones import create_backbone
from tempplug_adapters.own_modules import create_module, find

pytestmark = pytest.mark.filterwarnings("ignore")

MINE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width=8, image_size=32):
        super().__init__(nn.Flatten(), nn.Linear(3 * image_size**2, width))

class Mean(nn.Linear):
    def __init__(self, hidden, gain=1.0):
        super().__init__(hidden, hidden)
        self.weight.data.mul_(gain)

    def forward(self, items, lengths):
        return super().forward(items.sum(1) / lengths[:, None])

class Graph(nn.Linear):
    def __init__(self, in_channels, hidden, gain=1.0):
        super().__init__(in_channels, hidden)
        self.weight.data.mul_(gain)

    def forward(self, x, edge_index):
        return super().forward(x)

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


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


EIGHT = "--per-device-train-batch-size 8"
DIGITS = f"--dataset digits --image-size 12 {EIGHT}"
COMMANDS = {
    "simclr": f"{DIGITS} --count 64 --backbone mine:Net:width=6",
    "msc": f"{DIGITS} --normal-class 3 --train-images 20 --test-images 20 --backbone mine:Net:width=6",
    "sasrec": "--dataset {toys}/log.csv --hidden 8 --encoder mine:Mean:gain=0.5",
    "dcrec": "--dataset {toys}/log.csv --hidden 8 --encoder torch.nn:GRU:input_size=8,hidden_size=8,batch_first=true",
    "grace": "--dataset {toys}/node.pt --encoder mine:Graph:gain=0.5 --augmentations mine:noisy:share=0.5",
    "graphcl": f"{EIGHT} --dataset {{toys}}/graphs.pt --encoder torch_geometric.nn:GAT:heads=2",
    "simcse": f"{EIGHT} --dataset {{toys}}/pairs.tsv --data-dir {{toys}}/sts --model-name-or-path {{toys}}/encoder"
    " --encoder mine:narrow:scale=0.5",
    "mabel": f"{EIGHT} --dataset {{toys}}/gendered/pairs.tsv --data-dir {{toys}}/gendered --model-name-or-path {{toys}}/masked"
    " --encoder mine:narrow:scale=0.5",
    "clip": f"{EIGHT} --dataset {{toys}}/pictures --model-name-or-path {{toys}}/clip --encoder mine:narrow:scale=0.5",
}


def train(toy_data: Path, method: str, module: str = "") -> int:
    """Trains into ``out``, with another module if one is given."""
    words = COMMANDS[method].format(toys=toy_data)
    words = re.sub(r"(--encoder|--backbone) \S+", rf"\1 {module}", words) if module else words
    small = "--num-train-epochs 1 --no-evaluate --eval-strategy no --save-strategy no --output-dir out"
    return main(["train", method, *words.split(), *small.split()])


@pytest.mark.parametrize("method", COMMANDS)
def test_every_command_trains_a_module_of_the_user(toy_data: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(toy_data, method) == 0
    recipe = json.loads(Path("out/metrics.json").read_text())["recipe"]
    name = recipe.get("backbone") or recipe["encoder"]
    assert f" {name}" in COMMANDS[method]
    if method != "simclr":
        return
    # a folder does not choose what is imported
    words = ["eval", "vision", "--checkpoint", "out", "--dataset", "digits", "--test-images", "40", "--evaluations", "knn"]
    assert main(words) == 2
    assert "whose import runs code: pass --backbone mine:Net:width=6 if you trust it" in capsys.readouterr().err
    assert [main([*words, "--backbone", f"mine:Net:width={width}"]) for width in (7, 6)] == [2, 0]


@pytest.mark.parametrize(
    ("method", "module", "message"),
    [
        ("simclr", "mine:Nett", "backbone='mine:Nett' cannot be imported: AttributeError"),
        ("simclr", "mine:Net:widht=3", "backbone Net has no argument 'widht'. Did you mean 'width'? It takes: width,"),
        ("simclr", "mine:Mean:hidden=3", "A backbone takes images [B, 3, H, W], normalised, and returns [B, F] or"),
        ("msc", "mine:Mean", "backbone Mean needs hidden: give them as MODULE:NAME:hidden=VALUE, or"),
        ("sasrec", "mine:Net", "encoder Net cannot run ("),
        ("sasrec", "torch.nn:Linear:in_features=8,out_features=4", "encoder Linear returned (2, 3, 4): it must take e"),
        ("sasrec", "torch.nn:GRU:input_size=8,hidden_size=8", "encoder GRU mixes the histories of a batch"),
        ("simcse", "mine:other", "made a Linear with config.hidden_size=None; it must make a model of transformers"),
        ("grace", "mine:Mean", "encoder Mean cannot run"),
    ],
)
def test_what_does_not_fit_is_named_with_the_contract(
    toy_data: Path, capsys: pytest.CaptureFixture[str], method: str, module: str, message: str
) -> None:
    assert train(toy_data, method, module) == 2
    assert message in capsys.readouterr().err


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
    [("simclr", "backbone", "my_nets:Small"), ("grace", "encoder", "my_nets:GNN:heads=2"), ("msc", "backbone", "a.b:C")],
)
def test_a_folder_does_not_choose_what_is_imported(method: str, option: str, name: str, tmp_path: Path) -> None:
    content = {"method": method, "dataset": "digits", "recipe": {option: name}}
    (tmp_path / "tempplug.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"was trained with '{name}', whose import runs code: pass trust=True, or --trust"):
        tempplug_adapters.load(tmp_path)
    with pytest.raises((DataError, ConfigError), match=r"is no folder of a training|cannot be imported|does not fit"):
        tempplug_adapters.load(tmp_path, trust=True)
