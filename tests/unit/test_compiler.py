"""Compiled models call the loss as it is: no graph takes it in, nothing of it is compiled, nobody else loads the compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tempplug import ContrastiveLoss

WITHOUT_PRIVATE_NAMES = """
import torch
private = torch._C._dynamo.eval_frame
kept = private.set_code_exec_strategy
del private.set_code_exec_strategy
import tempplug.compiler
private.set_code_exec_strategy = kept
"""
COMPILED = """
import torch
from tempplug import ContrastiveLoss
from tempplug.compiler import _lean
loss_fn = ContrastiveLoss()
view_a, view_b = torch.randn(2, 8, 4).unbind()
graphs = []
def backend(module, inputs):
    graphs.append([node.name for node in module.graph.nodes if node.op.startswith("call")])
    return module.forward
compiled = torch.compile(lambda: loss_fn(view_a * 2, view_b) * 3, backend=backend)
assert torch.allclose(compiled(), loss_fn(view_a * 2, view_b) * 3)
print(_lean, graphs)
"""


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def test_the_compiler_is_not_loaded_by_those_who_do_not_compile() -> None:
    script = "import sys, torch, tempplug; tempplug.ContrastiveLoss()(torch.randn(8, 4), torch.randn(8, 4)); "
    assert run(script + "print('torch._dynamo' in sys.modules)") == "False"


@pytest.mark.slow
@pytest.mark.parametrize(("before", "lean"), [("", True), (WITHOUT_PRIVATE_NAMES, False)], ids=["lean", "fallback"])
def test_graphs_end_before_the_loss_and_go_on_behind_it(before: str, lean: bool) -> None:
    assert run(before + COMPILED) == f"{lean} [['mul'], ['mul']]"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fixed", "macl", "learnable"])
def test_training_a_compiled_model_compiles_nothing_of_the_loss(strategy: str) -> None:
    torch._dynamo.reset()
    taken_in: list[set[str]] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        taken_in.append({node.name for node in module.graph.nodes if node.op.startswith("call")})
        return module.forward

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(4, 3)
            self.loss = ContrastiveLoss(strategy)

        def forward(self, view_a: Tensor, view_b: Tensor) -> Tensor:
            return self.loss(self.encoder(view_a), self.encoder(view_b))

    model = Model()
    compiled = torch.compile(model, backend=backend)
    for _ in range(3):
        view_a, view_b = torch.randn(2, 8, 4).unbind()
        compiled(view_a, view_b).backward()
    assert len(taken_in) == 1
    assert all(name.startswith("linear") for name in taken_in[0])
