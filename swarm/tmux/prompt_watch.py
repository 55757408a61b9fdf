"""Watch the panes of interactive agents without hooks, and answer their prompts.

A prompt is answered if its class is among those that the user chose, and if

- it has stood unchanged for a moment, and still stands right before the keys are typed;
- no person has typed in the pane just now;
- the pause after the last answer is over, and the bounds are not reached;
- this very screen has not been answered before.

Every answer becomes a status record. Any other prompt becomes a WAIT record, once. After
an answer that could not be logged, nothing is typed until it is logged. swarm reads and
types only in panes that it made. The screen of an agent whose hooks report is not read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from swarm.errors import BadInput
from swarm.project.prompts import ANSWERED, Prompts
from swarm.tmux.agent import AgentPane
from swarm.tmux.manager import TmuxSwarmManager
from swarm.tmux.pane_screens import PaneScreen, person_typed, read_screens, type_keys
from swarm.tmux.prompt_patterns import OwnPatterns
from swarm.tmux.prompt_records import PromptRecords, Tasks, key_names
from swarm.tmux.prompts import DANGER, Prompt, classify
from swarm.tmux.server import TmuxServer

OFF, DRY_RUN, ALL = "off", "dry-run", "all"
TYPED, WAITS, GONE = "typed", "waits", "gone"
MODES = (OFF, DRY_RUN, *ANSWERED, ALL)
_MINUTE = 60.0  # seconds
_MAX_SAME, _SAME_WITHIN = 5, 600.0  # answers to one text, and seconds


@dataclass(frozen=True)
class Rules:
    """What is answered, and how often. Times are seconds.

    `quiet` is the time for which a prompt must stand unchanged, `person_pause` the time
    after a person's last key in the pane.
    """

    answer: frozenset[str] = frozenset()
    dry_run: bool = False
    pause: float = 5.0
    per_minute: int = 6
    own: OwnPatterns = field(default_factory=OwnPatterns)
    quiet: float = 1.5
    person_pause: float = 30.0


def mode_of(prompts: Prompts) -> str:
    """Return the mode that swarm.toml asks for."""
    if not prompts.answer:
        return OFF
    if prompts.dry_run:
        return DRY_RUN
    return ALL if len(set(prompts.answer)) > 1 else prompts.answer[0]


def rules_of(prompts: Prompts, mode: str = "") -> Rules:
    """Return the rules of swarm.toml, or with another mode than swarm.toml has.

    Raise BadInput if the mode is unknown.
    """
    mode = mode or mode_of(prompts)
    check_mode(mode)
    chosen = {DRY_RUN: prompts.answer or ANSWERED, ALL: ANSWERED, OFF: ()}.get(mode, (mode,))
    return Rules(
        frozenset(chosen),
        mode == DRY_RUN,
        prompts.pause,
        prompts.per_minute,
        OwnPatterns(*map(_compiled, (prompts.danger, prompts.confirm, prompts.enter))),
    )


def check_mode(mode: str) -> None:
    if mode not in MODES:
        raise BadInput(f"{mode[:40]!r} is no way to answer prompts. Use one of: {', '.join(MODES)}")


def _compiled(texts: object) -> tuple[re.Pattern[str], ...]:
    assert isinstance(texts, (list, tuple))
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


@dataclass
class _PaneState:
    """What is known of one pane since its process started."""

    pid: int
    seen: Prompt | None = None
    since: float = 0.0
    answered: Prompt | None = None
    waits: Prompt | None = None  # for a person, as the log says
    tasks: Tasks = field(default_factory=dict)
    answers: list[tuple[float, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Event:
    """A thing that happened at a prompt, for the person who looks on.

    `what` is TYPED with the keys as `detail`, WAITS with the reason, or GONE.
    """

    agent: str
    what: str
    kind: str
    text: str
    detail: str


class PromptWatch:
    """Watches the panes of a swarm. Call `look` about once a second, and `end` at last."""

    def __init__(
        self,
        manager: TmuxSwarmManager,
        rules: Rules,
        records: PromptRecords,
        report: Callable[[Event], object] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager = manager
        self._tmux = TmuxServer(manager.state_dir)
        self._rules = rules
        self._records = records
        self._report = report
        self._clock = clock
        self._panes: dict[str, _PaneState] = {}
        self._unlogged: list[Callable[[], None]] = []

    def look(self) -> None:
        """Look at every pane once, and answer what is to be answered.

        Raise StoreError if a record cannot be written; it is written at the next look.
        Raise TmuxSwarmError if tmux cannot be used.
        """
        self._write()
        agents = {agent.name: agent for agent in self._manager.without_hooks()}
        for name in self._panes.keys() - agents.keys():
            self._settle(name, self._panes.pop(name))
        screens = read_screens(self._tmux, [agent.pane_id for agent in agents.values()])
        for agent in agents.values():
            pane = screens.get(agent.pane_id)
            if pane is not None and pane.pid == agent.pid:
                self._look_at(agent, pane)

    def end(self) -> None:
        """End the waits that were logged."""
        self._write()
        for name, state in self._panes.items():
            self._settle(name, state)

    def _look_at(self, agent: AgentPane, pane: PaneScreen) -> None:
        assert agent.pid is not None
        state = self._panes.setdefault(agent.name, _PaneState(agent.pid))
        if state.pid != agent.pid:
            self._settle(agent.name, state)
            state = self._panes[agent.name] = _PaneState(agent.pid)
        prompt, now = classify(pane.screen, self._rules.own), self._clock()
        if prompt != state.waits:
            self._settle(agent.name, state)
        if prompt != state.answered:
            state.answered = None
        if prompt != state.seen:
            state.seen, state.since = prompt, now
        if prompt is None or prompt == state.waits or now - state.since < self._rules.quiet:
            return
        if why := self._refusal(state, prompt, now):
            self._log_wait(agent.name, state, prompt, why)
        elif self._may_answer_now(state, now):
            self._answer(agent, state, prompt, now)

    def _refusal(self, state: _PaneState, prompt: Prompt, now: float) -> str:
        """Return why a person must answer, "" if swarm may answer."""
        rules = self._rules
        if prompt.kind == DANGER or not prompt.keys:
            return prompt.reason
        if prompt.kind not in rules.answer:
            return f"swarm does not answer the class {prompt.kind} here"
        if rules.dry_run:
            return f"dry run: swarm would type {key_names(prompt.keys)}"
        if prompt == state.answered:
            waited = now - state.answers[-1][0] >= max(rules.pause, rules.quiet)
            return "the answer of swarm has changed nothing" if waited else ""
        same = [at for at, text in state.answers if text == prompt.text]
        if len([at for at in same if now - at < _SAME_WITHIN]) >= _MAX_SAME:
            return f"swarm has answered it {_MAX_SAME} times within {_SAME_WITHIN / _MINUTE:g} min"
        return ""

    def _may_answer_now(self, state: _PaneState, now: float) -> bool:
        state.answers = [answer for answer in state.answers if now - answer[0] < _SAME_WITHIN]
        times = [at for at, _ in state.answers]
        return (
            state.answered is None
            and (not times or now - times[-1] >= self._rules.pause)
            and len([at for at in times if now - at < _MINUTE]) < self._rules.per_minute
        )

    def _answer(self, agent: AgentPane, state: _PaneState, prompt: Prompt, now: float) -> None:
        if person_typed(self._tmux, agent.pane_id, self._rules.person_pause):
            return
        if not self._still_stands(agent, prompt):
            return
        type_keys(self._tmux, agent.pane_id, prompt.keys)
        state.answered = prompt
        state.answers.append((now, prompt.text))
        self._log(lambda: self._records.answered(agent.name, prompt))
        self._report(Event(agent.name, TYPED, prompt.kind, prompt.text, key_names(prompt.keys)))

    def _still_stands(self, agent: AgentPane, prompt: Prompt) -> bool:
        """Return whether the pane is the same agent's, without hooks, at the same prompt."""
        agents = [(each.name, each.pid, each.pane_id) for each in self._manager.without_hooks()]
        if (agent.name, agent.pid, agent.pane_id) not in agents:
            return False
        pane = read_screens(self._tmux, [agent.pane_id]).get(agent.pane_id)
        return (
            pane is not None
            and pane.pid == agent.pid
            and pane.takes_keys
            and classify(pane.screen, self._rules.own) == prompt
        )

    def _log_wait(self, name: str, state: _PaneState, prompt: Prompt, why: str) -> None:
        state.waits = prompt

        def write() -> None:
            state.tasks = self._records.waits(name, prompt, why)

        self._log(write)
        self._report(Event(name, WAITS, prompt.kind, prompt.text, why))

    def _settle(self, name: str, state: _PaneState) -> None:
        if state.waits is None:
            return
        gone, state.waits = state.waits, None

        def settle() -> None:
            self._records.over(name, state.tasks)
            state.tasks = {}

        self._log(settle)
        self._report(Event(name, GONE, gone.kind, gone.text, ""))

    def _log(self, write: Callable[[], None]) -> None:
        self._unlogged.append(write)
        self._write()

    def _write(self) -> None:
        """Write the records that are due, the oldest first."""
        while self._unlogged:
            self._unlogged[0]()
            del self._unlogged[0]
