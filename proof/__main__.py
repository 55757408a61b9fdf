"""Run the proof, or parts of it, and print a table: `python -m proof [--short]
[PART…]`. Exit with 1 if a row of the table does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from proof import (
    chaos,
    cluster_chaos,
    every_line,
    interleavings,
    mutation,
    queue_explorer,
    server_chaos,
    slot_explorer,
    suites,
)
from proof.landing import parts as landing
from proof.random_depth import run_seeds
from proof.report import Report

PARTS: dict[str, Callable[..., None]] = {
    "interleavings": interleavings.prove,
    "claims": queue_explorer.prove,
    "slots": slot_explorer.prove,
    "lines": every_line.prove,
    "processes": chaos.prove,
    **{name.lower(): partial(server_chaos.prove, name) for name in server_chaos.SERVERS},
    "cluster": cluster_chaos.prove,
    "landing": landing.prove,
    "input": suites.prove_input,
    "faults": suites.prove_faults,
    "mutation": mutation.prove,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proof",
        description="Shows that no task has two holders, and that no record and no work is lost.",
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them if none is named"
    )
    parser.add_argument("--short", action="store_true", help="the short form of each part")
    parser.add_argument(
        "--seed", type=int, help="replay a random run that failed, and nothing else"
    )
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    try:
        return (
            replay(args.seed)
            if args.seed is not None
            else prove(args.parts or list(PARTS), short=args.short)
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def prove(parts: list[str], *, short: bool) -> int:
    report = Report()
    try:
        for part in parts:
            PARTS[part](report, short=short)
    finally:
        print(report.table())
    return 0 if report.held else 1


def replay(seed: int) -> int:
    failed = run_seeds(range(seed, seed + 1)).failed
    if failed is None:
        print(f"Seed {seed} breaks no promise.")
        return 0
    print(f"Seed {seed}: {failed[1].violation}", *failed[1].trace, sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
