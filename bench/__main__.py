"""`make bench`: run every measurement, or the named measurements.

Exit with 1 if a goal was missed.
"""

from __future__ import annotations

import shutil
import sys

from bench import (
    carries,
    growth,
    landing,
    locks,
    log,
    queue,
    reading,
    slots,
    startup,
    stores,
    workspaces,
)
from bench.peers import missing
from bench.report import Report

_PARTS = {
    "startup": startup,
    "locks": locks,
    "slots": slots,
    "log": log,
    "reading": reading,
    "queue": queue,
    "workspaces": workspaces,
    "landing": landing,
    "growth": growth,
}
# docs/design/store-performance.md has the figures of these parts
_SERVERS = {"stores": stores, "carries": carries}

if __name__ == "__main__":
    wanted = sys.argv[1:] or [*_PARTS, *_SERVERS]
    if unknown := [name for name in wanted if name not in {**_PARTS, **_SERVERS}]:
        sys.exit(f"{unknown[0]} is not measured: choose from {' '.join([*_PARTS, *_SERVERS])}")
    if absent := missing() + [tool for tool in ("grep", "jq") if not shutil.which(tool)]:
        sys.exit(f"Cannot measure without {', '.join(absent)}. Run: make bench")
    met = True
    for name in wanted:
        if name in _SERVERS:
            met &= _SERVERS[name].run()
        else:
            report = Report(name)
            _PARTS[name].run(report)
            report.store()
            met &= report.met
    sys.exit(0 if met else 1)
