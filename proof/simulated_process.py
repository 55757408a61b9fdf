"""Processes that run swarm's real lock code, one filesystem call at a time.

A running frame cannot be copied. So the position of a process is its operation and the
results of its calls so far. To find the next call, the operation is run again and gets
the same results. The operation is stopped at the first call without a result. Such a
position is a **spot**. Each spot is computed once.

Equal positions are recognised. When a method has returned, its caller knows only the
answer. So the history then has the answer, and the state that the method left in its
object, instead of the results of its calls. Between two operations, a process keeps
only its `Memory`: its scratch directory, the names used in it, its lock.

Randomness, the pid, sleep and the clock are simulated too. `Rules` describes the
limits.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

from proof.disk import LIVE, PRIVATE, RECORD, TASK, Call, Result
from swarm.errors import LockHeld, LockLost, NotYours
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.tokens import Generation, TokenCounters
from swarm.system.clock import Clock

_SWAP: Any = importlib.import_module("swarm.stores.file.swap")  # the module, to replace its `os`
_BUSY: Any = importlib.import_module("swarm.stores.busy")  # the module, to replace its `time`
TTL = 60.0
_FAR = 1e6  # seconds: past every lease
GENERATION = Generation(0, 0, 0)

Note = tuple[Any, ...]
"""The answer of an operation: ("created", bool), ("acquired", record), ("refused",),
("lost",), …
"""


class Code(NamedTuple):
    """The code under test: swarm's own, or a variant that is broken on purpose."""

    swap: type[SwapDirectory] = SwapDirectory
    table: type[LockTable] = LockTable
    # called by the garbage collector
    collect_garbage: Callable[[SwapDirectory], None] = SwapDirectory.collect_garbage


class Rules(NamedTuple):
    """The bounds of a scenario.

    - `scratches`: how many scratch directories a process may make. If others have
      revoked more, the process is not followed further. The newcomer of each state has
      no bound.
    - `tokens`: whether tokens take steps. If tokens take no steps, each process gets
      its own token at the right moment.
    - `backwards`: if two processes change one record, the later process goes first
      instead of the earlier.
    - `orders`: the orders in which a directory lists its names, a key of `disk.ORDERS`.
    """

    scratches: int = 1
    tokens: bool = True
    backwards: bool = False
    orders: str = "both"
    # no process removes the private directories, so making them takes no steps
    laid_out: bool = True


class Memory(NamedTuple):
    """The facts that a process keeps from one operation to the next."""

    pid: int
    scratch: tuple[int, str] = (0, "")
    names_used: int = 0
    scratches_made: int = 0
    lock: Lock | None = None

    def key(self) -> tuple[Any, ...]:
        return (*self[:4], self.lock.token if self.lock else None)


History = tuple[tuple[Any, ...], ...]
"""Results of calls, and (name, "returned" or "raised", answer, left) of methods that
have ended.
"""


class Spot(NamedTuple):
    """A position of a process: the results that led to it, and the next call, None at
    the end.
    """

    number: int
    process: int
    operation: int
    memory: Memory
    history: History
    call: Call | None


