"""Peers on PostgreSQL."""

from __future__ import annotations

import asyncio
import atexit
import os
import time
import uuid
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import psycopg

from bench.marks import mark
from bench.peers import Acquire, LockPeer, Peers, QueuePeer, Release, module
from tests.support.servers.postgres import PostgresServer

_CLAIM = (
    "update raw_task set state = 'running', worker = %s where queue = %s and id = (select id "
    "from raw_task where queue = %s "
    "and state = 'ready' order by id for update skip locked limit 1) returning id"
)


def peers() -> Peers:
    return Peers(
        locks=[
            LockPeer("raw INSERT, DELETE", _raw_lock, "no", "no", "no", "yes"),
            LockPeer("pg_advisory_lock, unlock", _advisory_lock, "no", "no", "yes", "sessions"),
        ],
        appends={"raw INSERT, a row a commit": _insert},
        wakes={"raw NOTIFY, LISTEN": (_listening, _notifying)},
        queues={
            "raw UPDATE … SKIP LOCKED, UPDATE": RawQueue,
            "pgqueuer": PgqueuerQueue,
            "procrastinate": ProcrastinateQueue,
        },
    )


def prepare(port: int) -> None:
    """Make the tables of the raw peers, of procrastinate and of pgqueuer."""
    connection = _connection(port)
    connection.execute("create table raw_lock (name text primary key, owner text not null)")
    connection.execute(
        "create table raw_log (id bigint generated always as identity primary key, line bytea "
        "not null)"
    )
    connection.execute(
        "create table raw_task (queue text, id integer, state text not null, worker text, "
        "primary key (queue, id))"
    )
    connection.execute("create index on raw_task (queue, id) where state = 'ready'")
    _run(_with_manager(port, _apply_schema))
    _run(_with_queries(port, lambda queries: queries.install()))


def _connection(port: int) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(_login(port), autocommit=True)


def _login(port: int) -> str:
    return (
        f"host=127.0.0.1 port={port} user={PostgresServer.user} "
        f"password={PostgresServer.password} dbname=postgres"
    )


# Locks --------------------------------------------------------------------------------


def _raw_lock(port: int) -> tuple[Acquire, Release]:
    connection, me = _connection(port), os.urandom(16).hex()

    def acquire(name: str) -> None:
        while (
            connection.execute(
                "insert into raw_lock values (%s, %s) on conflict do nothing", (name, me)
            ).rowcount
            == 0
        ):
            time.sleep(0.001)

    return acquire, lambda name: connection.execute(
        "delete from raw_lock where name = %s and owner = %s", (name, me)
    )


def _advisory_lock(port: int) -> tuple[Acquire, Release]:
    connection = _connection(port)
    return (
        lambda name: connection.execute(
            "select pg_advisory_lock(hashtextextended(%s, 0))", (name,)
        ),
        lambda name: connection.execute(
            "select pg_advisory_unlock(hashtextextended(%s, 0))", (name,)
        ),
    )


# The log ------------------------------------------------------------------------------


def _insert(port: int) -> Callable[[bytes], object]:
    connection = _connection(port)
    return lambda line: connection.execute("insert into raw_log (line) values (%s)", (line,))


def _listening(port: int) -> Callable[[], object]:
    connection = _connection(port)
    connection.execute("listen raw_channel")
    return lambda: list(connection.notifies(timeout=30.0, stop_after=1))


def _notifying(port: int) -> Callable[[], object]:
    connection = _connection(port)
    return lambda: connection.execute("notify raw_channel")


# Queues -------------------------------------------------------------------------------


