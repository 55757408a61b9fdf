"""The coding agents that `swarm setup` knows: one row for each agent.

A row names the agent's files, the events of its hooks, and the permissions that the
instructions need. Each fact was checked with the real program, or with its documents:
docs/how-to/set-up-agents.md has the sources. A missing file is "": the agent has no such
thing, or swarm does not write it. The module writes no file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_TIMEOUT = 10  # seconds
_QUESTION_TIMEOUT = 3600  # seconds; see `project.policy.MAX_WAIT`
_END_TIMEOUT = 3  # seconds; Codex allows no more, and the default of Claude Code is 1.5
_SKILL = "skills/swarm/SKILL.md"


@dataclass(frozen=True)
class HookEntry:
    """An event for which the agent starts `swarm hook`. `matcher` limits the event.
    `status` is what the agent shows meanwhile.
    """

    event: str
    matcher: str = ""
    timeout: int = _TIMEOUT
    status: str = ""


@dataclass(frozen=True)
class HookForm:
    """How an agent writes a hook.

    `flat` entries stand in the event's list without a group around them. `timeout` is
    the key of the time limit, in units of which a second has `per_second`. `head` are
    the keys that the file must have besides its hooks. `never_fail` says that the agent
    blocks a tool if its hook fails with any exit code.
    """

    flat: bool = False
    timeout: str = "timeout"
    per_second: int = 1
    head: Mapping[str, object] = field(default_factory=dict)
    never_fail: bool = False


@dataclass(frozen=True)
class Scope:
    """The paths of an agent's files, in a project or of the user.

    {project}, {user} and {config} stand for directories. {config} is the directory of
    the agent's user settings. {moved} is the directory in the agent's variable, else that
    of the user.
    """

    hooks: str = ""
    servers: str = ""
    grants: str = ""
    instructions: str = ""
    skill: str = ""


def _no_grants(command: Sequence[str]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Agent:
    """A row of the table.

    `variable` moves the user's settings from `config` in the home directory.
    `server_list` is the key under which the file has MCP servers. `server_extra` are
    fields of the server's entry. `grant_list` leads to the list of permissions;
    `shell_grants` returns the spellings of the permission to run swarm; `mcp_grants` has
    those for the MCP tools, `plugin_grants` those for the tools of the plugin's server.
    """

    name: str
    title: str
    project: Scope
    user: Scope
    next_step: str
    variable: str
    config: str
    hooks: tuple[HookEntry, ...] = ()
    hook_form: HookForm = HookForm()
    server_list: str = "mcpServers"
    server_extra: Mapping[str, object] = field(default_factory=dict)
    grant_list: tuple[str, ...] = ()
    shell_grants: Callable[[Sequence[str]], tuple[str, ...]] = _no_grants
    mcp_grants: tuple[str, ...] = ()
    plugin_grants: tuple[str, ...] = ()


CLAUDE = Agent(
    name="claude",
    title="Claude Code",
    variable="CLAUDE_CONFIG_DIR",
    config=".claude",
    project=Scope(
        hooks="{project}/.claude/settings.json",
        servers="{project}/.mcp.json",
        grants="{project}/.claude/settings.json",
        instructions="{project}/CLAUDE.md",
        skill="{project}/.claude/" + _SKILL,
    ),
    user=Scope(
        hooks="{config}/settings.json",
        servers="{moved}/.claude.json",
        grants="{config}/settings.json",
        instructions="{config}/CLAUDE.md",
        skill="{config}/" + _SKILL,
    ),
    hooks=(
        HookEntry("SessionStart"),
        HookEntry("UserPromptSubmit"),
        HookEntry("PreToolUse", "Edit|Write|MultiEdit|NotebookEdit"),
        # also for AskUserQuestion; the agent's own prompt stands beside the hook
        HookEntry("PermissionRequest", timeout=_QUESTION_TIMEOUT),
        HookEntry("PostToolUse"),
        HookEntry("PostToolUseFailure"),
        # A permission prompt comes as PermissionRequest, which names the tool.
        HookEntry(
            "Notification",
            "idle_prompt|agent_needs_input|elicitation_dialog|elicitation_url_dialog"
            "|worker_permission_prompt",
        ),
        HookEntry("SubagentStart"),
        HookEntry("Stop"),
        HookEntry("StopFailure"),
        HookEntry("SessionEnd", timeout=_END_TIMEOUT),
    ),
    grant_list=("permissions", "allow"),
    shell_grants=lambda command: (
        f"Bash({shlex.join(command)}:*)",
        f"Bash({shlex.join(command)} *)",
    ),
    mcp_grants=("mcp__swarm__*", "mcp__swarm"),
    plugin_grants=("mcp__plugin_swarm_swarm__*", "mcp__plugin_swarm_swarm"),
    next_step=(
        "Claude Code reads this at its next start. It uses the permissions of a project once\n"
        "you trust the project, and asks once whether it may use the project's MCP server.\n"
    ),
)

CODEX = Agent(
    name="codex",
    title="Codex",
    variable="CODEX_HOME",
    config=".codex",
    project=Scope(
        hooks="{project}/.codex/hooks.json",
        servers="{project}/.codex/config.toml",
        grants="{project}/.codex/config.toml",
        instructions="{project}/AGENTS.md",
        skill="{project}/.agents/" + _SKILL,
    ),
    user=Scope(
        hooks="{config}/hooks.json",
        servers="{config}/config.toml",
        grants="{config}/config.toml",
        instructions="{config}/AGENTS.md",
        skill="{user}/.agents/" + _SKILL,
    ),
    hooks=(
        HookEntry("SessionStart"),
        HookEntry("UserPromptSubmit"),
        HookEntry("PreToolUse", "apply_patch|Edit|Write"),
        HookEntry(  # the agent's own prompt comes after the hook
            "PermissionRequest",
            timeout=_QUESTION_TIMEOUT,
            status="A person decides: swarm questions",
        ),
        HookEntry("PostToolUse"),
        HookEntry("SubagentStart"),
        HookEntry("Stop"),
        HookEntry("SessionEnd", timeout=_END_TIMEOUT),
    ),
    # Else Codex asks about each tool that may write.
    server_extra={"default_tools_approval_mode": "approve"},
    next_step=(
        "Codex reads this at its next start. A project must be trusted first. Codex runs a\n"
        "hook only after you have looked at it: type /hooks there.\n"
    ),
)

GEMINI = Agent(
    name="gemini",
    title="Gemini CLI",
    variable="GEMINI_CLI_HOME",
    config=".gemini",
    project=Scope(
        hooks="{project}/.gemini/settings.json",
        servers="{project}/.gemini/settings.json",
        grants="{project}/.gemini/settings.json",
        instructions="{project}/GEMINI.md",
        skill="{project}/.agents/" + _SKILL,
    ),
    user=Scope(
        hooks="{moved}/.gemini/settings.json",
        servers="{moved}/.gemini/settings.json",
        grants="{moved}/.gemini/settings.json",
        instructions="{moved}/.gemini/GEMINI.md",
        skill="{user}/.agents/" + _SKILL,
    ),
    hooks=(
        HookEntry("SessionStart"),
        HookEntry("BeforeAgent"),
        HookEntry("BeforeTool", "write_file|replace"),
        HookEntry("AfterTool"),
        HookEntry("Notification", "ToolPermission"),
        HookEntry("AfterAgent"),
        HookEntry("SessionEnd", timeout=_END_TIMEOUT),
    ),
    hook_form=HookForm(per_second=1000),
    # Gemini CLI keeps variables with TOKEN in their names from its servers.
    server_extra={"env": {"SWARM_TOKEN": "$SWARM_TOKEN"}, "trust": True},
    grant_list=("tools", "allowed"),
    shell_grants=lambda command: (f"run_shell_command({shlex.join(command)})",),
    next_step="Gemini CLI reads this at its next start, in a folder that you trust.\n",
)

OPENCODE = Agent(
    name="opencode",
    title="opencode",
    variable="XDG_CONFIG_HOME",
    config=".config",
    project=Scope(
        servers="{project}/opencode.json",
        grants="{project}/opencode.json",
        instructions="{project}/AGENTS.md",
        skill="{project}/.agents/" + _SKILL,
    ),
    user=Scope(
        servers="{config}/opencode/opencode.json",
        grants="{config}/opencode/opencode.json",
        instructions="{config}/opencode/AGENTS.md",
        skill="{user}/.agents/" + _SKILL,
    ),
    server_list="mcp",
    server_extra={"type": "local"},
    next_step=(
        "opencode reads this at its next start. It runs no commands as hooks, so the agent\n"
        "itself must keep its lease, check reservations and end its task.\n"
    ),
)

COPILOT = Agent(
    name="copilot",
    title="GitHub Copilot CLI",
    variable="COPILOT_HOME",
    config=".copilot",
    project=Scope(
        hooks="{project}/.github/hooks/swarm.json",
        servers="{project}/.github/mcp.json",
        instructions="{project}/AGENTS.md",
        skill="{project}/.agents/" + _SKILL,
    ),
    user=Scope(
        hooks="{config}/hooks/swarm.json",
        servers="{config}/mcp-config.json",
        instructions="{config}/copilot-instructions.md",
        skill="{user}/.agents/" + _SKILL,
    ),
    hooks=(  # names in this spelling make Copilot send the fields of Claude Code
        HookEntry("SessionStart"),
        HookEntry("UserPromptSubmit"),
        HookEntry("PreToolUse", "Edit|Write"),
        HookEntry("PostToolUse"),
        HookEntry("PostToolUseFailure"),
        HookEntry("notification", "permission_prompt|elicitation_dialog"),
        HookEntry("Stop"),
        HookEntry("SessionEnd", timeout=_END_TIMEOUT),
    ),
    hook_form=HookForm(flat=True, timeout="timeoutSec", head={"version": 1}, never_fail=True),
    next_step=(
        "Copilot reads this at its next start, in a folder that you trust. It takes\n"
        "permissions only as options: copilot --allow-tool='shell(swarm:*)' --allow-tool=swarm\n"
    ),
)

CURSOR = Agent(
    name="cursor",
    title="Cursor",
    variable="",
    config=".cursor",
    project=Scope(servers="{project}/.cursor/mcp.json", instructions="{project}/AGENTS.md"),
    user=Scope(servers="{config}/mcp.json"),
    next_step=(
        "Cursor reads this at its next start, and asks before it uses the server. It runs the\n"
        "hooks of Claude Code where you allow third-party hooks: swarm setup claude\n"
    ),
)

TABLE = (CLAUDE, CODEX, GEMINI, OPENCODE, COPILOT, CURSOR)
AGENTS = tuple(agent.name for agent in TABLE)


def find(name: str) -> Agent:
    """Return the row of an agent. The name must be in AGENTS."""
    return next(agent for agent in TABLE if agent.name == name)


@dataclass(frozen=True)
class AgentFiles:
    """The files of an agent, as absolute paths, "" for a file that swarm does not write.

    All files are below `root`, unless the user has moved the agent's settings.
    """

    root: str
    hooks: str
    servers: str
    grants: str
    instructions: str
    skill: str


def agent_files(name: str, *, project: str = "", config: str = "") -> AgentFiles:
    """Return the files of a project, or of the user if `project` is "".

    `config` is the directory to which the agent's variable moves the user's settings,
    "" for the agent's default.
    """
    agent, user = find(name), os.path.expanduser("~")
    where = {
        "project": project,
        "user": user,
        "config": config or os.path.join(user, agent.config),
        "moved": config or user,
    }
    scope = agent.project if project else agent.user
    return AgentFiles(
        project or user,
        *(
            path.format(**where)
            for path in (scope.hooks, scope.servers, scope.grants, scope.instructions, scope.skill)
        ),
    )
