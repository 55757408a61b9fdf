"""Act between two lines or two bytecodes of a call, as a signal handler or a thread may.

Python runs a signal handler between two instructions of the main thread. A trace function
counts the lines or bytecodes that a call executes in chosen code, and acts before one of
them, once. An act that raises ends the trace: the clean-up that follows runs undisturbed.

`interrupt` leaves out two kinds of lines, since no signal handler runs there: the line
of a `with` that Python reports once more at the end of the block, before it calls
`__exit__`, and the line of a `try`.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal

import swarm

Per = Literal["line", "opcode"]

_CODE = str(Path(swarm.__file__).resolve().parent)


class Interrupted(BaseException):
    """The exception that is raised. As KeyboardInterrupt, it is no `Exception`."""


def count_lines(call: Callable[[], object]) -> int:
    """Return how many lines of swarm's code the call executes in this thread."""
    trace = _Trace(_is_swarm, "line", at=0)
    trace.run(call)
    return trace.count


def interrupt(call: Callable[[], object], at: int) -> str:
    """Call `call`, and raise Interrupted before its line number `at`, counted from 1.

    Return the interrupted line as "path:number", "" if the call ended before that line.
    The garbage collector is off: it would run finalizers at any line.
    """
    trace = _Trace(_is_swarm, "line", at)
    try:
        trace.run(call)
    except Interrupted:
        if not trace.place:
            raise
    return trace.place


def interrupted(
    call: Callable[[], object],
    *,
    at: int,
    within: tuple[str, ...],
    per: Per = "opcode",
) -> bool:
    """Call, and raise Interrupted before bytecode or line number `at` of some files.

    `within`: the ends of the paths of these files. Return False if the call ended before.
    """
    trace = _Trace(lambda code: code.co_filename.endswith(within), per, at)
    try:
        trace.run(call)
    except Interrupted:
        pass
    return bool(trace.place)


class Moments:
    """The moments before each bytecode of some modules and classes.

    `act_in` calls the same work again and again, and acts one bytecode later each time.
    """

    def __init__(self, *places: ModuleType | type) -> None:
        self._modules = {place.__file__ for place in places if isinstance(place, ModuleType)}
        self._classes = tuple(f"{place.__name__}." for place in places if isinstance(place, type))
        self.number = 0

    def act_in(self, work: Callable[[], object], act: Callable[[], object]) -> bool:
        """Call `work`, and `act` at the next moment. Return False if there is none."""
        self.number += 1
        trace = _Trace(self._is_chosen, "opcode", self.number, act)
        trace.run(work)
        return bool(trace.place)

    def _is_chosen(self, code: CodeType) -> bool:
        return code.co_filename in self._modules or code.co_qualname.startswith(self._classes)


class _Trace:
    """Count the lines or bytecodes of chosen code, and act before number `at`."""

    def __init__(
        self,
        is_chosen: Callable[[CodeType], bool],
        per: Per,
        at: int,
        act: Callable[[], object] | None = None,
    ) -> None:
        self.count = 0
        self.place = ""  # where it acted
        self._is_chosen = cache(is_chosen)
        self._per = per
        self._at = at
        self._act = act or self._raise

    def run(self, call: Callable[[], object]) -> None:
        before = sys.gettrace()
        collecting = gc.isenabled()
        if self._per == "line":
            gc.disable()
        else:
            sys._getframe().f_trace_opcodes = True  # 3.12 sends no such event without one here
        sys.settrace(self._on_call)
        try:
            call()
        finally:
            sys.settrace(before)
            if collecting:
                gc.enable()

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._is_chosen(frame.f_code):
            return None
        if self._per == "opcode":
            frame.f_trace_opcodes = True
            return self._on_opcode
        skipped = _uninterruptible(frame.f_code.co_filename)
        previous = 0

        def on_line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal previous
            if event == "line":
                if previous not in skipped.get(frame.f_lineno, ()):
                    self._step(frame)
                previous = frame.f_lineno
            return on_line

        return on_line

    def _on_opcode(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self._step(frame)
        return self._on_opcode

    def _step(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            name = frame.f_code.co_filename.removeprefix(_CODE).lstrip("/")
            self.place = f"{name}:{frame.f_lineno}"
            self._act()

    def _raise(self) -> None:
        raise Interrupted(self.place)


def _is_swarm(code: CodeType) -> bool:
    return code.co_filename.startswith(_CODE)


@cache
def _uninterruptible(path: str) -> dict[int, range]:
    """Return the lines that cannot be interrupted when they follow one of the given lines."""
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.With):
            for line in {node.lineno, *(item.context_expr.lineno for item in node.items)}:
                found[line] = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        elif isinstance(node, ast.Try):
            found[node.lineno] = range(sys.maxsize)
    return found
