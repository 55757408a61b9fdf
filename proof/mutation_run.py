"""Run mutmut on one module, against the tests of that module.

The module `mutation` starts this module, in a copy of the tree.
"""

from __future__ import annotations

import signal
import sys

WORKERS = 2

_CLOCK_JUMPS = (
    "robustness/test_clock_jumps::TestByHand",
    "robustness/test_clock_jumps::TestEditedByHand",
)

# The modules that are mutated, each with the tests that can find its mutants. Almost
# every test uses the file store somewhere, and few of them check its details.
OWN = {
    "stores.file.swap": [
        "stores/file/test_swap",
        "stores/file/test_scratch",
        "locks/test_takeover",
        "stores/file/test_durable",
        "stores/test_contract",
    ],
    "stores.file.tokens": ["stores/file/test_tokens", "test_task_lock", "stores/test_contract"],
    "locks.table": [
        "locks/test_table",
        "test_task_lock",
        "locks/test_hold",
        "locks/test_reservations",
        "cli/queue/test_wait",
    ],
    "locks.record": ["locks/test_record", "locks/test_table", "test_task_lock"],
    "locks.expiry": ["locks/test_record", "locks/test_table", "test_task_lock", *_CLOCK_JUMPS],
    "locks.lease": ["locks/test_lease", "locks/test_hold"],
    "locks.refresher": ["locks/test_lease", "locks/test_hold"],
    "stores.file.log": [
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_rotation",
        "stores/file/test_durable",
        "status/test_reader",
    ],
    "stores.file.log_writer": [
        "stores/file/test_log_concurrency",
        "stores/file/test_log_reading",
        "stores/file/test_log_appending",
        "stores/file/test_log_rotation",
        "stores/test_contract",
        "stores/file/test_durable",
    ],
    "stores.file.log_reader": [
        "stores/file/test_log_concurrency",
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_view",
        "stores/file/test_log_rotation",
        "stores/test_contract",
        "status/test_reader",
    ],
    "stores.file.log_rotation": [
        "stores/file/test_log_removed_parts",
        "stores/file/test_log_concurrency",
        "stores/file/test_log_rotation",
        "stores/test_contract",
        "stores/file/test_durable",
    ],
    "stores.file.log_parts": [
        "stores/file/test_log_removed_parts",
        "stores/file/test_log_concurrency",
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_rotation",
        "stores/test_contract",
    ],
    "stores.file.log_cursor": [
        "stores/file/test_log_removed_parts",
        "stores/file/test_log_concurrency",
        "stores/file/test_log_appending",
        "stores/file/test_log_reading",
        "stores/file/test_log_view",
        "system/test_inotify",
        "stores/test_contract",
        "status/test_reader",
    ],
    "stores.file.line_reader": [
        "stores/file/test_line_reader",
        "stores/file/test_log_concurrency",
        "stores/file/test_log_reading",
        "stores/file/test_log_rotation",
        "stores/test_contract",
    ],
    "status.log": ["status/test_log", "test_status_broadcaster"],
    "stores.file.store": [
        "stores/file/test_store",
        "stores/file/test_durable",
        "stores/test_contract",
        "stores/test_log_fold",
        "status/test_reader",
    ],
    "locks.manager": ["locks/test_manager", "test_task_lock", "locks/test_hold"],
    "stores.file.syscalls": [
        "stores/file/test_syscalls",
        "stores/file/test_file_names",
        "stores/file/test_swap",
        "stores/file/test_scratch",
        "stores/file/test_tokens",
    ],
    "system.process": ["system/test_process", "agents/test_identity", "locks/test_record"],
    "system.clock": ["system/test_clock", *_CLOCK_JUMPS],
    "sprint.record": ["sprint/test_record"],
    "sprint.zombie": ["sprint/test_record"],
    "formats.yaml_codec": ["formats/test_yaml_codec"],
    "stores.log_fold": [
        "stores/test_log_fold",
        "stores/test_interrupted_fold::test_a_look_that_was_interrupted_leaves_no_task_in_a_wrong_state",
        "stores/test_interrupted_fold::test_a_flipped_bit_in_a_snapshot_changes_no_answer",
    ],
    "stores.cache": ["stores/test_cache", "stores/test_log_fold"],
    "queue.ready": ["queue/test_ready", "queue/test_state"],
    "queue.snapshot": ["queue/test_snapshot", "queue/test_state"],
    "queue.state": [
        "queue/test_state",
        "queue/test_queue",
        "queue/test_previous",
        "queue/test_submission",
    ],
    "queue.dependencies": ["queue/test_state", "queue/test_queue", "queue/test_previous"],
    "queue.accepted": ["queue/test_gates", "queue/test_queue"],
    "queue.gates": ["queue/test_gates", "queue/test_usage", "queue/test_state"],
    "queue.gating": ["queue/test_gates", "queue/test_usage"],
    "queue.previous": ["queue/test_previous", "queue/test_state", "queue/test_submission"],
    "queue.usage": ["queue/test_usage"],
    "queue.task_state": ["queue/test_state", "queue/test_queue"],
    "queue.adding": ["queue/test_queue"],
    "queue.directing": ["queue/test_queue", "queue/test_previous"],
    "queue.choice": ["queue/test_queue"],
    "queue.claims": ["queue/test_queue", "queue/test_gates", "queue/test_family::TestForeign"],
    "queue.ending": [
        "queue/test_queue",
        "queue/test_submission",
        "queue/test_family::TestForeign",
    ],
    "queue.outcomes": ["queue/test_submission", "board/test_board::TestLanding"],
    "queue.submission": ["queue/test_submission", "queue/test_state"],
    "queue.queue": [
        "queue/test_queue",
        "queue/test_submission",
        "queue/test_family::TestForeign",
    ],
    "queue.task": ["queue/test_task", "queue/test_queue", "plans/test_task_list"],
}


def arguments(module: str) -> list[str]:
    """Name the tests of a module as pytest takes them."""
    parts = [name.partition("::") for name in OWN[module]]
    return [f"tests/{path}.py{colons}{inside}" for path, colons, inside in parts]


def main() -> None:
    import mutmut.__main__ as program  # here, because other modules need only the table
    from mutmut.configuration import config
    from mutmut.mutation.mutators import mutation_operators

    from proof.mutants import OPERATORS

    (module,) = sys.argv[1:]
    # A mutant may send this signal, number 1, to the whole group.
    signal.signal(signal.SIGHUP, lambda *_: None)
    assert isinstance(mutation_operators, list)
    mutation_operators[:] = OPERATORS
    config().only_mutate = [f"swarm/{module.replace('.', '/')}.py"]
    config().pytest_add_cli_args_test_selection = arguments(module)
    program.cli(["run", "--max-children", str(WORKERS)])


if __name__ == "__main__":
    main()
