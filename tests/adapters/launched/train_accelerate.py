"""Run by `accelerate launch`: an epoch whose last batch is uneven, with model, learned temperature and data prepared.

Argument: the folder of the results.
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from launched.pairs import Encoder, pairs, save
from torch.utils.data import DataLoader, TensorDataset

import tempplug

# Batches of 3 go to the processes in turn: 3 and 3, then 3 and 1.
ITEMS, BATCH = 10, 3


def main(folder: str) -> None:
    set_seed(0)
    # One process alone takes each step's items in one batch.
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    encoder, loss_fn = Encoder(), tempplug.ContrastiveLoss("learnable", layout="cross-view", symmetric=True, gather=True)
    optimizer = torch.optim.SGD([*encoder.parameters(), *loss_fn.parameters()], lr=0.1)
    data = pairs(ITEMS)
    loader = DataLoader(TensorDataset(data["a"].float(), data["b"].float()), batch_size=BATCH * 2 // accelerator.num_processes)
    encoder, loss_fn, optimizer, loader = accelerator.prepare(encoder, loss_fn, optimizer, loader)
    losses, sizes = [], []
    for view_a, view_b in loader:
        loss = loss_fn(*encoder(view_a, view_b))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
        sizes.append(len(view_a))
    learned = accelerator.unwrap_model(loss_fn)
    results = {
        "sizes": sizes,
        "losses": losses,
        "world": accelerator.num_processes,
        "wrapped": type(loss_fn).__name__,
        "parameters": [each.detach() for each in [*encoder.parameters(), *learned.parameters()]],
        "temperature": learned.record.temperature_mean.item(),
    }
    save(folder, accelerator.process_index, results)
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
