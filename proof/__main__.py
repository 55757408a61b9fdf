"""`python -m proof [--short] [PART…]`: runs the proof, or parts of it, and prints a table. Exits with 1 if something fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from proof import chaos, interleavings, mutation, suites
from proof.report import Report

PARTS: dict[str, Callable[..., None]] = {
    "interleavings": interleavings.prove,
    "processes": chaos.prove,
    "input": suites.prove_input,
    "ground": suites.prove_ground,
    "mutation": mutation.prove,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proof", description="Shows that a task never has two holders and no record is lost."
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=f"{', '.join(PARTS)}; all of them if none is named"
    )
    parser.add_argument("--short", action="store_true", help="the short form of each part")
    args = parser.parse_args()
    report = Report()
    try:
        for part in args.parts or PARTS:
            PARTS[part](report, short=args.short)
    except KeyboardInterrupt:
        report.say("interrupted")
        return 130
    finally:
        if report.rows:
            print(report.table())
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
