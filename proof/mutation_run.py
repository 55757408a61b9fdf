"""Runs mutmut with a few more kinds of mutants: those that take a step away. Called by `mutation`, in a copy of the tree.

mutmut itself changes values, operators and arguments. Code that hands a lock over lives by the order of its steps and by the
errors that it meets. So here every call whose result nobody uses is left out once, and every `raise`; every `except` catches
nothing once; and every plain condition is turned round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import libcst as cst
import mutmut.__main__ as program
from mutmut.mutation.mutators import mutation_operators
from mutmut.state import state

# The test files of each module: almost every test goes through the file store somewhere, and few of them see its details.
OWN = {
    "handover": ["handover", "hands", "takeover", "stores"],
    "tickets": ["tickets", "task_lock", "stores"],
    "lock_table": ["lock_table", "task_lock", "hold", "reservations", "wait"],
    "lock_record": ["lock_record", "lock_table", "task_lock", "clock_jumps"],
    "lease": ["lease", "hold"],
    "journal": [
        *("journal", "journal_appending", "journal_reading", "journal_reading_on", "journal_rotating", "stores"),
        *("durable", "status_digest"),
    ],
    "journal_parts": ["journal", "journal_appending", "journal_reading", "journal_rotating", "stores"],
    "journal_view": ["journal", "journal_appending", "journal_reading", "journal_reading_on", "watch", "stores", "status_digest"],
    "lines": ["journal", "journal_reading", "journal_rotating", "stores"],
    "status_log": ["status_log", "status_broadcaster"],
    "store_file": ["store_file", "stores"],
    "task_lock": ["manager", "task_lock", "hold"],
    "filesystem": ["filesystem", "handover", "hands", "tickets"],
    "process": ["process", "lock_record"],
    "clock": ["clock", "clock_jumps"],
    "sprint_record": ["sprint_record"],
    "yamltext": ["yamltext"],
    "digest": ["digest"],
    "ready_list": ["ready_list", "task_picture"],
    "task_picture": ["task_picture", "task_queue"],
    "task_ledger": ["task_queue"],
    "task_claims": ["task_queue"],
    "task_queue": ["task_queue"],
    "task_record": ["task_record", "task_queue", "task_file"],
}


def without_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def without_raise(node: cst.Raise) -> Iterable[cst.CSTNode]:
    yield cst.Pass()


def without_except(node: cst.ExceptHandler) -> Iterable[cst.CSTNode]:
    nothing = cst.Tuple([])
    yield node.with_changes(type=nothing, whitespace_after_except=cst.SimpleWhitespace(" "))


def turned_round(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    """Comparisons, `not`, `and` and `or` are mutmut's own."""
    if isinstance(node.test, cst.Call | cst.Attribute | cst.Name | cst.Subscript) and getattr(node.test, "value", "") != "True":
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), node.test))


def only_own_tests() -> None:
    """Against each function, of the tests that reach it, those that are of use for its module."""
    for function, tests in state().tests_by_mangled_function_name.items():
        files = {f"tests/test_{name}.py" for name in OWN[function.split(".")[1]]}
        tests.intersection_update([test for test in tests if test.partition("::")[0] in files])


def main() -> None:
    assert isinstance(mutation_operators, list)
    mutation_operators.extend(
        [
            (cst.Expr, without_call),
            (cst.Raise, without_raise),
            (cst.ExceptHandler, without_except),
            (cst.If, turned_round),
            (cst.While, turned_round),
        ]
    )
    collect = program.collect_or_load_stats

    def collect_and_choose(*args: Any, **options: Any) -> None:
        collect(*args, **options)
        only_own_tests()

    program.collect_or_load_stats = collect_and_choose
    program.cli()


if __name__ == "__main__":
    main()
