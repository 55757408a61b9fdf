"""The list of explained survivors fits the code, and what nobody explained fails the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof import mutation, mutation_tests
from proof.mutation import Mutant, Outcome
from proof.report import Report


def test_every_explanation_is_of_a_line_that_is_there() -> None:
    report = Report(quiet=True)
    mutation.prove(report, short=True)
    assert report.held, report.table()


@pytest.mark.parametrize(
    ("mutant", "why", "said"),
    [
        (Mutant("stores.file.swap", "Handover.gone", "x", "y"), "because", "stores.file.swap.Handover.gone has no line 'x'"),
        (Mutant("stores.file.swap", "Handover.close", "x", "y"), "because", "stores.file.swap.Handover.close has no line 'x'"),
        (Mutant("nothing", "f", "x", "y"), "because", "nothing.f has no line 'x'"),
        (Mutant("stores.file.swap", "Handover.close", "owner, hand = self._hand", "pass"), " ", "is not explained"),
    ],
)
def test_an_explanation_without_its_code_or_without_a_reason_is_seen(mutant: Mutant, why: str, said: str) -> None:
    (wrong,) = mutation.unfounded({mutant: why})
    assert said in wrong


def outcome(now: str, code: int | None) -> Outcome:
    return Outcome(Mutant("m", "f", "was", now), code, f"-was\n+{now}")


def test_a_survivor_that_nobody_explained_fails_the_row_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(quiet=True)
    found = [outcome("a", 1), outcome("b", 36), outcome("c", -24), outcome("d", 0)]
    mutation.add_row(report, "m", found, {outcome("d", 0).mutant: "because"}, "")
    assert report.rows[0].held and report.rows[0].figures == "4 mutants, 3 killed (2 by never ending), 1 explained"
    mutation.add_row(report, "m", [*found, outcome("e", 0), outcome("f", 33)], {outcome("d", 0).mutant: "because"}, "")
    assert not report.rows[1].held and report.rows[1].figures.endswith(", 1 explained, 2 survived")
    assert "-was\n+e" in capsys.readouterr().err


def test_a_run_that_came_to_nothing_fails_the_row_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(quiet=True)
    mutation.add_row(report, "m", [], {}, "the clean tests failed")
    assert not report.held and "the clean tests failed" in capsys.readouterr().err
    mutation.add_row(report, "m", [outcome("a", 1), outcome("b", None)], {}, "interrupted")
    assert not report.rows[1].held


def test_decorated_functions_are_mutated_too(tmp_path: Path) -> None:
    mutation.prepare(tmp_path)
    source = (tmp_path / "swarm/stores/file/store.py").read_text()
    assert "    @_spoken" not in source and "\nFileStore.replace = (lambda inner: " in source
    assert "\nLease.token = property(Lease.token)\n" in (tmp_path / "swarm/locks/lease.py").read_text()


def test_a_line_is_known_with_the_comment_behind_it_also_where_it_is_the_last_of_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.mutmut]\nonly_mutate = ["swarm/m.py"]\n')
    (tmp_path / "swarm").mkdir()
    (tmp_path / "swarm" / "m.py").write_text("def f():\n    g()  # first\n    return 1  # last\n")
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    assert list(mutation.unfounded({Mutant("m", "f", "return 1  # last", "return 2  # last"): "because"})) == []


def test_what_is_left_out_is_there() -> None:
    """A test that was renamed would be run again, and one that is gone would be kept in mind for ever."""
    written = "".join(path.read_text() for path in (mutation.ROOT / "tests").rglob("test_*.py"))
    names = mutation_tests._LEFT_OUT | set(mutation_tests._ENOUGH)
    assert [name for name in sorted(names) if f"def {name}(" not in written] == []
