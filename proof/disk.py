"""A simulated filesystem whose every state is a value, so that all outcomes can be
tried.

A state is a number. `after` returns the answers that a call can have in a state, each
with the next state. Nothing is changed in place.

Simulated: each call of `swarm.stores.file.syscalls.Filesystem` is one step. `rename`
and `link` are two steps: the first resolves the paths, the second commits. A process
may sleep between the two steps. The state remembers the directory or inode that the
first step found, and whether it was removed since. A rename into a removed directory
fails, even if another directory has its name now. A link of an inode without a name
fails. For all other calls, sleeping inside the call is the same as sleeping before it.

Time is not a number. "Is this intent old?" and "is this lease over?" are answered both
ways whenever they are asked. The state remembers only that a lease is over: it is over
for all processes.

A directory lists its names in any order, as a real directory does. Limits: there is one
record, and a scenario may list names in fewer orders (see `ORDERS`).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import Any, NamedTuple

from swarm.stores.file.tokens import SHARDS

LIVE, PRIVATE, TASK = "locks", "private", "t"
RECORD = f"{LIVE}/{TASK}.lock"
COUNTER = f"{PRIVATE}/tokens/{ord(TASK) % SHARDS}"
YOUNG, OLD = 0.0, 1e9

Call = tuple[Any, ...]
"""A verb, the process, and the arguments.

