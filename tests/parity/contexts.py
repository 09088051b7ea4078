"""What a call of the loss may run inside of. The numbers must be those of a plain call, or the call must be refused clearly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tempplug import ContrastiveLoss


class Context(NamedTuple):
    """A setting of torch and how the loss is called in it.

    Attributes:
        around: enters and leaves the setting.
        backward: whether the backward pass runs inside, outside or not at all.
        compiled: whether the loss is compiled before the call.
    """

    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    backward: Literal["inside", "outside", "none"] = "inside"
    compiled: bool = False

    def call(self, loss_fn: ContrastiveLoss, *views: Tensor, **inputs: Any) -> Tensor:
        """Returns the loss that is computed inside."""
        if self.compiled:
            torch._dynamo.reset()
            loss_fn = torch.compile(loss_fn, backend="eager")  # type: ignore[assignment]
        with self.around():
            return loss_fn(*views, **inputs)

    def gradients(self, value: Tensor, leaves: list[Tensor]) -> list[Tensor | None]:
        """Returns the gradients, computed inside or outside; without a backward pass none."""
        if self.backward == "none":
            return []
        with self.around() if self.backward == "inside" else nullcontext():
            return list(torch.autograd.grad(value, leaves, allow_unused=True))


@contextmanager
def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


CONTEXTS = {
    "plain": Context(),
    "deterministic algorithms": Context(
        partial(_set, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True)
    ),
    "autocast": Context(partial(torch.autocast, "cpu", dtype=torch.bfloat16), backward="outside"),
    "inference mode": Context(torch.inference_mode, backward="none"),
    "no gradients": Context(torch.no_grad, backward="none"),
    "compiled": Context(compiled=True),
    "float64 by default": Context(partial(_set, torch.get_default_dtype, torch.set_default_dtype, torch.float64)),
    "three threads": Context(partial(_set, torch.get_num_threads, torch.set_num_threads, 3)),
}
FAKE = Context(partial(FakeTensorMode, allow_non_fake_inputs=True), backward="none")
