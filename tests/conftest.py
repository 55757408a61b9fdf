"""What every test may ask for: an environment of its own, a store of each kind, a clock
that moves by hand, and the scripts.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from swarm.project import location
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from swarm.system.clock import Clock
from tests.support.selection import MARKS, SERVERS, imports_one_of, is_left_out, marks_of
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import Server, running
from tests.support.servers.valkey import ValkeyServer

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = (
    "SWARM_STORE",
    "SWARM_STORE_WITHHELD",
    "SWARM_STATE_DIR",
    "AI_SWARM_DIR",
    "AI_SWARM_LOCK_TTL",
    "SWARM_WORKER",
    "SWARM_PANE",
    "SWARM_LOG_MAX_BYTES",
    "SWARM_DURABLE",
    "SWARM_PYTHON",
    "SWARM_TASK_ID",
    "SWARM_TOKEN",
    "CLAUDE_ENV_FILE",
    "SWARM_WEB_TOKEN",
)

# Every run of the usual tests draws the same examples, so that a change is judged by
# itself and CI is never flaky. The proof
# (--hypothesis-profile=prove) draws many more, and others each time; a failure prints
# the line that brings it back.
_ALWAYS = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=10, derandomize=True, **_ALWAYS)  # type: ignore[arg-type]
settings.register_profile("usual", max_examples=30, derandomize=True, **_ALWAYS)  # type: ignore[arg-type]
settings.register_profile("prove", max_examples=600, derandomize=False, **_ALWAYS)  # type: ignore[arg-type]
settings.load_profile("usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help=f"leave out what is marked {', '.join(MARKS)}"
    )
    parser.addoption(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="leave out, and list, the files that import it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Whoever starts the tests in the background of a script has them ignore signals,
    and with them all that they start.
    """
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    if config.getoption("fast"):
        settings.load_profile("fast")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix != ".py":
        return None
    without = imports_one_of(collection_path, config.getoption("without"))
    return (
        without
        or (config.getoption("fast") and is_left_out(collection_path.relative_to(ROOT).as_posix()))
        or None
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """A test that is left out here is told, never passed over in silence."""
    project = location.find(str(ROOT))
    inside = [f"{project.root} is a project: tests of the default see it"] if project else []
    fast = [f"fast: without what is marked {', '.join(MARKS)}"] if config.getoption("fast") else []
    missing = config.getoption("without")
    files = (
        path.relative_to(ROOT)
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))
        if imports_one_of(path, missing)
    )
    return inside + fast + [f"left out, without {', '.join(missing)}: {file}" for file in files]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test, and with `--fast` takes out the marked ones."""
    for item in items:
        for mark in marks_of(item):
            item.add_marker(mark)
    if config.getoption("fast"):
        left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in MARKS)]
        items[:] = [
            item for item in items if not any(item.get_closest_marker(mark) for mark in MARKS)
        ]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end.

    Without this, each call of the garbage collector looks at all of them.
    """
    # Hypothesis sets itself up, and looks for its objects through the collector
    given(strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


class HandClock(Clock):
    """A clock that stands still until it is moved.

    `jump` sets only the wall clock, as an administrator would.
    """

    def __init__(self, now: float = 1_770_000_000.0, steady: float = 5_000.0) -> None:
        super().__init__()
        self._now = now
        self._steady = steady

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._steady

    def pass_time(self, seconds: float) -> None:
        self._now += seconds
        self._steady += seconds

    def jump(self, seconds: float) -> None:
        self._now += seconds


def forget_variables() -> None:
    for name in VARIABLES:
        os.environ.pop(name, None)


forget_variables()  # before a fixture of a whole module or session sees one


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """No test sees a variable of whoever runs it or of another test (`--store` sets
    one), or writes to the default state directory by accident.
    """
    forget_variables()
    os.environ["TERM"] = "xterm"  # a dumb terminal, as some CI has, gets no live screen
    yield
    forget_variables()


@pytest.fixture
def isolated_swarm_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own; both variables are cleared first, then
    AI_SWARM_DIR names it. It does not exist yet.
    """
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "swarm"
    monkeypatch.setenv("AI_SWARM_DIR", str(path))
    return path


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["file", "memory", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """A store of each kind, on the hand-moved clock."""
    made = open_store(store_address(request, tmp_path), clock=clock)
    yield made
    made.close()


@pytest.fixture(params=["file", "memory", *SERVERS])
def live_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind, on its own clock."""
    made = open_store(store_address(request, tmp_path))
    yield made
    made.close()


def store_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of the kind that the fixture's parameter names."""
    if request.param in SERVERS:
        server: Server = request.getfixturevalue(request.param)
        return server.url(f"t{uuid.uuid4().hex}")
    return "memory://" if request.param == "memory" else str(tmp_path / "swarm")


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(ValkeyServer(tmp_path_factory.mktemp("redis"), safe=False)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running(PostgresServer(fsync="off", max_connections="100")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    large = ("--max-request-bytes=20971520",)  # records may have 16 MiB
    with running(EtcdServer(tmp_path_factory.mktemp("etcd"), safe=False, flags=large)) as server:
        yield server


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def lock(isolated_swarm_dir: Path) -> Run:
    """Runs scripts/swarm_lock.sh."""
    return _runner("swarm_lock.sh")


@pytest.fixture
def log(isolated_swarm_dir: Path) -> Run:
    """Runs scripts/swarm_status_log.sh."""
    return _runner("swarm_status_log.sh")


def _runner(script: str) -> Run:
    def run(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings = {
            "capture_output": True,
            "text": True,
            "timeout": 60,
            "env": script_environment(),
            **options,
        }
        return subprocess.run([str(ROOT / "scripts" / script), *args], **settings)  # type: ignore[call-overload, no-any-return]

    return run


def script_environment(**changes: str) -> dict[str, str]:
    """This process's environment, with the interpreter that runs the tests first in PATH."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **changes}


def open_descriptors() -> int:
    """How many this process has, but for those of other tests that nobody has collected yet."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
