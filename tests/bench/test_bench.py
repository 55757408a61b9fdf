"""The output of `make bench`. The measurements themselves are not tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import report
from bench.crowd import crowd
from bench.ratio import medians
from bench.report import Goal, Report
from tests.conftest import ROOT

DOCUMENT = """# How fast it is
before
<!-- begin: goals (written by make bench) -->
<!-- end: goals -->
between
<!-- begin: locks (written by make bench) -->
old figures
<!-- end: locks -->
after
"""


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT)
    monkeypatch.setattr(report, "DOCUMENT", document)
    monkeypatch.setattr(report, "FIGURES", tmp_path / "performance" / "figures.json")
    return document


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("ours", "floor", at_most=3.0), True),
        (Goal("ours", "floor", at_most=2.9), False),
        (Goal("ours", "floor", at_least=3.0), True),
        (Goal("ours", "floor", at_least=3.1), False),
        (Goal("ours", at_most=30.0), True),
        (Goal("ours", at_most=0.0), False),
    ],
)
def test_a_goal_is_a_bound_on_a_ratio_or_on_a_figure(
    goal: Goal, met: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Report("locks")
    found.add("Locks", "µs", {"floor": 10.0, "ours": 30.0}, [goal])
    assert found.met is met
    assert capsys.readouterr().out.splitlines()[3].endswith("met" if met else "MISSED")


def test_the_document_shows_the_latest_figures_and_keeps_other_text(document: Path) -> None:
    for figure in (20.0, 40.0):
        found = Report("locks")
        found.add(
            "Locks",
            "µs",
            {"floor": 10.0, "peer": 30.0, "ours": figure},
            [Goal("ours", "floor", at_most=3.0)],
        )
        found.grown("Cost", {"acquire": {10: 0.0002, 1_000: 0.3}})
        found.store()
    text = document.read_text()
    assert [
        line for line in text.splitlines() if line in ("before", "between", "after", "old figures")
    ] == [*("before", "between", "after")]
    assert "| Locks: ours, against floor | 4× | ≤ 3× | **missed** |" in text
    assert "| ours | 40 | 4.00× |" in text and "| ours | 20 |" not in text
    assert "| acquire |" not in text, "a plot shows it"


def test_measuring_one_part_again_leaves_the_figures_of_others(document: Path) -> None:
    for part in ("log", "locks", "log"):
        found = Report(part)
        figures = {"floor": 10.0, "peer": 30.0, "ours": 20.0}
        found.add(f"Of {part}", "µs", figures, [Goal("floor", at_most=20.0)])
        found.add("Two", "µs", {"floor": 10.0, "ours": 20.0}, [Goal("ours", at_most=20.0)])
        found.add("Alone", "MB", {"floor": 10.0}, [Goal("floor", at_most=20.0)], compared=False)
        found.store()
    text = document.read_text()
    assert text.count("| Of l") == 3, "a goal of each, and the figures of the one that has a block"
    assert text.count("| Two: ours |") == text.count("| Alone: floor |") == 2
    assert "| Two |" not in text and "| Alone |" not in text


def test_candidates_are_measured_in_alternation() -> None:
    called: list[str] = []
    medians({name: lambda name=name: called.append(name) for name in "ab"}, rounds=2, repeat=2)  # type: ignore[misc]
    assert "".join(called) == "aabbaabb"


def test_processes_of_a_crowd_start_together_and_report_their_work() -> None:
    found = crowd(3, lambda number: iter([True] * number + [False]).__next__)
    assert found.steps == [0, 1, 2] and found.fairness == 0.0


def test_an_unknown_part_of_the_benchmark_is_refused() -> None:
    command = [sys.executable, "-m", "bench", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(
        "nonsense is not measured: choose from startup locks slots log"
    )
