"""The scenarios that the explorer visits completely.

In the large scenarios private calls are done at once, and tokens take no steps: see
`disk.Disk.is_private` and `simulated_process.Rules`. A directory lists its names sorted
and backwards. In `INTENT_LEFT`, a directory lists its names in every order, and in the
huge scenarios only sorted.
"""

from __future__ import annotations

from typing import Any

from proof.simulated_process import Rules
from proof.world import Scenario

_CYCLE = ["acquire", "heartbeat", "release"]
_ROUND = ["acquire", "release"]
_TWO_SCRATCHES = Rules(scratches=2)
_THREE_SCRATCHES = Rules(scratches=3)
_BACKWARDS = Rules(scratches=2, backwards=True)
_TWO = [["acquire"], ["acquire"]]
_LARGE: Any = {"at_once": True, "rules": Rules(tokens=False)}
_EVERY_ORDER: Any = {"at_once": True, "rules": Rules(tokens=False, orders="every")}
# with a second order, these scenarios would not fit into memory
_HUGE: Any = {"at_once": True, "rules": Rules(tokens=False, orders="sorted")}
_HUGE_BACKWARDS: Any = {
    "at_once": True,
    "rules": Rules(tokens=False, backwards=True, orders="sorted"),
}
_HELD = ((0, 1),)  # w0 has the lock at the start

TWO_FRESH = Scenario("two take a free lock", [["acquire"], ["acquire"]])
TWO_ROUNDS = Scenario("two take a free lock and release it", [_ROUND, _ROUND])
HOLDER_AND_TAKEOVER = Scenario(
    "a holder keeps it, releases it; another takes over",
    [_CYCLE, ["acquire"]],
    _HELD,
    rules=_THREE_SCRATCHES,
)
TAKEOVER_GOES_FIRST = Scenario(
    "the same, and the other goes first", [_CYCLE, ["acquire"]], _HELD, rules=_BACKWARDS
)
HOLDER_AND_ROUND = Scenario(
    "a holder keeps it, releases it; another takes over, releases it", [_CYCLE, _ROUND], _HELD
)
LONGER_ROUNDS = Scenario(
    "the same, and each is revoked once", [_CYCLE, _ROUND], _HELD, rules=_TWO_SCRATCHES
)
PERSON_REMOVES = Scenario(
    "a cycle, a takeover, a person removes the file",
    [_CYCLE, ["acquire"]],
    _HELD,
    person=("rm",),
    rules=_TWO_SCRATCHES,
)
PERSON_REMOVES_BACKWARDS = Scenario(
    "the same, and the takeover goes first",
    [_CYCLE, ["acquire"]],
    _HELD,
    person=("rm",),
    rules=_BACKWARDS,
)
PERSON_WRITES = Scenario(
    "a release, a takeover, a person writes the file",
    [_ROUND, ["acquire"]],
    _HELD,
    person=("write", "rm"),
)
PERSON_EDITS = Scenario(
    "a heartbeat, a takeover, a person edits it",
    [_CYCLE[:2], ["acquire"]],
    _HELD,
    person=("edit", "rm"),
)
PERSON_EMPTIES = Scenario(
    "a release, a takeover, a person empties it", [_ROUND, ["acquire"]], _HELD, person=("empty",)
)
PERSON_AND_NEWCOMER = Scenario(
    "a heartbeat, a newcomer, a person removes it twice",
    [_CYCLE[:2], ["acquire"]],
    _HELD,
    person=("rm", "rm"),
)
PERSON_REPEATS = Scenario(
    "two takeovers, a person writes the very same bytes twice",
    [_ROUND, ["acquire"]],
    person=("write", "rm", "write"),
    **_HUGE,
)
TWO_CYCLES = Scenario("two take a free lock, keep it, release it", [_CYCLE, _CYCLE], **_LARGE)
TWO_TAKEOVERS_AND_HEARTBEAT = Scenario(
    "a heartbeat, two takeovers", [_CYCLE[:2], *_TWO], _HELD, **_LARGE
)
HEARTBEAT_GOES_LAST = Scenario(
    "the same, and the heartbeat goes last", [_CYCLE[:2], *_TWO], _HELD, **_HUGE_BACKWARDS
)
TWO_TAKEOVERS_AND_RELEASE = Scenario("a release, two takeovers", [_ROUND, *_TWO], _HELD, **_LARGE)
TWO_TAKEOVERS_AND_PERSON = Scenario(
    "a release asleep behind its intent, two takeovers, a person removes it",
    [_ROUND, *_TWO],
    _HELD,
    2,
    ("rm",),
    **_LARGE,
)
THREE_FRESH = Scenario("three take a free lock", [["acquire"], *_TWO], **_HUGE)
THREE_ROUNDS = Scenario(
    "a release, two takeovers, each releases it", [_ROUND, _ROUND, _ROUND], _HELD, **_HUGE
)
INTENT_LEFT = Scenario(
    "a heartbeat asleep behind its intent, two takeovers",
    [_CYCLE[:2], *_TWO],
    _HELD,
    asleep=3,
    **_EVERY_ORDER,
)
COLLECTOR = Scenario(
    "a release, a takeover, a garbage collector",
    [_ROUND, ["acquire"], ["collect_garbage"]],
    _HELD,
    rules=_TWO_SCRATCHES,
)
COLLECTOR_AND_PERSON = Scenario(
    "a heartbeat, a takeover, a garbage collector, a person removes it",
    [_CYCLE[:2], ["acquire"], ["collect_garbage"]],
    _HELD,
    person=("rm",),
)
PRIVATE_REMOVED = Scenario(
    "a cycle, a takeover, the private directories are removed",
    [_CYCLE, ["acquire"], ["remove_private"]],
    _HELD,
    rules=Rules(tokens=False, laid_out=False),
)
PRIVATE_REMOVED_AND_PERSON = Scenario(
    "a release, a newcomer, the same, a person removes it",
    [_ROUND, ["acquire"], ["remove_private"]],
    _HELD,
    person=("rm",),
    rules=Rules(scratches=2, tokens=False, laid_out=False, orders="sorted"),
)
DEATH = Scenario(
    "a cycle and a round, one is killed and is replaced", [_CYCLE, _ROUND], _HELD, deaths=1
)
DEATH_AND_PERSON = Scenario(
    "a cycle and a takeover, one is killed, a person removes it",
    [_CYCLE, ["acquire"]],
    _HELD,
    person=("rm",),
    deaths=1,
)
TWO_DEATHS = Scenario(
    "two rounds, two are killed and are replaced", [_ROUND, _ROUND], _HELD, deaths=2
)
FORK = Scenario(
    "a parent keeps it, releases it; its forked child takes over",
    [_CYCLE, ["acquire"]],
    _HELD,
    forked=True,
)
THREADS = Scenario(
    "a thread keeps it, releases it; another thread takes over",
    [_CYCLE, ["acquire"]],
    _HELD,
    threads=True,
    rules=_THREE_SCRATCHES,
)
THREADS_AND_OTHER = Scenario(
    "a heartbeat, a takeover by another process and one by a thread",
    [_CYCLE[:2], *_TWO],
    _HELD,
    threads=True,
    **_HUGE,
)

ALL = [value for value in list(vars().values()) if isinstance(value, Scenario)]
SHORT = [
    LONGER_ROUNDS,
    PERSON_EDITS,
    DEATH_AND_PERSON,
    THREADS._replace(rules=_TWO_SCRATCHES),
    COLLECTOR._replace(rules=Rules()),
]
