"""Run the hooks of a project: its commands in `[hooks]` of swarm.toml.

A hook runs by `/bin/sh -c` in the workspace, as a check does: in a process group of its
own that is empty afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from swarm.errors import BadInput
from swarm.presets.readable import last_words
from swarm.project.config import Config, Hooks
from swarm.project.keys import keys_of
from swarm.terminal.text import shorten
from swarm.workspaces.check import run_check

NAMES = tuple(keys_of(Hooks))
_MAX_COMMAND = 200  # characters


class HookFailed(BadInput):
    """A hook has failed. `last_lines` are the end of its output, `stopped` says that it
    was ended early.
    """

    def __init__(self, text: str, last_lines: tuple[str, ...], *, stopped: bool) -> None:
        super().__init__(text)
        self.last_lines = last_lines
        self.stopped = stopped


def run_hook(
    name: str,
    config: Config,
    directory: str,
    environment: Mapping[str, str],
    *,
    output: str,
    must_end: Callable[[], str] = lambda: "",
    on_group: Callable[[int], object] = lambda group: None,
    at_most: Callable[[], float] = lambda: math.inf,
) -> None:
    """Run a hook, if the project has it. `output` is the file for its output; see
    `run_check` for the other arguments.

    Raise HookFailed, with the hook and the end of its output, if it fails.
    """
    command: str = getattr(config.hooks, name)
    if not command.strip():
        return
    run = run_check(
        (command,),
        directory,
        environment,
        output=output,
        timeout=config.check_timeout,
        must_end=must_end,
        on_group=on_group,
        at_most=at_most,
    )
    if run.ok:
        return
    why = run.stopped or f"exit code {run.exit_code}"
    words = "" if run.stopped else last_words(run.last_lines)
    text = f"the hook {name} of swarm.toml failed: {shorten(command, _MAX_COMMAND)}: {why}"
    raise HookFailed(
        f"{text}: {words}" if words else f"{text}.", run.last_lines, stopped=bool(run.stopped)
    )
