"""What people type and call wrongly in their first hour: each gets one line that names it, its value and what was wanted."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformer_toys import tiny

from tempplug import ContrastiveLoss
from tempplug.call import between_calls
from tempplug.cli import main
from tempplug.errors import TempplugError
from tempplug_adapters.sentence_transformers import TemperatureRankingLoss

LONGEST = 200
SIMCLR = "train simclr --dataset digits --output-dir out"
RETRIEVAL = "train retrieval --output-dir out --model-name-or-path model"

# words after `tempplug`, and all that is printed after "error: "
COMMANDS = """
trian simclr
    unknown command 'trian'. Did you mean 'train'? `tempplug -h` lists them.
train simclrr --dataset digits
    unknown command 'train simclrr'. Did you mean 'train simclr'? `tempplug train -h` lists them.
train
    'train' is only the beginning of a command; it goes on with simcse, retrieval, mabel, graphcl, grace, molecule, simclr, moco, nnclr, simsiam and 6 more. `tempplug train -h` lists them.
train simclr --datset digits --output-dir out
    unknown flag '--datset'. Did you mean '--dataset'? (`tempplug train simclr -h` lists the flags)
train simclr --dataset digits --outputdir out
    unknown flag '--outputdir'. Did you mean '--output-dir'? (`tempplug train simclr -h` lists the flags)
train simclr --dataset digits
    the following arguments are required: --output-dir (`tempplug train simclr -h` lists the flags)
{SIMCLR} --epochs 3
    unknown flag '--epochs'. Did you mean '--num-train-epochs'? (`tempplug train simclr -h` lists the flags)
{SIMCLR} --lr 0.1
    unknown flag '--lr'. Did you mean '--learning-rate'? (`tempplug train simclr -h` lists the flags)
{SIMCLR} --batch-size 64
    unknown flag '--batch-size'. Did you mean '--per-device-train-batch-size'? (`tempplug train simclr -h` lists the flags)
{SIMCLR} --temperature 0.1
    unknown flag '--temperature'. Did you mean '--temperature-strategy'? (`tempplug train simclr -h` lists the flags)
{SIMCLR} --temperature-strategy macle
    unknown strategy 'macle'. Did you mean 'macl'? Known: amcl, by-group, dystress, fixed, head-tail, individual, learnable, macl, mm-ts, schedule, temperature-free, tempnet and 1 more.
{SIMCLR} --temperature-strategy 0.05
    '0.05' is a number, not a spec string: a temperature is written fixed:temperature=0.05.
{SIMCLR} --temperature-strategy fixed:temperature=0
    temperature=0 of strategy 'fixed' must be greater than 0.
{SIMCLR} --temperature-strategy fixed:temperature=auto
    temperature=auto of strategy 'fixed' must be a number.
{SIMCLR} --temperature-strategy fixed:temprature=0.1
    unknown option 'temprature' of strategy 'fixed'. Did you mean 'temperature'? Known: temperature.
{SIMCLR} --temperature-strategy 'macl(alpha=2)'
    'macl(alpha=2)' is not a spec string: write macl:key=value; see `tempplug show macl`.
{SIMCLR} --contrastive-objective infonse
    unknown objective 'infonse'. Did you mean 'infonce'? Known: amcl-top, dcl, dclw, dual-temperature, flatnce, infonce, reweighted, sigmoid, sogclr.
{SIMCLR} --learning-rate fast
    argument --learning-rate: invalid number value: 'fast' (`tempplug train simclr -h` lists the flags)
{SIMCLR} --per-device-train-batch-size 1
    per_device_train_batch_size=1 must be an integer, at least 2.
{SIMCLR} --gradient-accumulation-steps x
    argument --gradient_accumulation_steps/--gradient-accumulation-steps: invalid int value: 'x' (`tempplug train simclr -h` lists the flags)
{SIMCLR} --fp16
    fp16=true needs a GPU: use bf16=true on a CPU.
{SIMCLR} --device cuda
    --device is not a training flag: training uses a GPU if there is one; --use-cpu avoids it.
{SIMCLR} --backbone resnet19
    there is no backbone 'resnet19'. Did you mean 'resnet18'? Known: resnet18, resnet34, resnet50 and 5 more, transformers:NAME, timm:NAME, torchvision:NAME, lightly:NAME and MODULE:NAME.
{SIMCLR} --config typed.toml
    config=typed.toml: recipe has no setting 'lerning_rate'. Did you mean 'learning_rate'?
{SIMCLR} --config nowhere.toml
    config=nowhere.toml cannot be read: No such file or directory.
