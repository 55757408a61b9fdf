"""The command behind `make prove`: its output, and its failure if a row does not hold."""

from __future__ import annotations

import subprocess
import sys

import pytest

import proof.__main__ as program
from proof.report import Report
from tests.conftest import ROOT


def prove(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proof", *args], cwd=ROOT, capture_output=True, text=True
    )


def test_a_row_that_does_not_hold_shows_in_the_table_and_the_verdict() -> None:
    report = Report(quiet=True)
    report.row("part", "a promise", "12 of 12", seconds=3.2)
    verdicts = [report.held]
    report.row("part", "another", "11 of 12", held=False)
    assert [*verdicts, report.held] == [True, False]
    lines = report.table().splitlines()
    assert lines[0].split("|")[1:4] == [" part ", " what      ", " figures  "]
    assert lines[2] == "| part | a promise | 12 of 12 | 3 s  | held   |"
    assert "FAILED" in lines[3] and len({len(line) for line in lines}) == 1


def test_a_part_of_the_proof_runs_and_prints_its_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        program.PARTS,
        "mutation",
        lambda report, *, short: report.row("mutation", f"short: {short}", "1 of 1"),
    )
    monkeypatch.setattr(sys, "argv", ["proof", "--short", "mutation"])
    assert program.main() == 0
    output = capsys.readouterr()
    assert output.out.startswith("| part") and "| short: True |" in output.out
    assert "held" in output.err


def test_a_seed_of_random_depth_is_replayed() -> None:
    done = prove("--seed", "7")
    assert (done.returncode, done.stdout) == (0, "Seed 7 breaks no promise.\n")


def test_an_unknown_part_of_the_proof_is_named() -> None:
    done = prove("everything")
    assert done.returncode == 2
    parts = ", ".join(program.PARTS)
    assert "'everything'" in done.stderr and parts in done.stderr
