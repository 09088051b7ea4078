"""Labels and masks are not copied: what is computed from them after the call needs them as they were.

The backward pass of some engines reads them again, and so does the record. Embeddings, queue, hard negatives, index and
uncertainty are copied, or kept by autograd, which checks them itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import Tensor

_READ_AGAIN = ("labels", "positive_mask", "negative_mask")


class Unchanged:
    """The labels and masks of one call, and how often each had been changed in place by then.

    Args:
        given: the optional arguments of the call by name.
        layout_takes: names of those that its layout reads.
    """

    __slots__ = ("_seen",)

    def __init__(self, given: Mapping[str, object], layout_takes: Set[str]) -> None:
        found = [(name, given[name]) for name in _READ_AGAIN if name in given and name in layout_takes]
        # What is no tensor is refused later. Changes of tensors made in inference mode are possible in that mode alone, and
        # torch does not count them.
        self._seen = [
            (name, each, each._version) for name, each in found if isinstance(each, Tensor) and not each.is_inference()
        ]

    def watch(self, loss: Tensor) -> None:
        """Makes the backward pass of the loss check first."""
        if loss.requires_grad:
            loss.register_hook(lambda gradient: self.check("backward pass"))  # type: ignore[no-untyped-call]

    def check(self, reader: str) -> None:
        """Raises where one of the tensors was changed in place since the call.

        Args:
            reader: what needs them, for the message.

        Raises:
            RuntimeError: as autograd does for what torch's own operations saved.
        """
        for name, tensor, version in self._seen:
            if tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after the loss was called, but the {reader} of that call needs it unchanged: "
                    f"change it later, or give the loss a copy, {name}.clone()."
                )
