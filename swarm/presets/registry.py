"""The agents that swarm knows: its presets, and those of swarm.toml."""

from __future__ import annotations

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from swarm.presets.contract import Preset
else:
    Protocol = object  # `swarm status` needs the names of the agents, and no `typing`

_MODULES = {"claude": "Claude", "codex": "Codex", "gemini": "Gemini", "opencode": "OpenCode"}
NAMES = tuple(_MODULES)


class Table(Protocol):
    """A table [agents.NAME] of swarm.toml."""

    @property
    def command(self) -> str: ...
    @property
    def resume(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def limit(self) -> str: ...


class Config(Protocol):
    """The part of swarm.toml that names agents."""

    @property
    def agents(self) -> Mapping[str, Table]: ...


def find(name: str, config: Config) -> Preset:
    """Return the agent of this name. A table of swarm.toml comes before a preset.

    Raise BadInput if there is no such agent, or if its table is invalid.
    """
    own = config.agents.get(name)
    if own is not None:
        from swarm.presets.own import OwnAgent

        read_as = _preset(own.output) if own.output in _MODULES else None
        return OwnAgent(
            name,
            own.command,
            resume=own.resume,
            limit=own.limit,
            read_as=read_as.reader if read_as else None,
            reports_cost=read_as is not None and read_as.reports_cost,
        )
    if name not in _MODULES:
        known = " ".join(dict.fromkeys((*NAMES, *config.agents)))
        raise BadInput(
            f"there is no agent {name[:40]!r}. The agents are: {known}. To add one, write a table "
            f"[agents.NAME] into swarm.toml; for a single command line use --exec."
        )
    return _preset(name)


def _preset(name: str) -> Preset:
    module = __import__(f"swarm.presets.{name}", fromlist=[_MODULES[name]])
    found: Preset = getattr(module, _MODULES[name])()
    return found
