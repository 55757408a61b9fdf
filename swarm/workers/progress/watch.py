"""Notice that an attempt is stuck, and do what the project has chosen.

    stalled    no sign of work for `stalled_after` seconds; see `signs`
    loops      the same tool call again and again; see `loops`

Either is reported once: a HELP record with the evidence in its `meta`. When the attempt goes
on, a START record follows. The project may choose that the agent is interrupted too, or
that the attempt ends and has failed, with the evidence for the next attempt.

A busy attempt costs nothing: a look at more than its output begins when the output has
been silent for half of the time. Its CPU time is noted then, and compared at the end.
The look has a thread of its own, since a store may not answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from signal import SIGINT
from typing import Any

from swarm.errors import StoreError
from swarm.presets.contract import ToolCall
from swarm.project.config import Progress
from swarm.queue.queue import Claim
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.system.background import BackgroundCall
from swarm.system.threads import start_without_signals
from swarm.terminal.text import duration, shorten, shown
from swarm.workers.markers import Markers
from swarm.workers.output import AgentOutput
from swarm.workers.progress.loops import CallLoops
from swarm.workers.progress.signs import Look, Signs, latest_record, waits_for_a_person

TELL, INTERRUPT, RETRY = "tell", "interrupt", "retry"
# The part of one CPU that an agent's processes use at least if they work. An agent that
# only waits for its model uses less.
MIN_CPU_SHARE = 0.05
_MAX_PAUSE = 60.0  # seconds between two looks at a stalled attempt
_MAX_TEXT = 160  # characters of the last line
_INTERRUPTED = 128 + SIGINT
_NOTHING = "it has shown no sign of work yet"


class Silence:
    """How long an attempt has shown no sign of work. `now` is of the monotonic clock.

    `after` is the number of seconds after which it is stalled, 0 for never. `last` is
    when the last sign was, and `sign` names it; "" is its output.
    """

    def __init__(self, after: float, now: float) -> None:
        self.last = now
        self.sign = _NOTHING
        self.is_stalled = False
        self._after = after
        self._looked = now
        self._before: Look | None = None

    def note(self, at: float, sign: str = "") -> None:
        """Note a sign of work, which may be older than the last one."""
        self.is_stalled = False
        if at > self.last:
            self.last, self.sign = at, sign

    def is_due(self, now: float) -> bool:
        """Return whether it is time to look for signs."""
        pause = self._after / 2
        if self.is_stalled:
            pause = min(pause, _MAX_PAUSE)
        return self._after > 0 and now >= max(self.last, self._looked) + pause

    def is_long(self, now: float) -> bool:
        """Return whether the attempt is stalled, unless a look finds a sign."""
        return now >= self.last + self._after

    def begin_look(self, now: float) -> None:
        self._looked = now

    def take(self, look: Look) -> None:
        """Decide with what a look has found.

        A first look has no CPU time to compare with; the next one decides.
        """
        before, self._before = self._before, look
        if look.waits:
            self.note(look.at, look.waits)
            return
        if look.at - look.age > self.last:
            self.note(look.at - look.age, look.sign)
        if look.cpu is not None:
            if before is None or before.cpu is None or before.at < self.last:
                return
            if look.cpu - before.cpu >= MIN_CPU_SHARE * (look.at - before.at):
                self.note(look.at, "its processes run")
        self.is_stalled = self.is_long(look.at)


class ProgressWatch:
    """Watches one process of an attempt.

    `on_change` is called after each record, by the thread that calls `look`: with
    "stuck" or "goes on", and with the evidence.
    """

    def __init__(
        self,
        rules: Progress,
        signs: Signs,
        log: StatusLog,
        claim: Claim,
        output: AgentOutput,
        markers: Markers,
        is_lost: Callable[[], bool],
        on_change: Callable[[str, str], object] = lambda what, text: None,
    ) -> None:
        self._rules = rules
        self._signs = signs
        self._log = log
        self._claim = claim
        self._output = output
        self._markers = markers
        self._is_lost = is_lost
        self._on_change = on_change
        self._changes: deque[tuple[str, str]] = deque()
        self._silence = Silence(rules.stalled_after, time.monotonic())
        self._loops = CallLoops(rules.loop_calls)
        self._bytes = output.bytes_read
        self._call: BackgroundCall[Look] | None = None
        self._reported: set[str] = set()
        self._acted_on = ""

    def look(self, now: float, calls: Iterable[ToolCall]) -> str:
        """Take the newest output and tool calls. Return what must follow now: TELL for
        nothing more than was done here, INTERRUPT or RETRY.
        """
        while self._changes:
            self._on_change(*self._changes.popleft())
        if self._output.bytes_read != self._bytes:
            self._bytes = self._output.bytes_read
            self._silence.note(now)
        self._loops.add(calls)
        self._look_closely(now)
        loop, follows = self._loops.found(), TELL
        if self._is_new("stalled", self._silence.is_stalled):
            text, evidence = self._stall(now)
            follows = self._report(text, events.stalled(evidence, self._claim.token))
        if self._is_new("loops", loop is not None) and loop is not None:
            follows = self._report(loop.text, events.loops(loop.evidence(), self._claim.token))
        return follows

    def _is_new(self, what: str, is_so: bool) -> bool:
        """Return whether something begins to be so. If it ends, report that too."""
        if is_so and what not in self._reported:
            self._reported.add(what)
            return True
        if not is_so and what in self._reported:
            self._reported.remove(what)
            if not self._reported:
                self._markers.put(self._go_on)
        return False

    def _report(self, text: str, meta: Mapping[str, Any]) -> str:
        self._markers.put(partial(self._ask_for_help, text, meta))
        follows = self._rules.on_stall if "stalled" in meta else self._rules.on_loop
        if follows != TELL:
            self._acted_on = text
        return follows

    def why_ended(self, exit_code: int) -> str:
        """Return why the agent was interrupted or ended, "" if it has ended otherwise.

        An agent may go on after an interrupt, and fail for another reason.
        """
        return self._acted_on if self._reported or exit_code == _INTERRUPTED else ""

    def _ask_for_help(self, text: str, meta: Mapping[str, Any]) -> None:
        """Log that the attempt is stuck, unless its agent has asked for a person."""
        latest = latest_record(self._log, self._claim.task.id)
        if not waits_for_a_person(latest, self._claim.token):
            self._append("HELP", text, meta)

    def _go_on(self) -> None:
        """Log that the attempt goes on, unless another record has replaced ours."""
        if events.is_stuck(latest_record(self._log, self._claim.task.id), self._claim.token):
            self._append("START", "goes on", {"token": self._claim.token})

    def _append(self, state: str, text: str, meta: Mapping[str, Any]) -> None:
        if not self._is_lost():
            self._log.append(state, self._claim.worker, self._claim.task.id, text, meta)
            self._changes.append(("stuck", text) if state == "HELP" else (text, ""))

    def _stall(self, now: float) -> tuple[str, dict[str, Any]]:
        silence, clock = self._silence, self._log.store.clock
        seconds = now - silence.last
        line = (self._output.last_lines(1) or [""])[-1]
        last = shorten(shown(line or silence.sign), _MAX_TEXT)
        evidence = {
            "seconds": round(seconds, 1),
            "last": last,
            "last_sign": silence.sign or "output",
            "last_at": clock.written(clock.now() - seconds),
        }
        silent_for = duration(seconds).removesuffix(" 0 s")
        return f'stalled: no sign of work for {silent_for}; last: "{last}"', evidence

    def _look_closely(self, now: float) -> None:
        """Begin a look if one is due, or take what the last one has found."""
        if self._call is not None:
            if not self._call.wait(0):
                return
            call, self._call = self._call, None
            try:
                self._silence.take(call.result())
            except StoreError:
                pass  # the next look may find out more
        if self._silence.is_due(now):
            self._silence.begin_look(now)
            look = self._signs.look if self._silence.is_long(now) else self._signs.glance
            try:
                self._call = BackgroundCall(look, "progress").start(_in_thread)
            except StoreError:
                pass  # no thread can be started now


def _in_thread(call: Callable[[], object]) -> bool:
    try:
        start_without_signals(threading.Thread(target=call, name="progress", daemon=True))
    except (RuntimeError, MemoryError):
        return False
    return True