class Processes:
    """All spots that the processes of a scenario can reach.

    `scripts` are their operations.
    """

    def __init__(self, scripts: list[list[str]], code: Code, rules: Rules) -> None:
        self.scripts = scripts
        self.spots: list[Spot] = []
        self._code = code
        self._rules = rules
        steps = [
            name
            for name in vars(SwapDirectory)
            if not name.startswith("__") and name not in ("close", "path", "DIRECTORIES")
        ]
        self._swap = _with_scopes(code.swap, steps)
        self._counters = _with_scopes(TokenCounters, ["next", "upper_bound"])
        self._table = _with_scopes(code.table, ["_try_to_acquire", "_write", "_undo", "_retried"])
        self._known: dict[tuple[Any, ...], Spot] = {}
        self._ways: dict[tuple[int, Result], tuple[Spot, tuple[Note, ...]]] = {}

    def start(self, process: int, operation: int, memory: Memory) -> Spot:
        """Return the spot at the beginning of an operation, or at the end of the
        script.
        """
        script = self.scripts[process]
        while (
            operation < len(script)
            and script[operation] in ("heartbeat", "release")
            and memory.lock is None
        ):
            operation += 1  # there is no lock to refresh or release
        key = (process, operation, memory.key(), ())
        if key not in self._known:
            call = (
                self._run(process, operation, memory, ()).call if operation < len(script) else None
            )
            self._known[key] = self._spot(process, operation, memory, (), call)
        return self._known[key]

    def follow(self, spot: Spot, result: Result) -> tuple[Spot, tuple[Note, ...]]:
        """Return the spot that a result leads to, and the answers on the way."""
        known = self._ways.get((spot.number, result))
        if known is None:
            run = self._run(spot.process, spot.operation, spot.memory, (*spot.history, result))
            known = self._ways[spot.number, result] = (self._reached(spot, run), tuple(run.notes))
        return known

    def restart(self, spot: Spot) -> Spot:
        """Return the first spot of a process that replaces a process killed at `spot`."""
        return self.start(spot.process, spot.operation + 1, Memory(spot.memory.pid + 1))

    def _reached(self, spot: Spot, run: _Run) -> Spot:
        if run.call is None:
            return self.start(spot.process, spot.operation + 1, run.memory)
        history = tuple(run.history)
        key = (spot.process, spot.operation, spot.memory.key(), history)
        if key not in self._known:
            self._known[key] = self._spot(
                spot.process, spot.operation, spot.memory, history, run.call
            )
        assert self._known[key].call == run.call, "two ways were taken for the same and are not"
        return self._known[key]

    def _spot(
        self, process: int, operation: int, memory: Memory, history: History, call: Call | None
    ) -> Spot:
        spot = Spot(len(self.spots), process, operation, memory, history, call)
        self.spots.append(spot)
        return spot

    def _run(self, process: int, operation: int, memory: Memory, history: History) -> _Run:
        is_newcomer = process == len(self.scripts) - 1  # alone, so it needs no bound
        rules = self._rules._replace(scratches=9) if is_newcomer else self._rules
        run = _Run(process, memory, history, rules)
        store = _Store(self._swap, self._counters, run)
        lock = None
        try:
            with _stand_ins(run):
                lock = self._operate(self.scripts[process][operation], store, run)
        except _OutOfResults:
            pass
        if run.call is None:
            run.memory = Memory(
                memory.pid, store.swap._own, run.fresh.used, run.scratches_made, lock
            )
        return run

    def _operate(self, operation: str, store: _Store, run: _Run) -> Lock | None:
        """Do the operation and note its answer.

        Return the lock that the process has after the operation.
        """
        locks: LockTable = self._table(store)
        worker, mine = f"w{run.process}", run.memory.lock
        token = mine.token if mine else None
        try:
            if operation == "acquire":
                lock = locks.acquire(TASK, worker, TTL)
                run.note("acquired", lock.encode(), lock.token)
                return lock
            if operation == "heartbeat":
                lock = locks.heartbeat(TASK, worker, token)
                run.note("kept", lock.encode())
                return lock
            if operation == "release":
                locks.release(TASK, worker, token)
                run.note("released")
                return None
            if operation == "collect_garbage":
                self._code.collect_garbage(store.swap)
            else:
                assert operation == "remove_private", operation
                store.swap.remove_private()
            run.note("collected")
        except LockHeld:
            run.note("refused")
        except (LockLost, NotYours):
            run.note("lost")
        except _OutOfResults:
            raise
        except Exception as error:
            run.note("failed", repr(error))
        return None


class _OutOfResults(BaseException):
    """The operation has reached a call that has no result yet."""


