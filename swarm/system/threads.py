"""Start threads that receive no signals, so that signals reach the main thread."""

import queue
from collections import deque
from collections.abc import Callable
from signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from threading import Thread


def start_without_signals(thread: Thread) -> None:
    """Start a thread that blocks all signals.

    A signal that another thread receives does not wake the main thread, which handles
    signals. Raise RuntimeError if no thread can be started.
    """
    before = pthread_sigmask(SIG_BLOCK, ())  # blocking may run a signal handler, which may raise
    try:
        pthread_sigmask(SIG_BLOCK, valid_signals())
        thread.start()
    finally:
        pthread_sigmask(SIG_SETMASK, before)


class CallThreads:
    """Daemon threads that make calls. One thread is started before it is needed.

    A call may take long. While all threads are busy, each new call starts another
    thread. After its call a thread ends, unless no other thread is free. The methods
    take no lock, so signal handlers and finalizers may use them. A forked child needs
    an object of its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._free: deque[_Inbox] = deque()  # inboxes of the threads that wait for a call
        self._is_closed = False

    def prepare(self) -> None:
        """Make sure that a thread is free. Raise RuntimeError if no thread can be
        started.
        """
        if self._free:
            return
        inbox = _Inbox()
        self._free.append(inbox)
        try:
            self._start(inbox)
        except BaseException:
            inbox.put(None)  # end the thread: the interrupt may have come after its start
            self._remove(inbox)
            raise

    def run(self, call: Callable[[], object]) -> bool:
        """Make the call in a free thread, or in a new thread.

        Return False if there is no free thread and no thread can be started.
        Exceptions of the call are dropped.
        """
        try:
            inbox = self._free.pop()
        except IndexError:
            inbox = _Inbox()
            inbox.put(call)
            try:
                self._start(inbox)
            except (RuntimeError, MemoryError):
                return False
        else:
            inbox.put(call)
        return True

    def close(self) -> None:
        """End the threads. A thread that makes a call ends after the call."""
        self._is_closed = True
        while self._free:
            try:
                self._free.pop().put(None)
            except IndexError:
                return  # another thread has taken the last inbox

    def _start(self, inbox: "_Inbox") -> None:
        thread = Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True)
        start_without_signals(thread)

    def _serve(self, inbox: "_Inbox") -> None:
        while (call := inbox.get()) is not None:
            try:
                call()
            except BaseException:
                pass  # exceptions are dropped, as `run` says
            del call  # objects of this call must not live until the next call
            if self._free:
                return
            self._free.append(inbox)
            if self._is_closed:
                self.close()

    def _remove(self, inbox: "_Inbox") -> None:
        try:
            self._free.remove(inbox)
        except ValueError:
            pass


_Inbox = queue.SimpleQueue[Callable[[], object] | None]
