"""The JSON API does what /openapi.json says: schemathesis tries it with what fits the
description, and with what does not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from swarm.queue.task import TaskSpec
from tests.conftest import script_environment
from tests.support.web_server import TOKEN, Swarm


def test_the_api_does_what_its_description_says(tmp_path: Path) -> None:
    """All but /api/events, which does not end."""
    swarm = Swarm(tmp_path / "swarm", "--allow-actions")
    swarm.queue.add_all(
        [TaskSpec("a", "x"), TaskSpec("b", "x", after=("a",)), TaskSpec("c", "x", max_attempts=1)]
    )
    swarm.queue.fail("c", "w", swarm.queue.claim("w", "c").token, "no luck")
    swarm.locks.acquire("held", "w", 600)
    with swarm.server as server:
        program = Path(sys.executable).parent / "schemathesis"
        command = [
            str(program),
            "run",
            f"{server.origin}/openapi.json",
            "--header",
            f"Authorization: Bearer {TOKEN}",
        ]
        limits = [
            "--max-examples",
            "12",
            "--seed",
            "1",
            "--exclude-path",
            "/api/events",
            "--request-timeout",
            "20",
            "--no-color",
        ]
        done = subprocess.run(
            [*command, *limits],
            cwd=tmp_path,
            env=script_environment(),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.get("/healthz") == {"ok": True}
    tried = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
    assert tried and tried[1] == tried[2] and int(tried[1].replace(",", "")) > 300, done.stdout