For a change of the record, the last argument is the compared bytes.
"""

Result = tuple[str, Any]
"""("ok", value) or ("error", errno)."""

_DIRECTORY = "directory"
_SCRATCH = f"{PRIVATE}/scratch/"
_INTENTS = f"{PRIVATE}/intents/"
_IN_SCRATCH = ("mkdir", "write_new", "link", "unlink")
_State = dict[Any, Any]
# path -> _DIRECTORY, ("link", target), ("counter", size), or an inode's number; inode's
# number -> content;
# ("walk", process) -> what its rename or link found on the way; ("over", record) ->
# True; ("known", scratch directory) -> True


Names = tuple[str, ...]


def _both(names: Names) -> list[Names]:
    return [names, names[::-1]] if len(names) > 1 else [names]


ORDERS: dict[str, Callable[[Names], Iterable[Names]]] = {
    "sorted": lambda names: [names],
    "backwards": lambda names: [names[::-1]],
    "both": _both,
    "every": permutations,
}
"""The orders in which a directory lists its sorted names."""


class Outcome(NamedTuple):
    """One outcome of a call: its result, the state after it, and the change of the
    record, if any.
    """

    result: Result
    state: int
    event: tuple[Any, ...] | None


class Failure(Exception):
    """The simulated system call fails with this errno."""


class Disk:
    """All states that were met."""

    def __init__(self, *, laid_out: bool = True, orders: str = "sorted") -> None:
        """`laid_out` makes all directories of the file store, and the record's counter.

        Without `laid_out`, there are only the directories of `swap`. `orders` is a key
        of ORDERS.
        """
        self._orders = ORDERS[orders]
        self._numbers: dict[frozenset[Any], int] = {}
        self._states: list[_State] = []
        self._records: list[bytes | None] = []
        self._known: dict[tuple[int, Call], tuple[Outcome, ...]] = {}
        others = ("tokens", "generations", "spare") if laid_out else ()
        directories = (
            LIVE,
            PRIVATE,
            *(f"{PRIVATE}/{name}" for name in ("scratch", "intents", *others)),
        )
        files: _State = dict.fromkeys(directories, _DIRECTORY)
        if laid_out:
            files[COUNTER] = ("counter", 0)
        self.empty = self._number(files)

    def __len__(self) -> int:
        return len(self._states)

    def record(self, state: int) -> bytes | None:
        """Return the content of the lock file."""
        return self._records[state]

    def paths(self, state: int) -> list[str]:
        """Return the paths that exist, for the reader of a trace."""
        return sorted(path for path in self._states[state] if isinstance(path, str))

    def after(self, state: int, call: Call) -> tuple[Outcome, ...]:
        """Return all outcomes of a call."""
        known = self._known.get((state, call))
        if known is None:
            known = self._known[state, call] = tuple(self._outcomes(state, call))
        return known

    def is_private(self, state: int, call: Call) -> bool:
        """Return whether a call is private: in a scratch directory that no intent has
        named.

        No other process can notice or hinder such a call.
        """
        scratch = str(call[2] if len(call) > 2 else "").removeprefix(_SCRATCH).partition("/")[0]
        return (
            call[0] in _IN_SCRATCH
            and call[2].startswith(_SCRATCH)
            and ("known", scratch) not in self._states[state]
        )

    def forget_process(self, state: int, process: int) -> int:
        """Return the state after the death of a process: its rename or link will not be
        committed.
        """
        files = self._states[state]
        if ("walk", process) not in files:
            return state
        return self._number(
            {key: value for key, value in files.items() if key != ("walk", process)}
        )

    def _outcomes(self, state: int, call: Call) -> Iterator[Outcome]:
        verb, process, *args = call
        before = self._states[state]
        if verb == "stop":
            return
        if verb in ("age", "judge"):
            yield from self._judgements(state, call)
            return
        if verb == "names":
            yield from self._listings(state, *args)
            return
        files = dict(before)
        try:
            result: Result = ("ok", _VERBS[verb](files, process, *args))
        except Failure as failure:
            # a call that fails ends its path walk too
            yield Outcome(("error", failure.args[0]), self._number(files), None)
            return
        was, now = self._records[state], _content(files, RECORD)
        event: tuple[Any, ...] | None = None
        if was != now:
            files.pop(("over", was), None)
            event = ("changed", process, was, now, args[-1] if verb != "person" else None)
        elif verb == "read" and args[0] == RECORD:
            event = ("read", process)
        yield Outcome(result, self._number(files), event)

    def _judgements(self, state: int, call: Call) -> Iterator[Outcome]:
        """Answer a question about time: yes and no, as far as both are possible."""
        verb, _, what, *rest = call
        files = self._states[state]
        if verb != "judge":
            if what not in files:
                yield Outcome(("error", errno.ENOENT), state, None)
                return
            if not rest:
                yield Outcome(("ok", YOUNG), state, None)
            yield Outcome(("ok", OLD), state, None)
            return
        over = ("over", what)
        if over not in files:
            yield Outcome(("ok", False), state, None)
        ended = self._number({**files, over: True}) if self._records[state] == what else state
        yield Outcome(("ok", True), ended, ("ended", what))

    def _listings(self, state: int, path: str) -> Iterator[Outcome]:
        """List a directory, once in each order."""
        files = self._states[state]
        if files.get(path) != _DIRECTORY:
            missing = errno.ENOENT if path not in files else errno.ENOTDIR
            yield Outcome(("error", missing), state, None)
            return
        for names in self._orders(tuple(_inside(files, path))):
            yield Outcome(("ok", names), state, None)

    def _number(self, files: _State) -> int:
        key = frozenset(files.items())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(files)
            self._records.append(_content(files, RECORD))
        return number


def _content(files: _State, path: str) -> bytes | None:
    found = files.get(path)
    return files[found] if isinstance(found, int) else None


def _resolve(files: _State, path: str) -> str:
    """Resolve a symbolic link in the directory of a path.

    Fail if the directory does not exist.
    """
    parent, _, name = path.rpartition("/")
    if not parent:
        return path
    found = files.get(parent)
    if isinstance(found, tuple) and found[0] == "link":
        parent, found = found[1], files.get(found[1])
    if found != _DIRECTORY:
        raise Failure(errno.ENOENT if found is None else errno.ENOTDIR)
    return f"{parent}/{name}"


def _existing(files: _State, path: str) -> tuple[str, Any]:
    resolved = _resolve(files, path)
    if resolved not in files:
        raise Failure(errno.ENOENT)
    return resolved, files[resolved]


def _vacant(files: _State, path: str) -> str:
    resolved = _resolve(files, path)
    if resolved in files:
        raise Failure(errno.EEXIST)
    return resolved


def _inside(files: _State, path: str) -> list[str]:
    prefix = path + "/"
    names = (key[len(prefix) :] for key in files if isinstance(key, str) and key.startswith(prefix))
    return sorted(name for name in names if "/" not in name)


def _drop(files: _State, resolved: str) -> None:
    """Remove a name.

    Without its last name, the inode is removed, and a link of the inode that has begun
    will fail.
    """
    inode = files.pop(resolved)
    if not isinstance(inode, int) or any(
        value == inode for key, value in files.items() if isinstance(key, str)
    ):
        return
    del files[inode]
    _break_walks(files, lambda walk: walk[0] == "link" and walk[1] == inode)


def _break_walks(files: _State, through: Callable[[tuple[Any, ...]], bool]) -> None:
    for key, walk in list(files.items()):
        if isinstance(key, tuple) and key[0] == "walk" and through(walk):
            files[key] = ("broken",)


def _mkdir(files: _State, _: int, path: str) -> None:
    files[_vacant(files, path)] = _DIRECTORY


def _rmdir(files: _State, _: int, path: str) -> None:
    resolved, found = _existing(files, path)
    if found != _DIRECTORY:
        raise Failure(errno.ENOTDIR)
    if _inside(files, resolved):
        raise Failure(errno.ENOTEMPTY)
    del files[resolved]
    files.pop(("known", os.path.basename(resolved)), None)
    _break_walks(
        files,
        lambda walk: (
            walk[0] == "rename" and any(os.path.dirname(end) == resolved for end in walk[1:])
        ),
    )


def _write_new(files: _State, _: int, path: str, data: bytes, *_compared: bytes | None) -> None:
    resolved = _vacant(files, path)
    # the smallest free number: real inodes are reused at once, too
    inode = next(number for number in range(len(files)) if number not in files)
    files[resolved] = inode
    files[inode] = data
    if path.startswith(_INTENTS):
        _hear_of(files, path.split("~")[-2])


def _read(files: _State, _: int, path: str) -> bytes:
    found = _existing(files, path)[1]
    if not isinstance(found, int):
        raise Failure(errno.ELOOP if found != _DIRECTORY else errno.EISDIR)
    content: bytes = files[found]
    return content


def _unlink(files: _State, _: int, path: str, *_compared: bytes | None) -> None:
    resolved, found = _existing(files, path)
    if found == _DIRECTORY:
        raise Failure(errno.EISDIR)
    _drop(files, resolved)


def _symlink(files: _State, _: int, target: str, path: str) -> None:
    files[_vacant(files, path)] = ("link", target)
    _hear_of(files, target)


def _hear_of(files: _State, scratch: str) -> None:
    if _SCRATCH + scratch in files:
        files["known", scratch] = True


def _readlink(files: _State, _: int, path: str) -> str:
    found = _existing(files, path)[1]
    if not isinstance(found, tuple) or found[0] != "link":
        raise Failure(errno.EINVAL)
    target: str = found[1]
    return target


def _exists(files: _State, _: int, path: str) -> bool:
    return path in files


def _grow(files: _State, _: int, path: str) -> int:
    size = _size(files, _, path) + 1
    files[path] = ("counter", size)
    return size


def _size(files: _State, _: int, path: str) -> int:
    size: int = _existing(files, path)[1][1]
    return size


def _inode(files: _State, _: int, path: str) -> Any:
    """Return the inode of a file, for a broken variant."""
    return _existing(files, path)[1]


def _rename(files: _State, process: int, source: str, target: str) -> None:
    files["walk", process] = ("rename", _resolve(files, source), _resolve(files, target))


def _rename_commit(files: _State, process: int, *_compared: bytes | None) -> None:
    walk = files.pop(("walk", process))
    if walk[0] == "broken" or walk[1] not in files:
        raise Failure(errno.ENOENT)
    source, target = walk[1:]
    if target in files:
        if files[target] == files[source]:
            return  # two names of one file: rename does nothing and reports success
        _drop(files, target)
    files[target] = files.pop(source)


def _link(files: _State, process: int, source: str, target: str) -> None:
    inode = _existing(files, source)[1]
    files["walk", process] = ("link", inode, _resolve(files, target))


def _link_commit(files: _State, process: int, *_compared: bytes | None) -> None:
    walk = files.pop(("walk", process))
    if walk[0] == "broken":
        raise Failure(errno.ENOENT)
    if walk[2] in files:
        raise Failure(errno.EEXIST)
    files[walk[2]] = walk[1]


def _person(files: _State, _: int, action: str) -> None:
    """Act as a person with a lock file. An editor writes in place."""
    if action == "write":
        if RECORD in files:
            _drop(files, RECORD)
        _write_new(files, 0, RECORD, BY_HAND)
        return
    inode = files.get(RECORD)
    if inode is None:
        raise Failure(errno.ENOENT)
    if action == "rm":
        _drop(files, RECORD)
    elif action == "empty":
        files[inode] = b""
    else:
        files[inode] = _edited(files[inode])


def _edited(record: bytes) -> bytes:
    """Return the record after a person has set its ttl to a time that is over."""
    try:
        return json.dumps({**json.loads(record), "ttl": -1}).encode()
    except ValueError:
        return BY_HAND


BY_HAND = (
    b'{"task_id": "t", "worker": "person", "acquired_at": "2026-01-31T12:00:00Z", '
    b'"expires_at": "2026-01-31T12:00:01Z"}'
)

_VERBS: dict[str, Callable[..., Any]] = {
    "mkdir": _mkdir,
    "rmdir": _rmdir,
    "write_new": _write_new,
    "read": _read,
    "unlink": _unlink,
    "symlink": _symlink,
    "readlink": _readlink,
    "exists": _exists,
    "grow": _grow,
    "size": _size,
    "inode": _inode,
    "rename": _rename,
    "rename commit": _rename_commit,
    "link": _link,
    "link commit": _link_commit,
    "person": _person,
}
