"""PyGCL's own examples that train with InfoNCE, on the CPU and for fewer epochs: with its loss, then with the replacement.

The files are theirs but for the lines that `CHANGES` names. PyGCL has no tests.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pygcl_toys import importable_pygcl

from tempplug_adapters.graph.pygcl import PyGCLLoss

DATA = Path(os.environ.get("TEMPPLUG_DATA", "missing"), "graph")
CHANGES = {
    "'cuda'": "'cpu'",
    "range(1, 1001)": "range(1, 6)",
    "range(1, 101)": "range(1, 6)",
    "from torch_geometric.data import DataLoader": "from torch_geometric.loader import DataLoader",
    "name='PTC_MR'": "name='MUTAG'",  # a data set at hand
    "A.RWSampling(num_seeds=1000, walk_length=10),": "",  # needs torch_sparse itself
}


def trained(example: str, loss: Callable[..., Any] | None) -> tuple[list[float], Any]:
    """Returns the losses of the epochs and the measured result."""
    import GCL.losses

    text = Path("examples", f"{example}.py").read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": example}
    exec(compile(text, example, "exec"), names)
    train, test, losses, results = names["train"], names["test"], [], []
    names["train"] = lambda *given: losses.append(train(*given)) or losses[-1]
    names["test"] = lambda *given: results.append(test(*given)) or results[-1]
    with pytest.MonkeyPatch.context() as patch:
        if loss is not None:
            patch.setattr(GCL.losses, "InfoNCE", loss)
        torch.manual_seed(0)
        np.random.seed(0)
        names["main"]()
    return losses, results[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("example", ["GraphCL", "GRACE", "GRACE_SupCon"])
def test_example(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example runs to its end, and the first epoch's loss is PyGCL's own."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "Cora").mkdir()
    (tmp_path / "datasets" / "Cora" / "raw").symlink_to(DATA / "planetoid" / "Cora" / "raw")
    with tarfile.open(DATA / "tu" / "MUTAG.tar.xz") as archive:
        archive.extractall(tmp_path / "datasets", filter="data")
    monkeypatch.setenv("HOME", str(tmp_path))
    with importable_pygcl():
        theirs, before = trained(example, None)
        ours, after = trained(example, lambda tau: PyGCLLoss(tau=tau))
    print(f"{example}: losses {theirs[0]:.6f} to {theirs[-1]:.4f}, here {ours[0]:.6f} to {ours[-1]:.4f}; {before}, {after}")
    assert ours[-1] < ours[0]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
