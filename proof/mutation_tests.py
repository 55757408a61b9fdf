"""A pytest plugin that deselects the tests which cannot judge a mutant.

- A test that runs a script starts a Python without mutmut, in which no mutant is
  active.
- A race of processes never ends when one of them fails.
- A test that depends on the real clock may fail on a busy machine as if it had found
  the mutant.

A test that never ends is reported with another exit code than a test that fails.
"""

from __future__ import annotations

import os

import pytest

NEVER_ENDED = 36  # mutmut's exit code for a timeout

_OF_NO_USE = {"lock", "log"}  # fixtures that run a script
_LEFT_OUT = {
    "test_one_of_many_takes_over_an_expired_lock",
    "test_one_of_many_takes_a_free_lock",
    "test_the_race_test_catches_the_pseudo_code_of_document_003",
    "test_tokens_grow_in_the_order_of_holding",
    "test_a_newcomer_stopped_anywhere_knows_whether_it_has_the_lock",
    "test_two_processes_cannot_both_acquire",
    "test_an_intent_left_by_a_crash_delays_others_only_briefly",
    "test_every_append_that_returned_is_in_the_log_whole_and_once",
    "test_the_harness_catches_a_log_that_is_rewritten_and_renamed",
    "test_the_functional_verification_of_002_passes_as_written",
    "test_the_exports_need_nothing_installed",
    "test_hold_sends_heartbeats_until_the_block_ends",
    "test_a_short_failure_of_the_store_is_survived",
    "test_a_lost_lock_is_noticed_at_the_next_heartbeat_without_check",
    "test_a_lost_lock_is_reported_by_check_and_by_on_lost",
    "test_a_lease_is_lost_in_time_also_while_the_store_fails",
    "test_nothing_hangs_at_interpreter_exit",
    "test_threads_share_a_scratch_directory_and_survive_its_loss",
    "test_concurrent_rotations_lose_and_reorder_no_line",
    "test_a_forked_child_and_its_parent_append_to_one_log",
    "test_one_read_returns_the_lines_of_many_parts",
    "test_the_shell_that_calls_is_the_sprint",
    "test_an_answer_that_cannot_be_written_is_no_lock",
    "test_check_removes_nothing_that_a_crash_left_and_release_does",
    "test_one_claim_of_many_that_go_for_it_at_once",
    "test_a_durable_store_survives_a_loss_of_power",
    "test_a_task_never_has_two_workers_however_many_go_for_it",
    "test_every_call_of_os_link_says_that_it_follows_no_symlink",  # this test reads the mutants too
}


_ENOUGH = {  # the cases that are run of tests with many cases of a second or two each
    "test_a_process_stopped_past_its_lease_cannot_touch_its_successors_lock": {
        "acquire-remove",
        "takeover-leave",
        "release-rewrite",
    },
    "test_a_process_killed_anywhere_leaves_a_lock_that_can_be_acquired": {
        "takeover-leave",
        "release-remove",
    },
    "test_no_line_is_lost_when_a_process_is_stopped_or_killed_at_any_call": {
        "append-stopped",
        "rotate-stopped",
    },
    "test_a_long_chain_of_tasks_is_not_a_cycle": {"memory"},
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    used = [item for item in items if _of_use(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in used])
    items[:] = used


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "Timeout (>" in str(report.longrepr):
        os._exit(NEVER_ENDED)


def _of_use(item: pytest.Item) -> bool:
    name, _, case = item.name.rstrip("]").partition("[")
    if name in _LEFT_OUT or case not in _ENOUGH.get(name, {case}):
        return False
    return not _OF_NO_USE & set(getattr(item, "fixturenames", ()))
