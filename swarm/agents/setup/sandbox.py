"""The rights that swarm's commands need in Codex's sandbox.

Codex lets a command write to its workspace and to /tmp, and gives it no network. The
state directory of a project is at its root, which is not the workspace if Codex was
started in a directory below. Codex reads a relative path from the directory of
config.toml, so the project's own path works on every machine.
"""

from __future__ import annotations

import os

from swarm import settings
from swarm.agents.setup.codex_toml import Sandbox
from swarm.stores.registry import SERVER_DRIVERS

_STATE_DIR = "../.swarm"  # from `.codex/` of a project


def sandbox_needs(project: str) -> Sandbox:
    """Return the fields of the sandbox's table. `project` is "" for the user's files."""
    roots = [_STATE_DIR] if project else []
    path = settings.named_state_dir()
    if path and path not in (settings.DEFAULT_STATE_DIR, os.path.join(project, ".swarm")):
        roots.append(path)
    needs: dict[str, object] = {"writable_roots": roots} if roots else {}
    schemes = tuple(f"{scheme}://" for driver in SERVER_DRIVERS for scheme in driver.schemes)
    return {**needs, "network_access": True} if settings.store().startswith(schemes) else needs
