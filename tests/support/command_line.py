"""Commands run inside this process, since starting one costs 50 ms, and the rules for
all of them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from unittest import mock

from swarm.cli import lock, main
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.terminal import output

EXIT_CODES = {0, 1, 2, 3, 4}


class Answer(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """Return the one object that --json promises."""
        assert self.out.count(b"\n") == 1, self.out
        return json.loads(self.out)


def run(*args: str) -> Answer:
    """Return the answer of `swarm ARGS`. Fail if it ended as no command may."""
    written: dict[int, bytes] = {1: b"", 2: b""}

    def write(fd: int, text: str | bytes) -> None:
        written[fd] += text.encode(errors="surrogateescape") if isinstance(text, str) else text

    with mock.patch.object(output, "_write", write):
        code = main.main(args)
    answer = Answer(code, written[1], written[2])
    assert code in EXIT_CODES, answer
    assert b"a fault in swarm" not in answer.err, answer
    assert b"Traceback" not in answer.err, answer
    assert bool(code) == (b"Error: " in answer.err) or args[:2] in (
        ("log", "validate"),
        ("sprint", "check"),
    ), answer
    return answer


def run_on(store: Store, *args: str) -> Answer:
    """Return the answer of `swarm lock`, on a store of the test and its clock."""
    with mock.patch.object(lock, "_table", return_value=LockTable(store)):
        return run("lock", *args)
