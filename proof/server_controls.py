"""Controls for servers: stores, locks and logs with one rule left out.

The checker must catch each control. Most controls use only the store's own methods, so
they fit every server. A missing rule shows only when a disturbance comes at a bad
moment. So each control is disturbed in the way that makes its fault visible.
"""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from swarm.errors import StoreError
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.servers.server import Server, running
from tests.support.servers.valkey import ValkeyServer

if TYPE_CHECKING:
    from proof.crew import Crew
    from proof.worker import Worker

_WORKERS = 8
_ROUNDS = 20
_TIMEOUT = 0.4  # seconds that a worker tries to reach the server
_SILENCE = 0.8  # seconds after which a worker has given up


class Control(NamedTuple):
    """`sign` is the beginning of the violation that shows the control.

    `server` is the only server that the control fits, "" for all.
    """

    name: str
    sign: str
    server: str = ""

    @property
    def is_about_locks(self) -> bool:
        return self.sign in ("two holders at once", "tokens out of order", "a lost update")


READS_ALONE = "reads that a member answers alone"  # for a cluster

CONTROLS = (
    Control("a lock that does not compare", "two holders at once"),
    Control("a token that is not compared", "tokens out of order"),
    Control("a counter that takes late writes", "a lost update"),
    Control("an append that is sent again as another", "the log holds records of"),
    Control("an append that takes silence for yes", "the log lacks"),
    Control("a cursor at the end of the log", "readers disagree"),
    Control("line numbers that are taken before the commit", "readers disagree", "PostgreSQL"),
    Control("a commit that is not waited for", "the log lacks", "PostgreSQL"),
    Control("a server that keeps nothing", "the log lacks", "Valkey"),
)


def controls_of(server: str) -> list[Control]:
    return [control for control in CONTROLS if control.server in ("", server)]


def caught(control: Control, seed: int, server: Server) -> str:
    """Return the violation that shows a control, "" if none does.

    The violation depends on chance, so there are several rounds.
    """
    with tempfile.TemporaryDirectory(prefix="swarm-control-") as directory, ExitStack() as stack:
        if control.name == "a server that keeps nothing":
            server = stack.enter_context(
                running(ValkeyServer(Path(directory) / "server", safe=False))
            )
        stack.enter_context(_prepared(control))
        for number in range(_ROUNDS):
            violations = _round(control, seed + number, server, f"{directory}/{number}")
            found = [violation for violation in violations if violation.startswith(control.sign)]
            if found:
                return found[0]
    return ""


def install_control(worker: Worker, control: str) -> None:
    """Replace the locks or the log of a worker by a control."""
    if control == "a lock that does not compare":
        worker.locks = LockTable(_Blind(worker.store))
    elif control == "a token that is not compared":
        worker.locks = LockTable(_Trusting(worker.store))
    elif control == "an append that is sent again as another":
        worker.store = _Insistent(worker.store)
    elif control == "an append that takes silence for yes":
        worker.store = _Hopeful(worker.store)
    elif control == "a commit that is not waited for":
        _skip_waiting_for_commits()
    accept_single_member_reads(control)


def accept_single_member_reads(control: str) -> None:
    """If `control` says so, let this process accept answers of a single cluster member."""
    if control != READS_ALONE:
        return
    from swarm.stores import etcd

    names = vars(etcd)
    asked = names["get"]
    names["get"] = lambda key, end="", **options: asked(
        key, end, **{**options, "serializable": True}
    )


def wrap_reader(store: Store, control: str) -> Store:
    """Return the store that a follower reads through."""
    return _AtTheEnd(store) if control == "a cursor at the end of the log" else store


