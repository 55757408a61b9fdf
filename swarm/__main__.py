"""Run the command `swarm`, from a checkout or from an installed package."""

import os
import sys

# started as a file: this folder is on the path, and its `queue` would hide the standard
# library's
if not __package__:
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [
        os.path.dirname(_here),
        *(entry for entry in sys.path if not entry or os.path.abspath(entry) != _here),
    ]

from swarm.cli.start import start

if __name__ == "__main__":
    start()
