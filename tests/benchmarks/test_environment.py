"""What a result says of the machine, the software and the code that made it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tempplug.processor import Processor
from tempplug_benchmarks.run import store as environment


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    environment._commit.cache_clear()
    yield
    environment._commit.cache_clear()


def test_the_processor_is_named_by_vendor_family_model_and_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Processor("AMD EPYC", "AuthenticAMD", 26, 2, ("AVX512", "avx512_bf16"))
    monkeypatch.setattr("tempplug.processor.processor", lambda: here)
    monkeypatch.setattr("tempplug.processor.product_route", lambda: "onednn")
    found = environment.hardware()
    assert found.items() >= {"cpu": "AMD EPYC", "vendor": "AuthenticAMD", "family": 26, "model": 2}.items()
    assert found["instructions"] == "AVX512 avx512_bf16"
    assert found["products"] == "onednn"
    line = environment.describe_environment({**found, "cores": 2, "threads": 1}, {"python": "3.11.0"})
    assert line == (
        "AMD EPYC (AuthenticAMD family 26 model 2), AVX512 avx512_bf16, products by onednn, 2 cores, 1 threads; python 3.11.0"
    )


def test_the_commit_is_named_and_whether_code_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "benchmarks" / "tempplug_benchmarks" / "run" / "store.py"))
    assert "commit" not in environment.versions(), "no checkout"

    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "tempplug").mkdir()
    (tmp_path / "tempplug" / "loss.py").write_text("one\n")
    git("init", "-q"), git("add", "."), git("commit", "-qm", "first")
    commit = git("rev-parse", "--short=12", "HEAD").strip()
    for name, expected in (("notes.md", commit), ("tempplug/loss.py", f"{commit}+changes")):
        (tmp_path / name).write_text("two\n")
        environment._commit.cache_clear()
        assert environment.versions()["commit"] == expected, name
