"""Folders of models that would run code of their own while they are loaded: each leaves a file ``ran`` where that happens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from tempplug_benchmarks.data.tiny_encoder import write_tiny_encoder

KINDS = ("config", "everything", "weights", "modules")
_AUTO = ("AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoImageProcessor", "AutoFeatureExtractor", "AutoProcessor")
_CODE = """
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer
open({mark!r}, "w").close()
class Config(BertConfig):
    model_type = "hostile"
class Model(BertModel):
    config_class = Config
class Masked(BertForMaskedLM):
    config_class = Config
class Words(BertTokenizer):
    pass
"""


class Hostile:
    """Touches a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.mark}'",)


def mark_of(folder: Path) -> Path:
    """The file that is there once code of the folder has run."""
    return folder / "ran"


def write_hostile(folder: Path, kind: str) -> Path:
    """Writes a tiny masked language model that comes with code, and returns its folder.

    Args:
        kind: ``config``: its configuration names a class of the folder; ``everything``: tokenizer and image processor too;
            ``weights``: those are a pickle that calls `os.system`; ``modules``: ``modules.json`` names a class of the folder.
    """
    write_tiny_encoder(folder, seed=0, layers=1, width=16, masked=True)
    (folder / "hostile.py").write_text(_CODE.format(mark=str(mark_of(folder))))
    if kind == "weights":
        (folder / "model.safetensors").unlink()
        torch.save({"embeddings": Hostile(mark_of(folder))}, folder / "pytorch_model.bin")
    elif kind == "modules":
        write(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "hostile.Model"}])
    else:
        names = dict.fromkeys(_AUTO, "hostile.Model") | {
            "AutoConfig": "hostile.Config",
            "AutoModelForMaskedLM": "hostile.Masked",
        }
        change(folder / "config.json", model_type="hostile", auto_map=names)
        if kind == "everything":
            change(
                folder / "tokenizer_config.json", tokenizer_class="Words", auto_map={"AutoTokenizer": ["hostile.Words", None]}
            )
            write(folder / "preprocessor_config.json", {"image_processor_type": "Words", "auto_map": names})
    return folder


def change(file: Path, **values: Any) -> None:
    write(file, {**json.loads(file.read_text()), **values})


def write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))
