"""`swarm init`: make a project, with a state directory of its own and a `swarm.toml`."""

from __future__ import annotations

import os

from swarm import settings
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, StoreError, SwarmError
from swarm.project import creation, location
from swarm.stores.file.state_dir import refuse_root
from swarm.terminal import output, prompt
from swarm.terminal.text import shown

_ANSWER_TIMEOUT = 600.0  # seconds


def init(call: Call) -> int:
    if "--store" in call.options or "--state-dir" in call.options:
        raise BadInput(
            "swarm init makes the state directory .swarm of a project. Leave out --store and "
            "--state-dir."
        )
    chosen = call.get(0)
    start = _start(chosen)
    adopt, dry = "--adopt" in call.options, "--dry-run" in call.options
    root = creation.root_for(start, chosen=bool(chosen), adopt=adopt)
    plan = creation.plan(root, adopt=adopt)
    if not dry:
        refuse_root(root, "the directory")
        if plan.makes_state_dir:
            creation.make_state_dir(plan)
    wants_config = plan.makes_config and (dry or _is_confirmed(call, plan))
    if wants_config and not dry:
        wants_config = creation.write_config(plan, _branch(root))
    outer = _outer(root)
    fields = {
        "project": root,
        "state_dir": plan.state_dir,
        "config": plan.config,
        "made_state_dir": plan.makes_state_dir,
        "made_config": wants_config,
        "dry_run": dry,
        "outer_project": outer,
    }
    if not call.answer(fields):
        output.out(_summary(plan, wants_config=wants_config, dry=dry, outer=outer))
    if note := _overridden(plan):
        output.err(f"Note: {note}\n")
    return 0


def _start(chosen: str) -> str:
    """Return the directory of the call, without symlinks."""
    start = os.path.realpath(chosen) if chosen else location.working_directory()
    if not os.path.isdir(start):
        raise BadInput(f"{chosen[:200]!r} is not a directory. Make it first, or name another one.")
    return start


def _is_confirmed(call: Call, plan: creation.Plan) -> bool:
    if "--yes" in call.options:
        return True
    if call.json or not prompt.is_possible():
        output.err(
            f"Note: {shown(plan.config)} was not written: there is no terminal to ask for "
            "confirmation. To write it: swarm init --yes\n"
        )
        return False
    return prompt.ask(
        f"Write {shown(plan.config)}, with the settings as comments? [y/N]", _ANSWER_TIMEOUT
    )


def _overridden(plan: creation.Plan) -> str:
    """Return a note if variables of the user choose another swarm than the project's."""
    if settings.store():
        return "SWARM_STORE is set, so commands keep locks, log and queue in that store."
    named = settings.named_state_dir()
    if named and named != plan.state_dir:
        return (
            f"SWARM_STATE_DIR or AI_SWARM_DIR is set, so commands use {shown(named)} and not this "
            "project. Unset it."
        )
    return ""


def _branch(root: str) -> str:
    """Return the branch of the git checkout, on which work is to land; "" for none."""
    from swarm.workspaces.repository import open_repository

    try:
        found = open_repository(root)
        return found.current_branch() if found else ""
    except SwarmError:
        return ""  # without git, or with a repository that git refuses


def _outer(root: str) -> str | None:
    """Return the root of the project around a new project, None if there is none."""
    try:
        found = location.find(os.path.dirname(root)) if root != "/" else None
    except StoreError:
        return None  # of another user, whose project this is not
    return found.root if found else None


def _summary(plan: creation.Plan, *, wants_config: bool, dry: bool, outer: str | None) -> str:
    made = "would be made" if dry else "made"
    lines = [f"Project {shown(plan.root)}"]
    lines.append(
        f"  state     {shown(plan.state_dir)} ({made if plan.makes_state_dir else 'there already'})"
    )
    if wants_config:
        lines.append(f"  settings  {shown(plan.config)} ({made})")
    elif not plan.makes_config:
        lines.append(f"  settings  {shown(plan.config)} (there already, not changed)")
    if outer:
        lines.append(f"It is inside the project {shown(outer)}, and separate from it.")
    if dry:
        lines.append("Dry run: nothing was changed.")
    else:
        lines.append("Next: swarm task add hello --prompt 'Say hello'")
    return "".join(f"{line}\n" for line in lines)


COMMAND = Command(
    init,
    "Make a project: a state directory of its own, and swarm.toml.",
    "swarm init",
    optional=("DIR",),
    options=(
        Option("--yes", text="write swarm.toml without asking for confirmation"),
        Option("--dry-run", text="only show what would be made"),
        Option(
            "--adopt",
            text="use a .swarm that is there already, though swarm init did not make it",
        ),
    ),
    details=(
        (
            "The command makes .swarm at the root of the git checkout around DIR, or in DIR "
            "without a checkout. From a linked worktree it is the root of the main checkout. "
            "DIR is the working directory by default. All commands, scripts and Python programs "
            "that run below this root then use the state in .swarm."
        ),
        (
            ".swarm has a .gitignore, so that git ignores everything in it. swarm.toml holds "
            "the settings that a team shares; in a git checkout, finished work lands on the "
            "branch that is checked out now. The command asks before it writes swarm.toml, and "
            "changes no file that is there already."
        ),
    ),
    notes=("docs/reference/projects.md has the settings in swarm.toml.",),
)
