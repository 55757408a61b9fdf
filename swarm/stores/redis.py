"""The store on Redis or Valkey: records are strings and logs are streams.

Each change is one script in Lua, which the server runs as one atomic step. All keys
begin with `{NAME}:`, where NAME is the name of the swarm. A confirmed change survives a
crash only with an append-only file that is synced on every write. Even with this file,
a failover may lose a confirmed change. See docs/reference/stores.md.
"""

import re
import socket
import struct
import time
from collections.abc import Callable
from functools import cache
from hashlib import sha1
from typing import Any

import redis
from redis import connection as redis_connection

from swarm import settings
from swarm.errors import BadInput, StoreError
from swarm.stores.address import Address
from swarm.stores.contract import NO_LIMIT, Cache
from swarm.stores.server import cursors
from swarm.stores.server.base import LAYOUT, ServerStore, StoreReplaced
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import SESSION_TTL, ConnectionLost, Session
from swarm.system.clock import Clock

_CLIENT_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+unix": "unix",
}
_REPLACED = "SWARMREPLACED"  # our own error: the swarm was removed and created again
# errors after which another attempt may succeed
_TEMPORARY = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", _REPLACED)

# Every script that changes data begins with this code. It refuses another incarnation
# of the swarm, and repeats the answer of a request that was carried out before.
# KEYS: meta, session. ARGV: incarnation, request number, SESSION_TTL.
_BEGIN = f"""
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return redis.error_reply('{_REPLACED}')
end
local number, known = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if number and tonumber(number) >= tonumber(ARGV[2]) then return known end
"""
# Every script that changes data ends with this code, which stores the answer.
_END = """
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. answer, 'EX', ARGV[3])
return answer
"""
# KEYS: …, record, index, channel.
# ARGV: …, key, whether there is an old record, old, whether there is a new record, new.
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
# KEYS: meta, log. ARGV: incarnation, the field of meta that has the entry that was
# forgotten last, the entry that stays.
_TRIM = f"""
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return redis.error_reply('{_REPLACED}')
end
local stays = redis.call('XREVRANGE', KEYS[2], ARGV[3], '-', 'COUNT', 1)[1]
local gone = stays and redis.call('XREVRANGE', KEYS[2], '(' .. stays[1], '-', 'COUNT', 1)[1]
if gone then
  redis.call('XTRIM', KEYS[2], 'MINID', stays[1])
  redis.call('HSET', KEYS[1], ARGV[2], gone[1])
end
return 1
"""

