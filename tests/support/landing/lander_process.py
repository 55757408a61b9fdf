"""A lander in a process of its own: `python lander_process.py ROOT NAME TTL`.

It lands what waits, and ends when nothing waits or it lost its lock.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.landing.project import Landing


def main(root: str, name: str, ttl: str) -> None:
    landing = Landing(Path(root), check=("test -e base.txt",))
    landing.lander(name, ttl=float(ttl)).run_line()


if __name__ == "__main__":
    main(*sys.argv[1:])
