"""A program `git` that comes first in the PATH of a worker, and disturbs it.

The wrapper counts the git commands of the worker. Before command number AT it acts:

- `kill`: it kills the worker, and the command is never run;
- `orphan`: it kills the worker, and the command runs all the same, as git does when its
  parent dies;
- `stop`: it stops the worker, says so in the file `reached`, waits for the file `go`,
  wakes the worker and runs the command.

With `pattern` instead of a number, it acts before the first command whose words have the
pattern in them. A wrapper may also change what git is told; see `controls`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

KILL, ORPHAN, STOP = "kill", "orphan", "stop"

_SCRIPT = """#!/bin/sh
# the commands of one worker, one byte each
printf . >>'{directory}/count'
number=$(stat -c %s '{directory}/count')
words="$*"
due() {{
  [ ! -e '{directory}/acted' ] || return 1
  if [ {at} -gt 0 ]; then [ "$number" -eq {at} ]; return; fi
  case "$words" in *'{pattern}'*) return 0 ;; *) return 1 ;; esac
}}
if due; then
  : >'{directory}/acted'
  echo "$words" >'{directory}/words'
  case '{action}' in
  kill) kill -KILL "$PPID"; exit 137 ;;
  orphan) kill -KILL "$PPID" ;;
  stop)
    kill -STOP "$PPID"
    : >'{directory}/reached'
    while [ ! -e '{directory}/go' ]; do sleep 0.02; done
    kill -CONT "$PPID"
    ;;
  esac
fi
exec '{git}' "$@"
"""


class Wrapper:
    """A wrapper for one worker. `path` is for the PATH of that worker."""

    def __init__(self, directory: Path, action: str, *, at: int = 0, pattern: str = "") -> None:
        self._directory = directory
        bin_directory = directory / "wrapped"
        bin_directory.mkdir(parents=True)
        program = bin_directory / "git"
        real = shutil.which("git")
        assert real is not None
        program.write_text(
            _SCRIPT.format(directory=directory, action=action, at=at, pattern=pattern, git=real)
        )
        program.chmod(0o755)
        self.path = f"{bin_directory}:{os.environ['PATH']}"

    @property
    def commands(self) -> int:
        """The number of git commands so far."""
        count = self._directory / "count"
        return count.stat().st_size if count.exists() else 0

    @property
    def has_acted(self) -> bool:
        return (self._directory / "acted").exists()

    @property
    def has_stopped(self) -> bool:
        return (self._directory / "reached").exists()

    @property
    def words(self) -> str:
        """The command before which the wrapper acted."""
        path = self._directory / "words"
        return path.read_text().strip() if path.exists() else ""

    def go_on(self) -> None:
        (self._directory / "go").touch()
