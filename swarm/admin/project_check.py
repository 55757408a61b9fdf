"""Checks of the project around the working directory, and of its `swarm.toml`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from swarm import settings
from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import BadInput, SwarmError
from swarm.notify.channels import invalid_channels
from swarm.presets.registry import find
from swarm.project import config, location
from swarm.stores.location import Location
from swarm.terminal.text import quoted


def check_project(where: Location) -> Iterator[Check]:
    """Check the project of the swarm in use, and compare it with the working directory."""
    name = "project"
    try:
        around = location.find()
    except SwarmError as error:  # a variable names another state directory
        yield Check(name, WARNING, f"not used: {error}", "cd /")
        around = None
    if around and around.root != where.project:
        text = (
            f"the working directory is in the project {around.root}, but {_chosen_by()} chooses "
            f"another state directory: {where.text}"
        )
        yield Check(name, WARNING, text, "unset SWARM_STATE_DIR AI_SWARM_DIR")
    elif where.project:
        yield Check(name, OK, where.text)
        yield from _check_config(location.Project(where.project, where.state_dir))
    elif lone := _lone_config():
        text = f"{lone} is not used: its directory has no {location.STATE_DIR} yet"
        yield Check(name, WARNING, text, f"swarm init {quoted(os.path.dirname(lone))}")
    else:
        yield Check(name, OK, where.text)


def _check_config(project: location.Project) -> Iterator[Check]:
    if not os.path.lexists(project.config):
        return
    found = None
    try:
        found = config.load(project)
        if found.agent:
            find(found.agent, found)
        if wrong := invalid_channels(found):
            raise BadInput(" ".join(wrong.values()))
    except BadInput as error:
        text = str(error) if found is None else f"{project.config}: {error}"
        yield Check("swarm.toml", FAULT, text, f"${{EDITOR:-vi}} {quoted(project.config)}")
    else:
        yield Check("swarm.toml", OK, f"{project.config} is valid")


def _lone_config() -> str:
    """Return the `swarm.toml` of a checkout without a state directory, "" if there is
    none.
    """
    try:
        root = location.checkout(location.working_directory())
    except SwarmError:
        return ""
    path = location.below(root, location.CONFIG)
    return path if root and os.path.isfile(path) else ""


def _chosen_by() -> str:
    return "SWARM_STATE_DIR" if settings.variable("SWARM_STATE_DIR") else "AI_SWARM_DIR"
