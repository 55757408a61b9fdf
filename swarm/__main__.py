"""The command `swarm`, from a checkout as well as installed."""

import os
import sys

if sys.version_info < (3, 11):
    sys.exit("Error: swarm needs Python 3.11 or newer; this is %d.%d. Put a newer python3 first in PATH." % sys.version_info[:2])
if sys.platform == "win32":
    sys.exit("Error: swarm does not run on Windows: it needs a POSIX filesystem. Use WSL.")

if not __package__:  # started as a file, as the scripts do: nothing of the working directory is on the path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def start() -> int:
    """Makes the ground safe, then runs the command."""
    while (spare := os.open("/dev/null", os.O_RDONLY)) <= 2:
        pass  # a closed standard stream: its number must not go to a file that we write to
    os.close(spare)
    if sys.getfilesystemencoding() != "utf-8":  # names of files and what is printed are UTF-8, whatever the locale
        os.execv(sys.executable, [sys.executable, "-Xutf8", *sys.orig_argv[1:]])
    try:
        from swarm.cli import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(start())
