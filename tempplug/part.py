"""The base of strategies, objectives and terms on negatives: modules with declared options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch import nn

from tempplug.errors import ConfigError
from tempplug.options import Configured


class Part(Configured, nn.Module):
    """A module whose options are checked and written into spec strings.

    A subclass sets ``name``, ``formula`` and ``source``, and declares its options (`tempplug.options`): as fields of a
    ``@dataclass(eq=False, repr=False)``, or in an ``__init__`` that passes them to this class's. An option of a wrong type or
    out of its range raises `ConfigError`. Everything learned or counted belongs in parameters or buffers, so that it is saved.

    Attributes:
        takes: names of the arguments of a call that it reads. A call that gives one which no part of the loss reads is refused.
        reads_negative_count: whether it reads ``negative_count`` of the statistics, which engines then count under terms on
            negatives; False is faster.
        learning_rate: at which an optimizer should move what this part learns; None: that of the model. The code that makes the
            optimizer reads it; the flag ``--temperature-learning-rate`` sets it.
    """

    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    takes: ClassVar[frozenset[str]] = frozenset()
    reads_negative_count: ClassVar[bool] = True
    learning_rate: float | None = None

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Prepares the module before a dataclass sets its fields.

        Raises:
            ConfigError: a field of a dataclass is given a parameter or a module.
        """
        for value in (*args, *options.values()) if "__dataclass_fields__" in vars(cls) else ():
            if isinstance(value, nn.Module | nn.Parameter):
                raise ConfigError(
                    f"{value!r} is given for an option of {cls.kind} '{cls.name}', which takes numbers, words and lists. A "
                    "temperature that is learned is strategy 'learnable'."
                )
        part = super().__new__(cls)
        nn.Module.__init__(part)
        return part

    def __init__(self, **options: object) -> None:
        self.configure(**options)

    def check_call(self, given: Mapping[str, Any]) -> None:
        """Raises `TempplugError` for values that one process alone may have, before processes exchange rows.

        Called with ``gather`` over several processes, where all of them then raise an error; one that raises in ``prepare``
        leaves the others waiting. Does nothing unless overridden.

        Args:
            given: ``labels``, ``index`` and ``groups`` [B] where the call has them. Terms on negatives have
                `tempplug.NegativeTerm.check_arguments` in place of this.
        """

    def set_progress(self, epoch: float, step: int | None = None) -> None:
        """Tells how far training is: epochs done, fractions allowed, and optimizer steps done; ignored unless overridden."""

    def set_length(self, epochs: float) -> None:
        """Tells the length of the training in epochs, at least 0, fractions allowed; ignored unless overridden."""

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay must spare; all of them unless overridden."""
        return {name for name, _ in self.named_parameters()}

    def extra_repr(self) -> str:
        """Shows the spec string in ``print(loss)``."""
        return self.spec()
