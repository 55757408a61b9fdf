"""`make bench`: every measurement, or those that are named; exit 1 if a goal was missed."""

from __future__ import annotations

import sys

from bench import carries, locks, queue, startup, stores, view

_PARTS = {"startup": startup, "locks": locks, "queue": queue, "view": view, "stores": stores, "carries": carries}

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(_PARTS)
    if unknown := [name for name in wanted if name not in _PARTS]:
        sys.exit(f"{unknown[0]} is not measured: choose from {' '.join(_PARTS)}")
    met = [_PARTS[name].run() for name in wanted]
    sys.exit(0 if all(met) else 1)