class _Run:
    """One run of an operation: the history to repeat, and the results."""

    def __init__(self, process: int, memory: Memory, history: History, rules: Rules) -> None:
        self.process = process
        self.memory = memory
        self.history = list(history)
        self.notes: list[Note] = []
        self.call: Call | None = None
        self.compared: bytes | None = None
        self.last_read: bytes | None = None
        self.waited = False
        self.scratches_made = memory.scratches_made
        # an attempt uses at least one name for each token that it takes
        self.tokens_taken = 8 * memory.names_used
        self.rules = rules
        self.fresh = _Counter(memory.names_used)
        self._given = 0

    def note(self, *note: Any) -> None:
        if self._given == len(self.history):
            self.notes.append(note)

    def ask(self, verb: str, *args: Any) -> Any:
        """Return the result of a filesystem call if it is known.

        Otherwise end this run.
        """
        if self._given == len(self.history):
            if self.call is None:
                self.call = (verb, self.process, *args)
            raise _OutOfResults
        kind, value = self.history[self._given]
        self._given += 1
        if kind == "error":
            raise OSError(value, os.strerror(value), str(args[0] if args else verb))
        return value

    def within(self, name: str, swap: SwapDirectory, method: Callable[[], Any]) -> Any:
        """Return the answer of a method if it is known. Otherwise run the method, and
        remember its answer.

        No method calls itself, so the name says which method has ended.
        """
        if self.call is not None:
            raise _OutOfResults
        begun = self._given
        if begun < len(self.history) and self.history[begun][0] == name:
            _, kind, answer, left = self.history[begun]
            self._given += 1
            (
                swap._own,
                self.fresh.used,
                self.scratches_made,
                self.tokens_taken,
                self.compared,
                self.last_read,
                self.waited,
            ) = left
            if kind == "raised":
                raise _thawed_error(*answer)
            return list(answer[1]) if answer[0] is list else answer[1]
        try:
            answer = method()
        except _OutOfResults:
            raise
        except BaseException as error:
            self._sum_up(
                begun, name, "raised", (type(error), error.args, tuple(vars(error).items())), swap
            )
            raise
        self._sum_up(
            begun,
            name,
            "returned",
            (list, tuple(answer)) if isinstance(answer, list) else (None, answer),
            swap,
        )
        return answer

    def _sum_up(self, begun: int, name: str, kind: str, answer: Any, swap: SwapDirectory) -> None:
        if self._given > begun:
            left = (
                swap._own,
                self.fresh.used,
                self.scratches_made,
                self.tokens_taken,
                self.compared,
                self.last_read,
                self.waited,
            )
            self.history[begun : self._given] = [(name, kind, answer, left)]
            self._given = begun + 1


