"""A typed program that uses the public API. `make check` reads it with mypy --strict;
it never runs.

`assert_type` fails as soon as a signature changes, also to Any. A `type: ignore` marks
a call that must be refused; mypy reports it when the call is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_type

import swarm
from swarm import (
    AgentPane,
    AgentStatus,
    AgentUnavailable,
    BadInput,
    BroadcastState,
    Busy,
    CannotRun,
    Claim,
    FileStore,
    GitError,
    Lease,
    LockHeld,
    LockInfo,
    LockLost,
    LogTrimmed,
    NeedHeld,
    NoQuestion,
    NoTask,
    NotSent,
    NotYours,
    SmartWorker,
    SprintMutex,
    StatusBroadcaster,
    Store,
    StoreError,
    SwarmError,
    Task,
    TaskExists,
    TaskLockManager,
    TaskQueue,
    TmuxSwarmError,
    TmuxSwarmManager,
    Unreachable,
    WrongState,
    errors,
    sprint,
    status_broadcaster,
    task_lock,
    task_queue,
    testing,
    tmux_manager,
    worker_smart,
)
from swarm.task_queue import Gate, Previous, Question, TaskSpec
from swarm.tmux_manager import StartReport, StoppedAgent
from swarm.worker_smart import LimitReached, Tally, Work, preset_agent


def locks(store: Store) -> None:
    manager = TaskLockManager("worker-1", store)
    assert_type(TaskLockManager("worker-1"), TaskLockManager)
    assert_type(manager.worker_id, str)
    assert_type(manager.acquire_lock("task-001"), bool)
    assert_type(manager.acquire_lock("task-001", ttl=60), bool)
    assert_type(manager.update_heartbeat("task-001"), bool)
    assert_type(manager.release_lock("task-001"), bool)
    assert_type(manager.is_locked("task-001"), bool)
    assert_type(manager.token("task-001"), int | None)
    found = assert_type(manager.get_lock_info("task-001"), LockInfo | None)
    if found is not None:
        assert_type(manager.is_expired(found), bool)
        assert_type((found.worker_id, found.task_id, found.acquired_at), tuple[str, str, str])
        assert_type((found.ttl, found.token), tuple[float | None, int | None])
    manager.acquire_lock(1)  # type: ignore[arg-type]
    manager.acquire_lock("task-001", ttl="60")  # type: ignore[arg-type]
    TaskLockManager()  # type: ignore[call-arg]


def leases(manager: TaskLockManager, stop: Callable[[LockLost], object]) -> None:
    assert_type(manager.hold("task-001"), Lease)
    with manager.hold("task-001", 60, wait=5.0, on_lost=stop) as lease:
        assert_type(lease, Lease)
        assert_type(lease.token, int)
        assert_type(lease.seconds_left, float)
        assert_type((lease.task_id, lease.worker, lease.ttl), tuple[str, str, float])
        lease.check()
    manager.hold("task-001", 60, 5.0)  # type: ignore[call-arg]  # wait is given by name


def queue(store: Store) -> None:
    tasks = TaskQueue(store)
    assert_type(TaskQueue(), TaskQueue)
    added = tasks.add(
        "login", "Fix the login bug", priority=5, after=["schema"], timeout=60, meta={"area": "web"}
    )
    assert_type(added, Task)
    assert_type(tasks.add("build", command=["make", "all"]), Task)
    assert_type(
        tasks.add_all([TaskSpec("a", "one"), TaskSpec("b", command="make b")]),
        tuple[list[str], list[str]],
    )
    claim = assert_type(tasks.claim("worker-1"), Claim)
    assert_type(tasks.claim("worker-1", "login", ttl=300, bound=True, commands_only=False), Claim)
    assert_type((claim.task, claim.worker, claim.token), tuple[Task, str, int])
    assert_type(tasks.keep(claim), Lease)
    assert_type(tasks.done("login", "worker-1", claim.token, "fixed", commit="abc"), Task)
    assert_type(
        tasks.fail("login", "worker-1", claim.token, "no compiler", delay=5.0, final=True), Task
    )
    assert_type(tasks.release("login", "worker-1", claim.token), Task)
    assert_type(tasks.retry("login", "worker-1", "use the index"), Task)
    assert_type(tasks.reopen("login", "worker-1", note="not all"), Task)
    assert_type(tasks.claim("worker-1", agent="claude", budget=5.0, task_budget=1), Claim)
    assert_type(claim.previous, Previous | None)
    assert_type(tasks.close_gate("claude", None, "usage limit", "worker-1"), Gate)
    assert_type(tasks.open_gate("claude", "worker-1"), bool)
    assert_type(tasks.gates(), list[Gate])
    question = assert_type(tasks.ask("login", "worker-1", claim.token, "Which?"), Question)
    assert_type(tasks.await_answer(question, timeout=60), Question)
    assert_type(tasks.answer("q1", "this one", "ann"), Question)
    assert_type(tasks.park("login", "worker-1", claim.token, "Which?", options=["a"]), Task)
    assert_type(tasks.questions(), list[Question])
    assert_type((question.answer, question.is_open), tuple[str, bool])
    assert_type(tasks.cancel("login", "worker-1", "not needed"), Task)
    assert_type(tasks.get("login"), Task)
    assert_type(tasks.tasks("ready"), list[Task])
    assert_type(tasks.counts(), dict[str, int])
    assert_type(tasks.blocked(), dict[str, str])
    assert_type(tasks.is_finished(), bool)
    assert_type(tasks.wait(1.0), bool)
    assert_type(tasks.seconds_until_due(), float | None)
    tasks.add("login", after=[1])  # type: ignore[list-item]
    tasks.done("login")  # type: ignore[call-arg]


def tasks(task: Task) -> None:
    assert_type((task.id, task.state, task.worker, task.reason), tuple[str, str, str, str])
    assert_type((task.attempts, task.token), tuple[int, int | None])
    assert_type(task.fields(), dict[str, Any])
    assert_type(task.spec, TaskSpec)
    assert_type(
        (task.spec.prompt, task.spec.command), tuple[str | None, str | tuple[str, ...] | None]
    )
    assert_type((task.spec.after, task.spec.timeout), tuple[tuple[str, ...], float | None])
    assert_type(task.spec.meta, Mapping[str, Any])
    task.state = "done"  # type: ignore[misc]  # frozen


def status(store: Store) -> None:
    log = StatusBroadcaster("worker-1", store)
    assert_type(
        log.broadcast(BroadcastState.START, "task-001", "begun", {"step": 1}), dict[str, Any]
    )
    assert_type(log.broadcast("DONE", "task-001"), dict[str, Any])
    for say in (
        log.broadcast_start,
        log.broadcast_done,
        log.broadcast_wait,
        log.broadcast_error,
        log.broadcast_help,
    ):
        assert_type(say("task-001", "text"), dict[str, Any])
    assert_type(log.broadcast_skip("task-001"), dict[str, Any])
    assert_type(log.tail(5), list[dict[str, Any]])
    assert_type(log.query("task-001"), list[dict[str, Any]])
    assert_type(log.read(""), tuple[list[dict[str, Any]], str])
    assert_type(
        log.follow(None, task_id="task-001", state="DONE", timeout=1.0), Iterator[dict[str, Any]]
    )
    text: str = BroadcastState.START
    log.broadcast(None, text)  # type: ignore[arg-type]


def workers(store: Store, claim: Claim, tell: Callable[[str, str, str], object]) -> None:
    worker = SmartWorker(
        "worker-1", "claude -p {prompt}", store=store, ttl=60, timeout=600, on_event=tell
    )
    assert_type(SmartWorker("worker-1"), SmartWorker)
    assert_type(worker.run(until_empty=True), Tally)
    assert_type(worker.work_on(claim), str)
    assert_type(worker.queue, TaskQueue)
    tally = assert_type(worker.tally, Tally)
    assert_type((tally.done, tally.failed, tally.released, tally.lost), tuple[int, int, int, int])
    assert_type(worker.agent_name, str)
    worker.stop()
    SmartWorker("w", preset_agent("claude", permissions="edit", model="m"), budget=5.0)
    SmartWorker("w", lambda work: 5)  # type: ignore[arg-type,return-value]


def function(work: Work) -> str | None:
    assert_type((work.prompt, work.worker, work.token), tuple[str, str, int])
    assert_type(work.task, Task)
    work.lease.check()
    assert_type(work.lease.seconds_left, float)
    work.add_usage(turns=1, cost_usd=0.5)
    if work.previous is not None:
        assert_type(work.previous.reason, str)
        raise LimitReached("later", until=5.0)
    SmartWorker("w", function)
    return None


def panes() -> None:
    swarm_in_tmux = TmuxSwarmManager("/var/lib/swarm")
    assert_type(TmuxSwarmManager(), TmuxSwarmManager)
    report = assert_type(
        swarm_in_tmux.start(3, agent="claude -p {prompt}", until_empty=True), StartReport
    )
    assert_type(
        (report.started, report.restarted, report.running),
        tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    )
    assert_type(swarm_in_tmux.agents(), list[AgentPane])
    pane = assert_type(swarm_in_tmux.agent(1), AgentPane)
    assert_type(pane.status, AgentStatus)
    assert_type((pane.name, pane.worker_id, pane.role), tuple[str, int | None, str])
    swarm_in_tmux.send("worker-1", "continue", enter=True)
    assert_type(swarm_in_tmux.capture("worker-1", lines=20), str)
    assert_type(swarm_in_tmux.restart("worker-1", force=True), AgentPane)
    assert_type(swarm_in_tmux.stop(grace=5), list[StoppedAgent])
    assert_type(swarm_in_tmux.attach_command(), list[str])
    assert_type(swarm_in_tmux.socket, str)


def sprints(root: Path, ask: Callable[[str], bool]) -> None:
    mutex = SprintMutex(root, ask=ask)
    assert_type(SprintMutex("/srv/project", ".sprint-running"), SprintMutex)
    assert_type(mutex.acquire("session", "epic5", force=True, yes=True, pid=1), dict[str, Any])
    assert_type(mutex.check(), dict[str, Any])
    assert_type(mutex.release("session"), dict[str, Any])
    assert_type((mutex.holds, mutex.release_own()), tuple[bool, bool])
    assert_type(sprint.concurrency_control(mode="check", project_root=str(root)), dict[str, Any])


def paths_and_urls(path: Path, url: str) -> None:
    """A path or URL is taken wherever a store is."""
    for given in (path, url, None):
        assert_type(TaskQueue(given), TaskQueue)
        assert_type(TaskLockManager("w", store=given), TaskLockManager)
        assert_type(StatusBroadcaster("w", store=given), StatusBroadcaster)
        assert_type(SmartWorker("w", store=given), SmartWorker)
    assert_type(TmuxSwarmManager(path), TmuxSwarmManager)
    TaskQueue(b".swarm")  # type: ignore[arg-type]
    TaskQueue(17)  # type: ignore[arg-type]


def stores(store: Store) -> None:
    assert_type(store.read("locks/a"), bytes | None)
    assert_type(store.create("locks/a", b"one"), bool)
    assert_type(store.replace("locks/a", b"one", b"two"), bool)
    assert_type(store.remove("locks/a", b"two"), bool)
    assert_type(store.keys("locks", after="a", limit=10), list[str])
    assert_type((store.age("locks/a"), store.where("locks/a")), tuple[float, str])
    assert_type((store.next_token("locks/a"), store.token_bound("locks/a")), tuple[int, int])
    assert_type(store.append("status", b"{}"), str)
    assert_type(store.read_log("status", ""), tuple[list[bytes], str])
    assert_type(store.tail("status", 10), tuple[list[bytes], str])
    assert_type(store.wait("status", "", 1.0), bool)
    assert_type(store.search("status", b"task-001"), Iterator[bytes])
    assert_type(store.rotate("status"), bool)
    store.close()
    store.create("locks/a", "text")  # type: ignore[arg-type]
    for check in testing.CHECKS:
        check(store)
        check(object())  # type: ignore[arg-type]


def files() -> None:
    store = FileStore("/var/lib/swarm", durable=True, log_max_bytes=1 << 20)
    assert_type(store, FileStore)
    stores(store)
    assert_type(store.read("locks/a"), bytes | None)
    assert_type(store.create("locks/a", b"one"), bool)
    assert_type(store.replace("locks/a", b"one", b"two"), bool)
    assert_type(store.keys("locks"), list[str])
    assert_type(store.append("status", b"{}"), str)
    assert_type(store.tail("status", 10), tuple[list[bytes], str])
    store.prepare("locks")
    store.replace("locks/a", "one", b"two")  # type: ignore[arg-type]


def caught(call: Callable[[], object]) -> int:
    """Every exception is a SwarmError, and those that carry facts say of which type."""
    try:
        call()
    except LockHeld as held:
        return len(assert_type(held.task_id, str) + assert_type(held.holder, str))
    except (NotYours, LockLost, TaskExists, WrongState) as error:
        return len(assert_type(error.task_id, str))
    except NoTask as none:
        assert_type((none.why, none.ready_in), tuple[str, float | None])
        return len(assert_type(none.holders, Mapping[str, str]))
    except CannotRun as error:
        return assert_type(error.number, int)
    except SwarmError as error:
        return assert_type(error.exit_code, int)
    return 0


def exceptions() -> None:
    every: list[type[SwarmError]] = [
        AgentUnavailable,
        BadInput,
        Busy,
        CannotRun,
        GitError,
        LockHeld,
        LockLost,
        LogTrimmed,
        NeedHeld,
        NoQuestion,
        NoTask,
        NotSent,
        NotYours,
        StoreError,
        TaskExists,
        TmuxSwarmError,
        Unreachable,
        WrongState,
    ]
    servers: list[type[StoreError]] = [Busy, Unreachable]
    values: type[ValueError] = BadInput
    agents: type[TmuxSwarmError] = AgentUnavailable
    assert_type(
        (len(every), len(servers), values, agents),
        tuple[int, int, type[ValueError], type[TmuxSwarmError]],
    )


def public_modules() -> None:
    """The names of the public modules are those of the package, and their constants are
    numbers and texts.
    """
    assert_type(task_lock.TaskLockManager("w"), TaskLockManager)
    assert_type(status_broadcaster.StatusBroadcaster("w"), StatusBroadcaster)
    assert_type(task_queue.TaskQueue().get("t"), Task)
    assert_type(worker_smart.SmartWorker("w"), SmartWorker)
    assert_type(tmux_manager.TmuxSwarmManager(), TmuxSwarmManager)
    assert_type(sprint.SprintMutex("."), SprintMutex)
    assert_type(errors.BadInput("text"), BadInput)
    assert_type((task_lock.DEFAULT_TTL, task_lock.HEARTBEAT_INTERVAL), tuple[int, int])
    assert_type((worker_smart.GRACE, worker_smart.BACKOFF), tuple[float, float])
    assert_type((tmux_manager.GRACE, tmux_manager.MAX_WORKERS), tuple[float, int])
    assert_type(
        (sprint.LOCK_FILE_NAME, sprint.LOCK_VERSION, sprint.ZOMBIE_THRESHOLD_HOURS),
        tuple[str, int, int],
    )
    assert_type(
        (sprint.USER_CONFIRM_TIMEOUT_SECONDS, sprint.WRITE_TIMEOUT_SECONDS), tuple[int, int]
    )
    assert_type(swarm.__version__, str)
    swarm.Nonsense  # type: ignore[attr-defined]  # noqa: B018