class RawQueue:
    """A taken task stays in the table. Tasks of a dead worker are never found."""

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name

    def fill(self, numbers: range) -> None:
        with _connection(self._port) as connection, connection.cursor() as cursor:
            cursor.execute(
                (
                    "insert into raw_task select %s, number, 'ready' from generate_series(%s::int, "
                    "%s::int) as number"
                ),
                (self._name, numbers.start, numbers.stop - 1),
            )

    def open(self, worker: str) -> Callable[[], bool]:
        connection = _connection(self._port)

        def step() -> bool:
            found = connection.execute(_CLAIM, (worker, self._name, self._name)).fetchone()
            if found is None:
                return False
            mark(found[0])
            connection.execute(
                "update raw_task set state = 'done' where queue = %s and id = %s",
                (self._name, found[0]),
            )
            return True

        return step


class PgqueuerQueue:
    """The steps of pgqueuer's queue manager for each job, one job at a time: dequeue,
    and log the success.
    """

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name

    def fill(self, numbers: range) -> None:
        payloads = [str(number).encode() for number in numbers]
        _run(
            _with_queries(
                self._port,
                lambda queries: queries.enqueue(
                    [self._name] * len(payloads), payloads, [0] * len(payloads)
                ),
            )
        )

    def open(self, worker: str) -> Callable[[], bool]:
        loop = asyncio.new_event_loop()
        connection, queries = loop.run_until_complete(_queries(self._port))
        atexit.register(lambda: loop.run_until_complete(connection.close()))
        wanted = {self._name: module("pgqueuer.queries").EntrypointExecutionParameter(0)}
        me = uuid.uuid4()

        async def once() -> bool:
            jobs = await queries.dequeue(1, wanted, me, None, timedelta(seconds=30))
            if not jobs:
                return False
            mark(int(jobs[0].payload))
            await queries.log_jobs([(jobs[0], "successful", None)])
            return True

        return lambda: loop.run_until_complete(once())


class ProcrastinateQueue:
    """The steps of procrastinate's worker for each job, fetch and finish, without the
    rest of the worker.
    """

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name

    def fill(self, numbers: range) -> None:
        jobs = module("procrastinate.jobs")
        found = [
            jobs.Job(
                id=None,
                queue=self._name,
                lock=None,
                queueing_lock=None,
                task_name="mark",
                task_kwargs={"number": number},
            )
            for number in numbers
        ]
        _run(_with_manager(self._port, lambda manager: manager.batch_defer_jobs_async(found)))

    def open(self, worker: str) -> Callable[[], bool]:
        loop = asyncio.new_event_loop()
        manager = loop.run_until_complete(_opened(self._port))
        atexit.register(lambda: loop.run_until_complete(manager.connector.close_async()))
        me = loop.run_until_complete(manager.register_worker())
        succeeded = module("procrastinate.jobs").Status.SUCCEEDED

        async def once() -> bool:
            job = await manager.fetch_job([self._name], me)
            if job is None:
                return False
            mark(job.task_kwargs["number"])
            await manager.finish_job(job, succeeded, False)
            return True

        return lambda: loop.run_until_complete(once())


async def _opened(port: int) -> Any:
    connector = module("procrastinate").PsycopgConnector(
        conninfo=_login(port), min_size=1, max_size=1
    )
    await connector.open_async()
    return module("procrastinate.manager").JobManager(connector)


async def _with_manager(port: int, work: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    manager = await _opened(port)
    try:
        await work(manager)
    finally:
        await manager.connector.close_async()


async def _queries(port: int) -> tuple[psycopg.AsyncConnection[Any], Any]:
    connection = await psycopg.AsyncConnection.connect(_login(port), autocommit=True)
    return connection, module("pgqueuer.queries").Queries(
        module("pgqueuer.db").PsycopgDriver(connection)
    )


async def _with_queries(port: int, work: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    connection, queries = await _queries(port)
    try:
        await work(queries)
    finally:
        await connection.close()


def _apply_schema(manager: Any) -> Coroutine[Any, Any, object]:
    apply: Coroutine[Any, Any, object] = (
        module("procrastinate.schema").SchemaManager(manager.connector).apply_schema_async()
    )
    return apply


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


_: tuple[Callable[[int, str], QueuePeer], ...] = (RawQueue, PgqueuerQueue, ProcrastinateQueue)
