"""The live page of the demo.

The page is a `swarm web` for the demo's directory. The page ends with the demo.
"""

from __future__ import annotations

import os
import subprocess

from swarm.errors import StoreError
from swarm.formats import json_codec
from swarm.system.own_command import environment_with, swarm_command
from swarm.terminal import output


class DemoPage:
    """A running `swarm web` for a state directory.

    Raise StoreError with advice if the page cannot start.
    """

    def __init__(self, state: str) -> None:
        # A session of its own: Ctrl-C must reach only the demo, which then ends the
        # page.
        self._process = subprocess.Popen(
            swarm_command("web", "--port", "0", "--json"),
            env=environment_with(state),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout
        answer = json_codec.loads(self._process.stdout.readline() or b"{}")
        if "url" not in answer:
            self.close()
            raise StoreError(
                answer.get("error", "the page could not be started. To see why, run: swarm web")
            )
        self.url = str(answer["url"])

    def invite(self) -> None:
        """Print the address of the page. On a terminal, wait until the user has opened
        the page.
        """
        if os.isatty(0) and os.isatty(2):
            _ask(f"Open {self.url} and press Enter here.")
        else:
            output.err(f"Live page: {self.url}\n")

    def linger(self) -> None:
        """On a terminal, wait until the user has seen the page."""
        if os.isatty(0) and os.isatty(2):
            _ask("The page stays until you press Enter.")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _ask(text: str) -> None:
    output.err(f"{text} ")
    os.read(0, 1024)
