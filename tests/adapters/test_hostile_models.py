"""No command runs code that comes with a model or a file, whatever is answered on standard input."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import clip_trainer
import molecule_toys
import pytest
import sentence_transformers_nli
import torch
from clip_toys import save_pictures
from hostile_toys import KINDS, Hostile, mark_of, write_hostile
from method_toys import METHOD, Kill, Killed, run
from transformers import AutoConfig, dynamic_module_utils

from studies.other_libraries import sentence_transformers_speed
from tempplug.cli import main, shell
from tempplug.errors import ConfigError
from tempplug_adapters.images.backbones import create_backbone
from tempplug_adapters.storage.files import write_json
from tempplug_adapters.storage.manifest import seal
from tempplug_adapters.training.checkpoints import checkpoints
from tempplug_benchmarks.data.gendered_sentences import write_gendered
from tempplug_benchmarks.data.sentences import plain_sentences, write_transfer


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, sts_folder: Path) -> Path:
    """What the commands train and measure on: a folder like that of real data, with the model in the place of its encoder."""
    folder = tmp_path_factory.mktemp("data")
    write_gendered(folder, pairs=8, seed=0, tested=4)
    save_pictures(folder / "pictures")
    (folder / "text" / "wiki").mkdir(parents=True)
    (folder / "text" / "sts").symlink_to(sts_folder)
    write_transfer(folder / "text" / "transfer", seed=0)
    lines = "\n".join(plain_sentences(64, 0))
    (folder / "sentences.txt").write_text(lines)
    (folder / "text" / "wiki" / "wiki_sentences.txt.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def of_a_training(folder: Path, model: Path) -> Path:
    """The output folder of a vision training with the model as its backbone."""
    run = folder / "run"
    run.mkdir()
    torch.save({"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}, run / "encoder.pt")
    write_json(run / "settings.json", {"recipe": {"backbone": f"transformers:{model}"}})
    return run


OTHER_VISION = ("moco", "nnclr", "simsiam", "barlow-twins", "supcon")
COMMANDS = {
    "train simcse": "--model-name-or-path {model} --dataset {data}/sentences.txt --data-dir {data} --output-dir {out}/out",
    "train mabel": "--model-name-or-path {model} --dataset {data}/pairs.tsv --data-dir {data} --output-dir {out}/out",
    "train clip": "--model-name-or-path {model} --dataset {data}/pictures --output-dir {out}/out",
    "train msc": "--backbone {model} --dataset digits --normal-class 3 --image-size 16 --output-dir {out}/out",
    "train simclr": "--backbone transformers:{model} --dataset digits --image-size 16 --output-dir {out}/out",
    "eval sts": "{model} --data-dir {data}/text/sts",
    "eval transfer": "{model} --data-dir {data} --tasks TREC",
    "eval bias": "{model} --data-dir {data}",
    "eval vision": "--checkpoint {out}/run --dataset digits",
    "bench run sentence": "--profile small --tasks unsupervised --strategies fixed --data-dir {out}/data --output {out}",
}
COMMANDS |= {f"train {method}": COMMANDS["train simclr"] for method in OTHER_VISION}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write_hostile(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.fixture
def model(models: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    return models[request.param]


@pytest.fixture(autouse=True)
def yes(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard input with the answer ``y`` to every question."""
    answers = io.StringIO("y\n" * 100)
    monkeypatch.setattr(sys, "stdin", answers)
    return answers


def refused(words: list[str], capsys: pytest.CaptureFixture[str], yes: io.StringIO, mark: Path) -> str:
    """Runs a command, checks that it is refused in one line without advice to run code, and returns the line."""
    status = main(words)
    out, err = capsys.readouterr()
    assert not mark.exists()
    assert yes.tell() == 0, "a question was asked"
    for advice in ("Traceback", "trust_remote_code", "weights_only", "y/N"):
        assert advice not in out + err
    if words[0] == "bench":  # notes the runs that failed, goes on, and wraps its lines
        assert status == 1
        return " ".join((out + err).split())
    told = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (status, len(told)) == (2, 1), err
    return told[0]


