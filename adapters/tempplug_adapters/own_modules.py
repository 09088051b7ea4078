"""Imports modules of the user, ``MODULE:NAME`` with keyword arguments, and constructs them with values of the training.

All methods use it for encoders, backbones and augmentations; each method checks what they return.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from tempplug.arguments import parse_options
from tempplug.errors import ConfigError, ShapeError, nearest
from tempplug_adapters.modes import evaluating
from tempplug_adapters.storage.files import one_line

T = TypeVar("T")
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def find(word: str, option: str) -> Any:
    """Returns the object ``module:name``; modules are also searched in the working directory.

    Args:
        word: ``module:name``, or ``module:name:key=value,key=value``, whose values are as in spec strings.
        option: its name in messages.

    Returns:
        The object; with keyword arguments, a `functools.partial` of it.

    Raises:
        ConfigError: there is no such module or name, its import fails, or it is a function that is not written in Python.
    """
    module, _, rest = word.partition(":")
    name, _, options = rest.partition(":")
    if not module or not name:
        raise ConfigError(
            f"{option}='{word}' must be MODULE:NAME or MODULE:NAME:key=value,key=value, such as "
            "torch_geometric.nn:GAT:heads=4 or my_module:MyEncoder."
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module of the user's can raise anything
        raise ConfigError(f"{option}='{word}' cannot be imported: {type(error).__name__}: {one_line(error)}") from error
    finally:
        sys.path.remove(here)
    if inspect.isbuiltin(found):  # such as os:system, which must not be called
        raise ConfigError(f"{option}='{word}' is a built-in function: name a module, a class or a function written in Python.")
    return partial(found, **parse_options(options.split(","))) if options else found


def trial(module: nn.Module, run: Callable[[], T], contract: str) -> T:
    """Returns what a call of a user's encoder returns in evaluation mode, without gradients.

    Args:
        module: the encoder.
        run: calls it with inputs like those of the training.
        contract: what it must take and return, for the message.

    Raises:
        ShapeError: it returns another shape, as ``run`` says.
        ConfigError: it cannot run.
    """
    try:
        with torch.no_grad(), evaluating(module):
            return run()
    except ShapeError:
        raise
    except Exception as error:  # the user's own code can raise anything
        raise ConfigError(f"encoder {type(module).__name__} cannot run ({one_line(error)}); {contract}.") from error


def create_module(
    given: Any, option: str, known: Mapping[str, Any], *, first: str = "", needed: Mapping[str, Any] | None = None
) -> nn.Module:
    """Returns a copy of a module, or the result of a class or function.

    Args:
        given: a module, a class or a function, or what `find` returned.
        option: its name in messages, ``encoder`` or ``backbone``.
        known: values by name; those that it takes as arguments are passed.
        first: name of the value that is passed as its first required argument if it has no argument of that name.
        needed: further values, passed for arguments without a default.

    Raises:
        ConfigError: it is none of these, requires other arguments, or raises an error.
    """
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    own = given.func if isinstance(given, partial) else given
    called = getattr(own, "__name__", repr(own))
    if not callable(own) or isinstance(own, nn.Module) or (inspect.isclass(own) and not issubclass(own, nn.Module)):
        raise ConfigError(f"{option} {called} must be a module, or a class or function that makes one.")
    wanted = inspect.signature(own).parameters
    stated = dict(given.keywords) if isinstance(given, partial) else {}
    if not any(each.kind == inspect.Parameter.VAR_KEYWORD for each in wanted.values()):
        for name in stated.keys() - wanted.keys():
            takes = ", ".join(wanted) or "none"
            raise ConfigError(f"{option} {called} has no argument '{name}'.{nearest(name, wanted)} It takes: {takes}.")
    required = [name for name, each in wanted.items() if each.default is each.empty and each.kind not in _ANY_NUMBER]
    options = {name: value for name, value in known.items() if name in wanted} | stated
    options |= {name: value for name, value in (needed or {}).items() if name in required and name not in stated}
    if first and first not in wanted and required and required[0] not in options:
        options[required[0]] = known[first]
    if missing := [name for name in required if name not in options]:
        raise ConfigError(
            f"{option} {called} needs {', '.join(missing)}: give them as MODULE:NAME:{missing[0]}=VALUE, or name a function "
            f"that makes it. Known are {', '.join([*known, *(needed or {})]) or 'none'}."
        )
    try:
        made = own(**options)
    except Exception as error:  # the user's own code can raise anything
        said = ", ".join(f"{name}={value}" for name, value in options.items() if isinstance(value, int | float | str))
        raise ConfigError(f"{option} {called}({said}) cannot be made: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{option} {called} must make a torch.nn.Module, not {type(made).__name__}.")
    return made
