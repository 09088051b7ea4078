"""Trains with a learned temperature in data parallel, sharded by FSDP2, and resumed; with ``deepspeed`` sharded by ZeRO."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from huggingface_toys import Data, Encoder, MyTrainer
from sentence_transformer_toys import create, logged, make
from torch.distributed.tensor import DTensor
from transformers import TrainingArguments

import tempplug

STEPS, SAVED = 6, 3
OPTIONS: dict[str, Any] = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False}
OPTIONS |= {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "steps", "save_steps": SAVED, "learning_rate": 0.05}
OPTIONS |= {"weight_decay": 0.1, "max_grad_norm": 0.5, "per_device_train_batch_size": 8}


class FullyShardedState(AcceleratorState):
    """accelerate's state under FSDP2, which accelerate itself refuses on a CPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="no_wrap", state_dict_type="SHARDED_STATE_DICT"
        )


def zero(stage: int) -> dict[str, Any]:
    sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "train_batch_size")
    more = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    return {"zero_optimization": {"stage": stage}, **dict.fromkeys(sizes, "auto"), **more}


def train(folder: Path, *, checkpoint: Path | None = None, **options: Any) -> dict[str, Any]:
    AcceleratorState._reset_state()
    torch.manual_seed(0)
    arguments = TrainingArguments(output_dir=str(folder), **OPTIONS, **options)
    # the processes disagree, so that only the broadcast at the start can make them equal
    strategy = tempplug.create_strategy(f"learnable:initial_temperature={0.1 + 0.1 * torch.distributed.get_rank()}")
    loss = tempplug.ContrastiveLoss(strategy, layout="cross-view", symmetric=True, gather=True)
    trainer = MyTrainer(Encoder(dropout=0.0), arguments, train_dataset=Data(96), contrastive_loss=loss)
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    logs = trainer.state.log_history
    return {
        "sharded": any(isinstance(each, DTensor) for each in trainer.model_wrapped.parameters()),
        "learned": [parameter.item() for parameter in loss.parameters()],
        **{name: [entry[name] for entry in logs if name in entry] for name in ("loss", "temperature")},
    }


def train_sentences(folder: Path, bert: str, **options: Any) -> dict[str, Any]:
    """The same with sentence-transformers."""
    AcceleratorState._reset_state()
    torch.manual_seed(0)
    model, loss = create(Path(bert), f"learnable:initial_temperature={0.1 + 0.1 * torch.distributed.get_rank()}")
    more = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-3, "weight_decay": 0.1}
    trainer = make(folder, model, loss, **more, **options)
    trainer.train()
    return {name: logged(trainer, name) for name in ("loss", "temperature")}


if __name__ == "__main__":
    output, bert, kinds = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    import accelerate.accelerator
    import accelerate.state

    torch.distributed.init_process_group("gloo")
    found = {"plain": train(output / "plain"), "plain sentences": train_sentences(output / "plain-sentences", bert)}
    for kind in kinds:
        options: dict[str, Any] = {"deepspeed": zero(int(kind[-1]))} if kind.startswith("zero") else {}
        if kind == "fsdp":
            import tempplug_adapters.huggingface.parameters as parameters

            for module in (accelerate.accelerator, accelerate.state, parameters):
                module.AcceleratorState = FullyShardedState
        found[kind] = train(output / kind, **options)
        found[f"{kind} sentences"] = train_sentences(output / f"{kind}-sentences", bert, **options)
        found[f"{kind} resumed"] = train(
            output / f"{kind}-resumed", checkpoint=output / kind / f"checkpoint-{SAVED}", **options
        )
    torch.save(found, output / f"rank{torch.distributed.get_rank()}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
