"""Threads that take none of the program's signals."""

from signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from threading import Thread


def start_without_signals(thread: Thread) -> None:
    """Start a thread that blocks all signals.

    A signal taken by this thread would not wake the thread that handles signals. Raise
    RuntimeError if no thread can be started.
    """
    before = pthread_sigmask(SIG_BLOCK, valid_signals())
    try:
        thread.start()
    finally:
        pthread_sigmask(SIG_SETMASK, before)
