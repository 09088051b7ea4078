"""Importing and listing load no framework; the core loads torch alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Python = Callable[..., str]

# Every package outside of the standard library that something of ours can load, but pluggy.
HEAVY = {
    *("GCL", "PIL", "accelerate", "datasets", "huggingface_hub", "kornia", "matplotlib", "numpy", "pandas", "pyarrow", "rdkit"),
    *("ray", "rich", "scipy", "sentence_transformers", "sklearn", "tokenizers", "torch", "torch_geometric", "torchvision"),
    *("tqdm", "transformers"),
}
FRAMEWORKS = HEAVY - {"torch", "numpy", "tqdm"}  # torch may load the other two
LIGHT = """
import tempplug; dir(tempplug); tempplug.__version__; tempplug.add_temperature_arguments
import tempplug.plugins, tempplug.arguments, tempplug.options, tempplug.errors
tempplug.strategies(); tempplug.objectives(); tempplug.presets()
import tempplug_adapters, tempplug_adapters.plugin, tempplug_adapters.huggingface, tempplug_adapters.simcse
import tempplug_adapters.sentence_evaluation
import tempplug_adapters.sentence_transformers as door; dir(door); door.LIBRARY_TEMPERATURE
import tempplug_benchmarks, tempplug_benchmarks.plugin
from tempplug_adapters.vision.recipes import METHODS; METHODS["simclr"].recipe("google", backbone="vit-tiny")
from importlib import import_module
from tempplug.cli import main
for suite in tempplug.plugins.registry().all(tempplug.plugins.SuiteInfo):
    import_module(suite.target.partition(":")[0])
for words in ("", "list", "presets", "train -h", "show train simcse", "eval vision -h", "advise -h"):
    assert main(words.split()) == 0, words
"""
# GCL's contract is kept without GCL, and without the graphs of its users.
CONTRACT = "from tempplug_adapters.graph.pygcl import PyGCLLoss; PyGCLLoss()"
CORE = """
import tempplug; tempplug.ContrastiveLoss('macl', 'dcl'); [getattr(tempplug, name) for name in tempplug.__all__]
from tempplug.cli import main; assert main(['show', 'dystress']) == 0
"""


def loaded(python: Python, program: str) -> set[str]:
    """Returns the packages of HEAVY that a program has loaded at its end."""
    report = "import json, sys; sys.stdout.write('\\n' + json.dumps(sorted(sys.modules)))"
    return HEAVY & set(json.loads(python("-c", f"{program}\n{report}").splitlines()[-1]))


def test_doors_load_no_framework_and_no_torch(python: Python) -> None:
    assert loaded(python, LIGHT) == set()
    listed = python("-m", "tempplug.cli", "list")
    for name in ("macl", "infonce", "simcse", "sentence", "bench"):
        assert f"  {name}  " in listed, "a list of all plugins loads none of them"


def test_the_core_needs_torch_and_no_framework(python: Python) -> None:
    found = loaded(python, CORE)
    assert "torch" in found
    assert found.isdisjoint(FRAMEWORKS)
    assert loaded(python, CONTRACT).isdisjoint({"GCL", "torch_geometric"})


@pytest.mark.parametrize("script", ["docs/measured.py", "benchmarks/studies/pictures.py"])
def test_reports_need_no_package_of_what_they_report(python: Python, script: str) -> None:
    """They run where `make report` installs the extras bench and vision alone."""
    file = Path(__file__).parents[2] / script
    found = loaded(python, f"import runpy; runpy.run_path({str(file)!r})")
    assert found.isdisjoint({"GCL", "rdkit", "ray", "sentence_transformers", "torch_geometric"})


def test_an_adapter_loads_its_framework_with_the_first_name(python: Python) -> None:
    program = "import tempplug_adapters.huggingface as door; dir(door); {}"
    assert "transformers" not in loaded(python, program.format("pass"))
    assert "transformers" in loaded(python, program.format("door.TemperatureCallback"))
