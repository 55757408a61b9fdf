"""The command `swarm`, from a checkout as well as installed."""

import os
import sys

if not __package__:  # started as a file: nothing of the working directory is on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from swarm.start import start

if __name__ == "__main__":
    start()
