"""huey, on any of its storages.

huey removes a claimed task from the queue, so the task is lost if the worker dies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from bench.marks import mark
from bench.peers import module


class HueyQueue:
    """`kind` is one of huey's classes, `options` its arguments."""

    def __init__(self, kind: str, **options: object) -> None:
        logging.getLogger("huey").setLevel(logging.ERROR)
        self._kind, self._options = kind, options

    def _open(self) -> tuple[Any, Any]:
        huey = getattr(module("huey"), self._kind)(**self._options)
        return huey, huey.task()(mark)

    def fill(self, numbers: range) -> None:
        huey, task = self._open()
        for number in numbers:
            huey.enqueue(task.s(number))

    def open(self, worker: str) -> Callable[[], bool]:
        huey, _ = self._open()

        def step() -> bool:
            task = huey.dequeue()
            if task is None:
                return False
            huey.execute(task)
            return True

        return step
