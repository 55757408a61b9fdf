"""The store on Redis or Valkey: records are strings, logs are streams, and every change is one script, which the server carries
out alone and whole.

Everything lies under `{namespace}:`. What the server promises is what its settings make of it: without
an append-only file that is synced on every write, a crash loses what was confirmed, and a failover may do so even then.
See docs/reference/stores.md.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha1
from typing import Any

import redis
from redis import connection

from swarm import settings
from swarm.errors import BadInput, StoreError
from swarm.stores.address import Address
from swarm.stores.contract import Cache
from swarm.stores.server import cursors
from swarm.stores.server.base import MadeAnew, OnServer
from swarm.stores.server.clock import ServerClock
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import FORGOTTEN, Broken, Link, Slot
from swarm.system.clock import Clock

VERSION = 1
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "redis+unix": "unix"}
_AGAIN = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "SWARMGONE")  # refused, and soon not any more

# What every script begins with: the store is still the one that was opened, and the turn is not one that was carried out.
# KEYS: meta, session. ARGV: incarnation, turn, seconds to remember. The end notes the answer.
_BEGIN = """
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then return redis.error_reply('SWARMGONE') end
local turn, said = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if turn and tonumber(turn) >= tonumber(ARGV[2]) then return said end
"""
_END = """
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. answer, 'EX', ARGV[3])
return answer
"""
# KEYS: …, record, index, channel. ARGV: …, key, whether there is an old one, old, whether there is a new one, new.
_SWAP = f"""{_BEGIN}
local found = redis.call('GET', KEYS[3])
local answer = '0'
if (ARGV[5] == '1' and found == ARGV[6]) or (ARGV[5] == '0' and not found) then
  answer = '1'
  if ARGV[7] == '1' then
    redis.call('SET', KEYS[3], ARGV[8])
    if not found then redis.call('ZADD', KEYS[4], 0, ARGV[4]) end
  else
    redis.call('DEL', KEYS[3])
    redis.call('ZREM', KEYS[4], ARGV[4])
  end
  redis.call('PUBLISH', KEYS[5], '')
