"""The child's side of `swarm.system.child`: prepare, wait for the command, and become
the command.

A parent with one thread forks, and the child calls the functions of this module. A
parent with several threads must not run Python in a forked child: another thread may
have held a lock during the fork. A parent with several threads starts this file as a
program instead:

    python3 -I -S child_side.py COMMAND_FD ERROR_FD PARENT [SIGNAL…]

The child reads its command from COMMAND_FD and reports an error number to ERROR_FD. The
child dies with the process PARENT, unless PARENT is 0. The listed signals are blocked
in the command. The parent has set the streams and the process group already.
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
IN = b"in "  # before the error number of a directory
_PR_SET_PDEATHSIG = 1
_LENGTH_SIZE = 8  # bytes of the length that precedes a message
_MAX_GUESSED_FD = 1024


def binding(parent: int) -> Callable[[], None] | None:
    """Return the system call that binds a child to its parent, None if the system has
    no such call.

    After this system call, the kernel kills the child when the parent's thread ends.
    Call `binding` before a fork: loading a library may need a lock that another thread
    holds. Only Linux has the system call, and Python needs `ctypes` to make it.
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
            os._exit(NOT_EXECUTABLE)  # the parent ended before the call

    return bind


def prepare(*, bind_to_parent: Callable[[], None] | None, mask: Collection[int]) -> None:
    """Bind the child to its parent, if `bind_to_parent` is given. Reset signal handlers
    and signal mask.
    """
    if bind_to_parent:
        bind_to_parent()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # the parent's handler, or this interpreter's
            signal.signal(number, signal.SIG_DFL)
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):  # Python ignores these signals; the command must not ignore them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def arrange_streams(streams: tuple[int, ...]) -> None:
    """Make the descriptors the standard streams 0, 1 and 2."""
    for target, fd in enumerate(
        [fd if fd == target else os.dup(fd) for target, fd in enumerate(streams)]
    ):
        if fd != target:
            os.dup2(fd, target)


def close_others(keep: Collection[int]) -> None:
    """Before the wait for the command, close the descriptors that execve would close.

    The child may wait long, and other processes may wait until all ends of a pipe are
    closed. Without /proc or /dev/fd, descriptors with high numbers stay open until
    execve.
    """
    try:
        numbers = [*map(int, os.listdir("/dev/fd"))]
    except (OSError, ValueError):
        numbers = [*range(_MAX_GUESSED_FD)]
    for fd in numbers:
        if fd > 2 and fd not in keep and _is_ours(fd):
            os.close(fd)


def _is_ours(fd: int) -> bool:
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False  # the descriptor is closed, such as the one that listed the others


def framed(message: bytes) -> bytes:
    """Return the length of the message, then the message.

    With the length, the reader finds the end of the message while the pipe is open. The
    pipe may stay open, because another child of the parent may have inherited it.
    """
    return len(message).to_bytes(_LENGTH_SIZE, "big") + message


def _is_complete(data: bytes) -> bool:
    length = int.from_bytes(data[:_LENGTH_SIZE], "big")
    return len(data) >= _LENGTH_SIZE and len(data) >= _LENGTH_SIZE + length


def wait_and_exec(command_fd: int, error_fd: int) -> None:
    """Read paths, arguments, environment and directory from `command_fd`, and become the
    command in this directory.

    If the command cannot be run, write the error number to `error_fd`, after `IN` if the
    fault is in the directory.
    """
    message = b""
    while not _is_complete(message) and (block := os.read(command_fd, 1 << 16)):
        message += block
    try:
        paths, command, environment, directory = marshal.loads(message[_LENGTH_SIZE:])
    except (EOFError, ValueError, TypeError):
        os._exit(0)  # the parent has ended
    try:
        if directory:
            os.chdir(directory)
    except OSError as error:
        os.write(error_fd, IN + str(error.errno).encode())
        return
    last, first_real = errno.ENOENT, 0
    for path in paths:
        try:
            os.execve(path, command, environment)
        # Do as a shell does: try the next path. Report the first error other than "not
        # found".
        except OSError as error:
            last = error.errno or last
            first_real = first_real or (0 if last in (errno.ENOENT, errno.ENOTDIR) else last)
        except ValueError:  # the name is empty or contains NUL
            last = errno.ENOENT
    os.write(error_fd, str(first_real or last).encode())


def _main(command_fd: int, error_fd: int, parent: int, *blocked: int) -> None:
    for fd in (command_fd, error_fd):
        os.set_inheritable(fd, False)
    prepare(bind_to_parent=binding(parent) if parent else None, mask=blocked)
    wait_and_exec(command_fd, error_fd)


if __name__ == "__main__":
    try:
        _main(*map(int, sys.argv[1:]))
    finally:
        os._exit(NOT_EXECUTABLE)
