"""Hold a hook: wait for the answer of a person while the agent waits for its hook.

An agent ends a hook that it needs no more with SIGTERM. Then, and if the agent itself has
ended, no process needs the answer, and the question is withdrawn.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from swarm import settings
from swarm.agents import identity
from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_questions import Asked, Held, HookQuestions
from swarm.agents.hook_request import Answer, call_key
from swarm.agents.hook_state import HookState
from swarm.agents.hooks import AgentHooks
from swarm.errors import StoreError
from swarm.stores.default import default_store
from swarm.system import process
from swarm.system.family import Watched

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Ended(BaseException):
    """The agent ends this hook."""


class HeldHook:
    """The hook of one request of an agent. Make it in the main thread, at once."""

    def __init__(self, event: HookEvent, worker: str) -> None:
        self._event = event
        self._worker = worker
        self._is_ended = False
        self._holds = False
        for number in _SIGNALS:
            signal.signal(number, self._end)
        self._agent = Watched(identity.find().pid)

    def decide(self) -> Answer | Asked | None:
        """Return the policy's answer, the questions that were asked, or None if the
        agent's own prompt decides.
        """
        found = self._questions().decide(self._event, HookState(self._worker))
        if found is None and not settings.is_headless():  # without a terminal: no prompt
            self._hooks().answer(self._event)
        return found

    def hold(self, asked: Asked, put: Callable[[Answer], object]) -> int:
        """Wait for the answer, and `put` it out for the agent. Return the exit code."""
        questions, held = self._questions(), Held()
        try:
            self._holds = True
            if not self._is_ended:
                held = questions.hold(asked, age=process.age(), stopped=self._stopped)
            self._holds = False
        except _Ended:
            pass
        if held.answer is not None and not self._is_ended:
            put(held.answer)
        questions.close(asked)
        if held.waits and not self._is_ended:
            self._hooks().answer(self._event)
        return 1 if self._is_ended else 0

    def _end(self, number: int, frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # withdrawing the question must not be cut off
        self._is_ended = True
        if self._holds:
            raise _Ended

    def _stopped(self) -> bool:
        """Keep the agent's leases alive, and return whether the agent, or this hook, has
        ended. A signal whose exception was lost, in a finalizer for example, counts too.
        """
        if self._is_ended:
            return True
        try:
            self._remember()
            self._hooks().keep_alive()
        except StoreError:
            pass  # the next call tries again
        return self._agent.has_ended()

    def _remember(self) -> None:
        """Note again that this hook asks, if another hook has written an older state."""
        state, key = HookState(self._worker), call_key(self._event)
        if key not in state.asks:
            state.asks.append(key)
            state.save()

    def _questions(self) -> HookQuestions:
        return HookQuestions(
            default_store(), self._worker, settings.task(), is_headless=settings.is_headless()
        )

    def _hooks(self) -> AgentHooks:
        """Return hooks with the state as it is now: other hooks of the agent change it."""
        return AgentHooks(default_store(), self._worker, HookState(self._worker), settings.task())
