"""Each door is opened in a process of its own, and must load only what it says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

Python = Callable[..., str]

# Every package outside of the standard library that something of ours can load, but pluggy.
HEAVY = (
    "accelerate",
    "datasets",
    "huggingface_hub",
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "ray",
    "rich",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "tokenizers",
    "torch",
    "torchvision",
    "tqdm",
    "transformers",
)
FRAMEWORKS = tuple(name for name in HEAVY if name not in ("torch", "numpy", "tqdm"))  # torch may load the other two


def loaded(python: Python, program: str) -> set[str]:
    """Returns the packages of HEAVY that a program has loaded at its end."""
    report = "import json, sys; sys.stdout.write('\\n' + json.dumps(sorted(sys.modules)))"
    modules = json.loads(python("-c", f"{program}\n{report}").splitlines()[-1])
    return set(HEAVY) & set(modules)


@pytest.mark.parametrize(
    "program",
    [
        "import tempplug",
        "import tempplug; dir(tempplug); tempplug.__version__; tempplug.add_temperature_arguments",
        "import tempplug.plugins",
        "import tempplug.arguments, tempplug.options, tempplug.errors",
        "import tempplug; tempplug.strategies(); tempplug.objectives()",
        "import tempplug_adapters",
        "import tempplug_adapters.plugin",
        "import tempplug_adapters.huggingface",
        "import tempplug_adapters.simcse",
        "import tempplug_adapters.sentence_evaluation",
        "import tempplug_adapters.sentence_transformers as door; dir(door); door.LIBRARY_TEMPERATURE",
        "import tempplug_benchmarks",
        "import tempplug_benchmarks.plugin",
        "import tempplug.cli",
        "from tempplug.cli import main; assert main(['list']) == 0",
        "from tempplug.cli import main; assert main([]) == 0",
        "from tempplug.cli import main; assert main(['train', '-h']) == 0",
        "from tempplug.cli import main; assert main(['show', 'train', 'simcse']) == 0",
        "from tempplug.cli import main; assert main(['demo', '-h']) == 0",
    ],
)
def test_doors_load_no_framework_and_no_torch(python: Python, program: str) -> None:
    assert loaded(python, program) == set()


def test_listing_everything_asks_all_plugins(python: Python) -> None:
    """So that the silence of the test above is worth something."""
    listed = python("-m", "tempplug.cli", "list")
    for name in ("macl", "infonce", "simcse", "sentence", "bench"):
        assert f"  {name}  " in listed


@pytest.mark.parametrize(
    "program",
    [
        "import tempplug; tempplug.ContrastiveLoss('macl', 'dcl'); [getattr(tempplug, name) for name in tempplug.__all__]",
        "from tempplug.cli import main; assert main(['show', 'dystress']) == 0",
    ],
)
def test_the_core_needs_torch_and_no_framework(python: Python, program: str) -> None:
    found = loaded(python, program)
    assert "torch" in found
    assert found.isdisjoint(FRAMEWORKS)


def test_an_adapter_loads_its_framework_with_the_first_name(python: Python) -> None:
    program = "import tempplug_adapters.huggingface as door; dir(door); {}"
    assert "transformers" not in loaded(python, program.format("pass"))
    assert "transformers" in loaded(python, program.format("door.TemperatureCallback"))
