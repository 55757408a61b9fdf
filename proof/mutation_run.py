"""Run mutmut with the operators of `mutants`, each mutant against the tests of its module. `mutation` starts it in a copy."""

from __future__ import annotations

from typing import Any

import mutmut.__main__ as program
from mutmut.mutation.mutators import mutation_operators
from mutmut.state import state

from proof.mutants import OPERATORS

# The test files of each module: almost every test goes through the file store somewhere, and few of them see its details.
OWN = {
    "stores.file.swap": ["stores/file/test_swap", "stores/file/test_workspaces", "locks/test_takeover", "stores/test_contract"],
    "stores.file.tokens": ["stores/file/test_tokens", "test_task_lock", "stores/test_contract"],
    "locks.table": ["locks/test_table", "test_task_lock", "locks/test_hold", "locks/test_reservations", "cli/test_wait"],
    "locks.record": ["locks/test_record", "locks/test_table", "test_task_lock", "robustness/test_clock_jumps"],
    "locks.lease": ["locks/test_lease", "locks/test_hold"],
    "stores.file.log": [
        *(
            "stores/file/test_log",
            "stores/file/test_log_appending",
            "stores/file/test_log_reading",
            "stores/file/test_log_cursor",
            "stores/file/test_log_parts",
            "stores/test_contract",
        ),
        *("stores/file/test_durable", "status/test_reader"),
    ],
    "stores.file.log_parts": [
        "stores/file/test_log",
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_parts",
        "stores/test_contract",
    ],
    "stores.file.log_cursor": [
        "stores/file/test_log",
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_cursor",
        "system/test_inotify",
        "stores/test_contract",
        "status/test_reader",
    ],
    "stores.file.line_reader": [
        "stores/file/test_log",
        "stores/file/test_log_reading",
        "stores/file/test_log_parts",
        "stores/test_contract",
    ],
    "status.log": ["status/test_log", "test_status_broadcaster"],
    "stores.file.store": ["stores/file/test_store", "stores/test_contract"],
    "locks.manager": ["locks/test_manager", "test_task_lock", "locks/test_hold"],
    "stores.file.syscalls": [
        "stores/file/test_syscalls",
        "stores/file/test_swap",
        "stores/file/test_workspaces",
        "stores/file/test_tokens",
    ],
    "system.process": ["system/test_process", "locks/test_record"],
    "system.clock": ["system/test_clock", "robustness/test_clock_jumps"],
    "sprint.record": ["sprint/test_record"],
    "formats.yaml_codec": ["formats/test_yaml_codec"],
    "stores.log_fold": ["stores/test_log_fold"],
    "queue.ready": ["queue/test_ready", "queue/test_state"],
    "queue.state": ["queue/test_state", "queue/test_queue"],
    "queue.claims": ["queue/test_queue"],
    "queue.queue": ["queue/test_queue"],
    "queue.task": ["queue/test_task", "queue/test_queue", "queue/test_import_file"],
}


def only_own_tests() -> None:
    """Against each function, of the tests that reach it, those that are of use for its module."""
    for function, tests in state().tests_by_mangled_function_name.items():
        files = {f"tests/{name}.py" for name in OWN[function.removeprefix("swarm.").rpartition(".")[0]]}
        tests.intersection_update([test for test in tests if test.partition("::")[0] in files])


def main() -> None:
    assert isinstance(mutation_operators, list)
    mutation_operators[:] = OPERATORS
    collect = program.collect_or_load_stats

    def collect_and_choose(*args: Any, **options: Any) -> None:
        collect(*args, **options)
        only_own_tests()

    program.collect_or_load_stats = collect_and_choose
    program.cli()


if __name__ == "__main__":
    main()