def _thawed_error(
    kind: type[BaseException], args: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error


def _with_scopes(kind: type[Any], methods: list[str]) -> type[Any]:
    """Return the class with the end of each of these methods noted in the history."""

    def scoped(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def run_or_recall(self: Any, *args: Any) -> Any:
            owner: Any = self._fs if isinstance(self, SwapDirectory | TokenCounters) else self
            store: _Store = owner.store
            if method.__name__ == "collect_garbage" and not args:
                # swarm collects garbage with every new scratch directory; here, a
                # process of its own collects garbage at any moment
                return None
            return store.run.within(method.__name__, store.swap, lambda: method(self, *args))

        return run_or_recall

    changes: dict[str, Any] = {name: scoped(getattr(kind, name)) for name in methods}
    changes["__del__"] = lambda self: None  # nothing to clean up: only a run was discarded
    return type(kind.__name__, (kind,), changes)


class _Counter:
    """`itertools.count` that shows how far it has counted."""

    def __init__(self, used: int) -> None:
        self.used = used

    def __next__(self) -> int:
        self.used += 1
        return self.used - 1


class _Store:
    """The `FileStore` of a lock table on simulated calls.

    The store notes comparisons and answers.
    """

    def __init__(self, swap: type[SwapDirectory], tokens: type[TokenCounters], run: _Run) -> None:
        self.clock = _Clock(run)
        self.run = run
        calls: Any = _Calls(self)
        self.swap = swap(LIVE, PRIVATE, make_dirs=self._make_dirs, fs=calls)
        self.swap._own = run.memory.scratch
        self.swap._numbers = run.fresh  # type: ignore[assignment]
        self._counters = tokens(
            PRIVATE,
            boot=lambda: "boot",
            now=self.clock.now,
            were_given=lambda: False,
            make_dirs=lambda path: None,
            fs=calls,
        )
        self._counters._known = GENERATION

    def _make_dirs(self, path: str) -> None:
        """Make the directories, if the scenario may remove them."""
        while not self.run.rules.laid_out and path != LIVE:
            try:
                self.swap._fs.mkdir(path)
                return
            except FileExistsError:
                return
            except FileNotFoundError:
                self._make_dirs(PRIVATE)

    def read(self, key: str) -> bytes | None:
        self.run.last_read = self.swap.read(TASK)
        return self.run.last_read

    def create(self, key: str, data: bytes) -> bool:
        self.run.compared = None
        created = self.swap.create(TASK, data)
        self.run.note("created", created)
        return created

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        self.run.compared = old
        return self.swap.replace(TASK, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        self.run.compared = old
        return self.swap.remove(TASK, old)

    def next_token(self, key: str) -> int:
        return self._counters.next(TASK)

    def advance_tokens(self, namespace: str, past: int) -> None:
        """Do nothing: a token can be too small only if tokens take no steps."""

    def token_bound(self, key: str) -> int:
        return self._counters.upper_bound(TASK)

    def age(self, key: str) -> float:
        return self.swap.age(TASK)


class _Calls:
    """A `Filesystem` that asks the simulation for the result of each call.

    A call that may change the record says what was compared.
    """

    def __init__(self, store: _Store) -> None:
        self.store = store
        self._run = store.run

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *args: self._run.ask(verb, *args)

    def names(self, path: str) -> list[str]:
        return list(self._run.ask("names", path))

    own_names = names

    def sync_content(self, path: str) -> None:
        """Do nothing: no loss of power is simulated."""

    def grow(self, path: str, *, sync: bool) -> int:
        return self._token("grow", path)

    def size(self, path: str) -> int:
        return self._token("size", path)

    def _token(self, verb: str, path: str) -> int:
        """Return a token.

        If tokens take no steps, each process has its own token, and finds that this is
        the last token.
        """
        run = self._run
        if not run.rules.tokens:
            run.tokens_taken += verb == "grow"
            return 1000 * (run.process + 1) + run.tokens_taken
        size: int = run.ask(verb, path)
        return size

    def exists(self, path: str) -> bool:
        """Answer for the counters without a step: no boot ends, and no process removes
        them.
        """
        if path.startswith((f"{PRIVATE}/generations", f"{PRIVATE}/tokens")):
            return path == f"{PRIVATE}/tokens"
        found: bool = self._run.ask("exists", path)
        return found

    def changed_at(self, path: str) -> int:
        """Answer without a step: no process replaces a generation."""
        return GENERATION.made_at

    def age(self, path: str) -> float:
        """After one wait for another process, say that its intent is old.

        Waiting again would lead back to the same state.
        """
        age: float = self._run.ask("age", path, *(["waited"] if self._run.waited else []))
        return age

    def unlink(self, path: str) -> None:
        self._run.ask("unlink", path, *([self._run.compared] if path == RECORD else []))

    def write_new(self, path: str, data: bytes) -> None:
        self._run.ask("write_new", path, data, *([self._run.compared] if path == RECORD else []))

    def rename(self, source: str, target: str) -> None:
        self._run.ask("rename", source, target)
        self._run.ask("rename commit", self._run.compared)

    def link(self, source: str, target: str) -> None:
        self._run.ask("link", source, target)
        self._run.ask("link commit", self._run.compared)


class _Clock(Clock):
    """A clock that stands still. The simulation says whether a lease is over."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run = run

    def now(self) -> float:
        return 1_800_000_000.0

    def steady(self) -> float:
        return 1000.0

    def identity(self) -> tuple[str, str]:
        return "boot", "time"

    def since(self, stamp: Mapping[str, object]) -> float:
        return _FAR if self._run.ask("judge", self._run.last_read) else 0.0


@contextmanager
def _stand_ins(run: _Run) -> Iterator[None]:
    """Replace the system calls of the code that do not concern files: randomness, pid
    and sleep.
    """
    saved = _SWAP.os, _BUSY.time
    _SWAP.os, _BUSY.time = _Os(run), _Time(run)
    try:
        yield
    finally:
        _SWAP.os, _BUSY.time = saved


class _Os:
    path = os.path

    def __init__(self, run: _Run) -> None:
        self._run = run

    def getpid(self) -> int:
        return self._run.memory.pid

    def urandom(self, size: int) -> bytes:
        if size < 8:
            return bytes(size)  # decides which garbage comes first, but all garbage is examined
        self._run.scratches_made += 1
        if self._run.scratches_made > self._run.rules.scratches:
            self._run.ask("stop")
        run = self._run
        order = 255 - run.memory.pid if run.rules.backwards else run.memory.pid
        return bytes([*bytes(size - 3), order, run.process, run.scratches_made])


class _Time:
    def __init__(self, run: _Run) -> None:
        self._run = run

    def sleep(self, seconds: float) -> None:
        self._run.waited = True