train simclr --dataset nowhere --output-dir out
    no data set 'nowhere'. Known: cifar10, cifar10-lossless4k, cifar100, imagenette, tiny-imagenet, stl10, stl10-unlabeled, imagenet, imagenet-100, digits, and the path of a folder.
train simclr --dataset digits --output-dir trained
    output_dir='trained' holds checkpoint-3 of an earlier run: pass --resume-from-checkpoint auto to go on with it, or choose another folder.
train grace --dataset Coraa --output-dir out
    no data set 'Coraa'. Did you mean 'Cora'? Known: Cora, CiteSeer, PubMed, Cora_ML, DBLP, CS, Physics and 2 more, OGB's such as ogbn-arxiv, files that end in .pt, and tables of edges.
{RETRIEVAL} --dataset nowhere.jsonl
    nowhere.jsonl does not exist or is not a file.
{RETRIEVAL} --dataset empty.jsonl
    empty.jsonl is empty.
{RETRIEVAL} --dataset odd.csv
    odd.csv: no column is clearly the anchor. Name it: --columns anchor=foo. It has: 'foo' (text, such as 'a b'), 'bar' (text, such as 'c d'). If its first line is no header, write one.
{RETRIEVAL} --dataset pairs.docx
    pairs.docx is a zip archive or a workbook of Excel: unpack it, or save the sheet as 'CSV UTF-8'.
{RETRIEVAL} --dataset pairs.jsonl --columns anchor=anchr
    columns: pairs.jsonl has no column 'anchr'. Did you mean 'anchor'? It has: 'anchor' (text, such as 'question 0'), 'positive' (text, such as 'answer 0').
{RETRIEVAL} --dataset pairs.jsonl
    model='model' cannot be loaded: the folder has no config.json. Give a folder with config.json, weights and tokenizer, or a name on the hub.
embed empty pairs.jsonl --output vectors.npy
    'empty' has no tempplug.json: give the output folder of a finished `tempplug train`, of this version or a later one.
embed empty pairs.jsonl --output vectors.txt
    output=vectors.txt must end in .npy or .parquet.
eval sts --modell model
    unknown flag '--modell' (`tempplug eval sts -h` lists the flags)
eval retrieval
    the following arguments are required: model (`tempplug eval retrieval -h` lists the flags)
sweep --comand 'python train.py {strategy}' --metric accuracy --output sweep
    unknown flag '--comand'. Did you mean '--command'? (`tempplug sweep -h` lists the flags)
sweep --command 'python train.py' --metric accuracy --output sweep
    command='python train.py' must have {strategy} where the spec string of a strategy goes.
show macle
    nothing is called 'macle'. Did you mean 'macl'? `tempplug list` shows what there is.
bench list
    command 'bench' needs the package 'rich', which is not installed: pip install -c constraints.txt -e '.[bench]' in the folder of tempplug (import of rich.console halted; None in sys.modules).
plot macl --output curves.docx
    output=curves.docx of a plot must end in .png, .svg, .pdf.
"""  # noqa: E501

# a call, and the message of its error or of its one warning
CALLS = """
ContrastiveLoss(20)(a, b)
    temperature=20 of strategy 'fixed' divides cosines, which lie in [-1, 1], so that nearly nothing is left of their differences: a scale of 20, 1/temperature, is temperature=0.05.
ContrastiveLoss(0)
    temperature=0 of strategy 'fixed' must be greater than 0.
ContrastiveLoss(-0.1)
    temperature=-0.1 of strategy 'fixed' must be greater than 0.
