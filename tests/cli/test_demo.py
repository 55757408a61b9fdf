"""`swarm demo` shows the whole, and proves what it says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, script_environment

COMMAND = [sys.executable, str(ROOT / "swarm" / "__main__.py"), "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As on a fresh machine."""
    return {
        "PATH": script_environment()["PATH"],
        "TMPDIR": str(tmp_path),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }


def test_the_demo_shows_what_its_summary_says(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=100, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "✔ 12 of 12 tasks were done exactly once" in done.stdout
    assert "✔ the queue agrees: 12 done" in done.stdout
    assert re.search(
        r"✔ (worker-\d) was killed; (?!\1)worker-\d took over payments \(token \d+, then \d+\)",
        done.stdout,
    )
    assert re.search(r"worker-\d  ▶ START  payments  taken over from worker-\d", done.stdout)
    assert "✔ 5 of 5 tasks have landed on main exactly once" in done.stdout
    assert "✔ 6 of 6 commits on main are green" in done.stdout
    log = done.stdout.partition("git log --oneline --reverse\n")[2].splitlines()
    assert [re.fullmatch(r"  [0-9a-f]+ (.*)", line) is not None for line in log[:6]] == [True] * 6
    red = re.findall(r"✘ (\w+)", done.stdout)
    # the kill, a red check, and the conflict, unless the next attempt had begun by then
    assert red[1:] in (["ERROR"], ["ERROR", "ERROR"]) and "conflicts with main" in done.stdout
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
    assert os.listdir(tmp_path) == []


def test_the_demo_on_a_terminal_shows_the_live_view(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Check the screens on a real terminal of 80 columns and 24 lines."""
    socket = tmp_path / "tmux"

    def tmux(*args: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(socket), "-f", "/dev/null", *args],
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout

    seen = []
    (tmp_path / "demo").mkdir()
    changes = [
        f"{name}={value}"
        for name, value in {**environment, "TMPDIR": str(tmp_path / "demo")}.items()
    ]
    tmux(
        "new-session",
        "-d",
        "-x",
        "80",
        "-y",
        "24",
        "-s",
        "demo",
        "env",
        "-i",
        *changes,
        "TERM=screen",
        *COMMAND,
        ";",
        "set",
        "remain-on-exit",
        "on",
    )
    try:
        deadline = time.monotonic() + 60
        while tmux("display-message", "-p", "-t", "demo", "#{pane_dead}").strip() != "1":
            assert time.monotonic() < deadline
            seen.append(tmux("capture-pane", "-p", "-t", "demo"))
            time.sleep(0.1)
        end = tmux("capture-pane", "-p", "-t", "demo", "-S", "-100")
    finally:
        tmux("kill-server")
    waits = [
        screen_text
        for screen_text in seen
        if "WAITS  drop-old-table" in screen_text and "At work" in screen_text
    ]
    assert waits, "no screen showed the waiting agent"
    lines = waits[-1].splitlines()
    assert lines[0].startswith("swarm  ") and "at work" in lines[0]
    assert any(re.fullmatch(r"Queue  12 tasks · .*", line) for line in lines)
    assert any(
        re.fullmatch(r"  worker-\d  drop-old-table .* may I really drop it\?", line)
        for line in lines
    )
    assert re.fullmatch("─{79}", lines[16]) and re.match(r" +\d+\.\d s  ", lines[17])
    assert any("taken over from worker-" in screen_text for screen_text in seen)
    assert "✔ 12 of 12 tasks were done exactly once" in end and "▶ START  schema" in end
    assert os.listdir(tmp_path / "demo") == []


@pytest.mark.parametrize("place", ["o'neil", "{prompt} $HOME"])
def test_the_demo_works_in_any_temporary_directory(
    environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    (tmp_path / place).mkdir()
    surroundings = {**environment, "TMPDIR": str(tmp_path / place), "SWARM_LOG_MAX_BYTES": "abc"}
    with subprocess.Popen(
        [*COMMAND, "--plain"], stdout=subprocess.PIPE, text=True, env=surroundings
    ) as demo:
        assert demo.stdout is not None
        assert any("✔ DONE   schema" in line for line in demo.stdout)
        demo.terminate()
        demo.stdout.read()
    assert list((tmp_path / place).iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_ended_by_two_signals_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as demo:
        assert demo.stdout is not None
        begun = ""
        while "START" not in begun:
            begun = demo.stdout.readline()
            assert begun
        (home,) = tmp_path.iterdir()
        demo.send_signal(number)
        time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)  # the user sends a second signal
        _, err = demo.communicate(timeout=30)
    assert demo.returncode == 128 + number and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert _processes_of(home) == []


def test_the_demo_with_json_prints_only_the_summary_and_keep_keeps_its_directory(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*COMMAND, "--keep", "--json"], capture_output=True, text=True, timeout=100, env=environment
    )
    answer = json.loads(done.stdout)
    assert (answer["schema_version"], answer["ok"], len(answer["checks"])) == (1, True, 12), answer
    (home,) = tmp_path.iterdir()
    assert f"SWARM_STATE_DIR={home}/state\n" in done.stderr
    assert _processes_of(home) == []
    listed = [*COMMAND[:-1], "task", "list", "--state", "done", "--json"]
    kept = subprocess.run(
        listed,
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "SWARM_STATE_DIR": f"{home}/state"},
    )
    assert json.loads(kept.stdout)["counts"] == {"done": 12}


def test_without_git_the_demo_has_one_act_and_says_so(
    environment: dict[str, str], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "sleep", "cat"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    (tmp_path / "temporary").mkdir()
    surroundings = {**environment, "PATH": str(programs), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=100, env=surroundings)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "✔ the queue agrees: 12 done" in done.stdout
    assert "no git" in done.stdout and "landed" not in done.stdout


def _processes_of(home: Path) -> list[str]:
    """Processes that were started for this demo and still live: all of them have its
    directory in their environment.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(home).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return found


def test_the_demo_shows_itself_as_a_live_page(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--web", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as demo:
        assert demo.stderr
        url, _, token = demo.stderr.readline().removeprefix("Live page: ").strip().partition("?")
        board_url = urllib.request.Request(
            f"{url}api/board",
            headers={"Authorization": f"Bearer {token.removeprefix('token=')}"},
        )
        board: dict[str, Any] = {}
        while board.get("queue", {}).get("done", 0) < 2:
            time.sleep(0.1)
            with (
                contextlib.suppress(urllib.error.HTTPError),
                urllib.request.urlopen(board_url, timeout=10) as answer,
            ):
                board = json.load(answer)
        out, errors = demo.communicate(timeout=100)
    assert (demo.returncode, errors) == (0, "") and json.loads(out)["ok"], out
    assert os.listdir(tmp_path) == []


def test_the_demo_page_without_the_extra_names_the_install_command(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    environment = {**environment, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*COMMAND, "--web"], capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.returncode == 3
    assert (
        done.stderr.startswith("Error: ")
        and "-m pip install 'swarm-coordination[web]'\n" in done.stderr
    )
    assert os.listdir(tmp_path) == ["sitecustomize.py"]
