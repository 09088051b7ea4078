"""The shape of the source tree: what stands at the top, what must and must not be in a folder, how long files may be."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import tempplug
import tempplug.objectives
import tempplug.strategies
from tempplug.plugins import ObjectiveInfo, Registry, StrategyInfo
from tempplug.plugins.info import Info

PACKAGES = ("tempplug", "adapters/tempplug_adapters", "benchmarks/tempplug_benchmarks")
STUDIES = "benchmarks/studies"
LONGEST = 400
# a path below a folder that only some machine has: Unix homes and scratch folders, Windows drives
MACHINE_PATH = re.compile(r"(?<![\w.])(?:/(?:work|root|home|Users|tmp|mnt)/\w|[A-Z]:\\\w)")


def test_the_visible_top_level_is_as_agreed(product_files: list[str]) -> None:
    visible = {name.split("/")[0] for name in product_files if not name.startswith(".")}
    folders = {"tempplug", "adapters", "benchmarks", "docs", "tests"}
    texts = {"README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE"}
    files = {"pyproject.toml", "Makefile", "constraints.txt", "mkdocs.yml", *texts}
    assert visible == folders | files


def test_every_folder_of_a_package_is_a_typed_package_and_containers_are_none(product_files: list[str]) -> None:
    inside = tuple(f"{package}/" for package in (*PACKAGES, STUDIES))
    assert [name for name in product_files if name.endswith("__init__.py") and not name.startswith(inside)] == []
    folders = {str(Path(name).parent) for name in product_files if name.endswith(".py") and name.startswith(PACKAGES)}
    assert folders > set(PACKAGES)
    wanted = {f"{folder}/__init__.py" for folder in folders} | {f"{package}/py.typed" for package in PACKAGES}
    assert wanted - set(product_files) == set()


@pytest.mark.parametrize(
    ("package", "kind", "shared"),
    [(tempplug.strategies, StrategyInfo, {"maps"}), (tempplug.objectives, ObjectiveInfo, set())],
    ids=["strategies", "objectives"],
)
def test_every_file_of_a_strategy_or_objective_is_declared(package: ModuleType, kind: type[Info], shared: set[str]) -> None:
    (folder,) = map(Path, package.__path__)
    files = {file.stem for file in folder.glob("*.py")} - {"__init__", "base", "plugin"} - shared
    targets = [info.target for info in Registry().all(kind) if info.target.startswith(f"{package.__name__}.")]
    assert {target.partition(":")[0].rpartition(".")[2] for target in targets} == files
    assert len(set(targets)) == len(targets)


def test_no_package_imports_a_study(root: Path, product_files: list[str]) -> None:
    """Nor names one as what it loads later; `make lint` checks the imports of modules."""
    names = {name for name in product_files if name.startswith(PACKAGES) and name.endswith((".py", ".toml"))}
    study = re.compile(r"\b(?:from|import) studies\b|[\"']studies\.|tempplug_target_probability")
    assert study.search("    from studies.cells import Cell")
    assert study.search('target = "studies.texts:load"')
    assert [name for name in names if study.search((root / name).read_text(encoding="utf-8"))] == []
    assert any(name.startswith(f"{STUDIES}/") and study.search((root / name).read_text("utf-8")) for name in product_files)


def test_files_are_short_modules_have_a_docstring_and_no_path_is_of_one_machine(root: Path, product_files: list[str]) -> None:
    texts = {name: (root / name).read_text(encoding="utf-8") for name in product_files}
    modules = [name for name in texts if name.endswith(".py")]
    assert [name for name in modules if len(texts[name].splitlines()) > LONGEST] == []
    assert [name for name in modules if name.startswith(PACKAGES) and not texts[name].startswith('"""')] == []
    for path in ("/home/" + "me/data", "cd /" + "tmp/x", '"/' + 'Users/me"', "C:" + "\\data"):
        assert MACHINE_PATH.search(path)
    for text in ("https://example.org/home/page", "a/tmp/b", "../work/x", "/usr/bin/env"):
        assert not MACHINE_PATH.search(text)
    assert {name: found[0] for name, text in texts.items() if (found := MACHINE_PATH.search(text))} == {}


def test_the_readme_leads_to_a_first_run_and_to_the_tests(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) <= 900, "what is longer has a page in docs/"
    assert len(re.findall(r"^\| ?:?-", readme, re.MULTILINE)) <= 2, "a third table has a page in docs/"
    assert "make quickstart" in readme
    assert "make test" in readme
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"README names `make {target}`, which the Makefile lacks"


def test_readme_and_changelog_name_every_strategy_and_objective(root: Path) -> None:
    for file in ("README.md", "CHANGELOG.md"):
        text = (root / file).read_text(encoding="utf-8")
        known = [info.name for kind in (StrategyInfo, ObjectiveInfo) for info in Registry().all(kind)]
        assert [name for name in known if f"`{name}`" not in text] == [], f"{file} leaves some out"


def test_the_changelog_has_the_version_on_a_page(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\S+).*\n((?:(?!## ).*\n)*)", text, re.MULTILINE))
    lines = sections[tempplug.__version__].splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 130


def test_issue_forms_are_complete(root: Path) -> None:
    """GitHub leaves out a form that lacks one of these, without a word."""
    forms = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (root / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "wrong_number", "feature"}
    for name, form in forms.items():
        assert {"name", "description", "body"} <= set(form), name
        fields = [each["id"] for each in form["body"]]
        assert len(set(fields)) == len(fields), name
        assert {each["type"] for each in form["body"]} <= {"input", "textarea", "checkboxes"}, name
        assert all(each["attributes"]["label"] for each in form["body"]), name


def test_every_extra_that_a_declaration_names_exists(root: Path) -> None:
    from tempplug.plugins import AdapterInfo, CommandInfo, SuiteInfo

    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {info.extra for kind in (AdapterInfo, SuiteInfo, CommandInfo) for info in Registry().all(kind)} - {""}
    assert named <= set(extras)
    assert named
