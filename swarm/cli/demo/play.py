"""`swarm demo`: watch swarm work, in two acts and in a throwaway directory.

Three workers share a dozen tasks, and one of them is killed. Then three workers change
one git repository. Without git, there is only the first act.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time

from swarm.cli.arguments import Call, Command, Option
from swarm.cli.demo.act import Act
from swarm.cli.demo.page import DemoPage
from swarm.cli.demo.queue_act import QueueAct
from swarm.cli.demo.repository_act import RepositoryAct
from swarm.cli.demo.screen import Check, DemoScreen, Silence, open_screen
from swarm.stores.file.store import FileStore
from swarm.terminal import output

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(call: Call) -> int:
    """Run the demo. Return 0 if all checks at the end of its acts passed, else 1."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # from here on there are files and processes to remove
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    root = tempfile.mkdtemp(prefix="swarm-demo-")
    show = _Demo(root, call)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        checks = show.play()
        ok = all(check.holds for check in checks)
        call.answer(
            {
                "ok": ok,
                "state_dir": f"{root}/state",
                "repository": f"{root}/shop" if show.has_git else None,
                "checks": [{"check": check.text, "holds": check.holds} for check in checks],
            }
        )
        show.linger()
        return 0 if ok else 1
    finally:
        for number in _ENDING:  # a second signal must not interrupt the clean-up
            signal.signal(number, signal.SIG_IGN)
        show.clear_up()
        if "--keep" in call.options:
            output.err(f"To look around: export SWARM_STATE_DIR={root}/state\n")
            if show.has_git:
                output.err(f"The repository: {root}/shop\n")
        else:
            shutil.rmtree(root, ignore_errors=True)


class _Demo:
    """A run of the demo, in a directory of its own."""

    def __init__(self, root: str, call: Call) -> None:
        self.has_git = shutil.which("git") is not None
        self._root = root
        self._call = call
        self._act: Act | None = None
        self._page: DemoPage | None = None

    def play(self) -> list[Check]:
        if "--web" in self._call.options:
            self._page = DemoPage(f"{self._root}/state")
            self._page.invite()
        begun = time.monotonic()
        first = QueueAct(self._root, self._screen(f"{self._root}/state"))
        checks = self._play(first)
        if not self.has_git:
            first.screen.end(time.monotonic() - begun, "There is no git here: no second act.")
            return checks
        second = RepositoryAct(self._root, self._screen(f"{self._root}/shop/.swarm"))
        checks += self._play(second)
        second.screen.listing("git log --oneline --reverse", second.history())
        second.screen.end(time.monotonic() - begun)
        return checks

    def linger(self) -> None:
        if self._page:
            self._page.linger()

    def clear_up(self) -> None:
        if self._page:
            self._page.close()
        if self._act:
            self._act.clear_up()

    def _play(self, act: Act) -> list[Check]:
        self._act = act
        checks = act.play()
        act.screen.summary(checks)
        act.clear_up()
        return checks

    def _screen(self, state_dir: str) -> DemoScreen:
        if self._call.json:
            return Silence()
        return open_screen(FileStore(state_dir), plain="--plain" in self._call.options)


COMMANDS = {
    "demo": Command(
        demo,
        "Watch workers share tasks and a git repository, with a killed worker and a conflict.",
        "python3 -m swarm demo",
        options=(
            Option(
                "--web",
                text=("also show the demo as a live page in the browser (needs the extra web)"),
            ),
            Option("--keep", text="do not remove the directory of the demo at the end"),
            Option("--plain", text="print a line for each event, also on a terminal"),
        ),
        details=(
            (
                "First, a worker is killed with SIGKILL in the middle of a task, and another "
                "worker takes the task over. Then three workers change a small git repository: "
                "a conflict, a red check, and all tasks land on its branch. You see the live "
                "view all the time. The demo takes less than a minute, needs no server, and "
                "leaves no files behind. Without git, it ends after the first part."
            ),
        ),
    )
}
