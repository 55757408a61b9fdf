"""The names that programs import stay importable, and `import swarm` stays cheap."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import swarm
from swarm import errors
from tests.conftest import ROOT

FRONT_DOORS = {
    "swarm.task_lock": (
        "DEFAULT_TTL HEARTBEAT_INTERVAL Lease LockHeld LockInfo LockLost TaskLockManager"
    ),
    "swarm.status_broadcaster": "BroadcastState StatusBroadcaster",
    "swarm.task_queue": "Claim Gate Landed Previous Question Submission Task TaskQueue TaskSpec",
    "swarm.worker_smart": "BACKOFF GRACE LimitReached NeedsAnswer SmartWorker Tally Work "
    "preset_agent",
    "swarm.tmux_manager": "GRACE MAX_WORKERS AgentPane AgentStatus AgentUnavailable StartReport "
    "StoppedAgent TmuxSwarmError"
    " TmuxSwarmManager",
    "swarm.sprint": "LOCK_FILE_NAME LOCK_VERSION USER_CONFIRM_TIMEOUT_SECONDS "
    "WRITE_TIMEOUT_SECONDS ZOMBIE_THRESHOLD_HOURS"
    " SprintMutex concurrency_control",
    "swarm.errors": "AgentUnavailable BadInput Busy CannotRun GitError LockHeld LockLost "
    "LogTrimmed NeedHeld NoQuestion NoTask NotSent NotYours StoreError SwarmError TaskExists"
    " TmuxSwarmError Unreachable WrongState",
    "swarm.testing": "CHECKS",
}
FROM_THE_START = (
    "AgentPane AgentStatus BroadcastState LockInfo SmartWorker SprintMutex StatusBroadcaster "
    "TaskLockManager TaskQueue"
    " TmuxSwarmError TmuxSwarmManager"
)
NOUNS = "Claim FileStore Lease Store Task"
EXCEPTIONS = [
    name
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, BaseException)
]


@pytest.mark.parametrize("module", FRONT_DOORS)
def test_a_public_module_offers_every_name_it_always_had(module: str) -> None:
    found = importlib.import_module(module)
    names = FRONT_DOORS[module].split()
    assert [name for name in names if not hasattr(found, name)] == []
    assert set(getattr(found, "__all__", names)) == set(names), (
        "a new public name is added above too"
    )


def test_the_package_offers_every_name_it_always_had_the_nouns_and_every_exception() -> None:
    assert set(swarm.__all__) == {*FROM_THE_START.split(), *NOUNS.split(), *EXCEPTIONS}
    assert all(issubclass(getattr(swarm, name), swarm.SwarmError) for name in EXCEPTIONS)


def test_the_package_and_its_public_modules_offer_the_same_objects() -> None:
    for module, names in FRONT_DOORS.items():
        for name in {*names.split()} & {*swarm.__all__}:
            assert getattr(swarm, name) is getattr(importlib.import_module(module), name), (
                f"{module}.{name}"
            )


def test_the_list_of_names_is_sorted_and_agrees_with_the_table_of_modules() -> None:
    modules: dict[str, str] = vars(swarm)["_MODULES"]
    assert swarm.__all__ == sorted(set(swarm.__all__))
    assert list(modules) == swarm.__all__
    for name, module in modules.items():
        assert getattr(swarm, name).__module__ == f"swarm.{module}", (
            "a name is imported from where it is defined"
        )


def test_dir_lists_every_name_before_and_after_its_first_use() -> None:
    before, after = in_a_fresh_python(
        "import swarm; print(*dir(swarm)); [getattr(swarm, name) for name in swarm.__all__]; "
        "print(*dir(swarm))"
    )
    assert {*swarm.__all__, "__version__", "__all__"} <= set(before.split())
    assert set(before.split()) <= set(after.split())


def test_a_name_is_looked_up_once_and_then_kept() -> None:
    (kept,) = in_a_fresh_python(
        "import swarm; swarm.LockHeld; swarm.LockHeld; print(vars(swarm)['LockHeld'].__name__)"
    )
    assert kept == "LockHeld"


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'swarm' has no attribute 'Nonsense'"):
        getattr(swarm, "Nonsense")  # noqa: B009  # a type checker refuses the plain form
    assert not hasattr(swarm, "LockTable")


def test_importing_the_package_imports_no_other_module() -> None:
    (loaded,) = in_a_fresh_python(
        "before = set(sys.modules); import swarm; print(*set(sys.modules) - before)"
    )
    assert loaded == "swarm"


def test_the_typed_program_uses_every_public_name() -> None:
    tree = ast.parse((ROOT / "tests/typing/api.py").read_text())
    imports = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "swarm"
    ]
    imported = {name.name for node in imports for name in node.names}
    assert imported == {*swarm.__all__, *(module.partition(".")[2] for module in FRONT_DOORS)}


def in_a_fresh_python(program: str) -> list[str]:
    """The lines that a program prints which can import the checkout and the standard library."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
