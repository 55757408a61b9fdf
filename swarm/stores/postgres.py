"""The store on PostgreSQL: records and logs are rows, and every change is one call of a function, which is one transaction.

Everything lies in one schema, named after the namespace. What the server promises is what its settings make of it: without
fsync a crash loses what was confirmed, and so may a failover to a standby that is not synchronous. A pooler in front of it
must give out whole sessions. See docs/reference/stores.md.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b

import psycopg
from psycopg import errors, pq
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict

from swarm.errors import BadInput, StoreError
from swarm.stores.address import Address
from swarm.stores.contract import Cache
from swarm.stores.postgres_connection import GONE, Row, Wire, answered, ask, connect, hang_up, text_of
from swarm.stores.server import cursors
from swarm.stores.server.base import MadeAnew, OnServer
from swarm.stores.server.clock import ServerClock
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import FORGOTTEN, Broken, Link, Slot
from swarm.system.clock import Clock

VERSION = 1
_SWEEPS = 0.02  # of all wires: so many clear away the sessions that have fallen silent
# What a server says that will not take us, in words: a code is not told before a connection is made.
_REFUSALS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "not permitted to log in",
    "permission denied",
    "certificate verify failed",
    "server does not support SSL",
    'value: "',
)

# What every function begins with: the store is still the one that was opened, and the turn is not one that was carried out.
# The row of the session is locked from here on, so a late duplicate stands here until the turn is done. The end notes the answer.
_BEGIN = f"""
  if not exists (select from {{0}}.meta where incarnation = store) then
    raise exception 'the store was made anew' using errcode = '{GONE}';
  end if;
  insert into {{0}}.sessions as known values (session, turn, null, clock_timestamp())
    on conflict (id) do update set turn = excluded.turn, used = excluded.used where known.turn < excluded.turn;
  if not found then
    return (select known.answer from {{0}}.sessions as known where id = session);
  end if;
"""
_END = """
  update {0}.sessions set answer = said where id = session;
  return said;
"""
_SWAP = f"""
create function {{0}}.swap(store text, session text, turn bigint, channel text, name text, old bytea, new bytea) returns text
language plpgsql as $function$
declare
  said text := '0';
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
    said := '1';
    perform pg_notify(channel, '');
  end if;
  {_END}
end $function$;
"""
# The row of the log is locked before the number is taken, so lines become visible in the order of their numbers.
_APPEND = f"""
create function {{0}}.append(store text, session text, turn bigint, channel text, log text, line bytea) returns text
language plpgsql as $function$
declare
  said text;
begin
  {_BEGIN}
  insert into {{0}}.logs as counter values (log, 1) on conflict (name) do update set last = counter.last + 1
    returning last::text into said;
  insert into {{0}}.lines values (log, said::bigint, line);
  perform pg_notify(channel, '');
  {_END}
end $function$;
"""

# {0}: the schema. {1}: version. {2}: incarnation. One makes it, and the others find it made; a schema in which there is something
# else is left alone, and an empty one is used, which an owner of the database may have made for us.
_MAKE = f"""
do $make$ begin
  perform pg_advisory_xact_lock(hashtextextended('swarm {{0}}', 0));
  if to_regnamespace('{{0}}') is null then
    create schema {{0}};
  elsif exists (select from pg_class where relnamespace = '{{0}}'::regnamespace) then
    return;
  end if;
  create table {{0}}.meta (version integer not null, incarnation text not null);
  create table {{0}}.records (key text collate "C" primary key, value bytea not null);
  create table {{0}}.tickets (key text collate "C" primary key, last bigint not null);
  create table {{0}}.skipped (space text collate "C" primary key, last bigint not null);
  create table {{0}}.logs (name text collate "C" primary key, last bigint not null);
  create table {{0}}.lines (log text collate "C", ordinal bigint, line bytea not null, primary key (log, ordinal));
  create table {{0}}.sessions (id text collate "C" primary key, turn bigint not null, answer text, used timestamptz not null);
  {_SWAP}
  {_APPEND}
  insert into {{0}}.meta values ({{1}}, '{{2}}');