CASES = [
    *((kind, name) for kind in ("config", "everything", "weights") for name in COMMANDS if name[6:] not in OTHER_VISION),
    *(("everything", f"train {method}") for method in OTHER_VISION),
    *(("modules", name) for name in ("eval sts", "eval transfer")),
]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("model", "name"), CASES, indirect=["model"], ids=lambda each: str(each).replace(" ", "-"))
def test_no_command_runs_the_code_of_a_model(
    model: Path, name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], yes: io.StringIO
) -> None:
    of_a_training(tmp_path, model)
    (tmp_path / "data" / "text").mkdir(parents=True)
    for folder in ("wiki", "sts"):
        (tmp_path / "data" / "text" / folder).symlink_to(data / "text" / folder)
    (tmp_path / "data" / "text" / "bert-wiki-mini").symlink_to(model)
    words = COMMANDS[name].format(model=model, data=data, out=tmp_path)
    told = refused([*name.split(), *words.split()], capsys, yes, mark_of(model))
    if (model / "pytorch_model.bin").exists():
        assert "system, and reading that could run code: save the file anew with tensors" in told
    else:
        assert "it needs Python code that comes with it, which is never run: give a model that transformers or" in told


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A file that would run code while it is unpickled."""
    torch.save({"weights": Hostile(mark_of(tmp_path))}, tmp_path / "code.pt")
    return tmp_path / "code.pt"


FILES = {
    "advise": "{code} {code} --output {out}/a.html",
    "train grace": "--dataset {code} --output-dir {out}/out",
    "train graphcl": "--dataset {code} --output-dir {out}/out",
    "train msc": "--backbone mobilenet-v2 --weights {code} --dataset digits --normal-class 3 --output-dir {out}/out",
    "train molecule": "--encoder {code} --dataset {out}/one.csv --output-dir {out}/out",
    "export": "--checkpoint {out}/run --output {out}/a.pth",
    "eval vision": "--checkpoint {out}/run --dataset digits",
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", FILES)
def test_no_command_runs_the_code_of_a_file(
    name: str, code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], yes: io.StringIO
) -> None:
    molecule_toys.write_files(tmp_path)
    shutil.copy(code, of_a_training(tmp_path, tmp_path) / "encoder.pt")
    words = FILES[name].format(code=code, out=tmp_path)
    told = refused([*name.split(), *words.split()], capsys, yes, mark_of(tmp_path))
    assert ".system, and reading that could run code: save the file anew with " in told


@pytest.mark.filterwarnings("ignore:checkpoint-. has no fingerprint of its data:UserWarning")
def test_no_checkpoint_runs_code(code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dataset", "points", "--output-dir", str(tmp_path / "run"), "--save-steps", "1"]
    with pytest.raises(Killed):
        run(tmp_path / "run", dataset="points", callbacks=[Kill(2)], training={"save_steps": 1})
    newest = checkpoints(tmp_path / "run")[-1]
    for name in ("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        whole = (newest / name).read_bytes()
        shutil.copy(code, newest / name)
        seal(newest)  # a checkpoint with checksums of its own
        assert shell(lambda: METHOD([*words, "--resume-from-checkpoint", str(newest)])) == 2
        out, err = capsys.readouterr()
        assert not mark_of(tmp_path).exists()
        assert ".system, and reading that could run code" in err
        assert "weights_only" not in out + err
        assert len(err.splitlines()) == 1, err
        (newest / name).write_bytes(whole)


@pytest.mark.parametrize("model", ["config", "weights"], indirect=True)
def test_scripts_run_no_code_of_a_model(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: io.StringIO) -> None:
    monkeypatch.setattr(sys, "argv", ["speed", "--model", str(model)])
    for script in (
        sentence_transformers_speed.main,
        lambda: clip_trainer.main(["--output_dir", str(tmp_path / "out"), "--model", str(model)]),
        lambda: sentence_transformers_nli.create_model(SimpleNamespace(model=str(model))),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=f"model='{model}' ") as told:
            script()
        assert "weights_only" not in str(told.value)
    assert not mark_of(model).exists()
    assert yes.tell() == 0


def test_no_library_reads_weights_that_run_code(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timm = ModuleType("timm")
    timm.create_model = lambda name, **options: torch.load(code, weights_only=False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    with pytest.raises(ConfigError, match=r"backbone 'timm:net' cannot be made: it holds \w+\.system, and reading that could"):
        create_backbone("timm:net", pretrained=True)
    assert not mark_of(code.parent).exists()


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "modules"])
def test_the_models_are_hostile(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_hostile(tmp_path / "model", kind)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    if (model / "pytorch_model.bin").exists():
        torch.load(model / "pytorch_model.bin", weights_only=False)
    else:
        AutoConfig.from_pretrained(model, trust_remote_code=True)
    assert mark_of(model).exists()
