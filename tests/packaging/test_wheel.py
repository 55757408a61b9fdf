"""The built wheel is complete: installed into an empty environment, it works far from the checkout.

Programs run in a directory of their own with a clean environment, so whatever a wheel lacks is
missing there. `bare` has the wheel alone; `complete` has the packages of the extras too.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import swarm
from swarm.agents import mcp_tools
from tests.conftest import ROOT

PACKAGE = ROOT / "swarm"
STATIC = PACKAGE / "web" / "static"
EXTRAS = {"redis", "postgres", "etcd", "mcp", "web", "yaml"}
THIRD_PARTY = ("redis", "psycopg", "mcp", "starlette", "uvicorn", "yaml")
NOT_IN_SDIST = (".planning/",)
TIMEOUT = 100.0  # seconds; far more than any of these programs takes


@dataclass(frozen=True)
class Built:
    """What the build made: the sdist, the wheel that was built from it, and one from
    the checkout.
    """

    sdist: Path
    wheel: Path
    from_checkout: Path


@dataclass(frozen=True)
class Programs:
    """The programs of one environment, in a directory of their own that is empty at the
    beginning.
    """

    environment: Path
    home: Path
    here: Path
    state: Path

    @property
    def variables(self) -> dict[str, str]:
        path = f"{self.environment}/bin:/usr/bin:/bin"
        return {
            "PATH": path,
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SWARM_STATE_DIR": str(self.state),
        }

    def run(self, program: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end, which must have this exit code."""
        done = subprocess.run(
            [self.environment / "bin" / program, *args],
            cwd=self.here,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def swarm(self, *args: str, code: int = 0) -> str:
        """Run `swarm` to its end, and return what it printed; on standard error where it failed."""
        done = self.run("swarm", *args, code=code)
        return done.stderr if code else done.stdout

    def python(self, program: str) -> str:
        return self.run("python", "-W", "error", "-c", program).stdout

    @contextmanager
    def running(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """Start `swarm`, and kill it at the end of the block."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [str(self.environment / "bin" / "swarm"), *args]
        with subprocess.Popen(
            command, cwd=self.here, env=self.variables, text=True, **pipes
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp("built")
    run_quietly(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(ROOT)]
    )
    run_quietly(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "direct")],
        cwd=ROOT,
    )
    (sdist,), (wheel,), (direct,) = (
        place.glob("*.tar.gz"),
        place.glob("*.whl"),
        place.glob("direct/*.whl"),
    )
    return Built(sdist, wheel, direct)


@pytest.fixture(scope="session")
def bare_environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(built.wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="session")
def complete_environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that finds other packages where the tests have them."""
    made = new_environment(built.wheel, tmp_path_factory.mktemp("complete"))
    others = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages(made) / "packages_of_the_tests.pth").write_text(
        "".join(f"{path}\n" for path in others)
    )
    return made


def new_environment(wheel: Path, place: Path) -> Path:
    """Make an environment with the wheel.

    The installer has no index, so a dependency makes it fail.
    """
    run_quietly([sys.executable, "-m", "venv", "--without-pip", str(place)])
    python = str(place / "bin" / "python")
    if find_spec("pip"):
        installer = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    else:  # uv made the environment of the tests
        installer = ["uv", "pip", "install", "--python", python]
    run_quietly([*installer, "--no-index", str(wheel)])
    return place


def packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found


@pytest.fixture
def bare(bare_environment: Path, tmp_path: Path) -> Programs:
    return programs(bare_environment, tmp_path)


@pytest.fixture
def complete(complete_environment: Path, tmp_path: Path) -> Programs:
    return programs(complete_environment, tmp_path)


def programs(environment: Path, place: Path) -> Programs:
    made = Programs(environment, place / "home", place / "here", place / "state")
    made.home.mkdir()
    made.here.mkdir()
    return made


def run_quietly(command: list[str], cwd: Path = Path("/")) -> None:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "UV_"))
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, cwd=cwd, env=variables
    )
    assert done.returncode == 0, done.stdout + done.stderr


# What was built -----------------------------------------------------------------------


def test_the_wheel_holds_every_file_of_the_package_and_no_other(built: Built) -> None:
    files = contents(built.wheel)
    assert {name for name in files if ".dist-info/" not in name} == {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "swarm/py.typed",
        "swarm/admin/schemas/lock.schema.json",
        "swarm/agents/plugin/skills/swarm/SKILL.md",
        "swarm/web/static/index.html",
    } <= set(files)


def test_the_wheel_from_the_sdist_equals_the_one_from_the_checkout(built: Built) -> None:
    assert contents(built.wheel) == contents(built.from_checkout)


