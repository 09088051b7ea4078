"""Models and files of PyTorch are loaded in one place each, which runs no code that comes with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODELS, TENSORS = "adapters/tempplug_adapters/huggingface/loading.py", "adapters/tempplug_adapters/storage/tensors.py"
OURS = ("SimCSEModel", "MabelModel")
"""Classes with a ``from_pretrained`` that calls `tempplug_adapters.huggingface.loading`."""
METHODS = ("from_pretrained", "get_image_processor_dict")
LIBRARY = ("SentenceTransformer", "CrossEncoder", "SparseEncoder", "MultiVectorEncoder")
SETTINGS = {"trust_remote_code": False, "weights_only": True, "allow_pickle": False}


def loads(source: str) -> Iterator[tuple[str, str]]:
    """Returns what a module loads, with the one file that may."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "transformers" and "pipeline" in {n.name for n in node.names}:
            yield "transformers.pipeline", ""
        if isinstance(node, ast.keyword) and node.arg in SETTINGS:
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if value is not SETTINGS[node.arg]:
                yield f"{node.arg}={ast.unparse(node.value)}", ""
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        if name in METHODS and owner not in OURS:
            yield called, MODELS
        if name in LIBRARY and (node.args or any(each.arg in (None, "model_name_or_path") for each in node.keywords)):
            yield called, MODELS
        if called in ("torch.load", "torch.jit.load") or called.startswith("torch.hub."):
            yield called, TENSORS
        if owner in ("pickle", "joblib", "dill", "cloudpickle") and name.startswith("load"):
            yield called, ""
        if owner == "mteb" and name.startswith("get_model"):
            yield called, MODELS


def test_models_and_tensors_are_loaded_in_one_place_each(product_files: list[str]) -> None:
    product = [name for name in product_files if name.endswith(".py") and not name.startswith("tests/")]
    found = {(what, place, name) for name in product for what, place in loads((ROOT / name).read_text(encoding="utf-8"))}
    assert {name for _, _, name in found} == {MODELS, TENSORS}, "the search finds those that there are"
    assert sorted((what, name) for what, place, name in found if name != place) == []


WAYS = """\
AutoModel.from_pretrained(name)
transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
self.kind.from_pretrained(name)
SentenceTransformer(name)
sentence_transformers.SentenceTransformer(model_name_or_path=name)
CrossEncoder(**options)
from transformers import pipeline
torch.load(path, weights_only=True)
torch.hub.load(name)
pickle.loads(content)
load(path, weights_only=False)
model(trust_remote_code=True)
np.load(path, allow_pickle=allowed)
mteb.get_model(name)
"""


def test_every_way_to_load_is_noticed_and_ours_is_none() -> None:
    assert [line for line in WAYS.splitlines() if not list(loads(line))] == []
    ours = "SimCSEModel.from_pretrained(name)\nSentenceTransformer(modules=[a])\nnp.load(a, allow_pickle=False)"
    assert list(loads(ours)) == []
