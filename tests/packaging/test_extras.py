"""What commands import is what their extras install; one that is missing is named with the command that installs it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tempplug.plugins import CommandInfo, Registry, SuiteInfo
from tempplug.plugins.info import Info
from tempplug_adapters.training.method_info import MethodInfo

ROOT = Path(__file__).parents[2]
# Of torch; and what transformers, datasets, scikit-learn or jinja2 cannot be without.
GIVEN = {
    "torch",
    "filelock",
    "pluggy",
    "safetensors",
    "huggingface_hub",
    "packaging",
    "yaml",
    "pandas",
    "pyarrow",
    "threadpoolctl",
    "markupsafe",
    "argcomplete",  # which starts the command, where it is installed
}
# Chosen by the user by name, and named with a command of their own where they are missing; GPU kernels have a fallback.
OPTIONAL = {
    "timm",
    "torchvision",
    "lightly",
    "triton",
    "GCL",
    "sentence_transformers",
    "pytorch_metric_learning",
    "ray",
}
INFOS = [info for kind in (CommandInfo, SuiteInfo) for info in Registry().all(kind) if info.distribution == "tempplug"]
DISTRIBUTIONS = packages_distributions()


def file_of(module: str) -> Path | None:
    """The file of a module of ours, None where the name is of something else."""
    top = module.partition(".")[0]
    folder = {"tempplug": ROOT, "tempplug_adapters": ROOT / "adapters", "tempplug_benchmarks": ROOT / "benchmarks"}.get(top)
    places = [] if folder is None else [folder / f"{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")]
    return next((place for place in places if place.is_file()), None)


@cache
def imports(module: str) -> tuple[str, ...]:
    """The modules that a module of ours names in its imports, wherever they stand in it."""
    file = file_of(module)
    if file is None:
        return ()
    names: list[str] = []
    for node in ast.walk(_without_typing(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tempplug_"):
            # a target that is imported later; recipes name those of several commands, and `reached` follows its own
            names += [] if module.endswith(".recipes") else [node.value.partition(":")[0]]
    return tuple(names)


def _without_typing(tree: ast.Module) -> ast.Module:
    tree.body = [each for each in tree.body if not (isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test))]
    return tree


def reached(info: Info) -> Iterator[str]:
    """The packages of others that anything reached from a declaration imports."""
    target = Registry().load(info)
    todo = [info.target.partition(":")[0]]
    if isinstance(target, MethodInfo):
        todo.append(target.target.partition(":")[0])
    seen: set[str] = set()
    while todo:
        module = todo.pop()
        # commands of others are reached by name; what suites train is said by the suite; `tempplug_adapters.load` is no command
        if module in seen or module.endswith(".plugin") or module == "tempplug_adapters":
            continue
        seen.add(module)
        for name in imports(module):
            if file_of(name):
                todo += [name, name.rpartition(".")[0]]
            elif not name.startswith(("tempplug", "__future__")):
                yield name.partition(".")[0]


@pytest.mark.parametrize("info", INFOS, ids=lambda info: f"{info.word} {info.name}")
def test_what_is_imported_is_declared(info: Info) -> None:
    found = set(reached(info)) - set(sys.stdlib_module_names) - GIVEN - OPTIONAL
    if info.name in ("bench", "plot"):
        found -= {"torch_geometric", "sklearn", "rdkit", "kornia", "PIL"}  # of suites, which say so themselves
    if info.name == "advise":
        # of texts, for which the command names its adapter
        found -= {"transformers", "accelerate", "tqdm", "datasets"}
        found -= {"matplotlib"}  # of the picture, without which the page is written too
        found -= {"filelock"}  # of --train, which asks for what sweep requires
    if info.extra in ("graph", "molecule"):
        found -= {"datasets"}  # of its folders, for which the reader of tables names it
    assert found <= set(info.requires), f"{info.name} imports {sorted(found - set(info.requires))} too"


@pytest.mark.parametrize("info", INFOS, ids=lambda info: f"{info.word} {info.name}")
def test_what_is_declared_is_installed_by_the_extra(info: Info) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    def names(extra: str) -> set[str]:
        found: set[str] = set()
        for line in extras[extra]:
            if line.startswith("tempplug["):
                for inner in line[len("tempplug[") : line.index("]")].split(","):
                    found |= names(inner)
            else:
                found.add(line.partition(">")[0].partition("=")[0].strip().lower().replace("_", "-"))
        return found

    wanted = {package: {each.lower().replace("_", "-") for each in DISTRIBUTIONS[package]} for package in info.requires}
    if info.requires:
        missing = [package for package, distributions in wanted.items() if not distributions & names(info.extra)]
        assert not missing, f"the extra {info.extra} lacks {missing}"


BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from tempplug.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("tqdm", ["train", "grace", "--dataset", "Cora", "--output-dir", "."], "graph"),
        ("rich", ["bench", "list"], "bench"),
        ("filelock", ["advise", "--train", "--help"], "advise"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(tmp_path: Path, package: str, words: list[str], extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER, package, *words], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: command '")
    command = f"pip install -c constraints.txt -e '.[{extra}]' in the folder of tempplug"
    assert f"needs the package '{package}', which is not installed: {command}" in line