end
{_END}"""
# KEYS: …, log. ARGV: …, line.
_APPEND = f"""{_BEGIN}
local answer = redis.call('XADD', KEYS[3], '*', 'line', ARGV[4])
{_END}"""

# KEYS: meta, ticket. ARGV: where meta says how many were skipped.
_TICKET = """
local skipped = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if tonumber(redis.call('GET', KEYS[2]) or 0) < skipped then redis.call('SET', KEYS[2], string.format('%.0f', skipped)) end
return redis.call('INCR', KEYS[2])
"""
# KEYS: meta. ARGV: the same, number.
_SKIP = """
if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
return 1
"""
# KEYS: meta. ARGV: version, incarnation.
_MAKE = """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], 'version', ARGV[1], 'incarnation', ARGV[2]) end
return redis.call('HMGET', KEYS[1], 'version', 'incarnation')
"""

_parse_url: Callable[[str], dict[str, Any]] = connection.parse_url

Wire = Any  # a redis.Connection: its methods have no types


class RedisStore(OnServer[Wire]):
    """A namespace of a server."""

    def __init__(self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None) -> None:
        super().__init__(address, Link(address, self._dial, _hang_up), cache)
        self.clock = clock or ServerClock(self._ask_time)
        self._settings = _connection_settings(address)
        self._incarnation = ""

    # Records ---------------------------------------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("GET", self._name("record", key))
        return found

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        first = f"({after}" if after else f"[{namespace}/"
        last = f"({namespace}0"  # 0 comes right after /
        page = ("LIMIT", 0, limit) if limit else ()
        return [key.decode() for key in self._ask("ZRANGEBYLEX", self._name("index"), first, last, *page)]

    def where(self, key: str) -> str:
        return f"{self._name('record', key)} on {self.address.shown}"

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        channel = self._name("changed", key)

        def watched(slot: Slot[Wire]) -> None:
            _ask(slot.wire, "SUBSCRIBE", channel)
            reader = self._link.call(lambda other: _ask(other.wire, "GET", self._name("record", key)))
            if reader == data:
                _heard(slot.wire, min(timeout, self._longest_wait))
            _unsubscribe(slot.wire, channel)

        try:
            self._link.call(watched)
        except _Ended:
            pass  # whoever watches looks again, and will be told

    # Tickets ---------------------------------------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        names = [self._name("meta"), self._name("ticket", key)]
        return int(self._link.call(lambda slot: _eval(slot.wire, _TICKET, names, [_skipped(key.partition("/")[0])])))

    def token_bound(self, key: str) -> int:
        return int(self._ask("GET", self._name("ticket", key)) or 0)

    def highest_token(self, namespace: str) -> int:
        highest = int(self._ask("HGET", self._name("meta"), _skipped(namespace)) or 0)
        at, pattern = b"0", self._name("ticket", f"{namespace}/*")
        while True:
            at, names = self._ask("SCAN", at, "MATCH", pattern, "COUNT", 1000)
            found = self._ask("MGET", *names) if names else []
            highest = max(highest, *(int(number or 0) for number in found)) if found else highest
            if at == b"0":
                return highest

    def advance_tokens(self, namespace: str, past: int) -> None:
        names = [self._name("meta")]
        self._link.call(lambda slot: _eval(slot.wire, _SKIP, names, [_skipped(namespace), past]))

    # Logs ------------------------------------------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        incarnation, answer = self._turn(_APPEND, [self._name("log", log)], [line])
        return cursors.cursor(incarnation, _position(answer))

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        incarnation, start = self._start(cursor)
        try:
            lines, end = self._portions.gather(log, lambda at, count: self._fetch(incarnation, log, at, count), start, limit)
        except MadeAnew:
            return self.read_log(log, cursor, limit)
        return lines, cursors.cursor(incarnation, end)

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        incarnation, found = self._with_incarnation("XREVRANGE", self._name("log", log), "+", "-", "COUNT", max(1, count))
        end = _position(found[0][0]) if found else (0, 0)
        return [fields[1] for _, fields in reversed(found[:count])], cursors.cursor(incarnation, end)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        start = _id(self._start(cursor)[1])
        while True:
            block = int(1000 * min(deadline - time.monotonic(), self._longest_wait))
            how = ("BLOCK", block) if block > 0 else ()  # BLOCK 0 would be for ever
            if self._ask("XREAD", "COUNT", 1, *how, "STREAMS", self._name("log", log), start):
                return True
            if time.monotonic() >= deadline:
                return False

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        incarnation, at = self._start("")
        name = self._name("log", log)
        while found := self._fetch(incarnation, log, at, 256):
            for position, line in found:
                at = position
                yield f"{name} {_id(at)}", line, True

    # For `swarm doctor` ----------------------------------------------------------------------------------------------

    def server_settings(self) -> dict[str, str]:
        text = self._ask("INFO").decode(errors="replace")
        info = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
        version = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
        found = {name: info.get(name, "0") for name in ("maxmemory", "used_memory", "connected_slaves")}
        for name in ("appendonly", "appendfsync", "maxmemory-policy"):
            found[name] = self._ask("CONFIG", "GET", name)[1].decode()
        return {"version": version, **found}

    # How it is said to the server ------------------------------------------------------------------------------------

    def _ask(self, *command: object) -> Any:
        """The answer to a command that may be given twice."""
        return self._link.call(lambda slot: _ask(slot.wire, *command))

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        names = [self._name("record", key), self._name("index"), self._name("changed", key)]
        change = [key, int(old is not None), old or b"", int(new is not None), new or b""]
        return self._turn(_SWAP, names, change)[1] == b"1"

    def _turn(self, script: str, names: list[str], args: list[object]) -> tuple[str, bytes]:
        """Which store it was, and the answer of a script, which is carried out once, however often it is sent."""

        def sent(slot: Slot[Wire]) -> tuple[str, bytes]:
            incarnation = self._incarnation
            keys = [self._name("meta"), self._name("session", slot.session), *names]
            return incarnation, _eval(slot.wire, script, keys, [incarnation, slot.turn, FORGOTTEN, *args])

        return self._link.call(sent)

    def _fetch(self, incarnation: str, log: str, after: Position, count: int) -> list[tuple[Position, bytes]]:
        now, found = self._with_incarnation("XRANGE", self._name("log", log), f"({_id(after)}", "+", "COUNT", count)
        if now != incarnation:
            self._incarnation = now
            raise self._made_anew()
        return [(_position(entry), fields[1]) for entry, fields in found]

    def _with_incarnation(self, *command: object) -> tuple[str, Any]:
        """The answer to a command, and of which store it is: asked after it, so that it is that of the answer or a later one."""

        def asked(slot: Slot[Wire]) -> tuple[str, Any]:
            found, incarnation = _ask_all(slot.wire, command, ("HGET", self._name("meta"), "incarnation"))
            if incarnation is None:
                raise Broken("SWARMGONE")  # the next wire makes it anew
            return incarnation.decode(), found

        return self._link.call(asked)

    def _start(self, cursor: str) -> tuple[str, Position]:
        incarnation, position = cursors.parse_cursor(cursor)
        if not self._incarnation:
            self._link.call(lambda slot: None)
        now = self._incarnation
        return now, (*position, 0)[:2] if incarnation == now else (0, 0)

    def _ask_time(self) -> tuple[float, float]:
        seconds, micro = self._ask("TIME")
        now = int(seconds) + int(micro) / 1e6
        return now, now

    def _name(self, *parts: str) -> str:
        return ":".join((f"{{{self.address.namespace}}}", *parts))

    def _dial(self, timeout: float) -> Wire:
        kind, options = self._settings
        wire = kind(**{**options, "socket_timeout": timeout, "socket_connect_timeout": timeout})
        try:
            _ask_all(wire)
            self._check_version(wire)
        except BaseException:
            _hang_up(wire)
            raise
        return wire

    def _check_version(self, wire: Wire) -> None:
        """Makes the namespace if it is not there; refuses one that is somebody else's."""
        meta = self._name("meta")
        try:
            version, incarnation = _eval(wire, _MAKE, [meta], [VERSION, os.urandom(4).hex()])
        except StoreError as error:
            if "WRONGTYPE" not in str(error):
                raise
            version = incarnation = None
        if version is None or not version.isdigit() or not incarnation:
            raise StoreError(
                f"{meta} on {self.address.shown} is not swarm's. Choose another namespace, with ?namespace=NAME in the address."
            )
        if int(version) > VERSION:
            raise StoreError(
                f"{self.address.shown} was made by a newer swarm (version {int(version)}; this one knows {VERSION}). "
                "Use that one, or another namespace."
            )
        self._incarnation = incarnation.decode()


