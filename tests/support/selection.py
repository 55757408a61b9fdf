"""Which tests need more than Python, a file and a moment. `--fast` leaves them out.

A test gets its marks here, by its path, its fixtures or its parameters, so that all
rules are together. An entry of PATHS is a folder, a file, or a file with the beginning
of the names in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

MARKS = {
    "slow": "takes long: several seconds, or many processes",
    "servers": "needs Redis, PostgreSQL or etcd",
    "root": "needs root: mounts, namespaces, another user",
    "browser": "needs Chromium",
    "programs": "needs programs that a machine may not have: tmux, agents from npm, localedef with its charmaps",
    "chaos": "disks, clocks, hosts and processes that misbehave",
    "traced": "counts lines or bytecodes, which Python 3.12 and later report in another way",
}
SERVERS = ("redis", "postgres", "etcd")  # each the name of a fixture
_FIXTURES = {**dict.fromkeys(SERVERS, "servers"), "tmux": "programs"}
PATHS = {
    "chaos": ["tests/robustness/"],
    "traced": [
        "tests/locks/test_every_line.py",
        "tests/proof/test_every_line.py",
        "tests/stores/file/test_log_interrupts.py",
        "tests/stores/file/test_swap_interrupts.py",
        "tests/stores/test_interrupted_fold.py",
        "tests/stores/test_memory.py",
        "tests/stores/test_session_pool.py",
    ],
    "browser": ["tests/web/test_browser.py", "tests/programs/test_questions_on_a_phone.py"],
    "programs": [
        "tests/programs/",
        "tests/cli/test_watch_keys.py",
        "tests/test_settings.py::test_a_name_is_decoded_as_the_system_encodes_it",
        "tests/tmux/",
        "tests/workers/test_questions.py::test_down_and_up_keep_open_questions",
    ],
    "servers": [
        "tests/stores/test_etcd.py",
        "tests/stores/test_on_servers.py",
        "tests/stores/test_postgres.py",
        "tests/stores/test_encryption.py::TestPostgres",
        "tests/stores/test_redis.py",
        "tests/notify/test_sender.py::TestProcesses",
        "tests/agents/test_hooks.py::TestNeverBlocks::test_hooks_work_on_a_server",
        "tests/web/test_app.py::TestTheProcess::test_the_page_works_on_a_server",
        "tests/workers/test_presence.py::test_a_killed_worker_is_gone_at_once",
        "tests/workers/test_presence.py::test_a_worker_whose_agent_is_missing_is_reported",
    ],
    "root": [
        "tests/agents/test_identity.py",
        "tests/cli/test_scripts.py::test_the_nine_checks_of_000_pass_as_written",
        "tests/stores/file/test_state_dir.py::TestPermission",
        "tests/stores/test_encryption.py::TestPostgres",
        "tests/web/test_abuse.py",
        "tests/workspaces/test_full_disk.py",
    ],
    "slow": [
        "tests/agents/test_hooks.py::TestAfterATool",
        "tests/agents/test_hooks.py::TestNeverBlocks",
        "tests/agents/test_mcp.py",
        "tests/agents/test_session.py::test_files_are_reserved_for_the_task",
        "tests/agents/test_session.py::test_a_session_keeps_leases_beyond_their_ttl",
        "tests/bench/",
        "tests/board/test_board.py::test_whatever_others_have_written_there",
        "tests/cli/test_demo.py",
        "tests/cli/test_run.py::TestKilled",
        "tests/cli/test_run.py::TestLost",
        "tests/cli/test_run.py::TestSignals",
        "tests/cli/test_run_terminal.py",
        "tests/cli/test_sprint_run.py::TestSignals",
        "tests/cli/test_sprint_terminal.py::TestNoAnswer",
        "tests/cli/test_status.py::TestWatch",
        "tests/documents/test_documents.py::test_what_the_documents_show",
        "tests/formats/test_yaml_codec.py::test_any_text_means",
        "tests/formats/test_yaml_codec.py::test_the_slowest_text",
        "tests/landing/test_crashes.py",
        "tests/landing/test_remote.py",
        "tests/locks/test_model.py",
        "tests/locks/test_reservations.py::TestRaces",
        "tests/locks/test_takeover.py::test_a_newcomer_stopped",
        "tests/locks/test_takeover.py::test_one_of_many",
        "tests/locks/test_takeover.py::test_the_race",
        "tests/locks/test_takeover.py::test_threads_share_a_scratch_directory",
        "tests/locks/test_takeover.py::test_a_process_",
        "tests/packaging/test_wheel.py",
        "tests/proof/",
        "tests/queue/test_queue.py::TestAdding::test_many_tasks",
        "tests/sprint/test_races.py",
        "tests/sprint/test_record.py::TestDecode::test_an_invalid_lock_file_is_a_zombie[b'[[",
        "tests/sprint/test_record.py::TestDecode::test_an_invalid_lock_file_is_a_zombie[b']]",
        "tests/stores/file/test_log_concurrency.py::test_every_append_that_returned",
        "tests/stores/file/test_log_concurrency.py::test_concurrent_rotations",
        "tests/stores/file/test_log_concurrency.py::test_no_line_is_lost",
        "tests/stores/file/test_log_concurrency.py::test_the_harness_catches",
        "tests/stores/file/test_log_concurrency.py::test_swarm_log_max_bytes",
        "tests/stores/file/test_log_model.py",
        "tests/test_selection.py::test_a_file_that_needs",
        "tests/test_selection.py::test_marks_choose",
        "tests/test_selection.py::test_the_fast_ones",
        "tests/web/test_app.py::TestTheProcess",
        "tests/web/test_openapi.py",
        "tests/cli/test_work.py",
        "tests/workspaces/test_crashes.py",
        "tests/workers/test_worker.py::TestFlood",
        "tests/workers/test_worker.py::TestLosing",
        "tests/workers/test_worker.py::TestStopping",
    ],
}


BUT = ("tests/robustness/test_planted_",)  # quick, and Pythons differ in how they treat links


def is_left_out(path: str) -> bool:
    """Return whether every test of this file is left out by `--fast`, so that the file
    need not even be imported.
    """
    return not path.startswith(BUT) and any(
        path.startswith(entry) for entries in PATHS.values() for entry in entries
    )


def imports_one_of(file: Path, modules: Collection[str]) -> bool:
    """Return whether a file of tests imports one of these modules, at its top or in a test."""
    return any(
        re.search(rf"^ *(import|from) {module}\b", file.read_text(), re.MULTILINE)
        for module in modules
    )


def marks_of(item: pytest.Item) -> Iterator[str]:
    for mark, entries in PATHS.items():
        if item.nodeid.startswith(tuple(entries)) and not item.nodeid.startswith(BUT):
            yield mark
    yield from {_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in _FIXTURES}
    parameters = getattr(item, "callspec", None)
    if parameters is not None and any(
        parameters.params.get(name) in SERVERS for name in ("store", "live_store", "url")
    ):
        yield "servers"
    if any("need root" in mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")):
        yield "root"