end $make$
"""
# {0}: the schema. {1}: milliseconds. What was confirmed is on the disk, whatever the usual setting is. Everything is found by its
# key and read in its order, whatever the server believes of the tables: they may have grown since it looked, or it has not yet.
_OPEN = """
select version, incarnation, set_config('statement_timeout', '{1}', false),
  set_config('default_transaction_isolation', 'read committed', false), set_config('enable_seqscan', 'off', false),
  set_config('enable_bitmapscan', 'off', false),
  set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)
from {0}.meta
"""


class PostgresStore(OnServer[Wire]):
    """A namespace of a database."""

    def __init__(self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None) -> None:
        super().__init__(address, Link(address, self._dial, hang_up), cache)
        self.clock = clock or ServerClock(self._ask_time)
        self._settings = _connection_settings(address)
        self._schema = f'"{address.namespace}"'
        self._incarnation = ""

    # Records ---------------------------------------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        return self._link.call(lambda slot: self._value(slot.wire, key))

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        page = f"select key from {self._schema}.records where key > %s and key < %s order by key limit %s"
        first = max(after, f"{namespace}/")
        last = f"{namespace}0"  # 0 comes right after /
        return [key for (key,) in self._ask(page, first, last, limit or None)]

    def where(self, key: str) -> str:
        return f"{self.address.namespace}.records {key} on {self.address.shown}"

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        self._awaited(self._channel("record", key), timeout, lambda wire: self._value(wire, key) != data)

    # Tickets ---------------------------------------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        skipped = f"coalesce((select last from {self._schema}.skipped where space = %s), 0)"
        draw = (
            f"insert into {self._schema}.tickets as drawn values (%s, {skipped} + 1) "
            "on conflict (key) do update set last = greatest(drawn.last + 1, excluded.last) returning last"
        )
        return int(self._ask(draw, key, key.partition("/")[0])[0][0])

    def token_bound(self, key: str) -> int:
        found = self._ask(f"select last from {self._schema}.tickets where key = %s", key)
        return int(found[0][0]) if found else 0

    def highest_token(self, namespace: str) -> int:
        drawn = f"select max(last) from {self._schema}.tickets where key > %s and key < %s"
        skipped = f"select last from {self._schema}.skipped where space = %s"
        return int(self._ask(f"select greatest(0, ({drawn}), ({skipped}))", f"{namespace}/", f"{namespace}0", namespace)[0][0])

    def advance_tokens(self, namespace: str, past: int) -> None:
        skip = (
            f"insert into {self._schema}.skipped as known values (%s, %s) "
            "on conflict (space) do update set last = greatest(known.last, excluded.last)"
        )
        self._ask(skip, namespace, past)

    # Logs ------------------------------------------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        incarnation, ordinal = self._turn("append", self._channel("log", log), log, line)
        return cursors.cursor(incarnation, (int(ordinal),))

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        incarnation, start = self._start(cursor)
        try:
            lines, end = self._portions.gather(log, lambda at, count: self._fetch(incarnation, log, at, count), start, limit)
        except MadeAnew:
            return self.read_log(log, cursor, limit)
        return lines, cursors.cursor(incarnation, end)

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        last = f"select ordinal, line from {self._schema}.lines where log = %s order by ordinal desc limit %s"
        incarnation, found = self._with_incarnation(last, log, max(1, count))
        end = (found[-1][0],) if found else (0,)
        return [line for _, line in found[max(0, len(found) - count) :]], cursors.cursor(incarnation, end)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        incarnation, start = self._start(cursor)
        more = (
            f"select true from {self._schema}.meta, {self._schema}.logs "
            "where name = %s and last > case incarnation when %s then %s else 0 end"
        )

        def is_more(wire: Wire) -> bool:
            return bool(ask(wire, more, log, incarnation, start[0]))

        if self._link.call(lambda slot: is_more(slot.wire)):
            return True
        while (left := deadline - time.monotonic()) > 0:
            if self._awaited(self._channel("log", log), left, is_more):
                return True
        return False

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        incarnation, at = self._start("")
        while found := self._fetch(incarnation, log, at, 256):
            for position, line in found:
                at = position
                yield f"{self.address.namespace}.lines {log} {at[0]}", line, True

    # For `swarm doctor` ----------------------------------------------------------------------------------------------

    def server_settings(self) -> dict[str, str]:
        names = ("server_version", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
        found = self._ask(
            "select current_setting(name) from unnest(%s::text[]) with ordinality as asked(name, place) order by place",
            list(names),
        )
        standbys = self._ask("select true from pg_stat_replication limit 1")
        return {**{name: str(value) for name, (value,) in zip(names, found, strict=True)}, "standbys": "yes" if standbys else ""}

    # How it is said to the server ------------------------------------------------------------------------------------

    def _ask(self, statement: str, *values: object) -> list[Row]:
        """The answer to a statement that may be given twice."""
        return self._link.call(lambda slot: ask(slot.wire, statement, *values))

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        return self._turn("swap", self._channel("record", key), key, old, new)[1] == "1"

    def _turn(self, function: str, channel: str, *args: object) -> tuple[str, str]:
        """Which store it was, and the answer of a function, which is carried out once, however often it is called."""

        def sent(slot: Slot[Wire]) -> tuple[str, str]:
            incarnation = self._incarnation
            values = (incarnation, slot.session, slot.turn, channel, *args)
            call = f"select {self._schema}.{function}({', '.join(['%s'] * len(values))})"
            return incarnation, ask(slot.wire, call, *values)[0][0]

        return self._link.call(sent)

    def _value(self, wire: Wire, key: str) -> bytes | None:
        found = ask(wire, f"select value from {self._schema}.records where key = %s", key)
        return found[0][0] if found else None

    def _fetch(self, incarnation: str, log: str, after: Position, count: int) -> list[tuple[Position, bytes]]:
        page = f"select ordinal, line from {self._schema}.lines where log = %s and ordinal > %s order by ordinal limit %s"
        now, found = self._with_incarnation(page, log, after[0], count)
        if now != incarnation:
            self._incarnation = now
            raise self._made_anew()
        return [((ordinal,), line) for ordinal, line in found]

    def _with_incarnation(self, query: str, *values: object) -> tuple[str, list[Row]]:
        """In which store, and in order, what a query for ordinals and lines finds."""
        both = f"select incarnation, found.* from {self._schema}.meta left join ({query}) as found on true"
        rows = self._ask(both, *values)
        if not rows:
            raise self._not_ours()
        return rows[0][0], sorted(tuple(row) for _, *row in rows if row[0] is not None)

    def _awaited(self, channel: str, timeout: float, is_over: Callable[[Wire], bool]) -> bool:
        """Whether it is over: now, or after the channel was heard or some time has passed."""

        def asked(slot: Slot[Wire]) -> bool:
            wire = slot.wire
            wire.news.clear()
            ask(wire, f"listen {channel}")  # before looking: what comes after the look is heard
            over = is_over(wire) or (wire.hear(min(timeout, self._longest_wait)) and is_over(wire))
            ask(wire, f"unlisten {channel}")
            return over

        return self._link.call(asked)

    def _start(self, cursor: str) -> tuple[str, Position]:
        incarnation, position = cursors.parse_cursor(cursor)
        if not self._incarnation:
            self._link.call(lambda slot: None)
        now = self._incarnation
        return now, position[:1] if incarnation == now else (0,)

    def _ask_time(self) -> tuple[float, float]:
        now = float(self._ask("select extract(epoch from clock_timestamp())::float8")[0][0])
        return now, now

    def _channel(self, *parts: str) -> str:
        name = "\n".join((self.address.namespace, *parts))
        return f"swarm_{blake2b(name.encode(), digest_size=16).hexdigest()}"

    def _dial(self, timeout: float) -> Wire:
        wire = self._connected(timeout)
        try:
            self._check_version(wire)
            if random.random() < _SWEEPS:
                long_ago = f"clock_timestamp() - interval '{FORGOTTEN} seconds'"
                ask(wire, f"delete from {self._schema}.sessions where used < {long_ago}")
        except BaseException:
            hang_up(wire)
            raise
        return wire

    def _connected(self, timeout: float) -> Wire:
        """A wire to the first host that has one; each has its share of the time."""
        deadline = time.monotonic() + timeout
        try:
            attempts = conninfo_attempts({"tcp_user_timeout": int(timeout * 1000), **self._settings})
        except psycopg.Error as error:  # there is no such host, or nobody who knows
            raise Broken(str(error)) from None
        reasons = []
        for number, attempt in enumerate(attempts):
            share = (deadline - time.monotonic()) / (len(attempts) - number)
            try:
                return connect(attempt, share, limit=timeout)
            except Broken as broken:
                if any(words in str(broken) for words in _REFUSALS):
                    raise self._refused(str(broken)) from None
                reasons.append(str(broken))
        raise Broken("; ".join(reasons))

    def _check_version(self, wire: Wire) -> None:
        """Makes the schema if it is not there; refuses one that is somebody else's."""
        limit = int(wire.limit * 900)  # of its own accord the server ends what nobody waits for any more
        open_ = _OPEN.format(self._schema, limit)
        try:
            try:
                found = wire.execute(open_).fetchone()
            except errors.UndefinedTable:
                wire.execute(f"set statement_timeout = {limit}")
                wire.execute(_MAKE.format(self._schema, VERSION, os.urandom(4).hex()))
                found = wire.execute(open_).fetchone()
        except (errors.UndefinedTable, errors.UndefinedColumn):
            raise self._not_ours() from None
        except errors.InsufficientPrivilege as error:
            raise self._no_right(wire, error) from None
        except psycopg.Error as error:
            raise answered(error) from None
        version, incarnation = found[:2] if found else (None, None)
        if not isinstance(version, int) or not isinstance(incarnation, str):
            raise self._not_ours()
        if version > VERSION:
            raise StoreError(
                f"{self.address.shown} was made by a newer swarm (version {version}; this one knows {VERSION}). "
                "Use that one, or another namespace."
            )
        self._incarnation = incarnation

    def _not_ours(self) -> StoreError:
        return StoreError(
            f"the schema {self.address.namespace} on {self.address.shown} is not swarm's. "
            "Choose another namespace, with ?namespace=NAME in the address."
        )

    def _no_right(self, wire: Wire, error: psycopg.Error) -> StoreError:
        user = wire.info.user
        return StoreError(
            f"{self.address.shown} refuses: {text_of(error)}. {user} needs a schema of its own: let an owner of the database run "
            f'CREATE SCHEMA {self.address.namespace} AUTHORIZATION "{user}", or choose another namespace.'
        )

    def _refused(self, why: str) -> StoreError:
        return StoreError(
            f"{self.address.shown} refuses: {self.address.scrubbed(why)}. "
            "Check user, password, database and rights, also in PGPASSWORD and the other variables of PostgreSQL."
        )


def _connection_settings(address: Address) -> ConnDict:
    if address.hosts:
        address.places(5432)  # a port that is none would be tried again and again
    try:
        settings = conninfo_to_dict(address.url("postgresql"))
    except psycopg.Error as error:
        raise BadInput(f"{address.shown} cannot be understood: {address.scrubbed(str(error).strip())}.") from None
    usual = {option.keyword: option.val or b"" for option in pq.Conninfo.get_defaults()}  # also from variables
    hosts = str(settings.get("host") or usual[b"host"].decode())
    if "," in hosts and usual[b"target_session_attrs"] == b"any":
        settings.setdefault("target_session_attrs", "read-write")
    return {"fallback_application_name": "swarm", "keepalives_idle": 30, **settings, "client_encoding": "utf8"}
