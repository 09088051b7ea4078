"""Loads pretrained models, their configurations, tokenizers and image settings, without running code that comes with them.

No other module calls ``from_pretrained``, which a test checks. Messages of transformers are muted; missing weights are errors.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, ImageProcessingMixin, PreTrainedModel
from transformers.utils.hub import cached_file

from tempplug.errors import ConfigError, NonFiniteError, TempplugError
from tempplug_adapters.encoder_checks import check_finite_weights, some_names
from tempplug_adapters.own_modules import create_module, find
from tempplug_adapters.storage.tensors import tensors_alone, why_refused


def load_pretrained(auto_class: Any, name: str, *, pooler: bool = False, purpose: str = "", **options: Any) -> Any:
    """Returns a pretrained model in float32.

    A missing weight is an error, because its values would be random; only a pooler that is not used may be missing. A
    superfluous one is an error, too, because the model was trained with it; only those of heads and poolers may be left out.

    Args:
        auto_class: ``AutoModel`` or another class with ``from_pretrained``.
        name: a folder or a name on the Hugging Face hub.
        pooler: whether the model's own pooler will be used.
        purpose: the required kind of model, for the message about missing weights.
        options: options of ``from_pretrained``.

    Raises:
        ConfigError: the model cannot be loaded; weights of its architecture or a required pooler are missing; there are
            weights that the architecture has no place for; or a weight is not finite.
    """
    with explained(name):
        model, report = auto_class.from_pretrained(
            name,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            **options,
        )
    _check_names(name, model, report, purpose)
    _check_finite(name, model)
    if pooler and (getattr(model, "pooler", None) is None or any("pooler." in key for key in report["missing_keys"])):
        raise ConfigError(
            f"model='{name}' has no weights of a pooler of its own, which pooling='cls' reads; choose cls_before_pooler, the "
            "same token without it, or another pooling."
        )
    return model


_HEADS = re.compile(
    r"\w*head\w*|\w*(predict|classifi)\w*|cls|score|fc|dense|decoder|norm|layernorm|lm_loss|pred_layer|qa_outputs|splinter_qass|"
    r"vocab_\w+|sequence_summary|\w+_proj(ection)?|project_\w+|quantizer|final_logits_bias|encoder_to_decoder"
)
"""Names that the architectures of transformers give to parts around the model itself: heads of pretraining and of tasks."""
_UNUSED = re.compile(r"(^|\.)(pooler|seq_relationship|mask_token)\b")
"""Parts inside of a model that only its pretraining or some tasks use."""


def _check_names(name: str, model: PreTrainedModel, report: Mapping[str, Any], purpose: str = "") -> None:
    """Raises ConfigError if weights are missing, superfluous or of another shape.

    Args:
        name: of the model, as given by the user.
        model: as loaded.
        report: of ``from_pretrained``.
        purpose: see `load_pretrained`.
    """
    missing = [key for key in report["missing_keys"] if "pooler." not in key]
    if faulty := [*missing, *(f"{key} (of another shape)" for key, *_ in report["mismatched_keys"])]:
        wanted = f" Wanted is {purpose}." if purpose else ""
        raise ConfigError(f"model='{name}' lacks weights of its architecture, such as {some_names(faulty)}.{wanted}")
    parts = {part for part, _ in model.named_children()} | {part for part, _ in model.named_parameters(recurse=False)}
    superfluous = []
    for key in report["unexpected_keys"]:
        part = key.removeprefix(f"{model.base_model_prefix}.").partition(".")[0]
        if not _UNUSED.search(key) and (part in parts or not _HEADS.fullmatch(part)):
            superfluous.append(key)
    if superfluous:
        raise ConfigError(
            f"model='{name}' has weights that its config.json has no place for in a {type(model).__name__}, such as "
            f"{some_names(superfluous)}: restore the config.json that it was trained with."
        )


def _check_finite(name: str, model: torch.nn.Module) -> None:
    try:
        check_finite_weights(model.state_dict())
    except NonFiniteError as error:
        raise ConfigError(f"model='{name}' cannot be used: {error}") from error


def own_model(model: Any, word: str | None) -> Any:
    """Returns a pretrained model, or the one that the user's class or function makes from it.

    Args:
        model: the pretrained model.
        word: name of the class or function, see `own_modules.find`; it is called with ``model``, the pretrained model, and
            ``config``, its configuration, if it has these arguments. None returns ``model``.

    Raises:
        ConfigError: it makes no model of transformers, or one of another width.
    """
    if word is None:
        return model
    made = create_module(find(word, "encoder"), "encoder", {"model": model, "config": model.config}, first="model")
    width, own = (getattr(getattr(each, "config", None), "hidden_size", None) for each in (model, made))
    if not isinstance(made, PreTrainedModel) or own != width:
        raise ConfigError(
            f"encoder '{word}' made a {type(made).__name__} with config.hidden_size={own}; it must make a model of "
            f"transformers (PreTrainedModel), called as {type(model).__name__} is and with config.hidden_size={width}: take "
            "model, the pretrained one, or config, and return it changed, or a model of your own."
        )
    return made


def load_config(name: str) -> Any:
    """Returns the configuration of a pretrained model, given a folder or a name on the hub; raises ConfigError."""
    with explained(name):
        return AutoConfig.from_pretrained(name, trust_remote_code=False)


def load_tokenizer(name: str, **options: Any) -> Any:
    """Returns the tokenizer of a pretrained model.

    Args:
        name: a folder or a name on the Hugging Face hub.
        options: options of ``from_pretrained``.

    Raises:
        ConfigError: it cannot be loaded, or has no vocabulary or no padding token.
    """
    with explained(name):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ConfigError(f"model='{name}' has no vocabulary: put its tokenizer's files into the folder.")
    if tokenizer.pad_token is None:
        raise ConfigError(f"model='{name}' has a tokenizer without a padding token, so sentences cannot be batched.")
    return tokenizer


def load_image_settings(name: str) -> dict[str, Any] | None:
    """Returns the contents of a pretrained model's ``preprocessor_config.json``, or None if there is no such file.

    Args:
        name: a folder or a name on the Hugging Face hub.

    Raises:
        ConfigError: the file is malformed.
    """
    with explained(name):
        try:
            return dict(ImageProcessingMixin.get_image_processor_dict(name)[0])
        except OSError as error:
            if isinstance(error.__context__, JSONDecodeError):
                raise
            return None


def load_sentence_transformer(name: str, device: str | torch.device = "cpu") -> Any:
    """Returns a SentenceTransformer that uses only modules of sentence-transformers; raises as `load_pretrained`."""
    from sentence_transformers import SentenceTransformer

    with explained(name):
        model = SentenceTransformer(name, device=str(device), trust_remote_code=False)
        listed = cached_file(name, "modules.json", _raise_exceptions_for_missing_entries=False)
        folders = [""] if listed is None else [each["path"] for each in json.loads(Path(listed).read_text(encoding="utf-8"))]
        for folder, module in zip(folders, model, strict=False):
            network = getattr(module, "auto_model", None)
            if isinstance(network, PreTrainedModel) and not hasattr(network, "peft_config"):
                # the library keeps no report of the weights; on the device "meta" they are not read again
                options: dict[str, Any] = {
                    "subfolder": folder,
                    "config": network.config,
                    "device_map": "meta",
                    "ignore_mismatched_sizes": True,
                }
                unread: Any = type(network).from_pretrained(name, output_loading_info=True, **options)
                _check_names(name, *unread)
    _check_finite(name, model)
    return model


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Converts the errors of loading a model to a ConfigError with a remedy; weights are read without running code.

    Args:
        name: name of the model, as given by the user.
    """
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with tensors_alone():
            yield
    except TempplugError:
        raise
    except Exception as error:  # the parsers of configurations, tokenizers and weights raise errors of every class
        raise ConfigError(f"model='{name}' cannot be loaded: {_reason(name, error)}") from error
    finally:
        logger.setLevel(level)


def _reason(name: str, error: Exception) -> str:
    """Returns the reason of an error and a remedy, without a library's advice to run the code of the model."""
    if "trust_remote_code" in str(error):
        return (
            "it needs Python code that comes with it, which is never run: give a model that transformers or "
            "sentence-transformers has the classes of."
        )
    if refused := why_refused(error):
        return f"its weights are refused: {refused}, or as model.safetensors."
    first = next(iter(str(error).splitlines()), type(error).__name__).rstrip(". ")
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in ("config.json", "modules.json")):
        first = "the folder has no config.json"
    elif "connect to 'https://huggingface.co'" in first:
        first = "no such folder, and the hub cannot be reached"
    return f"{first}. Give a folder with config.json, weights and tokenizer, or a name on the hub."