def _round(control: Control, seed: int, server: Server, directory: str) -> list[str]:
    from proof.crew import Crew
    from proof.worker import Plan

    late = control.name == "a counter that takes late writes"
    plan = Plan(
        directory,
        seed,
        ("a", "b") if control.is_about_locks else tuple("abcdefghijklmnop"),
        control=control.name,
        leases=(0.03,) if late else (0.05, 0.2),
        sleep_share=0.5 if late else 0.0,
        expire_share=0.3 if control.name == "a lock that does not compare" else 0.0,
        heartbeat_share=0.0,
        log_share=1.0,
        popular_share=0.3 if control.is_about_locks else 0.0,
        fenced=not late,
        server=server.url(f"control{uuid.uuid4().hex}"),
        timeout=_TIMEOUT,
    )
    store = open_store(plan.address)
    store.token_bound("locks/a")  # create the tables here, with the patched function
    store.close()
    crew = Crew(plan, server)
    with crew:
        for _ in range(_WORKERS):
            crew.start()
        for name in ("f0", "f1"):
            crew.follow(name)
        _disturb(control, crew, random.Random(seed))
        crew.look()
        assert not server.has_ended(), "the server ended by itself"
    return crew.examine()[1]


def _disturb(control: Control, crew: Crew, rng: random.Random) -> None:
    time.sleep(0.3)
    if control.sign == "the log lacks":
        crew.restart_server(after=2 * _TIMEOUT if "silence" in control.name else 0.0)
    elif "again" in control.name:
        crew.pause_server(_SILENCE)
        while crew.server_is_paused:
            time.sleep(0.01)
            crew.resume_server_in_time()
    else:
        for _ in range(30):
            time.sleep(rng.expovariate(60))
            crew.wake()
            if len(crew.awake) > _WORKERS // 2:
                crew.stop(rng.choice(crew.awake), rng.choice((0.03, 0.1)))
    time.sleep(0.3)


@contextmanager
def _prepared(control: Control) -> Iterator[None]:
    if control.name != "line numbers that are taken before the commit":
        yield
        return
    from swarm.stores import postgres

    lock = """insert into {0}.logs as counter values (log, 1)
    on conflict (name) do update set last = counter.last + 1 returning last::text into result;"""
    without = """insert into {0}.logs values (log, 1::bigint << 40) on conflict do nothing;
    result := nextval('{0}.numbers')::text;
    perform pg_sleep(random() * 0.01);"""  # as on a busy server
    made = postgres._CREATE
    changed = made.replace(lock, without).replace(
        "create table {0}.meta", "create sequence {0}.numbers; create table {0}.meta"
    )
    assert lock in made, "the function is another one now"
    with patch.object(postgres, "_CREATE", changed):
        yield


class _Passing:
    """A store that passes every call on to another."""

    def __init__(self, store: Store) -> None:
        self._inner = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Blind(_Passing):
    """Change the current record instead of the record that was compared."""

    def create(self, key: str, data: bytes) -> bool:
        found = self._inner.read(key)
        return (
            self._inner.create(key, data)
            if found is None
            else self._inner.replace(key, found, data)
        )

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        return self.create(key, new)


class _Trusting(_Passing):
    """Assume that its own token is the last one, and sometimes sleep after taking it."""

    def next_token(self, key: str) -> int:
        self._mine: int = self._inner.next_token(key)
        time.sleep(random.choice((0.0, 0.0, 0.03)))
        return self._mine

    def token_bound(self, key: str) -> int:
        return self._mine


class _Hopeful(_Passing):
    """Count a missing answer as success."""

    def append(self, log: str, line: bytes) -> str:
        try:
            return self._inner.append(log, line)
        except StoreError:
            return ""


class _Insistent(_Passing):
    """Count a missing answer as failure, and append again."""

    def append(self, log: str, line: bytes) -> str:
        while True:
            try:
                return self._inner.append(log, line)
            except StoreError:
                continue


class _AtTheEnd(_Passing):
    """Use the end of the log as the cursor after every read."""

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        lines, after = self._inner.read_log(log, cursor, limit)
        return lines, self._inner.tail(log, 0)[1] if lines else after


def _skip_waiting_for_commits() -> None:
    from swarm.stores import postgres

    wanted = "replace(current_setting('synchronous_commit'), 'off', 'on')"
    assert wanted in postgres._OPEN, "the statement is another one now"
    postgres._OPEN = postgres._OPEN.replace(wanted, "'off'")
