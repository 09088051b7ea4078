"""``tempplug advise``: shows which temperature and strategy suit given pairs, and how sure that is."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tempplug.cli import printable
from tempplug.errors import ConfigError
from tempplug.parser import Parser
from tempplug.plugins import CommandInfo, registry

_EPOCHS, _EPOCHS_OF_DIGITS = 3.0, 8.0
_HIGHEST = 2.0
"""Above this a temperature is likely to be a scale."""

_SECONDS = 60.0
_EPILOG = """\
A small model is trained on the pairs at each temperature and at three learning rates: all of a static model; otherwise a linear
head on the embeddings of --model, which stay fixed, or on each matrix. A fifth of the pairs is held out, up to five times.
Accuracy is the share of held-out anchors whose positive is the most similar of those of all pairs. The answer is to change
the temperature, to keep it, or that more must be measured: 'cannot tell yet'.

The best temperature depends on the length of the training, so give --epochs. Two thirds of --time may go into
encoding, the rest into training; what does not fit is left out and said: first longer trainings, then repetitions, then pairs.
Encoding 2,000 pairs with MiniLM takes one to four minutes on a busy core; at least 500 are encoded however long it takes.

examples:
  tempplug advise pairs.jsonl --epochs 1 \\
      --model sentence-transformers/all-MiniLM-L6-v2
  tempplug advise pairs.jsonl --model DIR --current 0.02 --time 300
  tempplug advise triplets.csv --columns question answer wrong --model DIR
  tempplug advise images.npy captions.npy --strategies macl learnable individual
  tempplug advise                             handwritten digits, without files
"""


def main(arguments: list[str]) -> int:
    """Runs ``tempplug advise`` with the words after it and returns 0; raises TempplugError for invalid input."""
    if "--train" in arguments:
        registry().check_installed(registry().get(CommandInfo, "sweep"))  # it needs the same packages
        from tempplug_adapters.advise.train import main as train_and_advise

        return train_and_advise(arguments)
    parser = Parser(
        prog="tempplug advise",
        description="Show whether another temperature suits your pairs better than the one you train at, in about a minute.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "data",
        nargs="*",
        type=Path,
        metavar="DATA",
        help="a table of pairs or triplets (.jsonl, .csv, .tsv, .parquet …), or two matrices of embeddings (.npy or .pt)",
    )
    parser.add_argument("--model", metavar="DIR", help="sentence-transformers model that encodes the texts, a folder or a name")
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="WORD",
        help="role=column with the roles anchor, positive and negative, or names in this order (by their usual names)",
    )
    parser.add_argument("--where", nargs="+", default=[], metavar="WORD", help="conditions column=value that a row must meet")
    parser.add_argument("--min-score", type=float, metavar="N", help="lowest score or label of a positive pair")
    parser.add_argument(
        "--epochs",
        type=float,
        metavar="N",
        help=f"of your training, on all pairs of the data ({_EPOCHS:g}; digits {_EPOCHS_OF_DIGITS:g})",
    )
    parser.add_argument(
        "--current",
        type=float,
        metavar="T",
        help="temperature that you train at (texts 0.05, as sentence-transformers; else 0.1)",
    )
    parser.add_argument(
        "--time", type=float, default=_SECONDS, metavar="S", help=f"seconds in all, about; more measure more ({_SECONDS:g})"
    )
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="pairs per batch of your training (64)")
    parser.add_argument("--strategies", nargs="*", default=[], metavar="SPEC", help="strategies to measure beside temperatures")
    parser.add_argument("--max-pairs", type=int, default=2000, metavar="N", help="pairs used, chosen at random (2000)")
    parser.add_argument("--train", action="store_true", help="ask your own training command: see tempplug advise --train -h")
    parser.add_argument("--output", type=Path, default=Path("advice.html"), metavar="FILE", help="page, .html (advice.html)")
    options = parser.parse_args(arguments)
    if options.output.suffix.lower() != ".html":
        raise ConfigError(f"output={options.output} must end in .html.")
    if options.epochs is not None and not 0 < options.epochs < math.inf:
        raise ConfigError(f"epochs={options.epochs:g} must be a number greater than 0.")
    if options.batch_size < 2:
        raise ConfigError(f"batch_size={options.batch_size} must be at least 2: an anchor needs a negative.")
    if not 0 < options.time < math.inf:
        raise ConfigError(f"time={options.time:g} must be a number of seconds greater than 0.")
    current, whose = _current(options.current, texts=len(options.data) == 1)
    ends = time.monotonic() + options.time
    from tempplug_adapters.advise.advice import advise
    from tempplug_adapters.advise.page import can_draw, page, text
    from tempplug_adapters.advise.pairs import StaticModel, read_pairs
    from tempplug_adapters.advise.training import compared, train
    from tempplug_adapters.storage.files import make_folder, write_text

    specs = compared(options.strategies, current)
    make_folder(options.output.parent, "output")
    if not can_draw():
        print("note: matplotlib is not installed (extra 'advise'): the page will have no picture.", file=sys.stderr)
    progress = _progress()
    encoded_by = ends - options.time / 3
    pairs = read_pairs(
        options.data, options.model, options.columns, options.max_pairs, options.where, options.min_score, encoded_by, progress
    )
    print("\n".join(map(printable, [*pairs.read, f"compared with: {current:g}, {whose}"])), flush=True)
    epochs = options.epochs or (_EPOCHS if options.data else _EPOCHS_OF_DIGITS)
    planned = max(1, round(epochs * pairs.total / pairs.size))
    seconds = max(ends - time.monotonic(), options.time / 3)
    courses = train(pairs, specs, options.batch_size, planned, seconds, progress)
    alike = pairs.alike() if isinstance(pairs.trainee, StaticModel) else 0.0  # measured for these alone
    advice = advise(courses, planned, current, alike)
    print("\n".join(map(printable, text(pairs, courses, advice))), flush=True)
    write_text(options.output, page(pairs, courses, advice))
    print(printable(f"wrote {options.output}"))
    return 0


def _current(temperature: float | None, texts: bool) -> tuple[float, str]:
    """Returns the current temperature, and where it comes from, in words.

    Raises:
        ConfigError: the temperature is out of range.
    """
    from tempplug import Fixed
    from tempplug_adapters.sentence_transformers import LIBRARY_TEMPERATURE

    if temperature is None and texts:
        return LIBRARY_TEMPERATURE, "the default of sentence-transformers' MultipleNegativesRankingLoss (--current gives yours)"
    if temperature is None:
        return Fixed().temperature, "the default of tempplug's `fixed` (--current gives yours)"
    if not 0 < temperature <= _HIGHEST:
        is_scale = _HIGHEST < temperature < math.inf
        meant = f": a scale of {temperature:g} is the temperature {1 / temperature:g}" if is_scale else ""
        raise ConfigError(f"current={temperature:g} must be a temperature above 0, at most {_HIGHEST:g}{meant}.")
    return temperature, "your temperature"


def _progress() -> Callable[[str], None]:
    """Returns a function that writes to stderr how far the command is, every ten seconds; on a terminal each second."""
    terminal = sys.stderr.isatty()
    shown = time.monotonic()

    def show(words: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= (1 if terminal else 10):
            shown = time.monotonic()
            print(words, file=sys.stderr, flush=True)

    return show
