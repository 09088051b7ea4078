"""A user's own script in plain PyTorch Geometric gets the temperature flags with three lines."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tempplug.errors import UnknownNameError

BEFORE = """
import argparse, torch, tempplug
from tempplug.arguments import merge_spec
from torch_geometric.nn import GCNConv
from torch_geometric.utils import dropout_edge, erdos_renyi_graph

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
"""
BETWEEN = """
args = parser.parse_args()
torch.manual_seed(0)
x, edge_index = torch.randn(40, 8), erdos_renyi_graph(40, 0.1)
encoder = GCNConv(8, 16)
"""
AFTER = """
optimizer = torch.optim.Adam([*encoder.parameters(), *loss_fn.parameters()], lr=0.01)
for epoch in range(args.epochs):
    loss_fn.set_progress(epoch)
    view_a, view_b = (encoder(x, dropout_edge(edge_index, p=0.3)[0]) for _ in range(2))
    loss = loss_fn(view_a, view_b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss_fn.strategy.name} {loss.item():.4f}")
"""
# The three lines: one for the flags, two for the loss.
FLAGS = "tempplug.add_temperature_arguments(parser)"
LOSS = """
strategy, options = merge_spec(args.temperature_strategy, args.temperature_args)
loss_fn = tempplug.ContrastiveLoss(tempplug.create_strategy(strategy, **options), args.contrastive_objective)
"""


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_three_lines_bring_every_strategy_to_a_users_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len([line for line in f"{FLAGS}{LOSS}".splitlines() if line]) == 3
    script = tmp_path / "train.py"
    script.write_text(BEFORE + FLAGS + BETWEEN + LOSS + AFTER)
    shown = {}
    for words in (
        "",
        "--temperature-strategy macl --temperature-args alpha=2 threshold=0.5",
        "--temperature-strategy schedule:period=2 --contrastive-objective dcl",
    ):
        monkeypatch.setattr(sys, "argv", [str(script), *words.split()])
        runpy.run_path(str(script), run_name="__main__")
        name, value = capsys.readouterr().out.split()
        shown[name] = float(value)
    assert list(shown) == ["fixed", "macl", "schedule"]
    assert len(set(shown.values())) == 3
    monkeypatch.setattr(sys, "argv", [str(script), "--temperature-strategy", "macle"])
    with pytest.raises(UnknownNameError, match=r"unknown strategy 'macle'\. Did you mean 'macl'\?"):
        runpy.run_path(str(script), run_name="__main__")
