"""The parts of the proof that are tests: bad input, and faults of disk and machine.

In the proof these tests get more examples, and no test may be skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from proof.report import Report

_ROOT = Path(__file__).resolve().parent.parent
INPUT = (
    "locks/test_model",
    "stores/file/test_log_model",
    "robustness/test_damaged_files",
    "robustness/test_planted_entries",
    "robustness/test_bad_input",
    "admin/test_validation",
    "queue/test_state",
)
FAULTS = (
    "robustness/test_frozen_filesystem",
    "robustness/test_full_disk",
    "robustness/test_changed_conditions",
    "robustness/test_limits",
    "robustness/test_planted_links",
    "robustness/test_removed",
    "stores/file/test_state_dir",
    "robustness/test_clock_jumps",
)


def prove_input(report: Report, *, short: bool) -> None:
    _prove(report, "bad input", INPUT, short)


def prove_faults(report: Report, *, short: bool) -> None:
    _prove(report, "faults of disk and machine", FAULTS, short)


def _prove(report: Report, part: str, names: tuple[str, ...], short: bool) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            results = Path(directory) / "results.xml"
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                f"tests/{name}.py",
                f"--junit-xml={results}",
                "--timeout=900",
            ]
            if not short:
                command.append("--hypothesis-profile=prove")
            run = subprocess.run(
                command,
                cwd=_ROOT,
                env={**os.environ, "CI": "true"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
            if results.exists():
                suite = next(ET.parse(results).getroot().iter("testsuite"))
                counts = {key: int(suite.get(key, 0)) for key in counts}
        wrong = counts["failures"] + counts["errors"] + counts["skipped"]
        figures = f"{counts['tests']} tests" + (
            f", {wrong} failed, or could not be run" if wrong else ""
        )
        held = run.returncode == 0 and counts["tests"] > 0 and not wrong
        report.row(part, name.removeprefix("test_").replace("_", " "), figures, held=held)
        if not held:
            report.say(*run.stdout.splitlines()[-60:])
