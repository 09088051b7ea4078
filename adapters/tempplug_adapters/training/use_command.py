"""``tempplug embed``, and functions for all commands on an output folder: parse flags, open it, read data.

Frameworks are imported only after the flags are parsed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempplug.errors import ConfigError, MissingDependencyError, install_command
from tempplug.parser import Parser
from tempplug_adapters.ending import ending
from tempplug_adapters.quoting import shell_word
from tempplug_adapters.storage.files import make_folder, write_file
from tempplug_adapters.training.flags import device_flag

if TYPE_CHECKING:
    from torch import Tensor

    from tempplug_adapters.training.method import Inputs
    from tempplug_adapters.training.trained import Trained

FORMATS = (".npy", ".parquet")
_SHOW = {
    ".npy": "import numpy; print(numpy.load({file!r}).shape)",
    ".parquet": "import pyarrow.parquet as p; print(p.read_table({file!r}))",
}


def trained_parser(command: str, description: str, *words: tuple[str, dict[str, Any]], data: bool = True) -> Parser:
    """Returns the parser of a command on an output folder.

    Args:
        command: its words.
        description: what it does.
        *words: further flags with argparse's options.
        data: whether it reads data, whose folder is a flag.
    """
    parser = Parser(prog=f"tempplug {command}", description=description)
    parser.add_argument("folder", metavar="DIR", help="output folder of a `tempplug train` that has ended")
    for flag, options in words:
        parser.add_argument(flag, **options)
    if data:
        parser.add_argument("--data-dir", metavar="DIR", help="folder of real data (default: TEMPPLUG_DATA)")
    parser.add_argument("--trust", action="store_true", help="import a MODULE:NAME that the folder names; it runs code")
    parser.add_argument("--device", **device_flag())
    return parser


def open_folder(options: argparse.Namespace, kind: str = "") -> Trained:
    """Returns the trained encoder of a command, on its device; ``kind`` is a method of `Method` that the command calls."""
    from tempplug_adapters.training.command_line import choose_device
    from tempplug_adapters.training.trained import load

    trained = load(options.folder, trust=options.trust).to(choose_device(options.device))
    if kind and not hasattr(trained.method, kind):
        name = trained.method.info.name
        raise ConfigError(
            f"{options.folder} was trained by {name}, which has no `tempplug {kind}`: `tempplug embed` has vectors."
        )
    return trained


def read_inputs(trained: Trained, word: str, options: argparse.Namespace) -> Any:
    """Returns the inputs that a word on the command line names, see `Method.read`."""
    from tempplug_adapters.training.command_line import data_folder
    from tempplug_adapters.training.method import Source

    source = Source(word, data_folder(options.data_dir), trained.folder / "data", evaluated=False)
    columns = getattr(options, "columns", None)
    recipe = trained.recipe.changed(columns=tuple(columns)) if columns else trained.recipe
    return trained.method.read(recipe, source, options.split)


SPLIT = ("--split", {"choices": ("train", "test"), "default": "test", "help": "of a data set of images (default: test)"})


def embed(arguments: list[str]) -> int:
    """Runs ``tempplug embed`` on the words after it, and returns its exit status."""
    output = {"type": Path, "required": True, "metavar": "FILE", "help": "vectors.npy, or vectors.parquet with names"}
    what = "texts (.txt, tables), images (files, folders, data sets), a graph or graphs, SMILES, or a table of interactions"
    parser = trained_parser(
        "embed",
        "Write the vectors that a trained encoder has for data.",
        ("data", {"help": what}),
        ("--output", output),
        SPLIT,
        (
            "--columns",
            {"nargs": "+", "metavar": "WORD", "help": "of a table, as for the training (default: those of the training)"},
        ),
    )
    options = parser.parse_args(arguments)
    file: Path = options.output
    if file.suffix not in FORMATS:
        raise ConfigError(f"output={file} must end in {' or '.join(FORMATS)}.")
    make_folder(file.resolve().parent, "output")
    from tempplug_adapters.training.command_line import quietly  # imports torch, which --help does not need

    with quietly():
        trained = open_folder(options)
        inputs = read_inputs(trained, options.data, options)
        vectors = trained.embed(inputs.given)
    _write_vectors(file, vectors, inputs)
    order = f"{len(vectors)} vectors of {vectors.shape[1]} numbers, in the order of {options.data}"
    said = [order, *inputs.notes, f"wrote {file}"]
    show = _SHOW[file.suffix].format(file=str(file))
    quoted = shell_word(show) if set(show) & set('"$`\\!') else f'"{show}"'
    print(ending(said, {}, f"python -c {quoted}"))
    return 0


def _write_vectors(file: Path, vectors: Tensor, inputs: Inputs) -> None:
    import numpy as np

    if file.suffix == ".npy":

        def write(temporary: Path) -> None:
            with temporary.open("wb") as stream:  # given a path, NumPy would add a suffix
                np.save(stream, vectors.numpy())

        write_file(file, write)
        return
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(f"output={file} needs the package 'pyarrow': {install_command('graph')}.") from error
    flat = pyarrow.array(vectors.numpy().reshape(-1))
    named = {} if inputs.names is None else {"name": pyarrow.array(list(map(str, inputs.names)))}
    more = {name: pyarrow.array(list(values)) for name, values in inputs.columns.items()}
    table = pyarrow.table({**more, **named, "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})
    write_file(file, lambda temporary: parquet.write_table(table, temporary))