# KEYS: meta, token. ARGV: the field of meta that has the floor of the tokens.
_NEXT_TOKEN = """
local floor = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
if tonumber(redis.call('GET', KEYS[2]) or 0) < floor then
  redis.call('SET', KEYS[2], string.format('%.0f', floor))
end
return redis.call('INCR', KEYS[2])
"""
# KEYS: meta. ARGV: the same field, the new floor.
_RAISE_FLOOR = """
if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
"""
# KEYS: meta. ARGV: layout, incarnation.
_OPEN = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', ARGV[1], 'incarnation', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'version', 'incarnation')
"""

_parse_url: Callable[[str], dict[str, Any]] = redis_connection.parse_url

Connection = Any  # a redis.Connection: its methods have no types


class RedisStore(ServerStore[Connection]):
    """The data of one swarm on a server."""

    _BEGINNING = (0, 0)

    def __init__(
        self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None
    ) -> None:
        super().__init__(address, self._connect, _abort, clock=clock, cache=cache)
        self._settings = _connection_settings(address)

    # Records --------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("GET", self._name("record", key))
        return found

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        first = f"({after}" if after else f"[{namespace}/"
        last = f"({namespace}0"  # 0 comes right after /
        page = ("LIMIT", 0, limit) if limit else ()
        return [
            key.decode()
            for key in self._ask("ZRANGEBYLEX", self._name("index"), first, last, *page)
        ]

    def where(self, key: str) -> str:
        return f"{self._name('record', key)} on {self.address.shown}"

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        channel = self._name("changed", key)

        def subscribed(session: Session[Connection]) -> None:
            _ask(session.connection, "SUBSCRIBE", channel)
            if self.read(key) == data:  # with another session, since this one is subscribed
                _wait_message(session.connection, min(timeout, self._max_wait))
            _unsubscribe(session.connection, channel)

        try:
            self._pool.call(subscribed)
        except _EndSubscription:
            pass  # the caller reads the record again, and sees an error of the server

    # Tokens ---------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        keys = [self._name("meta"), self._name("token", key)]
        return int(self._eval(_NEXT_TOKEN, keys, [_floor(key.partition("/")[0])]))

    def token_bound(self, key: str) -> int:
        return int(self._ask("GET", self._name("token", key)) or 0)

    def highest_token(self, namespace: str) -> int:
        highest = int(self._ask("HGET", self._name("meta"), _floor(namespace)) or 0)
        at, pattern = b"0", self._name("token", f"{namespace}/*")
        while True:
            at, names = self._ask("SCAN", at, "MATCH", pattern, "COUNT", 1000)
            found = self._ask("MGET", *names) if names else []
            highest = max(highest, *(int(number or 0) for number in found)) if found else highest
            if at == b"0":
                return highest

    def advance_tokens(self, namespace: str, past: int) -> None:
        self._eval(_RAISE_FLOOR, [self._name("meta")], [_floor(namespace), past])

    # Logs -----------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        incarnation, answer = self._change(_APPEND, [self._name("log", log)], [line])
        return cursors.format_cursor(incarnation, _position(answer))

    def tail(self, log: str, count: int, limit: int = NO_LIMIT) -> tuple[list[bytes], str]:
        newest = ("XREVRANGE", self._name("log", log), "+", "-", "COUNT", 1)
        incarnation, _, found = self._ask_with_incarnation(log, *newest)
        if not found:
            return [], cursors.format_cursor(incarnation, self._BEGINNING)
        end, line = _position(found[0][0]), found[0][1][1]

        def fetch_before(position: Position, most: int) -> list[tuple[Position, bytes]]:
            key, before = self._name("log", log), f"({_entry_id(position)}"
            now, _, page = self._ask_with_incarnation(
                log, "XREVRANGE", key, before, "-", "COUNT", most
            )
            self._check_incarnation(incarnation, now)
            return [(_position(entry), fields[1]) for entry, fields in page]

        try:
            older = self._batches.read_back(log, fetch_before, end, count - 1, limit - len(line))
        except StoreReplaced:
            return self.tail(log, count, limit)
        return [*older, line] if count else [], cursors.format_cursor(incarnation, end)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        start = _entry_id(self._locate(cursor)[1])
        while True:
            block = int(1000 * min(deadline - time.monotonic(), self._max_wait))
            how = ("BLOCK", block) if block > 0 else ()  # BLOCK 0 would wait for ever
            if self._ask("XREAD", "COUNT", 1, *how, "STREAMS", self._name("log", log), start):
                return True
            if time.monotonic() >= deadline:
                return False

    def server_settings(self) -> dict[str, str]:
        text = self._ask("INFO").decode(errors="replace")
        info = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
        engine = "valkey" if "valkey_version" in info else "redis"
        version = f"{engine.title()} {info[f'{engine}_version']}"
        found = {
            name: info.get(name, "0") for name in ("maxmemory", "used_memory", "connected_slaves")
        }
        for name in ("appendonly", "appendfsync", "maxmemory-policy"):
            found[name] = self._ask("CONFIG", "GET", name)[1].decode()
        return {"version": version, **found}

    # Requests -------------------------------------------------------------------------

    def _ask(self, *command: object) -> Any:
        """Send a command that may run twice, and return the answer."""
        return self._pool.call(lambda session: _ask(session.connection, *command))

    def _eval(self, script: str, keys: list[str], args: list[object]) -> Any:
        """Run a script that may run twice, and return its answer."""
        return self._pool.call(lambda session: _eval(session.connection, script, keys, args))

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        keys = [self._name("record", key), self._name("index"), self._name("changed", key)]
        args = [key, int(old is not None), old or b"", int(new is not None), new or b""]
        return self._change(_SWAP, keys, args)[1] == b"1"

    def _change(self, script: str, keys: list[str], args: list[object]) -> tuple[str, bytes]:
        """Run a script, and return the incarnation of the swarm and the answer of the
        script.

        The server runs the script once, however often the request is sent.
        """

        def sent(session: Session[Connection]) -> tuple[str, bytes]:
            incarnation = self._incarnation
            all_keys = [self._name("meta"), self._name("session", session.name), *keys]
            all_args = [incarnation, session.request_number, SESSION_TTL, *args]
            return incarnation, _eval(session.connection, script, all_keys, all_args)

        return self._pool.call(sent)

    def _fetch(
        self, incarnation: str, log: str, after: Position, count: int
    ) -> list[tuple[Position, bytes]]:
        first = f"({_entry_id(after)}" if after else "-"
        page = ("XRANGE", self._name("log", log), first, "+", "COUNT", count)
        now, trimmed_to, found = self._ask_with_incarnation(log, *page)
        self._check_incarnation(incarnation, now)
        self._check_trimmed(log, after, trimmed_to)
        return [(_position(entry), fields[1]) for entry, fields in found]

    def _ask_with_incarnation(self, log: str, *command: object) -> tuple[str, Position, Any]:
        """Send a command. Return the incarnation of the swarm, its random name, the entry
        of the log that was forgotten last, and the answer.

        Both are read after the answer, so they are those of the answer or later ones.
        """

        def asked(session: Session[Connection]) -> tuple[str, Position, Any]:
            which = ("HMGET", self._name("meta"), "incarnation", _trimmed(log))
            found, (incarnation, gone) = _ask_all(session.connection, command, which)
            if incarnation is None:
                raise ConnectionLost(_REPLACED)  # the next connection creates the swarm
            return incarnation.decode(), _position(gone) if gone else self._BEGINNING, found

        return self._pool.call(asked)

    def _trim(self, incarnation: str, log: str, oldest: Position) -> None:
        keys = [self._name("meta"), self._name("log", log)]

        def sent(session: Session[Connection]) -> None:
            if self._incarnation == incarnation:
                args: list[object] = [incarnation, _trimmed(log), _entry_id(oldest)]
                _eval(session.connection, _TRIM, keys, args)

        self._pool.call(sent)

    def _trimmed_to(self, log: str) -> Position:
        gone = self._ask("HGET", self._name("meta"), _trimmed(log))
        return _position(gone) if gone else self._BEGINNING

    def _ask_time(self) -> tuple[float, float]:
        seconds, micro = self._ask("TIME")
        now = int(seconds) + int(micro) / 1e6
        return now, now

    def _where_line(self, log: str, position: Position) -> str:
        return f"{self._name('log', log)} {_entry_id(position)}"

    def _name(self, *parts: str) -> str:
        return ":".join((f"{{{self.address.swarm}}}", *parts))

    def _connect(self, timeout: float) -> Connection:
        kind, options = self._settings
        made = kind(**{**options, "socket_timeout": timeout, "socket_connect_timeout": timeout})
        try:
            _ask_all(made)
            self._open_swarm(made)
        except BaseException:
            _abort(made)
            raise
        return made

    def _open_swarm(self, connection: Connection) -> None:
        """Create the swarm if it is missing.

        Raise StoreError if another program wrote the keys.
        """
        meta = self._name("meta")
        try:
            found = _eval(connection, _OPEN, [meta], [LAYOUT, cursors.new_incarnation()])
        except StoreError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise self._foreign(meta) from None
        layout, incarnation = found
        is_number = layout is not None and layout.isdigit()
        self._accept(
            meta, int(layout) if is_number else None, (incarnation or b"").decode(errors="replace")
        )


class _EndSubscription(Exception):
    """Raised to end a call and close its connection, which is still subscribed."""


def _connection_settings(address: Address) -> tuple[type[Connection], dict[str, Any]]:
    """Return the class of the connection and its options.

    Raise BadInput if the address is invalid.
    """
    try:
        if address.hosts and not re.fullmatch("/?[0-9]*", address.path):
            raise ValueError(
                f"the path must be the number of a database, such as /0, not {address.path}"
            )
        if not address.hosts and address.scheme.endswith("unix") and len(address.path) < 2:
            raise ValueError(
                "the path of a socket is missing, such as redis+unix:///run/redis.sock"
            )
        options: dict[str, Any] = dict(_parse_url(address.url(_CLIENT_SCHEMES[address.scheme])))
        kind = options.pop("connection_class", redis.Connection)
        if not options.get("password") and (password := settings.variable("REDISCLI_AUTH")):
            options["password"] = password
        options |= {"protocol": 2, "retry": None, "driver_info": None}
        kind(**options)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{address.shown} is invalid: {address.scrubbed(str(error))}.") from None
    return kind, options


def _ask(connection: Connection, *command: object) -> Any:
    return _ask_all(connection, command)[0]


def _ask_all(connection: Connection, *commands: tuple[object, ...]) -> list[Any]:
    """Send several commands at once, and return their answers.

    If there is no command, only connect and log in.
    """
    try:
        connection.connect()
        connection.send_packed_command(connection.pack_commands(commands))
        return [connection.read_response() for _ in commands]
    except redis.exceptions.NoScriptError:
        raise
    except redis.AuthenticationError as error:
        why = str(error).rstrip(".")
        raise StoreError(
            f"the server refuses: {why}. Check user and password, in the address and in "
            f"REDISCLI_AUTH."
        ) from None
    except redis.ResponseError as error:  # the server changed nothing
        if str(error).startswith(_TEMPORARY) or isinstance(error, redis.ReadOnlyError):
            raise ConnectionLost(str(error)) from None
        why = str(error).rstrip(".")
        raise StoreError(
            f"the server refuses: {why}. To check the server, run: swarm doctor"
        ) from None
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from None


def _eval(connection: Connection, script: str, keys: list[str], args: list[object]) -> Any:
    try:
        return _ask(connection, "EVALSHA", _sha(script), len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return _ask(connection, "EVAL", script, len(keys), *keys, *args)


@cache
def _sha(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _wait_message(connection: Connection, timeout: float) -> None:
    try:
        connection.can_read(timeout)
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        raise _EndSubscription from None


def _unsubscribe(connection: Connection, channel: str) -> None:
    """End the subscription and read all its messages, so that no message is mistaken
    for an answer later.
    """
    try:
        message = _ask(connection, "UNSUBSCRIBE", channel)
        while message[0] != b"unsubscribe":
            message = connection.read_response()
    except (ConnectionLost, StoreError, redis.RedisError, OSError):
        raise _EndSubscription from None


def _abort(connection: Connection) -> None:
    """Close the connection at once, so that unsent data never arrive.

    The socket is a private attribute of redis-py. If redis-py has no attribute of this
    name, close the connection in the usual way. After a usual close, the server may
    still carry out a request that was sent: at most once, and only until the session's
    next request.
    """
    try:
        own_socket = getattr(connection, "_sock", None)
        if isinstance(own_socket, socket.socket):
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.disconnect()
    except (OSError, redis.RedisError):
        pass


def _floor(namespace: str) -> str:
    """Return the name of the field with the floor: every later token is larger than it."""
    return f"floor:{namespace}"


def _trimmed(log: str) -> str:
    """Return the name of the field with the entry of a log that was forgotten last."""
    return f"trimmed:{log}"


def _position(entry: bytes) -> Position:
    milliseconds, _, number = entry.partition(b"-")
    return int(milliseconds), int(number)


def _entry_id(position: Position) -> str:
    return "-".join(map(str, position))
