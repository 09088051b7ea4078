"""Which routine multiplies follows from the processor and the environment, never from a clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tempplug import processor as module
from tempplug.errors import ConfigError
from tempplug.processor import Processor, onednn_product, processor, product_route

ZEN5 = Processor("AMD EPYC 9755", "AuthenticAMD", 26, 2, ("AVX512", "avx512_bf16"))


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets what was found, before and after."""
    monkeypatch.delenv("TEMPPLUG_GEMM", raising=False)
    for each in (processor, product_route):
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in (processor, product_route):
        each.cache_clear()


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (ZEN5, "onednn"),
        (ZEN5._replace(instructions=("AVX2",)), "mm"),
        (ZEN5._replace(family=25), "mm"),
        (ZEN5._replace(vendor="GenuineIntel", family=6, instructions=("AVX512", "avx512_bf16", "amx_bf16")), "mm"),
        (Processor("", "", 0, 0, ("DEFAULT",)), "mm"),
    ],
)
def test_the_route_follows_from_the_processor(here: Processor, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor", lambda: here)
    monkeypatch.setattr(module, "_onednn_is_right", lambda: True)
    assert product_route() == expected


@pytest.mark.parametrize("fault", [RuntimeError("no such kernel"), AttributeError("no such operator"), None])
def test_a_product_that_fails_or_errs_is_not_taken(fault: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if fault is not None:
            raise fault
        return a @ b.t() + 0.01

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(module, "processor", lambda: ZEN5)
    monkeypatch.setattr(module, "onednn_product", broken)
    assert product_route() == "mm"
    product_route.cache_clear()
    monkeypatch.setenv("TEMPPLUG_GEMM", "onednn")
    with pytest.raises(ConfigError, match="TEMPPLUG_GEMM=onednn: this torch has no working oneDNN product"):
        product_route()


def test_the_environment_overrides_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_onednn_is_right", lambda: True)
    for asked in ("mm", "onednn"):
        monkeypatch.setenv("TEMPPLUG_GEMM", asked)
        product_route.cache_clear()
        assert product_route() == asked
    monkeypatch.setenv("TEMPPLUG_GEMM", "MKL")
    product_route.cache_clear()
    with pytest.raises(ConfigError, match="TEMPPLUG_GEMM='MKL' must be mm or onednn"):
        product_route()


def test_onednn_multiplies_what_torch_does() -> None:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this torch has no oneDNN")
    a, b = torch.randn(50, 30), torch.randn(20, 30)
    torch.testing.assert_close(onednn_product(a, b), a @ b.t())
    assert module._onednn_is_right()


INTEL = "vendor_id: GenuineIntel\ncpu family: 6\nmodel: 143\nmodel name: Xeon\nflags: fpu avx512f avx512_bf16 amx_bf16\n"


@pytest.mark.parametrize(
    ("information", "expected"),
    [
        (
            f"processor\t: 0\n{INTEL}\nvendor_id: other\n",
            ("Xeon", "GenuineIntel", 6, 143, ("AVX512", "avx512_bf16", "amx_bf16")),
        ),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n", ("aarch64", "", 0, 0, ("AVX512",))),
        (None, ("aarch64", "", 0, 0, ("AVX512",))),
    ],
)
def test_the_processor_is_read(
    information: str | None, expected: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if information is not None:
        file.write_text(information)
    monkeypatch.setattr(module, "Path", lambda name: file)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert tuple(processor()) == expected
