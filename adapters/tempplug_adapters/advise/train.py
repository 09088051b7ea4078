"""``tempplug advise --train``: asks with the user's own training whether another temperature is better than the current one.

The search halves the candidates, and its budget is trainings of full length: after each seed the better half stays. Candidates
are never compared by shortened trainings, because the order of temperatures changes with the length. The last one and the
current one are then trained with new seeds, and the verdict rests on these alone, because a winner looks better on the
seeds that chose it than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from tempplug.errors import ConfigError, DataError
from tempplug.parser import Parser
from tempplug_adapters.sweep.command import COMMAND, add_comparison, comparison
from tempplug_adapters.sweep.report import report
from tempplug_adapters.sweep.runs import Candidate, Trainings

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
CONFIRM = 5
FIRST_NEW_SEED = 100
"""Seeds from here on confirm; the candidates are chosen with those from 0."""
_EPILOG = f"""\
{COMMAND}
  tempplug advise --train --command "python train.py --seed {{seed}} --temperature-strategy {{strategy}}" \\
      --metric accuracy --current 0.05 --output search

Each training has its full length: short ones mislead, because the best temperature changes with the length. All candidates are
trained with seed 0, the better half of them also with seed 1, and so on until one is left. That one and the current one are
then trained with --confirm new seeds, and the verdict rests on these alone. The number of trainings is printed first; the same
command continues after an interruption. DIR/search.json has the numbers, DIR/search.svg is the plot.
"""


def main(arguments: list[str]) -> int:
    """Runs ``tempplug advise --train`` with the words after ``advise`` and returns 0, or 1 if a run failed.

    Raises:
        TempplugError: the input is invalid, a finished run belongs to another command, or the first run lacks the metric.
        KeyboardInterrupt: the command was interrupted; the message says what was kept.
    """
    parser = Parser(
        prog="tempplug advise --train",
        description="Find out with your own training command whether another temperature is better than yours.",
        epilog=_EPILOG,
    )
    parser.add_argument("--train", action="store_true", help="run your training command instead of a small model")
    add_comparison(parser, TEMPERATURES, ())
    parser.add_argument("--current", required=True, metavar="T", help="the temperature or strategy that you train with")
    parser.add_argument(
        "--confirm", type=int, default=CONFIRM, metavar="N", help=f"new seeds for the verdict ({CONFIRM}), at least 2"
    )
    options = parser.parse_args(arguments)
    if "{seed}" not in options.command:
        raise ConfigError(f"command={options.command!r} must have {{seed}}: without seeds, noise cannot be told from a gain.")
    if options.confirm < 2:
        raise ConfigError(f"confirm={options.confirm} must be at least 2: one seed cannot tell noise from a gain.")
    if options.metric.endswith("loss") and not options.lower_is_better:
        raise ConfigError(
            f"metric={options.metric} must not depend on the temperature, as a contrastive loss does: choose another metric; "
            "for a loss of the task, add --lower-is-better."
        )
    compared, current = comparison(options, TEMPERATURES, ())
    challengers = [candidate for candidate in compared if candidate != current]
    if current is None or not challengers:
        raise ConfigError(f"temperatures={options.current} has nothing to compare with: name another temperature.")
    rounds = _rounds(len(challengers))
    planned = sum(size + 1 for size in rounds) + 2 * options.confirm
    trainings = Trainings(options.command, options.metric, options.output, planned)
    print(
        f"{planned} trainings of full length: {' + '.join(str(size + 1) for size in rounds) or 'none'} to choose, "
        f"2 x {options.confirm} to confirm the choice with new seeds."
    )

    def work() -> None:
        decisive = search(trainings, challengers, current, options.confirm, options.lower_is_better)
        last = FIRST_NEW_SEED + options.confirm - 1
        note = f", and rests on seeds {FIRST_NEW_SEED} to {last} alone, which chose nothing"
        report(trainings, decisive, current, options.lower_is_better, "search", note)

    return trainings.conduct(work)


def search(
    trainings: Trainings, challengers: Sequence[Candidate], current: Candidate, confirm: int, lower_is_better: bool = False
) -> dict[Candidate, dict[int | None, float]]:
    """Returns the metrics that decide, by new seed, of the current one and of the last challenger, after all trainings.

    Args:
        trainings: gets the metrics of all runs.
        challengers: what could replace the current one.
        current: trained with every seed.
        confirm: number of new seeds for the last challenger and the current one.
        lower_is_better: of the metric.

    Raises:
        DataError: with one seed, the trainings of all challengers failed.
    """
    for seed, size in enumerate(_rounds(len(challengers))):
        for candidate in (current, *challengers):
            trainings.measure(candidate, seed)
        trained = [candidate for candidate in challengers if seed in trainings.values.get(candidate, {})]
        if not trained:
            raise DataError(f"with seed {seed}, the trainings of all that could replace {current.label} failed.")
        trained.sort(key=lambda candidate: mean(trainings.values[candidate].values()), reverse=not lower_is_better)
        challengers = trained[: size // 2]
    new_seeds = range(FIRST_NEW_SEED, FIRST_NEW_SEED + confirm)
    finalists = (current, challengers[0])
    for seed in new_seeds:
        for candidate in finalists:
            trainings.measure(candidate, seed)
    return {
        candidate: {seed: value for seed, value in trainings.values.get(candidate, {}).items() if seed in new_seeds}
        for candidate in finalists
    }


def _rounds(challengers: int) -> list[int]:
    """Returns how many challengers are trained with each seed until one is left.

    >>> _rounds(6)
    [6, 3]
    """
    sizes = []
    while challengers > 1:
        sizes.append(challengers)
        challengers //= 2
    return sizes
