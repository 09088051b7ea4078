"""The README.md of every method's output folder: names stay text in it, and its snippets can be run beside the folder."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from markdown_it.token import Token
from PIL import Image
from recommendation_toys import walks
from trained_toys import COMMANDS
from transformers import ResNetConfig, ResNetModel

from tempplug.cli import main
from tempplug_adapters.quoting import code, escape_markdown, fenced, shell_flag, shell_line, shell_word

NAME = "a|b`c``d\"e'f <img src=x onerror=alert(1)> $HOME !x \\ [g](h) &lt; *i* _j_ {{k}} é"
HOSTILE = f"{NAME}\n---\n# l\n```\n- m: \u202en"
COLUMN = "a|b`c\"d'<img src=x>*e*"
SLOW = [pytest.param(each, marks=() if each in ("simcse", "sasrec") else pytest.mark.slow) for each in COMMANDS]


def class_folders(folder: Path, classes: list[str]) -> Path:
    """Writes 24 images of each class to train on, and 8 to test."""
    generator = torch.Generator().manual_seed(0)
    for split, count in (("train", 24), ("test", 8)):
        for place, name in enumerate(classes):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = torch.randint(100 * place, 100 * place + 150, (8, 8, 3), dtype=torch.uint8, generator=generator)
                Image.fromarray(pixels.numpy()).save(folder / split / name / f"{number}.png")
    return folder


def written(method: str, place: Path, toys: Path) -> tuple[list[str], str]:
    """Writes data of hostile names, and returns the words of a training on them, and the data for its snippets."""
    if method in ("simcse", "retrieval"):
        rows = [line.split("\t")[:2] for line in (toys / "pairs.tsv").read_text().splitlines()[1:]]
        file = place / f"{NAME}.tsv"
        file.write_text("\n".join(map("\t".join, [[COLUMN, f"{COLUMN}2"], *rows])) + "\n", encoding="utf-8")
        model = shutil.copytree(toys / "encoder", place / f"model {NAME}")
        words = ["--columns", COLUMN, f"{COLUMN}2", "--model-name-or-path", str(model), "--no-evaluate", "--max-length", "32"]
        words += ["--eval-strategy", "no", *(["--held-out", "0.2"] if method == "retrieval" else [])]
    elif method == "mabel":
        file = Path(shutil.copy(toys / "gendered" / "pairs.tsv", place / f"{NAME}.tsv"))
        words = ["--model-name-or-path", str(toys / "masked"), "--num-train-epochs", "1", "--no-evaluate"]
    elif method in ("grace", "graphcl"):
        source = "node.pt" if method == "grace" else "graphs.pt"
        file = Path(shutil.copy(toys / source, place / f"{NAME}.pt"))
        words = ["--num-train-epochs", "1", "--no-evaluate"]
    elif method == "molecule":
        file = Path(shutil.copy(toys / "one.csv", place / f"{NAME}.csv"))
        words = ["--pretrain-file", str(toys / "unlabelled.smi"), "--layers", "2", "--width", "32", "--num-train-epochs", "1"]
        words += ["--finetune-epochs", "1", "--no-evaluate"]
    elif method in ("sasrec", "dcrec"):
        rows = [
            (f"-{NAME}{user}", f"{NAME}{item}", time) for user, items in enumerate(walks()) for time, item in enumerate(items)
        ]
        columns = [COLUMN, f"{COLUMN}2", f"{COLUMN}3"]
        file = place / f"{NAME}.csv"
        with file.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([columns, *rows])
        words = ["--columns", *columns, "--num-train-epochs", "1", "--hidden", "16", "--inner", "16", "--eval-strategy", "no"]
        words += ["--no-evaluate"]
    elif method == "clip":
        # the library that reads it expands variables and patterns
        file = Path(shutil.copytree(toys / "pictures", place / re.sub(r"[$*\[\]{}]", "", NAME)))
        words = [
            "--model-name-or-path",
            str(toys / "clip"),
            "--num-train-epochs",
            "1",
            "--no-evaluate",
            "--per-device-train-batch-size",
            "4",
        ]
    else:
        file = class_folders(place / NAME, [NAME, "other"])
        small = ["--num-train-epochs", "1", "--no-evaluate", "--image-size", "32" if method == "msc" else "8"]
        if method == "msc":
            network = place / f"net {NAME}"
            ResNetModel(
                ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
            ).save_pretrained(network)
            words = ["--normal-class", NAME, "--backbone", str(network), "--frozen-blocks", "1", *small]
        else:
            words = ["--backbone", "vit-tiny", "--no-channels-last", "--embedding-dimension", "8", *small]
            words += ["--per-device-train-batch-size", "24"]
            words += ["--queue-size", "48"] if method in ("moco", "nnclr") else []
    return ["--dataset", str(file), *words], str(file)


def runs(card: str, inputs: dict[str, str], monkeypatch: pytest.MonkeyPatch, place: Path) -> int:
    """Runs the snippets of a card in a folder, and returns their number; bash splits the words of the command ``tempplug``."""
    program = place / "bin" / "tempplug"
    program.parent.mkdir()
    program.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\" > words\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {}
    blocks = [token for token in parsed(card) if token.type == "fence" and token.info != "bibtex"]
    for block in blocks:
        lines = block.content
        if block.info == "python":
            exec(compile(lines, "README.md", "exec"), names)
            continue
        assert block.info == "bash"
        for placeholder, given in inputs.items():
            lines = lines.replace(placeholder, shell_word(given))
        subprocess.run(["bash", "-ec", lines], check=True, cwd=place)
        words = (place / "words").read_bytes().split(b"\0")[:-1]
        assert main([os.fsdecode(word) for word in words]) == 0, words
    return len(blocks)


def parsed(card: str) -> list[Token]:
    """Returns the tokens of the Markdown below the metadata."""
    return MarkdownIt("commonmark").enable("table").parse(ModelCard(card).text)


def shown(token: Token) -> str:
    """Returns the text of a line as a reader sees it; `<code>` is the only HTML that may be in it."""
    text = ""
    for each in token.children or []:
        assert each.type in ("text", "text_special", "code_inline", "html_inline", "softbreak"), each
        if each.type == "html_inline":
            assert each.content in ("<code>", "</code>")
        else:
            text += " " if each.type == "softbreak" else each.content
    return text


def visible(name: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in name)


@pytest.mark.filterwarnings("ignore:1 SMILES of", "ignore:Some weights")
@pytest.mark.parametrize("method", SLOW)
def test_snippets_of_a_card_run_whatever_the_names_are(
    method: str, tmp_path: Path, toy_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    words, data = written(method, tmp_path / "data", toy_data)
    folder = toy_data / "gendered" if method == "mabel" else toy_data
    where = ["--data-dir", str(folder), "--output-dir", str(tmp_path / HOSTILE), "--save-strategy", "no"]
    assert main(["train", method, *words, *where]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    card = (tmp_path / HOSTILE / "README.md").read_text(encoding="utf-8")
    assert card.replace("\n", "").isprintable()
    metadata = yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))
    assert (metadata["model-index"][0]["name"] if "model-index" in metadata else metadata["model_name"]) == HOSTILE
    assert ModelCard(card).data.to_dict()["tags"][-2:] == [method, "tempplug"]
    tokens = parsed(card)
    assert not [token for token in tokens if token.type == "html_block"]
    lines = [shown(token) for token in tokens if token.type == "inline"]
    headings = [shown(after) for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert headings == [visible(" ".join(HOSTILE.split())), "Use", "Training", "Scores", "Citation"]
    depth, cells = 0, []
    for token in tokens:
        depth += token.nesting if token.type == "tr_open" else 0
        cells += [token.type] if token.type in ("tr_open", "td_open", "th_open") else []
    assert len(cells) % 3 == 0
    assert all(
        cells[row : row + 3] in (["tr_open", "td_open", "td_open"], ["tr_open", "th_open", "th_open"])
        for row in range(0, len(cells), 3)
    )
    assert any(Path(data).name in line for line in lines)
    if method in ("simcse", "retrieval"):
        assert f"{COLUMN} {COLUMN}2" in lines
    if method == "msc":
        assert f"A detector of images that are not {NAME}: the further" in lines[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPPLUG_DATA", str(toy_data))
    Image.new("RGB", (40, 40), "red").save("image.jpg")
    assert runs(card, {"DATA": data, "IMAGES": data, "TABLE.csv": str(toy_data / "one.csv")}, monkeypatch, tmp_path) >= 2
    # so does the command that the training ends with
    program = f"tempplug() {{ printf '%s\\0' \"$@\" > words; }}; {out.splitlines()[-1].removeprefix('next: ')}"
    subprocess.run(["bash", "-ec", program], check=True)
    assert main([os.fsdecode(word) for word in Path("words").read_bytes().split(b"\0")[:-1]]) == 0


@pytest.mark.parametrize(
    "name", [HOSTILE, NAME, "-x", "", " ", "~", "a\\'b\x1b[31m", os.fsdecode(b"\xff\xfe'"), "\u2066a\u2069", "名"]
)
def test_bash_reads_a_word_as_it_is(name: str) -> None:
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {shell_line(name, 'b c')}"], stdout=subprocess.PIPE, check=True)
    assert [os.fsdecode(each) for each in printed.stdout.split(b"\0")[:-1]] == [name, "b c"]
    assert shell_word(name).isprintable()
    flag = f"--user={name}" if name.startswith("-") else None
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {shell_flag('--user', name)}"], stdout=subprocess.PIPE, check=True)
    assert [os.fsdecode(each) for each in printed.stdout.split(b"\0")[:-1]] == ([flag] if flag else ["--user", name])


@pytest.mark.parametrize(
    "name", [HOSTILE, NAME, "|", "`", "a`", "\\", "a\\|b", "_a_", "# a #", "> a", "- a", "[a](b)", "![a](b)", "~~a~~"]
)
@pytest.mark.parametrize("write", [code, escape_markdown])
def test_markdown_shows_a_name_as_it_is(name: str, write: Callable[[str], str]) -> None:
    seen = visible(" ".join(name.split()) if write is escape_markdown else name)
    for text in (f"# {write(name)}", f"a {write(name)} b", f"| {write(name)} | c |\n| :-- | :-- |\n| {write(name)} | c |"):
        tokens = [token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.type == "inline"]
        found = [shown(token) for token in tokens]
        assert found in ([seen], [f"a {seen} b"], [seen, "c", seen, "c"])


def test_a_block_of_code_ends_where_it_should() -> None:
    (token,) = MarkdownIt("commonmark").parse(fenced("bash", "a\n```\n````b\n`c`"))
    assert (token.info, token.content) == ("bash", "a\n```\n````b\n`c`\n")
    assert fenced("bash", "a") == "```bash\na\n```"


def test_the_next_command_of_molecules_names_the_first_data_set(
    tmp_path: Path, toy_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tempplug_adapters.graph.recipes import MOLECULE

    method = MOLECULE.load()
    for given in ("bbbp,bace", "it's here/a b.csv,other", "bbbp", "a\x1bb.csv,c"):
        then = method.next_command(None, None, "out", shell_word(given))
        found = subprocess.run(
            ["bash", "-c", then.replace("tempplug", "printf '%s\\0'", 1)], stdout=subprocess.PIPE, check=True
        )
        assert found.stdout.split(b"\0")[2].decode() == given.partition(",")[0]


def test_a_folder_whose_name_is_no_text_gets_a_card(tmp_path: Path) -> None:
    import method_toys as toys

    folder = tmp_path / os.fsdecode(b"\xff")
    toys.run(folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "tempplug_adapters.load('\\udcff')" in card
    assert json.loads((folder / "tempplug.json").read_text())["method"] == "toy"
