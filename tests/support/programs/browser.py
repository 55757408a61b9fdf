"""A real browser for tests: Debian's chromium, driven by playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser without a window on the screen."""
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path="/usr/bin/chromium", args=_FLAGS)
        yield launched
        launched.close()
