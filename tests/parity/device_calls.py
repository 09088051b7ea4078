"""Which calls wait for a device, and how many kernels they launch there: ``python tests/parity/device_calls.py``.

Every two of strategies, layouts, objectives and terms meet in a call on `pretend_device`, each made three times. Prints a line
of JSON for each: its name, launches of the forward and of the backward pass, and what waited in the third.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PLAIN = [("fixed", layout, "infonce", "") for layout in ("two-view", "cross-view", "labels", "masks", "queue")]


def main() -> None:
    os.environ["TEMPPLUG_TEST_DEVICE"] = "pretend"
    sys.path[:0] = [str(TESTS), str(TESTS / "parity"), str(TESTS.parent)]
    import pretend_device
    import torch
    from covering import every_pair
    from matrix import EACH
    from oracle_cases import LAYOUTS, OBJECTIVES, RAGGED, TERMS, build, make_call

    from tempplug.errors import ConfigError

    pretend_device.install()
    warnings.simplefilter("ignore")
    single = {spec.partition(":")[0]: spec for spec in reversed(OBJECTIVES)}.values()
    for strategy, layout, objective, negatives in [*PLAIN, *every_pair(EACH, [*LAYOUTS, *RAGGED], list(single), TERMS)]:
        if objective.startswith("sigmoid"):
            negatives = re.sub(r"\+?debiased(:prior=[\d.]+)?$", "", negatives)
        call = make_call(layout, strategy, 17, 6, torch.float32, negatives)
        loss_fn = build(strategy, objective, call, "mean")
        there = call.on_device()
        for _ in range(3):
            pretend_device.forget()
            try:
                loss = loss_fn(*there.views, **there.inputs)
            except ConfigError:  # parts that do not go together, such as several positives and an objective of one
                break
            forward, waits = len(pretend_device.operations), list(pretend_device.waits)
            pretend_device.forget()
            loss.backward()
        else:
            launches = forward, len(pretend_device.operations)
            name = " ".join((re.sub(r"(\d+/){9}[\d/]+", "…", strategy), layout, objective, negatives))
            print(json.dumps({"call": name.strip(), "launches": launches, "waits": [*waits, *pretend_device.waits]}))


if __name__ == "__main__":
    main()
