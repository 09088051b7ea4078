"""Encoders whose weights or vectors are not finite, and folders whose weights and settings do not fit, are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import method_toys as toys
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from trained_toys import COMMANDS
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    PreTrainedModel,
    TrainerCallback,
    ViTConfig,
    ViTForImageClassification,
    ViTForMaskedImageModeling,
)

import tempplug_adapters
from tempplug.cli import main
from tempplug.errors import ConfigError, DataError, NonFiniteError, TempplugError
from tempplug_adapters.encoder_checks import check_finite_rows, check_finite_weights, load_state
from tempplug_adapters.huggingface.loading import load_pretrained, load_sentence_transformer
from tempplug_adapters.sentence_evaluation.encoder import LibraryEncoder, load_encoder

QUICK = ("simcse", "grace", "supcon", "sasrec")
METHODS = [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in COMMANDS]
NAN, INFINITY = float("nan"), float("inf")


def changed(content: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Changes all floating-point tensors of nested dictionaries."""
    if isinstance(content, dict):
        return {name: changed(values, change) for name, values in content.items()}
    return change(content) if isinstance(content, Tensor) and content.is_floating_point() else content


def change_weights(folder: Path, change: Callable[[Tensor], Tensor]) -> None:
    for file in folder.glob("model.safetensors"):
        save_file(changed(load_file(file), change), file, metadata={"format": "pt"})
    for file in folder.glob("encoder.pt"):
        torch.save(changed(torch.load(file, weights_only=True), change), file)


def copied(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place))


