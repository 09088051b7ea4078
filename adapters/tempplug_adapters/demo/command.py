"""``tempplug demo``: shows the temperatures of each strategy on given embeddings, in one sentence and one plot."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tempplug.errors import ConfigError, TempplugError

if TYPE_CHECKING:
    from tempplug_adapters.demo.effects import Effect, Pairs

ROWS = 512
_MATTERS = 2.0
"""The temperature matters if the effective numbers of negatives differ by more than this factor."""

_EPILOG = """\
All pairs are one batch: row i of VIEW_A is an anchor, row i of VIEW_B its positive, every other row of VIEW_B a negative.
The results depend on the number of negatives, so --rows should be the batch size of your training.

  temperature          learned temperatures are first trained on these pairs for 60 steps, with fixed embeddings
  on the hardest       share of the gradient of the negatives that the hardest hundredth of them has
  negatives that count effective number of negatives: exp of the entropy of their shares of an anchor's gradient
  gradient scale       1 - probability of the positive; near 0, a pair has no gradient any more

example: tempplug demo anchors.npy positives.npy --strategies fixed:temperature=0.05 macl temperature-free
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns 0.

    Args:
        arguments: command-line arguments after ``tempplug demo``; None uses those of the process.

    Raises:
        TempplugError: the input is invalid.
    """
    parser = argparse.ArgumentParser(
        prog="tempplug demo",
        description="Show which temperature each strategy would use on your embeddings, and what it does to the gradient.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "views",
        nargs="*",
        type=Path,
        metavar="VIEW_A VIEW_B",
        help="two files with a matrix [N, D] each: .npy, .pt or text; without them, pairs are generated",
    )
    parser.add_argument("--labels", type=Path, metavar="FILE", help="class of each pair, [N] from 0")
    parser.add_argument("--strategies", nargs="+", metavar="SPEC", help="strategies (default: all, without options)")
    parser.add_argument(
        "--contrastive-negatives",
        "--contrastive_negatives",
        metavar="SPEC",
        help="terms on negatives, joined by + (default: none); same-key compares the classes of --labels",
    )
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"pairs of the batch ({ROWS})")
    parser.add_argument("--out", type=Path, default=Path("demo.svg"), metavar="FILE", help="picture, .svg (demo.svg)")
    options = parser.parse_args(arguments)
    if options.out.suffix.lower() != ".svg":
        raise ConfigError(f"out={options.out} of a demo must end in .svg.")
    if len(options.views) not in (0, 2):
        raise ConfigError(f"VIEW_A={options.views[0]} must come with VIEW_B alone: two files, or none for generated pairs.")
    from tempplug_adapters.demo.effects import Pairs, default_specs, effects, generate_pairs, read_labels, read_pairs
    from tempplug_adapters.demo.picture import bars, draw
    from tempplug_adapters.storage.files import write_text

    if options.views:
        view_a, view_b, chosen, total = read_pairs(options.views[0], options.views[1], options.rows)
        labels = None if options.labels is None else read_labels(options.labels, total)[chosen]
        origin = f"{len(chosen):,} of {total:,} pairs" if total > len(chosen) else f"{total:,} pairs"
    elif options.labels is None:
        view_a, view_b = generate_pairs(options.rows)
        labels, origin = None, f"{options.rows:,} generated pairs"
    else:
        raise ConfigError(f"labels={options.labels} goes with VIEW_A and VIEW_B, whose rows have these classes.")
    pairs = Pairs.of(view_a, view_b, labels)
    if options.contrastive_negatives is not None:
        pairs = pairs.with_negatives(options.contrastive_negatives)
    found: list[Effect] = []
    left_out: list[str] = []
    for spec in options.strategies or default_specs():
        try:
            found += effects(spec, pairs)
        except TempplugError as error:
            if options.strategies:
                raise
            left_out.append(f"not shown: {error}")
    said = sentence(origin, pairs, found)
    negatives = len(pairs.view_a) - 1
    write_text(options.out, draw(found, negatives, said))
    print("\n".join([said, "", *bars(found, negatives), "", *left_out]))
    print(f"wrote {options.out}; `tempplug demo -h` explains the columns")
    return 0


def sentence(origin: str, pairs: Pairs, found: Sequence[Effect]) -> str:
    """Summarises the plot in one sentence.

    Args:
        origin: description of the pairs.
        pairs: the batch.
        found: effects of strategies, at least one.
    """
    similarities = (
        f"positives at similarity {float(pairs.positives.mean()):.2f}, an anchor's hardest negative at "
        f"{float(pairs.negatives.amax(dim=1).mean()):.2f}"
    )
    count = pairs.negatives.shape[1]
    few, many = (choose(found, key=lambda each: each.effective) for choose in (min, max))
    if few is many:
        takes = f"takes the gradient from {few.effective:.3g} of {count} negatives"
        uses = f"{few.label} has the temperature {few.mean:.2g} and {takes}"
    else:
        matters = "it matters" if many.effective > _MATTERS * few.effective else "it hardly matters"
        uses = (
            f"{matters} which temperature you use: {few.label} ({few.mean:.2g}) takes the gradient from {few.effective:.3g} of "
            f"{count} negatives, {many.label} ({many.mean:.2g}) from {many.effective:.3g}"
        )
    return f"On {origin} as one batch ({similarities}), {uses}.{_of_terms(pairs)}"


def _of_terms(pairs: Pairs) -> str:
    """Returns a sentence about the terms on negatives, nothing where there are none."""
    if pairs.term is None:
        return ""
    of_negatives = pairs.term.flatten()[1:].view(len(pairs.term) - 1, -1)[:, :-1]
    left_out = of_negatives.isinf()
    others = of_negatives[~left_out].exp()
    weight = f", and the others have a mean weight of {float(others.mean()):.3g}" if len(others) else ""
    names = " and ".join(each.name for each in pairs.terms)
    return f" By {names}, {float(left_out.float().mean()):.1%} of the negatives are left out{weight}."
