"""Run by torchrun with one restart: rank 1 gets SIGTERM in one training, and is killed in another, which the restart resumes.

Argument: the folder of the results.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from launched.pairs import save
from method_toys import run, weights
from transformers import TrainerCallback

from tempplug_adapters.training.checkpoints import checkpoints
from tempplug_adapters.training.termination import ProcessLost, Terminated, on_termination

# The state of `individual` changes in the forward pass.
SETTINGS: dict[str, Any] = {"strategy": "individual", "per_device_train_batch_size": 4, "num_train_epochs": 4}
STEP = 7


class Send(TrainerCallback):
    """Sends a signal to this process in the backward pass of a step, when the other one has finished its forward pass."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if args.process_index == 1 and state.global_step == STEP:
            model.encoder.weight.register_hook(lambda gradient: os.kill(os.getpid(), self.number))


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), {}
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        found["killed"] = run(folder / "killed", **SETTINGS, resume_from_checkpoint="auto")
        found["weights"] = [weights(folder / name) for name in ("whole", "terminated", "killed")]
        save(folder, rank, found)
        dist.destroy_process_group()
        return
    run(folder / "whole", **SETTINGS)
    try:
        run(folder / "terminated", **SETTINGS, callbacks=[Send(signal.SIGTERM)])
    except Terminated as ended:
        found["terminated"] = [ended.status, str(ended), [each.name for each in checkpoints(folder / "terminated")]]
    dist.barrier()
    run(folder / "terminated", **SETTINGS, resume_from_checkpoint="auto")
    with on_termination(lambda number: None):  # torchrun sends SIGTERM to this process as soon as the other one is dead
        try:
            run(folder / "killed", **SETTINGS, callbacks=[Send(signal.SIGKILL)])
        except ProcessLost as lost:
            found["killed"] = [lost.status, str(lost), [each.name for each in checkpoints(folder / "killed")]]
        (folder / f"first{rank}.json").write_text(json.dumps(found))
        sys.exit(75)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
