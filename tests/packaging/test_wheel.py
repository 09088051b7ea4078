"""What is shipped: a wheel and a source distribution, built from a clean copy of the tree, and the wheel at work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import pytest

import tempplug

pytestmark = pytest.mark.slow

Python = Callable[..., str]
PACKAGES = {
    "tempplug": "tempplug",
    "adapters/tempplug_adapters": "tempplug_adapters",
    "benchmarks/tempplug_benchmarks": "tempplug_benchmarks",
}
METADATA = f"tempplug-{tempplug.__version__}.dist-info"


def build(source: Path, target: str, folder: Path) -> Path:
    """Builds one distribution and returns its file."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(words, cwd=source, capture_output=True, check=False, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source_tree, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source_tree, "sdist", tmp_path_factory.mktemp("sdist"))


def files_of(wheel: Path) -> dict[str, str]:
    """Returns names and check sums."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: f"{each.CRC:x}" for each in archive.infolist()}


def text(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode("utf-8")


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path, product_files: list[str]) -> None:
    expected = {
        f"{package}{name.removeprefix(folder)}"
        for folder, package in PACKAGES.items()
        for name in product_files
        if name.startswith(f"{folder}/")
    }
    shipped = {name for name in files_of(wheel) if not name.startswith(f"{METADATA}/")}
    assert shipped == expected
    assert {f"{package}/py.typed" for package in PACKAGES.values()} < shipped
    assert "tempplug_benchmarks/papers/sentence.json" in shipped


def test_the_wheel_holds_no_data_and_no_results(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {each.filename: each.file_size for each in archive.infolist() if not each.filename.startswith(METADATA)}
    texts = {".toml", ".typed", ".css", ".js", ".html", ".md", ".mplstyle", ".txt"}
    assert {Path(name).suffix for name in sizes} <= {".py", ".json", *texts}
    folders = {str(Path(name).parent) for name in sizes if name.endswith(".json")}
    assert folders == {"tempplug_adapters/graph", "tempplug_benchmarks/papers"}
    assert max(sizes.values()) < 200_000


def test_the_wheel_says_what_it_is(wheel: Path, source_tree: Path) -> None:
    assert wheel.name == f"tempplug-{tempplug.__version__}-py3-none-any.whl"
    assert text(wheel, f"{METADATA}/licenses/LICENSE") == (source_tree / "LICENSE").read_text(encoding="utf-8")
    about = message_from_string(text(wheel, f"{METADATA}/METADATA"))
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("tempplug", tempplug.__version__, "Apache-2.0")
    needed = [line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in needed) == ["pluggy", "torch"]
    assert {"simcse", "bench", "all", "dev"} <= set(about.get_all("Provides-Extra", []))
    assert about.get_payload() == (source_tree / "README.md").read_text(encoding="utf-8")


def test_the_wheel_declares_command_and_plugins(wheel: Path) -> None:
    assert text(wheel, f"{METADATA}/entry_points.txt").split() == [
        *("[console_scripts]", "tempplug", "=", "tempplug.cli:main"),
        *("[tempplug]", "adapters", "=", "tempplug_adapters.plugin", "benchmarks", "=", "tempplug_benchmarks.plugin"),
    ]


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path, python: Python) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = "import tempplug, tempplug_adapters, tempplug_benchmarks as b; print(tempplug.__file__, b.__file__)"
    assert python("-c", program, PYTHONPATH=str(site)).split() == [
        str(site / "tempplug" / "__init__.py"),
        str(site / "tempplug_benchmarks" / "__init__.py"),
    ]
    listed = python("-m", "tempplug.cli", "list", PYTHONPATH=str(site))
    assert "train simcse" in listed
    assert "Warning" not in listed
    # without its metadata the entry points of ours are unknown, so the list above came through them
    program = f"import importlib.metadata as m; print(m.distribution('tempplug').locate_file(''), {str(site)!r})"
    found, wanted = python("-c", program, PYTHONPATH=str(site)).split()
    assert Path(found) == Path(wanted)


def test_the_source_distribution_holds_the_tree_without_what_was_measured(sdist: Path, product_files: list[str]) -> None:
    top = f"tempplug-{tempplug.__version__}"
    with tarfile.open(sdist) as archive:
        names = {each.name.removeprefix(f"{top}/") for each in archive.getmembers() if each.isfile()}
    left_out = (
        *("benchmarks/results/", "benchmarks/studies/", "tests/studies/", "tests/peers/"),
        *(".github/", ".pre-commit-config.yaml"),
    )
    assert names == {"PKG-INFO", *(name for name in product_files if not name.startswith(left_out))}
    assert len(names) <= 900


def test_tests_of_the_core_run_in_the_source_distribution(sdist: Path, tmp_path: Path, python: Python) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"tempplug-{tempplug.__version__}"
    told = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", unpacked / "tests/unit/test_amcl.py", PYTHONPATH=str(unpacked)
    )
    assert re.search(r"\d+ passed", told)


def test_an_index_would_take_what_is_built(wheel: Path, sdist: Path, python: Python) -> None:
    assert python("-m", "twine", "check", "--strict", wheel, sdist).count("PASSED") == 2


def test_the_python_of_the_readme_runs_on_the_wheel(root: Path, wheel: Path, tmp_path: Path, python: Python) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    path = os.pathsep.join(map(str, (site, root / "tests/docs", root / "tests/adapters")))
    told = python(root / ".ci/readme.py", "python", PYTHONPATH=path, HF_HUB_OFFLINE="1")
    assert f"tempplug {tempplug.__version__} from {site / 'tempplug'}" in told
    assert "README: 2 pieces, 0 failed" in told


def test_a_wheel_from_the_source_distribution_is_the_same(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"tempplug-{tempplug.__version__}"
    assert files_of(build(unpacked, "wheel", tmp_path / "again")) == files_of(wheel)


def test_the_plugin_of_a_study_is_found_once_it_is_installed(source_tree: Path, tmp_path: Path, python: Python) -> None:
    """As `pip install` does: its wheel beside tempplug, and the entry point of its metadata."""
    made = build(source_tree / "benchmarks" / "studies" / "target_probability", "wheel", tmp_path / "wheel")
    site = tmp_path / "site"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
        assert {name.partition("/")[0] for name in archive.namelist() if "dist-info" not in name} == {
            "tempplug_target_probability"
        }
    assert "no longer built in" in python("-m", "tempplug.cli", "show", "target-probability", status=2)
    assert "probability" in python("-m", "tempplug.cli", "show", "target-probability", PYTHONPATH=str(site))
    assert "tempplug-target-probability 0.1" in python("-m", "tempplug.cli", "plugins", PYTHONPATH=str(site))
