"""The store on PostgreSQL: records and lines of logs are rows.

Each change is one call of a database function, in a transaction of its own. All data of
a swarm are in one database schema, which has the name of the swarm. The safety of a
confirmed change depends on the server's settings. Without fsync, a crash may lose a
confirmed change. A failover to a standby that is not synchronous may lose a confirmed
change too. A connection pooler in front of the server must pool sessions, not
transactions. See docs/reference/stores.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from hashlib import blake2b

import psycopg
from psycopg import errors
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict

from swarm.errors import BadInput, StoreError
from swarm.stores import postgres_tls
from swarm.stores.address import Address
from swarm.stores.contract import NO_LIMIT, Cache
from swarm.stores.postgres_connection import (
    REPLACED,
    Connection,
    Row,
    abort,
    ask,
    connect,
    message_of,
    translated,
)
from swarm.stores.server import cursors
from swarm.stores.server.base import LAYOUT, ServerStore
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import SESSION_TTL, ConnectionLost, Session
from swarm.system.clock import Clock

_TRIM_BATCH = 20_000  # lines that are deleted at once
_CLEANUP_SHARE = 0.02  # this share of all new connections deletes the sessions past their TTL
# Texts of refusals that a retry would repeat. Before a connection is made, there is no
# error code.
_REFUSALS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "not permitted to log in",
    "permission denied",
    'value: "',
    *postgres_tls.ERRORS,
)

# Every function that changes data begins with this code. It refuses another incarnation
# of the swarm, and repeats the answer of a request that was carried out before. It
# locks the row of the session, so a late duplicate waits here until the request is
# done.
_BEGIN = f"""
  if not exists (select from {{0}}.meta where incarnation = expected) then
    raise exception 'the swarm was removed and created again' using errcode = '{REPLACED}';
  end if;
  insert into {{0}}.sessions as known values (session, request, null, clock_timestamp())
    on conflict (id) do update set request = excluded.request, used = excluded.used
      where known.request < excluded.request;
  if not found then
    return (select known.answer from {{0}}.sessions as known where id = session);
  end if;
"""
# Every function that changes data ends with this code, which stores the answer.
_END = """
  update {0}.sessions set answer = result where id = session;
  return result;
"""
_SWAP = f"""
create function {{0}}.swap(
  expected text, session text, request bigint, channel text, name text, old bytea, new bytea
) returns text language plpgsql as $function$
declare
  result text := '0';
begin
  {_BEGIN}
  if old is null then
    insert into {{0}}.records values (name, new) on conflict do nothing;
  elsif new is null then
    delete from {{0}}.records where key = name and value = old;
  else
    update {{0}}.records set value = new where key = name and value = old;
  end if;
  if found then
    result := '1';
    perform pg_notify(channel, '');
  end if;
  {_END}
end $function$;
"""
# The row of the log is locked before the ordinal is taken. So lines become visible in
# the order of their ordinals.
_APPEND = f"""
create function {{0}}.append(
  expected text, session text, request bigint, channel text, log text, line bytea
) returns text language plpgsql as $function$
declare
  result text;
begin
  {_BEGIN}
  insert into {{0}}.logs as counter values (log, 1)
    on conflict (name) do update set last = counter.last + 1 returning last::text into result;
  insert into {{0}}.lines values (log, result::bigint, line);
  perform pg_notify(channel, '');
  {_END}
end $function$;
"""

# {0}: schema. {1}: layout. {2}: incarnation. One process creates the tables, and others
# find them. An empty schema is used: the owner of the database may have created it for
# swarm. A schema with other tables is left alone.
_CREATE = f"""
do $create$ begin
  perform pg_advisory_xact_lock(hashtextextended('swarm {{0}}', 0));
  if to_regnamespace('{{0}}') is null then
    create schema {{0}};
  elsif exists (select from pg_class where relnamespace = '{{0}}'::regnamespace) then
    return;
  end if;
  create table {{0}}.meta (version integer not null, incarnation text not null);
  create table {{0}}.records (key text collate "C" primary key, value bytea not null);
  create table {{0}}.tokens (key text collate "C" primary key, last bigint not null);
  create table {{0}}.floors (namespace text collate "C" primary key, floor bigint not null);
  create table {{0}}.logs (name text collate "C" primary key, last bigint not null);
  create table {{0}}.lines (
    log text collate "C", ordinal bigint, line bytea not null, primary key (log, ordinal)
  );
  create table {{0}}.sessions (
    id text collate "C" primary key, request bigint not null, answer text, used timestamptz not null
  );
  {_SWAP}
  {_APPEND}
  insert into {{0}}.meta values ({{1}}, '{{2}}');
