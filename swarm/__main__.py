"""The command `swarm`, from a checkout as well as installed."""

import sys

if sys.version_info < (3, 11):
    sys.exit("Error: swarm needs Python 3.11 or newer; this is %d.%d. Put a newer python3 first in PATH." % sys.version_info[:2])
if sys.platform == "win32":
    sys.exit("Error: swarm does not run on Windows: it needs a POSIX filesystem. Use WSL.")

if not __package__:  # started as a file, as the scripts do: nothing of the working directory is on the path
    from os.path import abspath, dirname

    sys.path.insert(0, dirname(dirname(abspath(__file__))))

from swarm.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
