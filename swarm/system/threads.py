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
    before = pthread_sigmask(SIG_BLOCK, ())  # blocking may raise what a handler raises
    try:
        pthread_sigmask(SIG_BLOCK, valid_signals())
        thread.start()
    finally:
        pthread_sigmask(SIG_SETMASK, before)


class CallThreads:
    """Daemon threads that make calls, one of which is started before it is needed.

    A call may take long. More threads are started while all are busy, and one free
    thread stays. The methods take no lock, so signal handlers and finalizers may use
    them. A forked child needs an object of its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._free: deque[_Inbox] = deque()  # of the threads that wait for a call
        self._is_closed = False

    def prepare(self) -> None:
        """Have a free thread. Raise RuntimeError if no thread can be started."""
        if not self._free:
            is_free = queue.SimpleQueue[None]()
            self._start(lambda: is_free.put(None), None)
            is_free.get()

    def run(self, call: Callable[[], object]) -> bool:
        """Make the call in a free thread, or in a new thread.

        Return False if there is no free thread and no thread can be started.
        Exceptions of the call are dropped.
        """
        try:
            inbox = self._free.pop()
        except IndexError:
            try:
                self._start(_do_nothing, call)
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
                return  # another thread has taken the last one

    def _start(self, on_free: Callable[[], object], call: Callable[[], object] | None) -> None:
        """Start a thread, with a first call or with none. When the thread is free, it
        calls `on_free`.
        """
        thread = Thread(target=self._serve, args=(on_free, call), name=self._name, daemon=True)
        start_without_signals(thread)

    def _serve(self, on_free: Callable[[], object], call: Callable[[], object] | None) -> None:
        """Make calls until the thread is not needed any more.

        The thread itself says that it is free. So a call never waits for a thread whose
        start has failed.
        """
        inbox = _Inbox()
        while True:
            if call is not None:
                try:
                    call()
                except BaseException:
                    pass  # as the contract says
                call = None  # what it refers to must not live until the next call
                if self._free:
                    return
            self._free.append(inbox)
            on_free()
            if self._is_closed:
                self.close()
            call = inbox.get()
            if call is None:
                return


def _do_nothing() -> None:
    pass


_Inbox = queue.SimpleQueue[Callable[[], object] | None]