ContrastiveLoss("auto")
    unknown strategy 'auto'. Known: amcl, by-group, dystress, fixed, head-tail, individual, learnable, macl, mm-ts, schedule, temperature-free, tempnet and 1 more.
ContrastiveLoss("0.05")
    '0.05' is a number, not a spec string: a temperature is written fixed:temperature=0.05.
ContrastiveLoss(temperature=0.05)
    temperature= is no argument of ContrastiveLoss: write ContrastiveLoss(0.05) for a fixed temperature.
ContrastiveLoss(scale=20)
    scale= is no argument of ContrastiveLoss: write ContrastiveLoss(0.05) for a fixed temperature.
ContrastiveLoss("infonce")
    'infonce' is no strategy: pass it as objective='infonce'.
ContrastiveLoss(0.1, "cross-view")
    'cross-view' is no objective: pass it as layout='cross-view'.
ContrastiveLoss(layout="crossview")
    unknown layout 'crossview'. Did you mean 'cross-view'? Known: two-view, cross-view, queue, labels, masks.
ContrastiveLoss(negatives=0.1)
    negatives=0.1 must be a spec string such as 'false-negatives:margin=0.1', or a term.
ContrastiveLoss(reduction="avg")
    reduction='avg' must be one of mean, sum, none.
ContrastiveLoss("learnable:temperature=0.1")
    unknown option 'temperature' of strategy 'learnable'. Did you mean 'initial_temperature'? Known: initial_temperature, max_scale, learning_rate.
ContrastiveLoss(0.1)(a @ b.T)
    layout 'two-view' needs view_b beside view_a; scores in place of embeddings go to from_scores.
ContrastiveLoss(0.1)(a, b[:3])
    view_b has 3 rows where view_a has 8; row i must pair with row i.
ContrastiveLoss(0.1)(a, b[:, :3])
    view_b has 3 dimensions where view_a has 5.
ContrastiveLoss(0.1)(a.long(), b)
    view_a of dtype torch.int64 must be floating point (float16, bfloat16, float32 or float64): write view_a.float() if that is what it means.
ContrastiveLoss(0.1)(a.numpy(), b.numpy())
    view_a is a numpy.ndarray; wanted a tensor [B, D], floating point (float16, bfloat16, float32 or float64): write torch.as_tensor(view_a, dtype=torch.float32).
ContrastiveLoss(0.1)(a, b.to("meta"))
    view_b is on meta where view_a is on cpu: write view_b.to(view_a.device).
ContrastiveLoss(0.1)(a / 0, b)
    view_a holds NaN or infinite values in 8 of 8 rows (first: row 0); the loss needs finite numbers.
ContrastiveLoss(0.1)(a[None], b[None])
    view_a of shape [1, 8, 5] must be [B, D], embeddings one a row, neither number 0: pool the tokens of each row first.
ContrastiveLoss(0.1)(a[:1], b[:1])
    layout 'two-view' leaves 2 of 2 anchors without a negative: under objective 'infonce' they have a loss of their positives alone (0 with one). Use a larger batch, drop_last=True or a queue.
ContrastiveLoss(0.1)(a, b, target=labels)
    target= is no argument of this loss, and negatives= names no term that reads it. Did you mean 'targets'?
ContrastiveLoss(0.1)(a, b, labels=labels)
    labels= is read neither by layout 'two-view' nor by strategy 'fixed': layout 'labels' (supervised contrastive learning) and strategy 'head-tail' do. Leave it out, or choose one of them.
ContrastiveLoss(0.1, layout="labels")(a)
    layout 'labels' needs labels=, the class of each row of view_a.
ContrastiveLoss(0.1, layout="labels")(a, labels=labels[:3])
    labels of shape [3] must have shape [8], one value a row of view_a.
ContrastiveLoss(0.1, layout="labels")(a, labels=labels.float())
    labels of dtype torch.float32 must be integers: write labels.long() if that is what it means.
ContrastiveLoss(0.1, layout="labels")(a, labels=one_hot(labels))
    labels of shape [8, 4] must have shape [8], one value a row of view_a: write labels.argmax(1) if they are one-hot.
