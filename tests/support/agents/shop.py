"""A project in a git repository, with a shell script as the agent of its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.at_a_terminal import wait_until
from tests.support.projects import MAIN, checkout, environment, git, swarm_in

TIMEOUT = 60.0  # seconds


class Shop:
    """A project in `root` on branch main, which has the file `old.txt`.

    `notes` is a directory outside of it, $NOTES for agents and checks.
    """

    def __init__(self, directory: Path) -> None:
        self.root = checkout(directory / "shop")
        self.notes = directory / "notes"
        self.notes.mkdir()
        git(self.root, "checkout", "-q", "-B", "main")
        (self.root / "old.txt").write_text("old\n")
        self.configure()

    def configure(self, text: str = "", land: str = "main") -> None:
        """Write swarm.toml and commit everything."""
        if not (self.root / ".swarm").exists():
            self.swarm("init", "--yes")
        (self.root / "swarm.toml").write_text((f'land = "{land}"\n' if land else "") + text)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", "settings")

    def configure_file(self, text: str) -> None:
        """Write swarm.toml without a commit."""
        (self.root / "swarm.toml").write_text(text)

    def swarm(self, *words: str, code: int = 0, **variables: str) -> str:
        done = swarm_in(self.root, *words, NOTES=str(self.notes), **variables)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(
            swarm_in(self.root, *words, "--json", NOTES=str(self.notes)).stdout or "null"
        )

    def add(self, name: str, script: str, *options: str) -> None:
        """Add a task whose prompt is a script for the agent `sh`."""
        path = self.notes / f"{name}.sh"
        path.write_text(script)
        self.swarm("task", "add", name, "--prompt", f"Do {name}.", *options)

    @property
    def agent(self) -> str:
        """The agent runs the script of its task, and keeps each prompt in `notes`."""
        path = self.notes / "agent"
        path.write_text(
            '#!/bin/sh\ncat >"$NOTES/prompt.$SWARM_TOKEN"\n. "$NOTES/$SWARM_TASK_ID.sh"\n'
        )
        path.chmod(0o755)
        return str(path)

    def work(self, *options: str, code: int = 0, agent: bool = True) -> str:
        """Run a worker until nothing is left to do."""
        run = ("--exec", self.agent) if agent else ()
        words = ("worker", "--id", "1", *run, "--until-empty", "--backoff", "0", *options)
        return self.swarm(*words, code=code)

    @contextmanager
    def worker(self, *options: str, number: str = "1") -> Iterator[subprocess.Popen[bytes]]:
        """A worker that ends with the block at the latest."""
        words = ("worker", "--id", number, "--exec", self.agent, "--backoff", "0", "--grace", "1")
        with (self.notes / f"worker-{number}").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", str(MAIN), *words, "--until-empty", *options],
                cwd=self.root,
                env=environment(NOTES=str(self.notes)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(TIMEOUT)

    def task(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("task", "show", name)["task"]
        return found

    def record(self, name: str, state: str) -> dict[str, Any]:
        """The last status record of a task in a state."""
        history = self.json("task", "show", name)["history"]
        found: list[dict[str, Any]] = [each for each in history if each["state"] == state]
        return found[-1]

    def refs(self) -> dict[str, str]:
        lines = git(self.root, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)

    def workspaces(self) -> list[str]:
        folder = self.root / ".swarm" / "work"
        return [str(path) for path in folder.iterdir() if path.is_dir()] if folder.exists() else []

    def note(self, name: str) -> str:
        """The text of a file in `notes`, once it is there and not empty."""
        path = self.notes / name
        wait_until(lambda: path.exists() and path.stat().st_size > 0)
        return path.read_text().strip()

    def processes(self) -> list[int]:
        """The processes that were started for the tasks of this project."""
        wanted = f"NOTES={self.notes}".encode()
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                variables = (directory / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in variables and any(v.startswith(b"SWARM_TOKEN=") for v in variables):
                found.append(int(directory.name))
        return [pid for pid in found if pid != os.getpid()]
