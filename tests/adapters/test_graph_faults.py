"""Commands of graphs, molecules, recommenders and anomaly detectors: a wrong argument ends with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graphcl_toys import toy_set, write_tu
from molecule_toys import write_files
from msc_toys import save_tiny_resnet
from recommendation_toys import walks, write_log

from tempplug.cli import main
from tempplug_benchmarks.tasks.node import citation_graph

COMMANDS = {
    "grace": "--dataset {data}/toy.pt --no-evaluate",
    "graphcl": "--dataset TOY --data-dir {data}",
    "molecule": "--dataset {data}/one.csv --pretrain-file {data}/unlabelled.smi",
    "sasrec": "--dataset {data}/log.csv --hidden 8",
    "msc": "--dataset digits --normal-class 3 --backbone {data}/resnet --image-size 16 --train-images 40 --test-images 50"
    " --frozen-blocks 1",
}
BUILT_IN = "is a built-in function: name a module, a class or a function written in Python.\n"
FAULTS = {
    "grace": [
        ("--dataset Coro", "no data set 'Coro'. Did you mean 'Cora'?"),
        ("--edge-removal 1", "item 1 of edge_removal=1 must be at least 0 and less than 1."),
        ("--feature-masking 0.1 0.2 0.3", "feature_masking=0.1 0.2 0.3 must be a list of 1 to 2 numbers"),
        ("--device=foo", "--device is not a training flag: training uses a GPU if there is one; --use-cpu"),
        ("--augmentations torch:pi", "augmentation 3.14"),
        ("--augmentations json:dumps json:dumps json:dumps", "3 augmentations must be one for both views"),
        ("--augmentations sys:exit", f"augmentations='sys:exit' {BUILT_IN}"),
        ("--encoder json", "encoder='json' must be MODULE:NAME"),
        ("--encoder json:Three", "encoder='json:Three' cannot be imported: AttributeError: "),
        ("--encoder os:system", f"encoder='os:system' {BUILT_IN}"),
        ("--encoder subprocess:run", "encoder run() cannot be made: TypeError: Popen.__init__() missing 1 required pos"),
        ("--encoder collections:OrderedDict", "encoder OrderedDict must be a module, or a class or function that makes"),
    ],
    "graphcl": [
        ("--augmentations drop-node", "unknown augmentation 'drop-node'. Did you mean 'drop-nodes'?"),
        ("--augmentations nowhere:none", "augmentations='nowhere:none' cannot be imported: ModuleNotFoundError"),
        ("--temperature-args temperature=-1", "temperature=-1 of strategy 'fixed' must be greater than 0."),
        ("--dataset NONE", "NONE.tar.xz does not exist"),
        ("--folds 40", "a class has 30 members, too few for 40 folds"),
    ],
    "molecule": [
        ("--dataset BBB", "no data set 'BBB'. Did you mean 'BBBP'?"),
        ("--dataset a/x.csv,b/x.csv", "a/x.csv does not exist"),
        ("--dataset {data}/one.csv,{data}/one.csv", "one.csv' has two data sets of the name 'one'."),
        ("--pretrain-file nothing.smi", "nothing.smi does not exist"),
        ("--encoder nothing.pt", "nothing.pt does not exist"),
        ("--view-ratio 1", "view_ratio=1 must be at least 0 and less than 1."),
        ("--max-pretrain-molecules 2", "1 items are too few"),
        (None, "pass --pretrain-file, --data-dir or set TEMPPLUG_DATA"),
    ],
    "sasrec": [
        ("--temperature-strategy macl", "temperature_strategy=macl does not apply: sasrec has no contrastive loss"),
        ("--contrastive-objective dcl", "contrastive_objective=dcl does not apply"),
        ("--columns user thing time", "log.csv has no column 'thing'"),
        ("--columns user item time place", "has no column 'place'. It has: 'user' (integer, such as '0'), 'item'"),
        ("--heads 3", "hidden=8 must be a multiple of heads=3."),
        ("--rankings all", "must be a list of 1 or more words, each one of full, sampled"),
        ("--validation-share 1e-9", "there is nothing to validate with: 40 users"),
    ],
    "msc": [
        ("--normal-class 33", "normal_class='33' is no class. Did you mean '3'? Known: 0, 1, 2"),
        ("--dataset digitz", "no data set 'digitz'. Did you mean 'digits'?"),
        ("--backbone mobilenet-v2", "backbone 'mobilenet-v2' needs weights: pass --weights FILE"),
        ("--weights x.pth", "weights='x.pth' belong to backbone 'mobilenet-v2'"),
        ("--backbone timm:resnet18", "need the package 'timm': pip install -c constraints.txt timm"),
        ("--frozen-blocks 5", "frozen_blocks=5 must be from 0 to 4"),
        ("--neighbours 41", "neighbours=41 must be from 1 to 40"),
        ("--test-images 9", "test_images=9 must be at least 10, one a class."),
        ("--optimizer adamw", "momentum=0 would be β₁ of optimizer 'adamw': set momentum, too, usually to 0.9"),
        (None, "normal_class is not given: name the class of 'digits train' that is normal"),
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_files(tmp_path_factory.mktemp("data"))
    torch.save(citation_graph(0), folder / "toy.pt")
    write_tu(folder / "graph" / "tu", "TOY", toy_set(60))
    write_log(folder / "log.csv", walks())
    save_tiny_resnet(folder / "resnet")
    return folder


@pytest.mark.parametrize(("method", "extra", "message"), [(name, *row) for name, rows in FAULTS.items() for row in rows])
def test_a_wrong_argument_ends_with_one_line_before_the_training(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    extra: str | None,
    message: str,
) -> None:
    """Without an argument of its own, a row has no data, or for MSC no class."""
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    given = ("--dataset digits" if method == "msc" else "") if extra is None else f"{COMMANDS[method]} {extra}"
    words = given.format(data=data).split()
    assert main(["train", method, *words, "--output-dir", str(tmp_path / "run"), "--num-train-epochs", "1"]) == 2
    err = capsys.readouterr().err
    assert message in err
    # transformers shows a bar while it loads weights
    assert err.rstrip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in err
    assert not list((tmp_path / "run").glob("checkpoint-*"))
