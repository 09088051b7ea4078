"""The examples for PyGCL, Lightning and CLIP are run as files; that of GraphGym is in its adapter's tests."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from pygcl_toys import importable_pygcl
from transformers import CLIPModel

from tempplug.errors import UnknownNameError

EXAMPLES = Path(__file__).parents[2] / "adapters" / "examples"
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(many workers|logging interval|treespec|torch.jit.script|dropout_adj)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
]


def main_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def flags(text: str) -> list[str]:
    return text.split()


def test_pygcl(capsys: pytest.CaptureFixture[str]) -> None:
    with importable_pygcl():
        main = main_of("pygcl_nodes")
        assert main(flags("--epochs 3 --tau 0.4")) == pytest.approx([0.4] * 3)
        assert main(flags("--epochs 10 --tau 0.4 --temperature-strategy schedule"))[:3] == pytest.approx([0.8, 0.2, 0.8])
        without_alpha = flags("--epochs 2 --tau 0.4 --temperature-strategy macl --temperature-args alpha=0")
        assert main(without_alpha) == pytest.approx([0.4] * 2)
        capsys.readouterr()
        learned = main(flags("--epochs 4 --temperature-strategy learnable --temperature-args initial_temperature=0.4"))
        assert len(set(learned)) == 4
        assert capsys.readouterr().out.splitlines()[1].endswith(f"temperature {learned[1]:.4f}")
        with pytest.raises(UnknownNameError, match="Did you mean 'macl'"):
            main(flags("--temperature-strategy macle"))


def test_lightning_on_a_graph() -> None:
    main = main_of("lightning_nodes")
    seen = [
        float(main(flags(f"--epochs {epochs} --temperature-strategy macl"), **QUIET).callback_metrics["temperature"])
        for epochs in (1, 4)
    ]
    assert seen[0] != seen[1]
    schedule = main(flags("--epochs 3 --temperature-strategy schedule --temperature-args period=4"), **QUIET)
    assert float(schedule.callback_metrics["temperature"]) == pytest.approx(0.1)


def test_lightning_on_images() -> None:
    main = main_of("lightning_images")
    words = "--epochs 1 --images 256 --temperature-strategy learnable --temperature-args initial_temperature=0.2"
    metrics = main(flags(words), **QUIET).callback_metrics
    # two steps: the second has seen one of the rate of ln τ, 0.01, times a gradient below 1
    assert 0 < abs(math.log(float(metrics["temperature"]) / 0.2)) < 0.01
    assert float(metrics["loss"]) > 0


def test_clip_in_a_trainer(tmp_path: Path) -> None:
    words = "--images 64 --per_device_train_batch_size 32 --num_train_epochs 2 --logging_steps 1 --report_to none"
    words += f" --output_dir {tmp_path} --save_strategy no --use_cpu true --disable_tqdm true --temperature-strategy"
    for strategy in ("fixed", "learnable"):
        temperatures = [log["temperature"] for log in main_of("clip_trainer")(flags(f"{words} {strategy}"))]
        assert len(temperatures) == 4
        assert temperatures[0] == pytest.approx(math.exp(-2.6592), rel=1e-4), "that of the checkpoint"
        assert (len(set(temperatures)) == 1) == (strategy == "fixed")
    assert (tmp_path / "contrastive_loss.pt").is_file()
    assert json.loads((tmp_path / "config.json").read_text())["projection_dim"] == 32
    assert isinstance(CLIPModel.from_pretrained(tmp_path), CLIPModel)