@pytest.fixture
def folder_of(trained_folder: Callable[..., Path], tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Gives a copy of the output folder of a method, which may be changed."""

    def of(method: str) -> Path:
        data = request.getfixturevalue("data_dir") if method == "msc" else None
        return copied(trained_folder(method, data), tmp_path / method)

    return of


def commands(method: str, folder: Path, toys: Path, data: Path) -> list[list[str]]:
    """The commands that use the output folder of a method or its encoder."""
    inputs = {
        **dict.fromkeys(("simcse", "retrieval", "mabel"), toys / "pairs.tsv"),
        **{"grace": toys / "node.pt", "graphcl": toys / "graphs.pt", "molecule": toys / "one.csv", "msc": "cifar10-lossless4k"},
        **dict.fromkeys(("sasrec", "dcrec"), toys / "log.csv"),
    }
    where = ["--data-dir", str(data)]
    words = [["embed", str(folder), str(inputs.get(method, "digits")), "--output", "vectors.npy", *where]]
    words += [["eval", "trained", str(folder), *where]]
    if method in ("simcse", "retrieval"):
        words += [["eval", "sts", str(folder), "--data-dir", str(toys / "sts"), "--tasks", "STSB", "--output", "sts.json"]]
        words += [["advise", str(toys / "pairs.tsv"), "--model", str(folder), "--output", "advice.html"]]
    if method == "mabel":
        words += [["eval", "bias", str(folder), "--data-dir", str(toys / "gendered"), "--output", "bias.json"]]
    if method in ("sasrec", "dcrec"):
        words += [["recommend", str(folder), "--user", "user-1", "--output", "items.csv"]]
    if method == "msc":
        words += [["score", str(folder), "cifar10-lossless4k", *where]]
    if method == "molecule":
        words += [["train", method, "--encoder", str(folder / "encoder.pt"), "--dataset", str(toys / "one.csv")]]
        words[-1] += ["--output-dir", "tuned", "--no-evaluate"]
    if method in ("supcon", "simclr", "simsiam", "barlow-twins", "moco", "nnclr", "msc"):
        words += [["eval", "vision", "--checkpoint", str(folder), "--dataset", "digits", "--plots", "plots"]]
        words += [
            ["export", "--checkpoint", str(folder), "--output", "net.pth", "--format", each]
            for each in ("module", "torchvision")
        ]
    return words


def files(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file() and each.name != ".lock"}


@pytest.mark.parametrize("method", METHODS)
def test_no_command_uses_weights_that_are_not_finite(
    method: str,
    folder_of: Callable[[str], Path],
    toy_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    folder = folder_of(method)
    data = request.getfixturevalue("data_dir") if method == "msc" else toy_data
    change_weights(folder, lambda values: values * NAN)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    for words in commands(method, folder, toy_data, data):
        capsys.readouterr()
        assert main(words) == 2, words
        out, err = capsys.readouterr()
        told = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(told) == 1, err
        assert str(folder) in told[0]
        assert "NaN or infinite values out of" in told[0]
        assert len(told[0].replace(str(folder), "")) < 200
        assert "wrote" not in out
    assert {each for each in files(tmp_path) if each.suffix != ".json" or each.parent != tmp_path / "tuned"} == before


def test_one_value_that_is_not_finite_is_named(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("grace")
    state = torch.load(folder / "encoder.pt", weights_only=True)
    name = list(state)[1]
    state[name].view(-1)[3] = INFINITY
    torch.save(state, folder / "encoder.pt")
    count = state[name].numel()
    with pytest.raises(
        DataError, match=rf"encoder\.pt cannot be loaded: {name} holds 1 NaN or infinite values out of {count}\."
    ):
        tempplug_adapters.load(folder)


def test_weights_that_overflowed_in_half_precision_are_refused(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("simcse")
    change_weights(folder, lambda values: (values * 1e6).half())
    with pytest.raises(ConfigError, match=r"cannot be used: \S+ holds \d+ NaN or infinite values out of"):
        tempplug_adapters.load(folder)


def test_representations_of_normal_images_must_be_finite(folder_of: Callable[[str], Path], data_dir: Path) -> None:
    folder = folder_of("msc")
    normal = torch.load(folder / "normal.pt", weights_only=True)
    normal[2, 5] = NAN
    torch.save(normal, folder / "normal.pt")
    with pytest.raises(
        DataError, match=r"normal\.pt cannot be read: .* hold NaN or infinite values in 1 of 16 rows, first in row 2"
    ):
        tempplug_adapters.load(folder)


def test_vectors_that_overflow_are_refused_by_row(tmp_path: Path) -> None:
    toys.run(tmp_path)
    trained = tempplug_adapters.load(tmp_path, toys.METHOD.load())
    with torch.no_grad():
        trained.module.encoder.weight.fill_(100.0)
        trained.module.encoder.bias.zero_()
    rows = torch.tensor([[1.0] * 6, [2.0] * 6, [1000.0] * 6, [1.0] * 6])
    assert trained.embed(rows)[2, 0] == 600_000
    trained.half()  # the largest number of 16 bits is 65,504
    with pytest.raises(
        NonFiniteError, match="the vectors hold NaN or infinite values in 1 of 4 rows, first in row 2: the encoder"
    ):
        trained.embed(rows.half())


@pytest.mark.parametrize("words", [["recommend", "FOLDER", "--user", "user-3", "user-1"], ["eval", "trained", "FOLDER"]])
def test_scores_of_items_that_overflow_are_refused(
    words: list[str], folder_of: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of("sasrec")
    state = torch.load(folder / "encoder.pt", weights_only=True)
    torch.save({**state, "items.weight": torch.full_like(state["items.weight"], 3e38)}, folder / "encoder.pt")
    assert main([str(folder) if each == "FOLDER" else each for each in words]) == 2
    first = "2 of 2 rows, first in that of 'user-3'" if words[0] == "recommend" else "5 of 5 rows, first in row 0"
    assert f"the scores of items hold NaN or infinite values in {first}: the encoder" in capsys.readouterr().err


def test_a_training_whose_last_step_spoils_the_weights_writes_no_encoder(tmp_path: Path) -> None:
    class Spoil(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            with torch.no_grad():
                more["model"].encoder.bias[1] = NAN

    with pytest.raises(NonFiniteError, match="the training diverged at epoch 3: bias holds 1 NaN or infinite values out of 4"):
        toys.run(tmp_path, callbacks=[Spoil()], evaluate=False)
    assert not (tmp_path / "encoder.pt").exists()
    assert not (tmp_path / "tempplug.json").exists()


def test_rows_are_counted_and_named() -> None:
    rows = torch.ones(5, 2, 2)
    rows[1, 0, 1], rows[4] = -INFINITY, NAN
    with pytest.raises(NonFiniteError, match=r"the vectors hold NaN .* in 2 of 5 rows, first in row 11: "):
        check_finite_rows(rows, "the vectors", start=10)
    with pytest.raises(NonFiniteError, match=r"the scores hold NaN .* in 2 of 5 rows, first in that of 'x{40}\.\.\.x{40}': "):
        check_finite_rows(rows, "the scores", ["a", "x" * 3000, "c", "d", "e"])
    check_finite_rows(rows[2:4], "the vectors")
    check_finite_rows(rows[:0], "the vectors")
    check_finite_weights({"counts": torch.ones(2, dtype=torch.int64), "extra": "word", "good": rows[0]})


def rename_last(state: dict[str, Tensor]) -> dict[str, Tensor]:
    name = [each for each in state if state[each].ndim > 1 and each not in ("mean", "std")][-1]
    return {each if each != name else "a.stranger": values for each, values in state.items()}


CHANGES: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "missing": (lambda state: dict(list(state.items())[:-2]), "lacks weights"),
    "renamed": (rename_last, "lacks weights"),
    "superfluous": (
        lambda state: {**state, "a.stranger": torch.ones(2)},
        r"has weights that its .* no place for.* a\.stranger",
    ),
}


def weights_file(folder: Path, binary: bool) -> tuple[dict[str, Tensor], Callable[[dict[str, Tensor]], None]]:
    """Returns the weights of a folder by name, and a function that writes others."""
    if (file := folder / "encoder.pt").exists():
        content = torch.load(file, weights_only=True)
        if "weights" in content:  # of molecules
            return content["weights"], lambda state: torch.save({**content, "weights": state}, file)
        return content, lambda state: torch.save(state, file)
    state = load_file(folder / "model.safetensors")

    def write(state: dict[str, Tensor]) -> None:
        if binary:
            (folder / "model.safetensors").unlink()
            torch.save(state, folder / "pytorch_model.bin")
        else:
            save_file(
                {name: values.contiguous() for name, values in state.items()}, folder / "model.safetensors", {"format": "pt"}
            )

    return state, write


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", METHODS)
def test_missing_and_superfluous_weights_are_refused(method: str, change: str, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of(method)
    make, message = CHANGES[change]
    state, write = weights_file(folder, binary=change == "renamed")
    write(make(state))
    with pytest.raises(TempplugError, match=message) as told:
        tempplug_adapters.load(folder)
    assert isinstance(told.value, ConfigError | DataError)
    assert len(str(told.value).replace(str(folder), "")) < 350


def with_fewer_layers(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    for part in (config, config.get("text_config"), config.get("vision_config")):
        if part and "num_hidden_layers" in part:
            part["num_hidden_layers"] -= 1
            break
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("method", ["simcse", pytest.param("mabel", marks=pytest.mark.slow)])
def test_a_config_of_fewer_layers_drops_no_weights(method: str, binary: bool, folder_of: Callable[[str], Path]) -> None:
    folder = with_fewer_layers(folder_of(method))
    if binary:
        state, write = weights_file(folder, binary=True)
        write(state)
    with pytest.raises(ConfigError, match=r"has weights that its config.json has no place for in a \w+, such as \S*layer\.\d"):
        tempplug_adapters.load(folder)
    if method == "simcse":
        for load in (load_encoder, lambda name: load_sentence_transformer(str(name))):
            with pytest.raises(ConfigError, match=r"such as .*layer\.\d.* and \d+ more: restore the config\.json"):
                load(folder)


def test_the_library_loads_no_other_weights(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("simcse")
    assert isinstance(LibraryEncoder(load_sentence_transformer(str(folder)))(["a dog"]), Tensor)
    change_weights(folder, lambda values: values * NAN)
    with pytest.raises(ConfigError, match=r"cannot be used: .* holds .* NaN or infinite values"):
        load_sentence_transformer(str(folder))
    state, write = weights_file(folder, binary=False)
    write(dict(list(state.items())[4:]))
    with pytest.raises(ConfigError, match="lacks weights of its architecture, such as embeddings"):
        load_sentence_transformer(str(folder))


TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
BERT = BertConfig(vocab_size=9, **TINY)
VIT = ViTConfig(image_size=8, patch_size=4, encoder_stride=4, **TINY)


@pytest.mark.parametrize(
    ("kind", "config", "auto"),
    [
        (BertForPreTraining, BERT, AutoModel),
        (BertForPreTraining, BERT, AutoModelForMaskedLM),
        (BertForMaskedLM, BERT, AutoModel),
        (BertForSequenceClassification, BERT, AutoModel),
        (ViTForImageClassification, VIT, AutoModel),
        (ViTForMaskedImageModeling, VIT, AutoModel),
    ],
)
def test_heads_may_be_left_out(kind: type[PreTrainedModel], config: Any, auto: Any, tmp_path: Path) -> None:
    whole = kind(config)
    whole.save_pretrained(tmp_path)
    loaded = load_pretrained(auto, str(tmp_path))
    saved = {name.removeprefix(f"{whole.base_model_prefix}."): values for name, values in whole.state_dict().items()}
    for name, values in loaded.base_model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(values, saved[name]), name


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (["weight"], DataError, "it holds a list, not weights by name"),
        ({"weight": torch.ones(2, 3)}, DataError, r"it lacks weights: bias\."),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(2)}, DataError, r"weight has the shape \[3, 2\], which .* \[2, 3\]"),
        (
            {"weight": torch.ones(2, 3), "bias": torch.ones(2), **{name: torch.ones(1) for name in "edcba"}},
            DataError,
            r"it has weights that its settings have no place for: a, b, c and 2 more\.",
        ),
        (
            {"weight": torch.ones(2, 3, dtype=torch.float64) * 1e300, "bias": torch.ones(2)},
            NonFiniteError,
            "weight holds 6 NaN or infinite values out of 6",
        ),
    ],
)
def test_what_does_not_fit_a_module_is_named(state: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_state(nn.Linear(3, 2), state)
