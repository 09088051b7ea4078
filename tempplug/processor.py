"""The processor that runs here, and the routine for its float32 matrix products.

Both are facts of the machine: no clock and no earlier call decides them. It must not know tiles or losses.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tempplug.errors import ConfigError

Route = Literal["mm", "onednn"]
ENVIRONMENT = "TEMPPLUG_GEMM"

# Vendor, family and instruction set -> routine. Float32 products on one thread, GF/s:
#   AMD family 26 (Zen 5)            oneDNN 240-268   MKL 75-116
#   AMD family 25 (Zen 4)            oneDNN 102-110   MKL 91-97    1.00-1.03 of a call: not worth a row
#   Intel family 6, Sapphire Rapids  oneDNN is 7-25 % slower than MKL
# A processor without a row takes torch's own product (MKL on x86).
ROUTES: dict[tuple[str, int, str], Route] = {("AuthenticAMD", 26, "AVX512"): "onednn"}


class Processor(NamedTuple):
    """What identifies a processor; numbers are 0 and texts empty where the system does not report them.

    Attributes:
        name: the model's name, such as ``AMD EPYC 9755``; ``vendor`` is such as ``AuthenticAMD``.
        family: the vendor's number of the family, as ``model`` is that of the model within it.
        instructions: the widest instruction set that torch uses here, such as ``AVX512``, then matrix and bfloat16 extensions.
    """

    name: str
    vendor: str
    family: int
    model: int
    instructions: tuple[str, ...]


@cache
def processor() -> Processor:
    """Returns the processor of this machine."""
    facts: dict[str, str] = {}
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            facts[key.strip()] = value.strip()
    family, model = (int(facts[key]) if facts.get(key, "").isdecimal() else 0 for key in ("cpu family", "model"))
    flags = facts.get("flags", "").split()
    extensions = (flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags)
    return Processor(
        name=facts.get("model name") or platform.processor() or platform.machine(),
        vendor=facts.get("vendor_id", ""),
        family=family,
        model=model,
        instructions=(torch.backends.cpu.get_cpu_capability(), *extensions),
    )


def describe_machine() -> dict[str, str | int]:
    """Returns the facts that decide the last digits of a result, beside its seed and code.

    These are ``cpu`` (the processor's name), ``vendor``, ``family``, ``model`` and ``instructions`` where known, ``products``
    (see `product_route`), ``cores``, ``threads`` that torch uses here, and ``gpu`` where there is one.
    """
    here = processor()
    facts: dict[str, str | int] = {
        "cpu": here.name,
        "vendor": here.vendor,
        "family": here.family,
        "model": here.model,
        "instructions": " ".join(here.instructions),
        "products": product_route(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "",
    }
    return {name: fact for name, fact in facts.items() if fact}


@cache
def product_route() -> Route:
    """Returns the routine of large float32 products on the CPU: ``mm``, torch's own, or ``onednn``.

    It follows from `ROUTES`. The environment variable ``TEMPPLUG_GEMM`` overrides it; it is read once in a process.

    Raises:
        ConfigError: ``TEMPPLUG_GEMM`` is neither ``mm`` nor ``onednn``, or ``onednn`` where torch has no such product.
    """
    asked = os.environ.get(ENVIRONMENT)
    if asked not in (None, "", "mm", "onednn"):
        raise ConfigError(f"{ENVIRONMENT}={asked!r} must be mm or onednn.")
    here = processor()
    wanted = asked or ROUTES.get((here.vendor, here.family, here.instructions[0]), "mm")
    if wanted == "onednn" and not _onednn_is_right():
        if asked:
            raise ConfigError(f"{ENVIRONMENT}=onednn: this torch has no working oneDNN product. Unset it, or use mm.")
        return "mm"
    return "onednn" if wanted == "onednn" else "mm"


def onednn_product(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b.T by oneDNN, of float32 [N, K] and [M, K] or transposes of such; gaps between rows cost a hundred times."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return product


def _onednn_is_right() -> bool:
    """Returns whether the private operator is there and multiplies what it should."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    a = torch.linspace(-1, 1, 33 * 17, device="cpu").reshape(33, 17)
    b = torch.linspace(2, -1, 9 * 17, device="cpu").reshape(9, 17)
    try:
        products = [onednn_product(a, matrix) for matrix in (b, b.t().contiguous().t())]
    except (RuntimeError, AttributeError):
        return False
    return all(torch.allclose(product, a @ b.t(), atol=1e-4) for product in products)