def test_the_sdist_holds_every_file_of_the_repository(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    tracked = {
        name
        for name in listed
        if name and not name.startswith(NOT_IN_SDIST) and (ROOT / name).exists()
    }
    assert "pyproject.toml" in tracked
    assert tracked - names == set()


def test_the_wheel_requires_nothing_outside_its_extras(built: Built) -> None:
    metadata = metadata_of(built.wheel)
    required = metadata.get_all("Requires-Dist", [])
    assert [line for line in required if not re.search(r"; extra == '\w+'$", line)] == []
    assert set(metadata.get_all("Provides-Extra", [])) == {*EXTRAS, "all"}
    packages = {
        extra: {line.split(";")[0] for line in required if line.endswith(f"'{extra}'")}
        for extra in {*EXTRAS, "all"}
    }
    assert packages["all"] == set().union(*(packages[extra] for extra in EXTRAS))
    assert [extra for extra in EXTRAS if not packages[extra]] == ["etcd"]
    assert metadata["Version"] == swarm.__version__


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: Path) -> Message:
    (text,) = (
        data for name, data in contents(wheel).items() if name.endswith(".dist-info/METADATA")
    )
    return message_from_string(text.decode())


# The wheel alone ----------------------------------------------------------------------


def test_installing_the_wheel_brings_nothing_else_along(bare: Programs) -> None:
    found = {path.name.partition("-")[0] for path in packages(bare.environment).iterdir()}
    assert found == {"swarm", "swarm_coordination"}


def test_the_checkout_and_all_other_packages_are_out_of_reach(bare: Programs) -> None:
    path, *places = bare.python(
        "import swarm, sys; print(swarm.__file__, *sys.path, sep='\\n')"
    ).splitlines()
    assert Path(path).is_relative_to(bare.environment)
    assert [place for place in places if place and Path(place).resolve().is_relative_to(ROOT)] == []
    found = bare.python(
        f"from importlib.util import find_spec; print(*map(find_spec, {THIRD_PARTY!r}))"
    )
    assert found.split() == ["None"] * len(THIRD_PARTY)


def test_the_command_says_its_version(bare: Programs) -> None:
    assert bare.swarm("--version") == f"swarm {swarm.__version__}\n"
    assert bare.run("python", "-m", "swarm", "--version").stdout == f"swarm {swarm.__version__}\n"


def test_every_public_name_loads(bare: Programs) -> None:
    assert (
        bare.python(
            "import swarm; print(*(getattr(swarm, name).__name__ for name in swarm.__all__))"
        ).split()
        == swarm.__all__
    )