end $create$
"""
# {0}: schema. {1}: milliseconds. A confirmed change is on the disk, whatever the
# server's default for synchronous_commit is. Rows are always found by index, because
# the planner's statistics of the tables may be old or missing.
_OPEN = """
select version, incarnation, set_config('statement_timeout', '{1}', false),
  set_config('default_transaction_isolation', 'read committed', false),
  set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
  set_config(
    'synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false
  )
from {0}.meta
"""


class PostgresStore(ServerStore[Connection]):
    """The data of one swarm in a database."""

    def __init__(
        self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None
    ) -> None:
        super().__init__(address, self._connect, abort, clock=clock, cache=cache)
        self._settings, self._chose_sslmode = _connection_settings(address)
        self._schema = f'"{address.swarm}"'

    # Records --------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        return self._pool.call(lambda session: self._value(session.connection, key))

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        page = (
            f"select key from {self._schema}.records where key > %s and key < %s order by key "
            f"limit %s"
        )
        first = max(after, f"{namespace}/")
        last = f"{namespace}0"  # 0 comes right after /
        return [key for (key,) in self._ask(page, first, last, limit or None)]

    def where(self, key: str) -> str:
        return f"{self.address.swarm}.records {key} on {self.address.shown}"

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        self._wait_for(
            self._channel("record", key),
            timeout,
            lambda connection: self._value(connection, key) != data,
        )

    # Tokens ---------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        floor = f"coalesce((select floor from {self._schema}.floors where namespace = %s), 0)"
        count = (
            f"insert into {self._schema}.tokens as known values (%s, {floor} + 1) "
            "on conflict (key) do update set last = greatest(known.last + 1, excluded.last) "
            "returning last"
        )
        return int(self._ask(count, key, key.partition("/")[0])[0][0])

    def token_bound(self, key: str) -> int:
        found = self._ask(f"select last from {self._schema}.tokens where key = %s", key)
        return int(found[0][0]) if found else 0

    def highest_token(self, namespace: str) -> int:
        last = f"select max(last) from {self._schema}.tokens where key > %s and key < %s"
        floor = f"select floor from {self._schema}.floors where namespace = %s"
        highest = f"select greatest(0, ({last}), ({floor}))"
        return int(self._ask(highest, f"{namespace}/", f"{namespace}0", namespace)[0][0])

    def advance_tokens(self, namespace: str, past: int) -> None:
        raise_floor = (
            f"insert into {self._schema}.floors as known values (%s, %s) "
            "on conflict (namespace) do update set floor = greatest(known.floor, excluded.floor)"
        )
        self._ask(raise_floor, namespace, past)

    # Logs -----------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        incarnation, ordinal = self._change("append", self._channel("log", log), log, line)
        return cursors.format_cursor(incarnation, (int(ordinal),))

    def tail(self, log: str, count: int, limit: int = NO_LIMIT) -> tuple[list[bytes], str]:
        last = (
            f"select ordinal, line, sum(octet_length(line)) over (order by ordinal desc) "
            f"- octet_length(line) as newer from {self._schema}.lines where log = %s "
            f"and ordinal > {self._trimmed} order by ordinal desc limit %s"
        )
        within = f"select ordinal, line from ({last}) as last where newer < %s"
        name = _trimmed_name(log)
        incarnation, _, found = self._lines_with_incarnation(
            log, within, log, name, max(1, count), limit
        )
        end = (found[-1][0],) if found else self._BEGINNING
        lines = [line for _, line in found[max(0, len(found) - count) :]]
        return lines, cursors.format_cursor(incarnation, end)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        incarnation, start = self._locate(cursor)
        more = (
            f"select true from {self._schema}.meta, {self._schema}.logs "
            "where name = %s and last > case incarnation when %s then %s else 0 end"
        )

        def has_more(connection: Connection) -> bool:
            return bool(ask(connection, more, log, incarnation, start[0]))

        if self._pool.call(lambda session: has_more(session.connection)):
            return True
        while (left := deadline - time.monotonic()) > 0:
            if self._wait_for(self._channel("log", log), left, has_more):
                return True
        return False

    def server_settings(self) -> dict[str, str]:
        names = (
            "server_version",
            "fsync",
            "full_page_writes",
            "synchronous_commit",
            "synchronous_standby_names",
        )
        found = self._ask(
            (
                "select current_setting(name) from unnest(%s::text[]) with ordinality as "
                "asked(name, "
                "number) order by number"
            ),
            list(names),
        )
        settings = {name: str(value) for name, (value,) in zip(names, found, strict=True)}
        standbys = self._ask("select true from pg_stat_replication limit 1")
        return {**settings, "standbys": "yes" if standbys else "", "tls": self._tls()}

    def _tls(self) -> str:
        """Return "local", "none", "unverified" or "verified" for the connection in use."""

        def found(session: Session[Connection]) -> str:
            return postgres_tls.state_of(session.connection.pgconn)

        return self._pool.call(found)

    # Requests -------------------------------------------------------------------------

    def _ask(self, statement: str, *values: object) -> list[Row]:
        """Run a statement that may run twice, and return its rows."""
        return self._pool.call(lambda session: ask(session.connection, statement, *values))

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return self._change("swap", self._channel("record", key), key, old, new)[1] == "1"

    def _change(self, function: str, channel: str, *args: object) -> tuple[str, str]:
        """Call a database function, and return the incarnation of the swarm and the
        function's answer.

        The server runs the function once, however often the request is sent.
        """

        def sent(session: Session[Connection]) -> tuple[str, str]:
            incarnation = self._incarnation
            values = (incarnation, session.name, session.request_number, channel, *args)
            call = f"select {self._schema}.{function}({', '.join(['%s'] * len(values))})"
            return incarnation, ask(session.connection, call, *values)[0][0]

        return self._pool.call(sent)

    def _value(self, connection: Connection, key: str) -> bytes | None:
        found = ask(connection, f"select value from {self._schema}.records where key = %s", key)
        return found[0][0] if found else None

    def _fetch(
        self, incarnation: str, log: str, after: Position, count: int
    ) -> list[tuple[Position, bytes]]:
        page = (
            f"select ordinal, line from {self._schema}.lines where log = %s and "
            f"ordinal > greatest(%s, {self._trimmed}) order by ordinal limit %s"
        )
        values = (log, after[0] if after else 0, _trimmed_name(log), count)
        now, trimmed_to, found = self._lines_with_incarnation(log, page, *values)
        self._check_incarnation(incarnation, now)
        self._check_trimmed(log, after, (trimmed_to,))
        return [((ordinal,), line) for ordinal, line in found]

    def _lines_with_incarnation(
        self, log: str, query: str, *values: object
    ) -> tuple[str, int, list[Row]]:
        """Run a query. Return the incarnation of the swarm, the number of the last line
        of the log that was forgotten, and the lines with their numbers, sorted.
        """
        both = (
            f"select incarnation, {self._trimmed}, found.* from {self._schema}.meta "
            f"left join ({query}) as found on true"
        )
        rows = self._ask(both, _trimmed_name(log), *values)
        if not rows:
            raise self._foreign(f"the schema {self.address.swarm}")
        lines = sorted(tuple(row) for _, _, *row in rows if row[0] is not None)
        return rows[0][0], rows[0][1], lines

    @property
    def _trimmed(self) -> str:
        """The expression for the number of the last line that was forgotten."""
        floor = f"select floor from {self._schema}.floors where namespace = %s"
        return f"coalesce(({floor}), 0)"

    def _trim(self, incarnation: str, log: str, oldest: Position) -> None:
        # The number is stored first, so that no reader misses a line without notice.
        raise_floor = (
            f"insert into {self._schema}.floors as known "
            f"select %s, least(%s, last) - 1 from {self._schema}.meta, {self._schema}.logs "
            "where incarnation = %s and name = %s "
            "on conflict (namespace) do update set floor = greatest(known.floor, excluded.floor)"
        )
        self._ask(raise_floor, _trimmed_name(log), oldest[0], incarnation, log)
        gone = (
            f"select ordinal from {self._schema}.lines where log = %s and "
            f"ordinal <= {self._trimmed} order by ordinal limit {_TRIM_BATCH}"
        )
        delete = (
            f"delete from {self._schema}.lines where log = %s and ordinal in ({gone}) returning 1"
        )
        while len(self._ask(delete, log, log, _trimmed_name(log))) == _TRIM_BATCH:
            pass

    def _trimmed_to(self, log: str) -> Position:
        return (int(self._ask(f"select {self._trimmed}", _trimmed_name(log))[0][0]),)

    def _wait_for(
        self, channel: str, timeout: float, is_over: Callable[[Connection], bool]
    ) -> bool:
        """Wait until `is_over` returns True, at most `timeout` seconds. Return False if
        `is_over` did not return True.
        """

        def waited(session: Session[Connection]) -> bool:
            connection = session.connection
            connection.notifications.clear()
            # Listen first, so that the server also reports a change that comes after
            # `is_over`.
            ask(connection, f"listen {channel}")
            over = is_over(connection) or (
                connection.wait_notification(min(timeout, self._max_wait)) and is_over(connection)
            )
            ask(connection, f"unlisten {channel}")
            return over

        return self._pool.call(waited)

    def _ask_time(self) -> tuple[float, float]:
        now = float(self._ask("select extract(epoch from clock_timestamp())::float8")[0][0])
        return now, now

    def _where_line(self, log: str, position: Position) -> str:
        return f"{self.address.swarm}.lines {log} {position[0]}"

    def _channel(self, *parts: str) -> str:
        name = "\n".join((self.address.swarm, *parts))
        return f"swarm_{blake2b(name.encode(), digest_size=16).hexdigest()}"

    # Connecting -----------------------------------------------------------------------

    def _connect(self, timeout: float) -> Connection:
        connection = self._connect_to_a_host(timeout)
        try:
            self._open_swarm(connection)
            if random.random() < _CLEANUP_SHARE:
                oldest = f"clock_timestamp() - interval '{SESSION_TTL} seconds'"
                ask(connection, f"delete from {self._schema}.sessions where used < {oldest}")
        except BaseException:
            abort(connection)
            raise
        return connection

    def _connect_to_a_host(self, timeout: float) -> Connection:
        """Connect to the first host that answers.

        Each host gets an equal share of the remaining time.
        """
        deadline = time.monotonic() + timeout
        try:
            attempts = conninfo_attempts(
                {"tcp_user_timeout": int(timeout * 1000), **self._settings}
            )
        except psycopg.Error as error:  # the name of the host is unknown
            raise ConnectionLost(str(error)) from None
        reasons = []
        for number, attempt in enumerate(attempts):
            share = (deadline - time.monotonic()) / (len(attempts) - number)
            try:
                secured = postgres_tls.secured(attempt, chosen=self._chose_sslmode)
                return connect(secured, share, limit=timeout)
            except ConnectionLost as lost:
                if any(words in str(lost) for words in _REFUSALS):
                    raise self._refused(str(lost)) from None
                reasons.append(str(lost))
        raise ConnectionLost("; ".join(reasons))

    def _open_swarm(self, connection: Connection) -> None:
        """Create the schema if it is missing.

        Raise StoreError if the schema belongs to another program.
        """
        what = f"the schema {self.address.swarm}"
        # the server stops a statement before its client gives up
        limit = int(connection.limit * 900)
        open_ = _OPEN.format(self._schema, limit)
        try:
            try:
                found = connection.execute(open_).fetchone()
            except errors.UndefinedTable:
                connection.execute(f"set statement_timeout = {limit}")
                connection.execute(_CREATE.format(self._schema, LAYOUT, cursors.new_incarnation()))
                found = connection.execute(open_).fetchone()
        except (errors.UndefinedTable, errors.UndefinedColumn):
            raise self._foreign(what) from None
        except errors.InsufficientPrivilege as error:
            raise self._not_permitted(connection, error) from None
        except psycopg.Error as error:
            raise translated(error) from None
        layout, incarnation = found[:2] if found else (None, None)
        self._accept(what, layout, incarnation)

    def _not_permitted(self, connection: Connection, error: psycopg.Error) -> StoreError:
        user = connection.info.user
        return StoreError(
            f"{self.address.shown} refuses: {message_of(error)}. {user} needs a schema of its own. "
            f"Ask an owner of the database to run CREATE SCHEMA {self.address.swarm} "
            f'AUTHORIZATION "{user}", '
            "or choose another name."
        )

    def _refused(self, why: str) -> StoreError:
        if any(words in why for words in postgres_tls.ERRORS):
            advice = postgres_tls.ADVICE
        else:
            advice = (
                "Check user, password, database and rights, also in PGPASSWORD and the other PG* "
                "variables."
            )
        return StoreError(f"{self.address.shown} refuses: {self.address.scrubbed(why)}. {advice}")


def _trimmed_name(log: str) -> str:
    """Return the key of the row in `floors` that has the number of the last line of a log
    that was forgotten. No namespace of records has this name.
    """
    return f"trimmed {log}"


def _connection_settings(address: Address) -> tuple[ConnDict, bool]:
    """Return the parameters of the connection, and whether the user chose an sslmode.

    Raise BadInput for a bad address.
    """
    if address.hosts:
        address.hosts_and_ports(5432)  # refuse a bad port now: libpq would try it until the timeout
    try:
        given = conninfo_to_dict(address.url("postgresql"))
    except psycopg.Error as error:
        raise BadInput(
            f"{address.shown} is invalid: {address.scrubbed(str(error).strip())}."
        ) from None
    options = postgres_tls.effective_options(given)
    # psycopg does not look for hosts in the service file
    names = ("host", "hostaddr", "port", "sslrootcert")
    known: ConnDict = {name: options[name] for name in names if name in options}
    if "," in options.get("host", "") and options["target_session_attrs"] == "any":
        known["target_session_attrs"] = "read-write"
    settings = {
        "fallback_application_name": "swarm",
        "keepalives_idle": 30,
        **known,
        **given,
        "client_encoding": "utf8",
    }
    return settings, postgres_tls.is_chosen(given, options)
