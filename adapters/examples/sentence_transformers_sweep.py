"""Compares temperatures and strategies: runs `sentence_transformers_nli` with each of them and several seeds, and writes JSON.

::

    python adapters/examples/sentence_transformers_sweep.py --data_dir DATA --output results.json

Every arm shares one recipe, chosen on STS-B dev for ``fixed:temperature=0.05``. An arm is a spec string.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path

from datasets import disable_progress_bars
from sentence_transformers_nli import main as train

FIXED = (0.01, 0.02, 0.05, 0.1, 0.2)
ARMS = (
    *(f"fixed:temperature={temperature}" for temperature in FIXED),
    "macl:base_temperature=0.1",
    "macl:base_temperature=0.05,alpha=2,threshold=0.8",
    "dystress:temperature_min=0.1,temperature_max=0.2",
    "dystress:temperature_min=0.03,temperature_max=0.05",
    "temperature-free",
    "schedule:temperature_min=0.1,temperature_max=1",
    "schedule:temperature_min=0.025,temperature_max=0.1",
    "learnable:initial_temperature=0.07",
    "learnable:initial_temperature=0.07,learning_rate=none",
)
RECIPE = {
    "per_device_train_batch_size": 256,
    "num_train_epochs": 3,
    "learning_rate": 0.2,
    "warmup_steps": 0.1,
    "batch_sampler": "no_duplicates",
    "logging_steps": 5,
}


def run(arm: str, seed: int, data_dir: str, recipe: dict[str, object]) -> dict[str, float | str]:
    """Returns the metrics of one training."""
    flags = {**recipe, "data_dir": data_dir, "temperature_strategy": arm, "seed": seed, "use_cpu": True}
    flags |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as folder:
        return train([word for name, value in {**flags, "output_dir": folder}.items() for word in (f"--{name}", str(value))])


def table(found: dict[str, list[dict[str, float | str]]]) -> dict[str, object]:
    """Returns mean, standard deviation over seeds and all values, by arm."""
    rows: dict[str, object] = {}
    for arm, results in found.items():
        row: dict[str, object] = {"resolved": results[0]["strategy"]}
        for key in ("stsb_test", "stsb_dev", "temperature_first", "temperature_last"):
            values = [float(each[key]) for each in results if key in each]
            if values:
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                row[key] = {"mean": statistics.mean(values), "std": spread, "values": values}
        rows[arm] = row
    return rows


def main() -> None:
    """Runs all arms and writes the file anew after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arms", nargs="+", default=ARMS, metavar="SPEC")
    given = parser.parse_args()
    disable_progress_bars()
    gc.freeze()  # what the imports left; the Trainer would look through it before every training
    untrained = {**RECIPE, "num_train_epochs": 0.001, "learning_rate": 0.0}
    found = {"untrained": [run("fixed:temperature=0.05", seed, given.data_dir, untrained) for seed in given.seeds]}
    packages = ("tempplug", "torch", "transformers", "sentence-transformers")
    about = {
        "task": "STS-B Spearman x 100 after fine-tuning a StaticEmbedding from scratch on NLI triplets",
        "recipe": RECIPE,
        "seeds": given.seeds,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }
    for arm in given.arms:
        found[arm] = [run(arm, seed, given.data_dir, RECIPE) for seed in given.seeds]
        Path(given.output).write_text(json.dumps({**about, "arms": table(found)}, indent=2) + "\n", encoding="utf-8")
        print(arm, [round(float(each["stsb_test"]), 2) for each in found[arm]], flush=True)
    gc.unfreeze()


if __name__ == "__main__":
    main()