def test_a_type_checker_reads_the_types_of_the_installed_package(
    bare: Programs, tmp_path: Path
) -> None:
    program = bare.here / "api.py"
    program.write_bytes((ROOT / "tests/typing/api.py").read_bytes())
    options = [
        "--strict",
        "--python-executable",
        str(bare.environment / "bin/python"),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    command = [sys.executable, "-m", "mypy", *options, "api.py"]
    done = subprocess.run(
        command, cwd=bare.here, env=bare.variables, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_demo_proves_what_it_says(bare: Programs) -> None:
    answer = json.loads(bare.swarm("demo", "--json"))
    assert answer["ok"] and answer["checks"], answer


def test_a_lock_is_taken_shown_and_released(bare: Programs) -> None:
    assert bare.swarm("lock", "acquire", "task-001", "worker-0").startswith(
        "Lock acquired: task-001\n"
    )
    assert "held by worker-0" in bare.swarm("lock", "acquire", "task-001", "worker-1", code=1)
    assert bare.swarm("lock", "check", "task-001").startswith("task-001: Active\n")
    assert bare.swarm("lock", "release", "task-001", "worker-0") == "Lock released: task-001\n"


def test_the_log_is_validated_with_the_wheel_alone(bare: Programs) -> None:
    bare.swarm("lock", "acquire", "task-001", "worker-0")
    bare.swarm("log", "append", "START", "worker-0", "task-001")
    bare.swarm("log", "validate")
    with (bare.state / "status.log").open("a") as log:
        log.write('{"type": "NONSENSE"}\n')
    done = bare.run("swarm", "log", "validate", code=1)
    assert "timestamp is missing" in done.stdout and "the state 'NONSENSE'" in done.stdout


@pytest.mark.parametrize(
    "name", [path.name.removesuffix(".schema.json") for path in PACKAGE.rglob("*.schema.json")]
)
def test_a_schema_is_the_one_of_the_checkout(bare: Programs, name: str) -> None:
    path = f"schemas/{name}.schema.json"
    found = bare.python(
        f"from importlib.resources import files; "
        f"print(files('swarm.admin').joinpath({path!r}).read_text())"
    )
    assert json.loads(found) == json.loads((PACKAGE / "admin" / path).read_text())


def test_setup_writes_the_skill_and_removes_all_that_it_wrote(bare: Programs) -> None:
    (bare.here / ".git").mkdir()
    bare.swarm("setup", "claude", "--yes", code=1)  # without the extra, no server
    assert [path.name for path in bare.here.iterdir()] == [".git"]
    bare.swarm("setup", "claude", "--skill", "--no-mcp", "--yes")
    skill = (bare.here / ".claude/skills/swarm/SKILL.md").read_bytes()
    assert skill == (PACKAGE / "agents/plugin/skills/swarm/SKILL.md").read_bytes()
    assert "Bash(swarm:*)" in (bare.here / ".claude/settings.json").read_text()
    bare.swarm("setup", "claude", "--remove", "--yes")
    assert [path.name for path in bare.here.iterdir()] == [".git"]


def test_tasks_are_imported_as_json_and_yaml_names_its_cure(bare: Programs) -> None:
    (bare.here / "tasks.yaml").write_text("- id: a\n  prompt: one\n")
    told = bare.swarm("task", "import", "tasks.yaml", code=3)
    assert "JSON" in told and told.endswith(
        f"Run: {bare.environment}/bin/python -m pip install PyYAML\n"
    )
    (bare.here / "tasks.json").write_text('[{"id": "a", "prompt": "one"}]')
    bare.swarm("task", "import", "tasks.json")
    assert json.loads(bare.swarm("task", "list", "--json"))["counts"] == {"ready": 1}


@pytest.mark.parametrize("extra", ["web", "mcp"])
def test_a_command_whose_extra_is_missing_names_the_extra(bare: Programs, extra: str) -> None:
    assert f"-m pip install 'swarm-coordination[{extra}]'" in bare.swarm(extra, code=3)


# With the packages of the extras ------------------------------------------------------


def test_with_other_packages_at_hand_swarm_is_still_the_installed_one(complete: Programs) -> None:
    path, *places = complete.python(
        "import swarm, sys; print(swarm.__file__, *sys.path, sep='\\n')"
    ).splitlines()
    assert Path(path).is_relative_to(complete.environment)
    assert ROOT not in [Path(place).resolve() for place in places if place]
    found = complete.python(
        f"from importlib.util import find_spec; print(*map(bool, map(find_spec, {THIRD_PARTY!r})))"
    )
    assert found.split() == ["True"] * len(THIRD_PARTY)


def test_tasks_are_imported_as_yaml(complete: Programs) -> None:
    (complete.here / "tasks.yaml").write_text("- id: a\n  prompt: one\n")
    complete.swarm("task", "import", "tasks.yaml")
    assert json.loads(complete.swarm("task", "list", "--json"))["counts"] == {"ready": 1}


def test_the_page_is_served_with_every_file_that_it_refers_to(complete: Programs) -> None:
    with complete.running("web", "--port", "0", "--no-token", "--json") as server:
        assert server.stdout and server.stderr
        line = server.stdout.readline()
        assert line, server.stderr.read()
        served = files_of_the_page(urlsplit(json.loads(line)["url"]).port or 0)
    files = {path.name: path.read_bytes() for path in STATIC.iterdir()}
    assert [name for name in files if name not in served] == []
    assert [name for name in files if served[name] != files[name]] == []


def files_of_the_page(port: int) -> dict[str, bytes]:
    """Ask for the page, and for each file that one of its files names; they must all be there."""
    served: dict[str, bytes] = {}
    wanted = ["index.html"]
    while wanted:
        name = wanted.pop()
        if name in served:
            continue
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/" if name == "index.html" else f"/{name}")
        answer = connection.getresponse()
        served[name] = answer.read()
        connection.close()
        assert answer.status == 200, name
        text = served[name].decode(errors="replace")
        wanted += re.findall(r'(?:href|src)="/([^"]+)"', text) if name.endswith(".html") else []
        wanted += (
            re.findall(r'^import .*"\./([^"]+)"', text, re.MULTILINE)
            if name.endswith(".js")
            else []
        )
    return served


def test_an_agent_is_offered_every_tool_over_mcp(complete: Programs) -> None:
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with complete.running("mcp", "--worker", "worker-1") as server:
        hello = ask(server, {"id": 1, "method": "initialize", "params": opening})
        tell(server, {"method": "notifications/initialized"})
        listed = ask(server, {"id": 2, "method": "tools/list"})
    assert (hello["serverInfo"]["name"], hello["serverInfo"]["version"]) == (
        "swarm",
        swarm.__version__,
    )
    assert [tool["name"] for tool in listed["tools"]] == list(mcp_tools.TOOLS)


def tell(server: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert server.stdin
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def ask(server: subprocess.Popen[str], message: dict[str, Any]) -> dict[str, Any]:
    tell(server, message)
    assert server.stdout and server.stderr
    line = server.stdout.readline()
    assert line, server.stderr.read()
    answer: dict[str, Any] = json.loads(line)
    assert answer["id"] == message["id"]
    result: dict[str, Any] = answer["result"]
    return result
