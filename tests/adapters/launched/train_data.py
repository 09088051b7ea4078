"""Run by torchrun: a toy training on a table of each process; the first process of each machine compares it on resuming.

Arguments: a folder with ``table.csv``, and the step at whose beginning the run ends; 0 resumes. A second process stands for one
of another machine, whose table is another file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed as dist
from method_toys import Kill, run

from tempplug.errors import ConfigError


def main(folder: Path, step: int) -> None:
    rank = int(os.environ["RANK"])
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group("gloo")
    files = {"dataset": folder / ("table.csv" if rank == 1 else "other.csv")}
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 3, "training": {"save_steps": 2}}
    try:
        if step:
            run(folder / "out", files=lambda: files, callbacks=[Kill(step)], **settings)
        run(folder / "out", files=lambda: files, resume_from_checkpoint="auto", **settings)
    except ConfigError as error:
        print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
