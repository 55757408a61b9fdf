"""The agents of a worker: what to start for a claimed task, and how to read its output.

    CommandAgent    a command line (`--exec`), or only the tasks' own commands
    PresetAgent     an agent that swarm knows (`--agent`); its prompt says how to ask

A PresetAgent first resumes the session of the last attempt, if this attempt has the same
agent and the agent can do that. If the session is gone, a new session follows at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from swarm.errors import BadInput
from swarm.inputs import check_agent
from swarm.presets.contract import PERMISSIONS, Launch, Preset, Reader, Request, is_session
from swarm.presets.registry import NAMES, find
from swarm.project.config import Config, load
from swarm.queue.queue import Claim
from swarm.stores.default import store_url
from swarm.stores.file import state_dir
from swarm.system.own_command import swarm_command
from swarm.workers import command, feedback
from swarm.workers.feedback import NO_SURROUNDINGS, Surroundings

_GIT_TIMEOUT = 20.0  # seconds


@dataclass(frozen=True)
class Start:
    """A process to start. `reader` is None if its output is plain text.

    `agent` is the name of the agent, "" for a task's own command. `is_tasks_own`: a
    command that cannot be run is the task's fault.
    """

    launch: Launch
    reader: Reader | None = None
    agent: str = ""
    resumes: bool = False
    is_tasks_own: bool = False


class Agent(Protocol):
    """What a worker starts for its tasks."""

    @property
    def name(self) -> str:
        """The name of the agent, "" if the worker has none."""

    @property
    def takes_prompts(self) -> bool:
        """Whether the agent does tasks without a command of their own."""

    def starts(self, claim: Claim) -> Iterator[Start]:
        """Yield the ways to start the agent, the best first. The next one is used only if
        the session that the one before it resumes is gone. Raise BadInput if the task
        cannot be started.
        """


class CommandAgent:
    """A command line, see `swarm.presets.command_line`. It may be empty."""

    def __init__(
        self, agent: str | Sequence[str] | None, site: Surroundings = NO_SURROUNDINGS
    ) -> None:
        """Raise BadInput if the command line is invalid."""
        self._words = command.split(agent) if agent is not None else []
        self._site = site

    def placed(self, site: Surroundings) -> CommandAgent:
        """Return this agent with words about its workspace for a second attempt and for
        reviews. The first prompt is the user's: a command may take it for a script.
        """
        return CommandAgent(self._words or None, site)

    @property
    def name(self) -> str:
        if not self._words:
            return ""
        try:
            return check_agent(os.path.basename(self._words[0]), "agent")
        except BadInput:
            return "exec"

    @property
    def takes_prompts(self) -> bool:
        return bool(self._words)

    def starts(self, claim: Claim) -> Iterator[Start]:
        if claim.task.spec.command:
            yield own_command(claim)
            return
        if not self._words:
            raise BadInput(
                f"{claim.task.id} has a prompt and no command, but this worker has no agent. Start "
                f"the worker with --agent or --exec."
            )
        speaks = claim.previous is not None or self._site.is_review
        site = self._site if speaks else NO_SURROUNDINGS
        prompt = feedback.prompt_with(claim.task.spec.prompt or "", claim.previous, site)
        words = command.filled(claim, self._words, prompt)
        launch = Launch(tuple(words), command.stdin_for(self._words, prompt))
        yield Start(launch, agent=self.name, is_tasks_own="{" in self._words[0])


class PresetAgent:
    """An agent that swarm knows."""

    def __init__(
        self, preset: Preset, request: Request, site: Surroundings = NO_SURROUNDINGS
    ) -> None:
        """`request` has all but the prompt."""
        self._preset = preset
        self._request = request
        self._site = site

    def placed(self, site: Surroundings) -> PresetAgent:
        """Return this agent in a workspace, with the right to run its check and to ask."""
        # a program of one's own may take a bare prompt for something else than words
        can_ask = self._preset.name in NAMES or bool(feedback.about(site))
        site = replace(site, can_ask=can_ask)
        request = replace(self._request, workspace=site.workspace, check=site.check)
        return PresetAgent(self._preset, request, site)

    @property
    def name(self) -> str:
        return self._preset.name

    @property
    def takes_prompts(self) -> bool:
        return True

    @property
    def reports_cost(self) -> bool:
        """Whether the agent reports its cost in money, so that budgets can act."""
        return self._preset.reports_cost

    def starts(self, claim: Claim) -> Iterator[Start]:
        if claim.task.spec.command:
            yield own_command(claim)
            return
        preset, previous = self._preset, claim.previous
        if previous and previous.agent == preset.name and is_session(previous.session):
            request = replace(self._request, prompt=feedback.prompt_to_resume(previous, self._site))
            launch = preset.resume(request, previous.session)
            if launch is not None:
                yield Start(launch, preset.reader(request), preset.name, resumes=True)
        prompt = feedback.prompt_with(claim.task.spec.prompt or "", previous, self._site)
        request = replace(self._request, prompt=prompt)
        yield Start(preset.new_attempt(request), preset.reader(request), preset.name)


def placed(agent: Agent, site: Surroundings) -> Agent:
    """Return an agent that knows its workspace, if it is a command or a preset."""
    return agent.placed(site) if isinstance(agent, CommandAgent | PresetAgent) else agent


def own_command(claim: Claim) -> Start:
    """Return how to start a task's own command."""
    stdin = (claim.task.spec.prompt or "").encode()
    return Start(Launch(tuple(command.own_words(claim)), stdin), is_tasks_own=True)


def preset_agent(
    name: str,
    *,
    permissions: str = "",
    model: str = "",
    allow: Sequence[str] = (),
    extra: Sequence[str] = (),
    budget: float | None = None,
    config: Config | None = None,
) -> PresetAgent:
    """Return an agent by its name: a preset, or a table of swarm.toml.

    Without `permissions` and `model`, those of swarm.toml count. `allow` are beginnings
    of commands that the agent may run besides those of swarm.toml. `extra` are words that
    go to the agent's program, `budget` is what an attempt may cost. Raise BadInput if
    there is no such agent, if its program is not installed, or if it could not start.
    """
    config = config or load()
    permissions = permissions or config.permissions
    if permissions not in PERMISSIONS:
        raise BadInput(
            f"permissions is {permissions[:40]!r}, but must be one of {' '.join(PERMISSIONS)}."
        )
    preset = find(name, config)
    check_installed(preset)
    request = Request(
        "",
        permissions=permissions,
        model=model or config.model,
        allow=(*config.allow, *allow),
        extra=tuple(extra),
        swarm=tuple(swarm_command()),
        # the repository may be outside of the workspace, and in a sandbox it is read-only
        writable=tuple(path for path in (state_dir.named().path, _repository()) if path),
        network="://" in store_url(),
        budget=budget,
    )
    preset.check(request)
    return PresetAgent(preset, request)


def check_installed(preset: Preset) -> None:
    """Raise BadInput, with the command that installs it, if a program is missing."""
    if shutil.which(preset.program) is None:
        raise BadInput(
            f"the agent {preset.name} needs the program {preset.program!r}, which is not in PATH, "
            f"or not executable. To install it: {preset.install}"
        )


def _repository() -> str:
    """Return git's directory of the working directory, "" if there is none."""
    try:
        found = subprocess.run(
            ("git", "rev-parse", "--path-format=absolute", "--git-common-dir"),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
