"""A third-party plugin, built and installed with pip, does all that a built-in does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Python = Callable[..., str]
PACKAGE = Path(__file__).with_name("plugin_package")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH into which pip installed the plugin, and only the plugin."""
    folder = tmp_path_factory.mktemp("third_party")
    source = folder / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--no-compile"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--disable-pip-version-check", "--target", str(folder / "site"), str(source)],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in (folder / "site").iterdir()}
    assert names == {"tempplug_cubic", "tempplug_cubic-0.3.dist-info"}
    return str(folder / "site")


def test_the_command_lists_and_explains_it_where_it_is_installed(site: str, python: Python) -> None:
    assert "cubic" not in python("-m", "tempplug.cli", "list")
    assert python("-m", "tempplug.cli", "show", "cubic", status=2).startswith("error: nothing is called 'cubic'.")
    listed = python("-m", "tempplug.cli", "list", PYTHONPATH=site)
    lines = [line.strip() for line in listed.splitlines()]
    assert "cubic             colder for pairs that are far from orthogonal  [none]" in lines
    assert "hinge             smooth hinge on the margin" in lines
    assert "Warning" not in listed
    assert "cubic" not in python("-m", "tempplug.cli", "list", PYTHONPATH=site, TEMPPLUG_DISABLE_PLUGINS="cubic")
    assert python("-m", "tempplug.cli", "show", "cubic", PYTHONPATH=site, PYTHONIOENCODING="utf-8") == (
        "strategy cubic: colder for pairs that are far from orthogonal\n\n"
        "  formula  l = (s + bend·s³) / τ₀\n"
        "  source   none\n"
        "  spec     cubic:base_temperature=0.1,bend=0.5\n"
        "  options\n"
        "    base_temperature  default 0.1  greater than 0; τ₀, in force at s = 0\n"
        "    bend              default 0.5  at least 0 and at most 10; how much colder at\n"
        "                      s = ±1\n"
    )


PROGRAM = """
import json
import torch
import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug.plugins import registry
from tempplug.testing import check_objective, check_strategy

found = {}
found["spec"] = tempplug.create_strategy("cubic:bend=0.25").spec()
for name, spec in {"range": "cubic:bend=11", "option": "cubic:bent=1"}.items():
    try:
        tempplug.create_strategy(spec)
    except (ConfigError, UnknownNameError) as error:
        found[name] = str(error)

torch.manual_seed(0)
items, encoder = torch.randn(32, 16), torch.nn.Linear(16, 8)
loss_fn = tempplug.ContrastiveLoss("cubic:bend=2", "hinge:margin=0.5", "two-view")
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5)
found["losses"] = []
for _ in range(30):
    loss = loss_fn(encoder(items), encoder(items + 0.3 * torch.randn_like(items)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found["losses"].append(loss.item())
registry().log(loss_fn.record)
found["record"] = loss_fn.record.to_dict()

a, b = torch.eye(4), torch.eye(4)
straight = tempplug.ContrastiveLoss("cubic:bend=0", layout="cross-view")
found["straight"] = [straight(a, b).item(), tempplug.ContrastiveLoss("fixed", layout="cross-view")(a, b).item()]

check_strategy(tempplug.create_strategy("cubic"))
check_strategy(tempplug.create_strategy("cubic:base_temperature=0.05,bend=10"))
check_objective(tempplug.create_objective("hinge"))
print(json.dumps(found))
"""


def test_spec_strings_build_it_the_loss_trains_with_it_and_its_listener_is_called(site: str, tmp_path: Path) -> None:
    """In one process; the conformance checks raise there."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", PROGRAM],
        env={"PYTHONPATH": site, "CUBIC_LOG": str(tmp_path / "log"), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["spec"] == "cubic:base_temperature=0.1,bend=0.25"
    assert found["range"] == "bend=11 of strategy 'cubic' must be at least 0 and at most 10."
    known = "Did you mean 'bend'? Known: base_temperature, bend."
    assert found["option"] == f"unknown option 'bent' of strategy 'cubic'. {known}"
    assert sum(found["losses"][-5:]) < 0.8 * sum(found["losses"][:5])
    assert found["straight"][0] == pytest.approx(found["straight"][1], rel=1e-6)
    record = found["record"]
    assert 0.1 / 3 - 1e-6 <= record["temperature_min"] < record["temperature_max"] <= 0.1 + 1e-6
    assert (tmp_path / "log").read_text(encoding="utf-8") == f"{record['temperature_mean']:.6f}\n"
