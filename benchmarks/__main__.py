"""`python -m benchmarks [--rounds N] [--only TEXT]`: eqopt against optax."""

import argparse
import sys

from .measure import Timings, compare, our_step, projection_step, their_step
from .pairs import LARGE, MANY, MODEL, PAIRS, PROJECTIONS, TREES, WRAPPERS, Pair, ProjectionPair

HEADER = (
    f"{'optimizer':16} {'tree':24} {'step':>6} {'target':>7} {'lower':>6} {'target':>7} "
    f"{'compile':>8} {'temporary MB':>14} {'state MB':>12}  verdict"
)

# Bytes beyond optax's that are a few scalars, no array of the tree.
SCALARS = 4096


def _row(name: str, tree: str, pair: Pair | ProjectionPair, ours: Timings, theirs: Timings) -> bool:
    step, lower = ours.step / theirs.step, ours.lower / theirs.lower
    step_target = pair.step if tree not in (MANY, MODEL) else None
    lower_target = pair.tracing if tree == MANY else None
    good = (
        (step_target is None or step <= step_target)
        and (lower_target is None or lower <= lower_target)
        and (pair.compile is None or ours.compile <= pair.compile * theirs.compile)
        and (tree != LARGE or ours.temporary <= theirs.temporary + SCALARS)
    )
    print(
        f"{name:16} {tree:24} {step:6.2f} {step_target or '':>7} {lower:6.2f} "
        f"{lower_target or '':>7} {ours.compile / theirs.compile:8.2f} "
        f"{ours.temporary / 1e6:6.1f} /{theirs.temporary / 1e6:6.1f} "
        f"{ours.state / 1e6:5.1f} /{theirs.state / 1e6:5.1f}  {'met' if good else 'MISSED'}",
        flush=True,
    )
    return good


def main() -> int:
    """Prints a line for each optimizer or projection and tree; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds of stepping")
    parser.add_argument("--compiles", type=int, default=5, help="interleaved rounds of compiling")
    parser.add_argument("--only", default="", help="optimizers whose name contains this")
    parser.add_argument("--tree", default="", help="trees whose name contains this")
    arguments = parser.parse_args()
    print("Ratios of medians, eqopt / optax; below 1 is faster. Memory as eqopt / optax.")
    print(HEADER)
    results = []
    for name, pair in (PAIRS | WRAPPERS | PROJECTIONS).items():
        if arguments.only not in name:
            continue
        for tree in pair.trees:
            if arguments.tree not in tree:
                continue
            if isinstance(pair, ProjectionPair):
                steps = [projection_step(pair.ours), projection_step(pair.theirs)]
                inits = [lambda params: None] * 2
            else:
                steps = [our_step(pair.ours), their_step(pair.theirs)]
                inits = [pair.ours.init, pair.theirs.init]
            together = pair.together if isinstance(pair, Pair) else 1
            numbers = (arguments.rounds, arguments.compiles, together)
            ours, theirs = compare(steps, inits, TREES[tree], *numbers)
            results.append(_row(name, tree, pair, ours, theirs))
    print(f"{sum(results)} of {len(results)} rows met their targets")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
