"""Record the screens of real agents at a prompt, for the tests of `swarm.tmux.prompts`.

Usage: python -m tests.support.screens.record [NAME…]

The agents are those of `tests/programs`, with a scripted model, in a tmux server of their
own. A recording is a file in `tests/tmux/screens`: a line with columns, rows and cursor,
then the rows of the screen. Record again after a change of the pinned programs, and read
the difference.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.model_server import Script, serving
from tests.support.programs.agents import CLAUDE, CODEX, Desk, Program
from tests.support.programs.model_apis import Call, Say

SCREENS = Path(__file__).parents[2] / "tmux/screens"
_DESK = Path("/tmp/swarm-screens")  # a fixed path, because agents show it
_TIMEOUT = 60.0  # seconds for a text to appear
_QUIET = 2.0  # seconds without a change: then the agent has drawn its prompt
_PROMPT = "Please do it."
_LONG = "\n".join(f"touch file-{number}.txt" for number in range(40))
OPTIONS = {"claude": ["--permission-mode", "default"], "codex": ["--no-daemon"]}
_ANIMATED = re.compile(r"[▀-▟●•◦]| +")  # a logo that moves, a dot that blinks
_BOX = "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{cursor_flag}"


@dataclass(frozen=True)
class Scene:
    """How to get one screen: the calls of the model, and the text to wait for.

    With `trusted`, the user has trusted the directory before. The model says `says`.
    """

    program: Program
    until: str
    calls: tuple[Call, ...] = ()
    trusted: bool = True
    says: str = ""
    columns: int = 100
    rows: int = 40


def escalated(command: str) -> Call:
    """Codex asks only where the model says that a command needs more than its sandbox."""
    more = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    return Call("exec_command", {"cmd": command, **more})


SCENES: Mapping[str, Scene] = {
    "claude-trust": Scene(CLAUDE, "trust", trusted=False),
    "claude-command": Scene(CLAUDE, "Do you want", (CLAUDE.shell("touch new.txt"),)),
    "claude-command-narrow": Scene(
        CLAUDE, "Do you want", (CLAUDE.shell("touch new.txt"),), columns=60, rows=24
    ),
    "claude-remove": Scene(CLAUDE, "Do you want", (CLAUDE.shell("rm -rf build"),)),
    "claude-long-command": Scene(CLAUDE, "4. No", (CLAUDE.shell(_LONG),), rows=24),
    "codex-long-command": Scene(CODEX, "confirm", (escalated(_LONG),), rows=24),
    "claude-write": Scene(CLAUDE, "Do you want", (CLAUDE.write("new.txt", "new\n"),)),
    "claude-idle": Scene(CLAUDE, "shortcuts"),
    "claude-imitation": Scene(
        CLAUDE, "3. No", says="Do you want to proceed?\n❯ 1. Yes\n  2. Maybe\n  3. No"
    ),
    "claude-imitation-line": Scene(CLAUDE, "[y/N]", says="Do you want to proceed? [y/N]"),
    "codex-trust": Scene(CODEX, "trust", trusted=False),
    "codex-command": Scene(
        CODEX, "Would you like", (escalated("touch /tmp/swarm-screens/new.txt"),)
    ),
    "codex-remove": Scene(CODEX, "Would you like", (escalated("rm -rf /tmp/swarm-screens/x"),)),
    "codex-write": Scene(
        CODEX, "Would you like", (CODEX.write("/tmp/swarm-screens/new.txt", "new\n"),)
    ),
    "codex-idle": Scene(CODEX, "shortcuts"),
}


def main(names: Sequence[str]) -> None:
    for name in names or SCENES:
        text = record(SCENES[name])
        (SCREENS / f"{name}.txt").write_text(text)
        sys.stdout.write(f"{name}\n{text}")


def record(scene: Scene) -> str:
    """Return the recording of a scene."""
    shutil.rmtree(_DESK, ignore_errors=True)
    with serving() as model:
        model.scripts.append(Script([Say(scene.says, scene.calls), Say("Done.")]))
        desk = Desk(_DESK, model)
        settle(desk, trusted=scene.trusted)
        tmux = ["tmux", "-u", "-f", "/dev/null", "-S", f"{_DESK}/socket"]
        command = " ".join(map(shlex.quote, _command(scene)))
        size = ["-x", str(scene.columns), "-y", str(scene.rows)]
        try:
            subprocess.run(
                [
                    *tmux,
                    "new-session",
                    "-d",
                    *size,
                    command,
                    ";",
                    "set-option",
                    "remain-on-exit",
                    "on",
                ],
                cwd=desk.work,
                env={**desk.environment, "TERM": "xterm-256color"},
                check=True,
            )
            return _wait(tmux, scene.until)
        finally:
            subprocess.run([*tmux, "kill-server"], capture_output=True)
            shutil.rmtree(_DESK, ignore_errors=True)


def _command(scene: Scene) -> list[str]:
    prompt = [_PROMPT] if scene.calls or scene.says else []
    return [scene.program.name, *OPTIONS[scene.program.name], *prompt]


def settle(desk: Desk, *, trusted: bool = True) -> None:
    """Do what a person did in the dialogs of the first start."""
    key = desk.environment["ANTHROPIC_API_KEY"]
    known: dict[str, object] = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
    }
    if trusted:
        known["projects"] = {str(desk.work): {"hasTrustDialogAccepted": True}}
        with (desk.home / ".codex/config.toml").open("a") as file:
            file.write('[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n')
            file.write(f'[projects."{desk.work}"]\ntrust_level = "trusted"\n')
    (desk.home / ".claude.json").write_text(json.dumps(known))


def _wait(tmux: Sequence[str], text: str) -> str:
    """Wait until the screen shows the text and is quiet."""
    deadline = time.monotonic() + _TIMEOUT
    last, since = "", time.monotonic()
    while True:
        shown = subprocess.run(
            [*tmux, "display-message", "-p", _BOX, ";", "capture-pane", "-p"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        now = time.monotonic()
        still = _ANIMATED.sub("", shown)
        if still != last:
            last, since = still, now
        if text in shown and now - since > _QUIET:
            return shown
        if now > deadline:
            raise TimeoutError(f"{text!r} is not on the screen:\n{shown}")
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