class _Ended(Exception):
    """Ends a call and hangs up its wire."""


def _connection_settings(address: Address) -> tuple[type[Wire], dict[str, Any]]:
    try:
        if address.hosts and not re.fullmatch("/?[0-9]*", address.path):
            raise ValueError(f"the path must be the number of a database, as /0, and not {address.path}")
        if not address.hosts and address.scheme.endswith("unix") and len(address.path) < 2:
            raise ValueError("the path of a socket is missing, as redis+unix:///run/redis.sock")
        options: dict[str, Any] = dict(_parse_url(address.url(_SCHEMES[address.scheme])))
        kind = options.pop("connection_class", redis.Connection)
        if not options.get("password") and (password := settings.variable("REDISCLI_AUTH")):
            options["password"] = password
        options |= {"protocol": 2, "retry": None, "driver_info": None}
        kind(**options)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{address.shown} cannot be understood: {address.scrubbed(str(error))}.") from None
    return kind, options


def _ask(wire: Wire, *command: object) -> Any:
    return _ask_all(wire, command)[0]


def _ask_all(wire: Wire, *commands: tuple[object, ...]) -> list[Any]:
    """The answers to commands that are sent together; without any, only that there is a server and that it knows us."""
    try:
        wire.connect()
        wire.send_packed_command(wire.pack_commands(commands))
        return [wire.read_response() for _ in commands]
    except redis.exceptions.NoScriptError:
        raise
    except redis.AuthenticationError as error:
        why = str(error).rstrip(".")
        raise StoreError(f"the server refuses: {why}. Check user and password, in the address and REDISCLI_AUTH.") from None
    except redis.ResponseError as error:  # it has changed nothing
        if str(error).startswith(_AGAIN) or isinstance(error, redis.ReadOnlyError):
            raise Broken(str(error)) from None
        why = str(error).rstrip(".")
        raise StoreError(f"the server refuses: {why}. Look at its settings with: swarm doctor") from None
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise Broken(str(error) or type(error).__name__) from None


def _eval(wire: Wire, script: str, keys: list[str], args: list[object]) -> Any:
    try:
        return _ask(wire, "EVALSHA", _sha(script), len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return _ask(wire, "EVAL", script, len(keys), *keys, *args)


@cache
def _sha(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _heard(wire: Wire, timeout: float) -> None:
    """Waits for a message."""
    try:
        wire.can_read(timeout)
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        raise _Ended from None


def _unsubscribe(wire: Wire, channel: str) -> None:
    """The wire is as it was before: what was still said on the channel is not taken for an answer to the next command."""
    try:
        said = _ask(wire, "UNSUBSCRIBE", channel)
        while said[0] != b"unsubscribe":
            said = wire.read_response()
    except (Broken, StoreError, redis.RedisError, OSError):
        raise _Ended from None


def _hang_up(wire: Wire) -> None:
    """At once: what has not been sent shall never arrive. The socket is private to redis-py. Where it has another name, the
    wire is closed politely, and what was sent may be carried out later: once at most, and only until the next turn."""
    try:
        own = getattr(wire, "_sock", None)
        if isinstance(own, socket.socket):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.disconnect()
    except (OSError, redis.RedisError):
        pass


def _skipped(namespace: str) -> str:
    return f"skipped:{namespace}"


def _position(entry: bytes) -> Position:
    milliseconds, _, number = entry.partition(b"-")
    return int(milliseconds), int(number)


def _id(position: Position) -> str:
    return "-".join(map(str, position))
