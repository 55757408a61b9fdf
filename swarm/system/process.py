"""The identity of a process, and whether the process with this identity has provably
ended.

A pid alone identifies no process: the kernel reuses pids, and each pid namespace and
each machine has its own pids. An identity therefore also names host, boot, namespace
and start time. An identity may name the process group of the command that works for the
process.

`has_ended` is true only if the identity proves that the process has ended and that its
group is empty. If a fact cannot be looked up, the process counts as alive.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time
import time

from swarm.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ALIVE = "alive"
GONE = "gone"
REUSED = "reused"  # the pid of the process belongs to another process now
RESTARTED = "restarted"  # the machine of the process was started again since
ELSEWHERE = (
    "elsewhere"  # the process belongs to another machine or pid namespace, and cannot be looked up
)
UNKNOWN = "unknown"  # the system does not say

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Fields of /proc/<pid>/stat, counted after the command's name.
_STATE, _GROUP, _THREADS, _START_TICKS = 0, 2, 17, 19


def identity(pid: int = 0) -> dict[str, object]:
    """Return the identity of a process, by default of this process.

    The caller must store the identity together with a stamp of the clock, which names
    the boot and the time namespace.
    """
    stat = _stat_of(pid) if pid else _stat("self")
    return {
        "host": os.uname().nodename,
        "machine": _machine(),
        "pid_ns": namespace("pid"),
        "pid": pid or os.getpid(),
        "start": int(stat[_START_TICKS]) if stat else 0,
    }


def age() -> float:
    """Return the age of this process in seconds, rounded to hundredths; 0 if the age is
    unknown.
    """
    stat = _stat("self")
    if not stat:
        return 0.0
    return max(
        0.0,
        time.clock_gettime(time.CLOCK_BOOTTIME)
        - int(stat[_START_TICKS]) / os.sysconf("SC_CLK_TCK"),
    )


def has_one_thread() -> bool:
    """Return whether this process has only one thread, so that a forked child may run
    Python.

    On a system without /proc, only the threads that Python knows are counted.
    """
    stat = _stat("self")
    if stat:
        return int(stat[_THREADS]) == 1
    import threading

    return threading.active_count() == 1


def has_ended(
    who: Mapping[str, object], boot: str, time_ns: str, *, boot_change_proves_it: bool = True
) -> bool:
    """Return whether the process and its `group`, if any, have provably ended.

    `boot` and `time_ns` are the boot and the time namespace of the caller.
    `boot_change_proves_it` says that a later boot of a machine with this name proves
    that the process has ended. If several machines use the store, pass
    `boot_change_proves_it=False`, because clones of a machine share its name.
    """
    pid, its_boot = who.get("pid"), who.get("boot")
    if (
        isinstance(pid, bool)
        or not isinstance(pid, int)
        or pid <= 0
        or not isinstance(its_boot, str)
        or not (boot and its_boot)
    ):
        return False
    fate = probe(who, boot, time_ns)
    if fate == RESTARTED:
        return boot_change_proves_it
    return fate in (GONE, REUSED) and ("group" not in who or group_has_ended(who["group"]))


def probe(who: Mapping[str, object], boot: str, time_ns: str) -> str:
    """Return the state of a process:

    ALIVE, GONE, REUSED, RESTARTED, ELSEWHERE or UNKNOWN.

    `boot` and `time_ns` are the boot and the time namespace of the caller. An identity
    that has only a pid is looked up among the processes of this machine.
    """
    pid, its_boot, here = who["pid"], who.get("boot"), os.uname().nodename
    assert isinstance(pid, int)
    if its_boot and its_boot != boot:
        # no process survives another boot of this machine; a process of another machine
        # cannot be looked up
        machine = _machine()
        return (
            RESTARTED
            if boot and machine and (who.get("machine"), who.get("host")) == (machine, here)
            else ELSEWHERE
        )
    if (its_boot or "pid_ns" in who) and who.get("pid_ns") != namespace("pid"):
        return ELSEWHERE
    if not its_boot and who.get("host", here) != here:
        return ELSEWHERE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        pass  # the process exists and is another user's
    except (OSError, OverflowError):
        return UNKNOWN
    stat = _stat_of(pid)
    if not stat:
        return ALIVE
    if _is_dead(stat):
        return GONE
    # Start times in another time namespace are shifted, so they prove nothing here.
    start = who.get("start")
    same_clock = isinstance(start, int) and start > 0 and who.get("time_ns") == time_ns
    return REUSED if same_clock and start != int(stat[_START_TICKS]) else ALIVE


def group_has_ended(group: object) -> bool:
    """Return whether a process group of this pid namespace is provably empty."""
    if isinstance(group, bool) or not isinstance(group, int) or group <= 0:
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # a process of another user is left
    except (OSError, OverflowError):
        return False
    # Only dead processes that were not reaped may be left. Two checks are needed: during
    # the first, a process may fork another and end.
    dead = _all_dead(group)
    return dead is not None and dead == _all_dead(group)


def boot_id() -> str:
    """Return the identity of this boot of this machine, "" if the system has no such
    identity.

    Raise StoreError if the identity cannot be read now.
    """
    try:
        return _load(_BOOT_ID).strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except OSError as error:
        # Do not return "": the result is cached for the life of the process, so one
        # EMFILE would turn boot checks off for ever.
        cure = "Close some files, or raise the limit with ulimit -n."
        raise StoreError(
            f"cannot read the boot id: {_BOOT_ID}: {error.strerror}. {cure}"
        ) from error


def namespace(kind: str) -> str:
    """Return the identity of this process's namespace of a given kind, such as "pid";
    "" if unknown.
    """
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def stat_text(pid: int) -> str:
    """Return the content of /proc/PID/stat, "" if it is unknown.

    The content is unknown if /proc shows another pid namespace, in which the pid
    belongs to another process.
    """
    return _read(f"/proc/{pid}/stat") if _proc_is_ours() else ""


def _stat_of(pid: int) -> list[str]:
    return _stat(str(pid)) if _proc_is_ours() else []


def _proc_is_ours() -> bool:
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _stat(pid: str) -> list[str]:
    data = _read(f"/proc/{pid}/stat")
    return _split(data) if data else []


def _split(stat: str) -> list[str]:
    return stat[stat.rfind(")") + 2 :].split()


def _is_dead(stat: list[str]) -> bool:
    """Return whether a process is dead and not reaped.

    A process with several threads is alive even if its first thread is dead.
    """
    return stat[_STATE] in "ZX" and int(stat[_THREADS]) <= 1


def _all_dead(group: int) -> list[str] | None:
    """Return the pids of a group's dead processes.

    Return None if a process of the group lives, or may be hidden from this process.
    """
    dead = []
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        with open("/proc/self/mounts", errors="replace") as mounts:
            if "hidepid=" in mounts.read():
                return None
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = _split(_load(f"/proc/{pid}/stat"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended and was reaped
            if stat[_GROUP] == str(group):
                if not _is_dead(stat):
                    return None
                dead.append(pid)
    except OSError:
        return None
    return dead


def _machine() -> str:
    return _read("/etc/machine-id").strip()


def _read(path: str) -> str:
    try:
        return _load(path)
    except OSError:
        return ""


def _load(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode(errors="replace")
    finally:
        os.close(fd)
