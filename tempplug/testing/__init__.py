"""What a third party tests with: the float64 oracle of the loss, and one check a strategy, objective or term must pass."""

from tempplug.testing.conformance import ConformanceError, check_strategy
from tempplug.testing.negative_conformance import check_negative
from tempplug.testing.objective_conformance import check_objective
from tempplug.testing.oracle import oracle_loss, oracle_row_losses
from tempplug.testing.oracle_logits import oracle_logit

__all__ = [
    "ConformanceError",
    "check_negative",
    "check_objective",
    "check_strategy",
    "oracle_logit",
    "oracle_loss",
    "oracle_row_losses",
]
