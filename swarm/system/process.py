"""Who a process is, and whether it is provably gone.

A pid alone lies: it is reused, and it means something else in another pid namespace or on another machine. An identity
therefore also names host, boot, namespace and start time, and the process group of the command that works on its behalf, if there
is one. `gone` is true only where that proves that the very process has ended, and nobody of the group is left; whatever cannot be
looked up counts as alive.
"""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time
import time

from swarm.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ALIVE = "alive"
GONE = "gone"
REUSED = "reused"  # its pid is another process's now
RESTARTED = "restarted"  # its machine was
ELSEWHERE = "elsewhere"  # of another machine or pid namespace, where we cannot look
UNKNOWN = "unknown"  # the system does not tell

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Fields of /proc/<pid>/stat, counted after the command's name.
_STATE, _GROUP, _THREADS, _START_TICKS = 0, 2, 17, 19


def identity(pid: int = 0) -> dict[str, object]:
    """The identity of a process of this machine and namespace, by default this one; to be stored beside a clock stamp."""
    stat = _stat_of(pid) if pid else _stat("self")
    return {
        "host": os.uname().nodename,
        "machine": _machine(),
        "pid_ns": namespace("pid"),
        "pid": pid or os.getpid(),
        "start": int(stat[_START_TICKS]) if stat else 0,
    }


def age() -> float:
    """Seconds since this process was started, to a hundredth; 0 where the system does not tell."""
    stat = _stat("self")
    if not stat:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[_START_TICKS]) / os.sysconf("SC_CLK_TCK"))


def has_one_thread() -> bool:
    """Return whether this process has a single thread, so that a forked child may run Python. Elsewhere than on Linux only the
    threads that Python knows are counted."""
    stat = _stat("self")
    if stat:
        return int(stat[_THREADS]) == 1
    import threading

    return threading.active_count() == 1


def gone(who: Mapping[str, object], boot: str, time_ns: str, *, restarts: bool = True) -> bool:
    """Whether the process with this identity and boot has provably ended, and its `group` if it names one, seen from a process in
    `boot` and `time_ns`. `restarts`: another boot of a machine that goes by our name proves it; where several machines meet, some
    are clones of each other and go by one name."""
    pid, its_boot = who.get("pid"), who.get("boot")
    if isinstance(pid, bool) or not isinstance(pid, int) or pid <= 0 or not isinstance(its_boot, str) or not (boot and its_boot):
        return False
    what = probe(who, boot, time_ns)
    if what == RESTARTED:
        return restarts
    return what in (GONE, REUSED) and ("group" not in who or group_gone(who["group"]))


def probe(who: Mapping[str, object], boot: str, time_ns: str) -> str:
    """What has become of a process, seen from `boot` and `time_ns`: a word of those above. A pid alone is of here and now."""
    pid, its_boot, here = who["pid"], who.get("boot"), os.uname().nodename
    assert isinstance(pid, int)
    if its_boot and its_boot != boot:
        machine = _machine()  # another boot of this very machine: nothing survived it; another machine: we cannot look
        return RESTARTED if boot and machine and (who.get("machine"), who.get("host")) == (machine, here) else ELSEWHERE
    if (its_boot or "pid_ns" in who) and who.get("pid_ns") != namespace("pid"):
        return ELSEWHERE
    if not its_boot and who.get("host", here) != here:
        return ELSEWHERE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        pass  # it is there, and somebody else's
    except (OSError, OverflowError):
        return UNKNOWN
    stat = _stat_of(pid)
    if not stat:
        return ALIVE
    if _is_dead(stat):
        return GONE
    # Start times are shown shifted in another time namespace and prove nothing across.
    start = who.get("start")
    same_clock = isinstance(start, int) and start > 0 and who.get("time_ns") == time_ns
    return REUSED if same_clock and start != int(stat[_START_TICKS]) else ALIVE


def group_gone(group: object) -> bool:
    """Whether provably no process of a process group of this pid namespace is left."""
    if isinstance(group, bool) or not isinstance(group, int) or group <= 0:
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody is there, and is somebody else's
    except (OSError, OverflowError):
        return False
    # There may be nobody but the dead whom nobody reaps. Looked at twice: while we look, one may fork another, and end.
    dead = _all_dead(group)
    return dead is not None and dead == _all_dead(group)


def boot_id() -> str:
    """The identity of this boot of this machine, "" where the system does not tell; StoreError where it cannot be asked now."""
    try:
        return _load(_BOOT_ID).strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except OSError as error:
        # Not "": who is remembered as without a boot would be, for as long as the process lives.
        cure = "Close some files, or raise the limit with ulimit -n."
        raise StoreError(f"the identity of this boot cannot be read: {_BOOT_ID}: {error.strerror}. {cure}") from error


def namespace(kind: str) -> str:
    """The identity of this process's namespace of a kind, "" where the system does not tell."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def stat_text(pid: int) -> str:
    """What /proc says of a process, "" where it shows another pid namespace than ours: there the number is another's."""
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
    """Dead and not yet reaped; with more threads only its first one has ended."""
    return stat[_STATE] in "ZX" and int(stat[_THREADS]) <= 1


def _all_dead(group: int) -> list[str] | None:
    """The processes of a group, all of which are dead; None where one lives, or may be hidden from us."""
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
                continue  # it has ended, and was reaped
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
