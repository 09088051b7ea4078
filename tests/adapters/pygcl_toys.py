"""The real PyGCL 0.1.2, whose three missing modules are replaced by the little of them that it touches."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def importable_pygcl() -> Iterator[None]:
    """Lets ``GCL`` be imported; everything that was put into ``sys.modules`` for it leaves it again."""
    before = set(sys.modules)
    scatter = importlib.import_module("torch_geometric.utils").scatter
    stubs: dict[str, dict[str, Any]] = {
        "dgl": {"DGLGraph": object},
        "torch_sparse": {"SparseTensor": object, "coalesce": None},
        "torch_scatter": {"scatter": scatter},
    }
    for name, attributes in stubs.items():
        assert name not in before, f"{name} is installed: the stub would hide it"
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(attributes)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in (*stubs, "GCL"):
                del sys.modules[name]