ContrastiveLoss(0.1, layout="labels")(a, labels=torch.arange(8))
    layout 'labels': no anchor has a positive, so the loss is 0, here and in later such batches.
ContrastiveLoss(0.1, layout="queue")(a, b)
    layout 'queue' needs queue=, the past candidates [K, D].
ContrastiveLoss("individual:size=9")(a, b)
    strategy 'individual' needs the position of each row in the data set: pass index= to the loss.
ContrastiveLoss("schedule")(a, b)
    strategy 'schedule' was never told its progress: call set_progress(epoch=...) on the loss before every epoch or step (our adapters do).
ContrastiveLoss(0.1).record
    record is empty: call the loss first, outside of the transforms of torch.func and exports.
forget(ContrastiveLoss("learnable"))
    strategy.log_scale of the loss should be learned, but did not change in 10 calls with a gradient, and the encoder did: add loss_fn.parameters() to the optimizer, or call loss_fn.requires_grad_(False).
TemperatureRankingLoss(model, 20)
    strategy=20 is a number: write scale=20 for the library's, or Fixed(temperature).
TemperatureRankingLoss(model, scale=0.05)
    scale=0.05 is 1/temperature and leaves cosines nearly equal: a temperature of 0.05 is scale=20.
TemperatureRankingLoss(model, "macle")
    unknown strategy 'macle'. Did you mean 'macl'? Known: amcl, by-group, dystress, fixed, head-tail, individual, learnable, macl, mm-ts, schedule, temperature-free, tempnet and 1 more.
"""  # noqa: E501


def table(text: str) -> list[tuple[str, str]]:
    """Returns the mistakes of a text and the indented line below each."""
    lines = text.strip().splitlines()
    return list(zip(lines[::2], (line.strip() for line in lines[1::2]), strict=True))


@pytest.fixture
def files(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which the commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TEMPPLUG_DATA", raising=False)
    pairs = [{"anchor": f"question {number}", "positive": f"answer {number}"} for number in range(9)]
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    Path("empty.jsonl").touch()
    Path("odd.csv").write_text("foo,bar\na b,c d\ne f,g h\n")
    Path("pairs.docx").write_bytes(b"PK\x03\x04")
    Path("typed.toml").write_text("[recipe]\nlerning_rate = 0.1\n")
    for folder in ("model", "empty", "trained/checkpoint-3"):
        Path(folder).mkdir(parents=True)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("typed", "told"), table(COMMANDS))
def test_a_mistyped_command_gets_one_line(
    typed: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if typed == "bench list":
        for module in ("rich", "rich.console"):
            monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
        monkeypatch.delitem(sys.modules, "tempplug_benchmarks.command", raising=False)
    assert main(shlex.split(typed.format(SIMCLR=SIMCLR, RETRIEVAL=RETRIEVAL, strategy="{strategy}"))) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {told}\n")
    assert len(err) <= LONGEST + 1


def forget(loss_fn: ContrastiveLoss) -> None:
    """Trains with an optimizer that lacks the parameters of the loss."""
    encoder = torch.nn.Linear(5, 5)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        loss_fn(encoder(torch.randn(8, 5)), encoder(torch.randn(8, 5))).backward()
        optimizer.step()


@pytest.mark.parametrize(("call", "told"), table(CALLS))
def test_a_wrong_call_gets_one_line(call: str, told: str, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_calls, "CALLS", 10)
    generator = torch.Generator().manual_seed(0)
    names: dict[str, Any] = {
        "TemperatureRankingLoss": TemperatureRankingLoss,
        "a": torch.randn(8, 5, generator=generator),
        "b": torch.randn(8, 5, generator=generator),
        "labels": torch.arange(8) // 2,
        "one_hot": torch.nn.functional.one_hot,
        "model": tiny(tiny_bert) if "model" in call else None,
    }
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            eval(call, globals(), names)
        except TempplugError as error:
            lines.append(str(error))
    lines += [str(each.message) for each in warned]
    assert lines == [told]
    assert len(told) <= LONGEST


def test_there_are_at_least_forty() -> None:
    assert len(table(COMMANDS)) + len(table(CALLS)) >= 40
