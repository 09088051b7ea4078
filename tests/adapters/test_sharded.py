"""A learned temperature where FSDP2 or DeepSpeed shard the model: the training of DistributedDataParallel."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launcher import launched, torchrun
from sentence_transformer_toys import create

from tempplug.errors import ConfigError
from tempplug_adapters.huggingface import parameters
from tempplug_adapters.huggingface.parameters import LossParametersCallback
from tempplug_adapters.sentence_transformers import TemperatureRankingCallback, trainer as ranking_callback

ZERO = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="deepspeed is not installed: it compiles its collectives at the first run"
)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("kinds", [("fsdp",), pytest.param(("zero1", "zero2", "zero3"), marks=ZERO)], ids=str)
def test_a_learned_temperature_is_trained_and_resumed_as_in_data_parallel(
    kinds: tuple[str, ...], tmp_path: Path, tiny_bert: Path
) -> None:
    first, second = launched(torchrun(2), "train_sharded.py", tmp_path, str(tiny_bert), *kinds)
    plain = first["plain"]
    assert not plain["sharded"]
    assert len(set(plain["temperature"])) == 6
    assert len(set(first["plain sentences"]["temperature"])) == 4
    for kind in kinds:
        for name in ("loss", "temperature"):
            expected = pytest.approx(first["plain sentences"][name], rel=2e-5)
            assert first[f"{kind} sentences"][name] == second[f"{kind} sentences"][name] == expected
        assert first[kind]["sharded"] == (kind == "fsdp")
        for found in (first[kind], second[kind], first[f"{kind} resumed"], second[f"{kind} resumed"]):
            for name in ("loss", "temperature", "learned"):
                assert found[name] == pytest.approx(plain[name], rel=2e-5), (kind, name)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (LossParametersCallback, r"fp16=True: FSDP scales the gradients of the model alone.*train with bf16"),
        (TemperatureRankingCallback, r"FSDP shards the optimizer.*train with TemperatureSentenceTransformerTrainer"),
    ],
)
def test_what_cannot_be_sharded_is_refused_where_the_loss_learns(
    callback: Any, message: str, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parameters, ranking_callback):
        monkeypatch.setattr(module, "sharded_by", lambda: "FSDP")
    given: Any = SimpleNamespace(fp16=True, max_grad_norm=1.0, global_step=0)
    _, loss = create(tiny_bert, "learnable")
    with pytest.raises(ConfigError, match=message):
        callback(loss).on_train_begin(given, given, given, optimizer=torch.optim.SGD(loss.parameters()))
