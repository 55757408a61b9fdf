"""An agent that must end gets SIGTERM, and SIGKILL when its grace is over."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

from swarm.workers.ending import Ending


def test_no_signal_is_due_before_the_ending_starts() -> None:
    ending = Ending()
    assert not ending.has_started and ending.due(1e9) is None


def test_sigterm_is_due_at_once_and_sigkill_after_the_grace() -> None:
    ending = Ending()
    ending.start(100.0, grace=10.0)
    assert ending.has_started and ending.due(100.0) is SIGTERM
    assert ending.due(100.0) is None and ending.kill_at == 110.0
    assert ending.due(109.9) is None and ending.due(110.0) is SIGKILL


def test_sigkill_is_sent_again_every_second() -> None:
    ending = Ending()
    ending.start(0.0, grace=0.0)
    assert [ending.due(moment) for moment in (0.0, 0.0, 0.5, 1.0, 1.5, 2.0)] == [
        SIGTERM,
        SIGKILL,
        None,
        SIGKILL,
        None,
        SIGKILL,
    ]


def test_sigkill_is_brought_forward_and_never_put_off() -> None:
    ending = Ending()
    ending.start(0.0, grace=60.0)
    ending.hurry(0.0, 50.0)
    assert ending.due(0.0) is SIGTERM and ending.kill_at == 50.0
    ending.hurry(1.0, 2.0)
    ending.hurry(1.0, 30.0)
    assert ending.due(2.9) is None and ending.due(3.0) is SIGKILL


def test_sigterm_comes_first_also_in_a_hurry() -> None:
    ending = Ending()
    ending.start(0.0, grace=60.0)
    ending.hurry(0.0, 0.0)
    assert [ending.due(0.0), ending.due(0.0), ending.due(0.0)] == [SIGTERM, SIGKILL, None]
