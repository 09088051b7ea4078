"""Every kernel of the Triton engine compiles for sm_90, without a GPU, and keeps its registers: nothing spills to memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# In CI a missing triton is a failure, not a reason to skip.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None and not os.environ.get("CI"),
        reason="triton is not installed: pip install 'tempplug[triton]'",
    ),
]
# Map, precision, dimensions, block, and False for a GPU with little shared memory. The map and the sizes decide the registers.
CALLS: list[tuple[Any, ...]] = [
    ("scale", "bfloat16", 16, "square"),
    ("scale", "bfloat16", 128, "square"),
    ("scale", "bfloat16", 256, "mirrored"),
    ("scale", "bfloat16", 512, "square"),
    ("per-anchor", "bfloat16", 128, "cross"),
    ("log-odds", "bfloat16", 128, "square"),
    ("log-odds", "bfloat16", 256, "square"),
    ("log-odds", "bfloat16", 512, "square"),
    ("cosine", "bfloat16", 128, "square"),
    ("cosine", "bfloat16", 256, "square"),
    ("cosine", "bfloat16", 512, "square"),
    ("shifted", "bfloat16", 128, "cross"),
    ("shifted", "bfloat16", 256, "square"),
    ("shifted", "bfloat16", 512, "square"),
    ("scale", "bfloat16", 256, "square", False),
    ("scale", "float32", 128, "square"),
    ("scale", "float32", 300, "square"),
    ("shifted", "float32", 128, "square"),
]
SHARED_MEMORY = {True: 227 * 1024, False: 99 * 1024}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The kernels of every call."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    script = Path(__file__).with_name("triton_compile.py")
    run = subprocess.run([sys.executable, script], input=json.dumps(CALLS), capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return dict(zip(CALLS, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "-".join(str(part) for part in call))
def test_no_kernel_spills_registers(call: tuple[Any, ...], compiled: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    kernels, (map_name, precision, dimension, block) = compiled[call], call[:4]
    registers_hold = dimension <= (256 if precision != "float32" and call[4:] != (False,) else 128)
    wanted = {"row_sums", "gradients"} if registers_hold else {"row_sums", "slab_gradients", "add_product"}
    wanted |= {"row_sums_online"} if map_name != "log-odds" else set()
    wanted |= {"gradients_swapped"} if block == "cross" and registers_hold else set()
    assert set(kernels) == wanted
    for name, kernel in kernels.items():
        assert kernel["spilled"] == 0, (name, kernel)
        assert kernel["shared"] <= SHARED_MEMORY[call[4:] != (False,)], (name, kernel)
        # Full-precision products have no matrix unit; all others must be on it.
        assert kernel["wgmma"] is (precision != "float32"), (name, kernel)


def test_two_programs_of_the_commonest_row_sums_share_a_multiprocessor(
    compiled: dict[tuple[Any, ...], dict[str, Any]],
) -> None:
    for call in (("scale", "bfloat16", 128, "square"), ("log-odds", "bfloat16", 128, "square")):
        kernel = compiled[call]["row_sums"]
        assert 2 * 256 * kernel["registers"] <= 65_536
        assert 2 * kernel["shared"] <= SHARED_MEMORY[True]
