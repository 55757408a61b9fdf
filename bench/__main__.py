"""`make bench`: every measurement; exit 1 if a goal was missed."""

from __future__ import annotations

import sys

from bench import locks, queue, startup, view

if __name__ == "__main__":
    met = [part.run() for part in (startup, locks, queue, view)]
    sys.exit(0 if all(met) else 1)
