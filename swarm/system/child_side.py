"""The child's side of `swarm.system.child`: a process that prepares itself, waits for its command, and becomes it.

A process of one thread forks, and its child calls these functions. A process of several threads must not run Python in
a forked child, since another thread may have held a lock at that moment. It starts this file as a program instead:

    python3 -I -S child_side.py WAITING TROUBLE PARENT [SIGNAL…]

WAITING and TROUBLE are descriptors. PARENT is the process id of the parent that the child is bound to, or 0. The command
shall find the signals blocked. Streams and process group are in place.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

NOT_EXECUTABLE = 126
_PR_SET_PDEATHSIG = 1


def binding(parent: int) -> Callable[[], None] | None:
    """Return the call that binds a child to its parent: the kernel then kills it when the parent's thread ends.

    To be looked up before a fork, since loading a library may need what others hold. None where the kernel cannot do it,
    and for a Python that was built without `ctypes` or is linked statically.
    """
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(NOT_EXECUTABLE)  # it was gone before

    return bind


def prepare(*, bind_to_parent: Callable[[], None] | None, mask: Collection[int]) -> None:
    """Bind the child to its parent if asked, and forget the signal handlers."""
    if bind_to_parent:
        bind_to_parent()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # a handler of the parent's, or of this interpreter
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def place_streams(streams: tuple[int, ...]) -> None:
    for place, fd in enumerate([fd if fd == place else os.dup(fd) for place, fd in enumerate(streams)]):
        if fd != place:
            os.dup2(fd, place)


def close_others(keep: Collection[int]) -> None:
    """Close now what becoming the command would close: until then may be long, and others may wait for these pipes."""
    try:
        for fd in map(int, os.listdir("/dev/fd")):
            if fd > 2 and fd not in keep and _is_ours(fd):
                os.close(fd)
    except OSError:
        pass


def _is_ours(fd: int) -> bool:
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False  # the one that listed them


def wait_and_become(waiting: int, trouble: int) -> None:
    """Read from `waiting` the places where the command may be, its arguments and its environment, and become it. If that
    fails, write the error number to `trouble`."""
    told = b""
    while block := os.read(waiting, 1 << 16):
        told += block
    try:
        places, command, environment = marshal.loads(told)
    except (EOFError, ValueError, TypeError):
        os._exit(0)  # the parent is gone
    last, telling = errno.ENOENT, 0
    for place in places:
        try:
            os.execve(place, command, environment)
        except OSError as error:  # as a shell does: go on, and tell the first error that says more than "not there"
            last = error.errno or last
            telling = telling or (0 if last in (errno.ENOENT, errno.ENOTDIR) else last)
        except ValueError:  # it is called "", or has a NUL in it
            last = errno.ENOENT
    os.write(trouble, str(telling or last).encode())


def _main(waiting: int, trouble: int, parent: int, *blocked: int) -> None:
    for fd in (waiting, trouble):
        os.set_inheritable(fd, False)
    prepare(bind_to_parent=binding(parent) if parent else None, mask=blocked)
    wait_and_become(waiting, trouble)


if __name__ == "__main__":
    try:
        _main(*map(int, sys.argv[1:]))
    finally:
        os._exit(NOT_EXECUTABLE)
