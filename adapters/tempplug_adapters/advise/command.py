"""``tempplug advise``: shows which temperature and strategy suit given pairs, and how sure that is."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from tempplug.cli import printable
from tempplug.errors import ConfigError
from tempplug.parser import Parser

_EPOCHS, _EPOCHS_OF_DIGITS = 3.0, 16.0

_EPILOG = """\
A small model is trained on the pairs with each temperature and strategy: all of a static model; otherwise a linear head on the
embeddings of --model, which stay fixed, or on each matrix. A fifth of the pairs is held out, twice. Accuracy is the share of
held-out anchors whose positive is the most similar of all held-out candidates. Training goes on until the best accuracy has
stopped rising, and each doubling of its length is measured: the best temperature depends on the length, so give --epochs.

examples:
  tempplug advise pairs.jsonl --epochs 1 \\
      --model sentence-transformers/all-MiniLM-L6-v2
  tempplug advise triplets.csv --columns question answer wrong --model DIR
  tempplug advise images.npy captions.npy --strategies macl learnable individual
  tempplug advise                             handwritten digits, without files
"""


def main(arguments: list[str]) -> int:
    """Runs ``tempplug advise`` with the words after it and returns 0; raises TempplugError for invalid input."""
    parser = Parser(
        prog="tempplug advise",
        description="Show which temperature and strategy suit your pairs, and how sure that is, in about a minute.",
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
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="pairs per batch of your training (64)")
    parser.add_argument("--strategies", nargs="*", metavar="SPEC", help="beside fixed temperatures (default: those below)")
    parser.add_argument("--max-pairs", type=int, default=2000, metavar="N", help="pairs used, chosen at random (2000)")
    parser.add_argument("--output", type=Path, default=Path("advice.html"), metavar="FILE", help="page, .html (advice.html)")
    options = parser.parse_args(arguments)
    if options.output.suffix.lower() != ".html":
        raise ConfigError(f"output={options.output} must end in .html.")
    if options.epochs is not None and not 0 < options.epochs < math.inf:
        raise ConfigError(f"epochs={options.epochs:g} must be a number greater than 0.")
    if options.batch_size < 2:
        raise ConfigError(f"batch_size={options.batch_size} must be at least 2: an anchor needs a negative.")
    from tempplug_adapters.advise.advice import advise
    from tempplug_adapters.advise.page import page, text
    from tempplug_adapters.advise.pairs import StaticModel, read_pairs
    from tempplug_adapters.advise.training import compared, train
    from tempplug_adapters.storage.files import make_folder, write_text

    specs = compared(options.strategies)
    make_folder(options.output.parent, "output")
    pairs = read_pairs(options.data, options.model, options.columns, options.max_pairs, options.where, options.min_score)
    for line in pairs.read:
        print(line)
    epochs = options.epochs or (_EPOCHS if options.data else _EPOCHS_OF_DIGITS)
    planned = max(1, round(epochs * pairs.total / pairs.size))
    courses = train(pairs, specs, options.batch_size, planned, _progress if sys.stderr.isatty() else None)
    alike = pairs.alike() if isinstance(pairs.trainee, StaticModel) else 0.0  # measured for these alone
    advice = advise(courses, planned, alike)
    write_text(options.output, page(pairs, courses, advice))
    print("\n".join(map(printable, [*text(pairs, courses, advice), f"wrote {options.output}"])))
    return 0


def _progress(epochs: int) -> None:
    print(f"trained for {epochs} epochs", file=sys.stderr)
