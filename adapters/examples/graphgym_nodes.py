r"""GraphGym's own main, with any temperature strategy by its configuration; what follows that changes it.

It is GraphGym's ``main.py`` but for one import: `create_model` comes from tempplug_adapters, which registers everything::

    python adapters/examples/graphgym_nodes.py --cfg adapters/examples/graphgym_nodes.yaml \
        contrastive.temperature_strategy schedule contrastive.temperature_args '[]'
"""

from __future__ import annotations

import logging

import torch
from torch_geometric import seed_everything
from torch_geometric.graphgym.cmd_args import parse_args
from torch_geometric.graphgym.config import cfg, dump_cfg, load_cfg, set_out_dir, set_run_dir
from torch_geometric.graphgym.logger import set_printing
from torch_geometric.graphgym.train import GraphGymDataModule, train
from torch_geometric.graphgym.utils.agg_runs import agg_runs
from torch_geometric.graphgym.utils.comp_budget import params_count
from torch_geometric.graphgym.utils.device import auto_select_device

from tempplug_adapters.graph.graphgym import create_model


def main() -> None:
    """Trains ``--repeat`` times, and writes GraphGym's statistics, with temperatures, to ``out_dir``."""
    arguments = parse_args()
    load_cfg(cfg, arguments)
    set_out_dir(cfg.out_dir, arguments.cfg_file)
    torch.set_num_threads(cfg.num_threads)
    dump_cfg(cfg)
    for _ in range(arguments.repeat):
        set_run_dir(cfg.out_dir)
        set_printing()
        seed_everything(cfg.seed)
        auto_select_device()
        data = GraphGymDataModule()
        model = create_model()
        cfg.params = params_count(model)
        logging.info("%s", model)
        train(model, data, logger=True, trainer_config={"log_every_n_steps": 1})
        cfg.seed += 1
    agg_runs(cfg.out_dir, cfg.metric_best)


if __name__ == "__main__":
    main()
