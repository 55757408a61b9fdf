"""The explanations of survivors fit the code, and a survivor without one fails the proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mutmut import configuration
from mutmut.mutation import file_mutation

from proof import mutants, mutation, mutation_run, mutation_tests
from proof.mutation import Mutant, Outcome
from proof.report import Report
from tests.conftest import ROOT as PROJECT


def test_every_explanation_belongs_to_a_mutant() -> None:
    assert list(mutation.unfounded(mutation.read_explained())) == []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one module, `rooms.m`, and no explanations."""
    (tmp_path / "swarm" / "rooms").mkdir(parents=True)
    (tmp_path / "swarm" / "rooms" / "m.py").write_text(
        "class A:\n    @property\n    def f(self):\n        return 0, 'x', 0\n"
    )
    monkeypatch.setattr(mutation, "OWN", {"rooms.m": []})
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "EXPLAINED", tmp_path / "explained.toml")
    return tmp_path


@pytest.mark.parametrize(
    ("module", "function", "change"),
    [
        ("rooms.m", "A.f", "number: 1 to 2"),
        ("rooms.m", "A.f", "number: 0 to 1"),
        ("rooms.m", "A.f", "number: 0 to 1 (3 of 3)"),
        ("rooms.m", "A.f", "no_such_operator: 0 to 1"),
        ("rooms.m", "A.g", "string: 'x' to 'X'"),
        ("rooms.n", "A.f", "string: 'x' to 'X'"),
    ],
)
@pytest.mark.usefixtures("project")
def test_an_explanation_of_no_mutant_is_reported(module: str, function: str, change: str) -> None:
    (wrong,) = mutation.unfounded({Mutant(module, function, change): "because"})
    assert f"there is no mutant {module}.{function}: {change}" in wrong


@pytest.mark.usefixtures("project")
def test_candidates_for_a_misnamed_mutant_are_shown_with_their_lines() -> None:
    (wrong,) = mutation.unfounded({Mutant("rooms.m", "A.f", "number: 0 to 1"): "because"})
    assert (
        "number: 0 to 1 (1 of 2) (line 4)" in wrong
        and "number: 0 to 1 (2 of 2) (line 4)" in wrong
        and "'X'" not in wrong
    )


@pytest.mark.usefixtures("project")
def test_an_explanation_without_a_reason_is_reported() -> None:
    mutant = Mutant("rooms.m", "A.f", "string: 'x' to 'X'")
    assert list(mutation.unfounded({mutant: "because"})) == []
    (wrong,) = mutation.unfounded({mutant: " "})
    assert "has no reason" in wrong


def test_a_wrong_explanation_fails_the_proof(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "explained.toml").write_text(
        mutation.blank_entry(Mutant("rooms.m", "A.f", "number: 7 to 8"))
    )
    report = Report()
    mutation.prove(report, short=True)
    assert not report.held and "number: 7 to 8" in capsys.readouterr().err


def test_an_entry_may_name_several_changes_but_none_twice(project: Path) -> None:
    entry = (
        '[["rooms.m"]]\nfunction = "A.f"\nchanges = ["number: 0 to 1 (1 of 2)", "number: 0 '
        'to 1 (2 of 2)"]\nwhy = "because"\n'
    )
    (project / "explained.toml").write_text(entry)
    explained = mutation.read_explained()
    assert [mutant.change for mutant in explained] == [
        "number: 0 to 1 (1 of 2)",
        "number: 0 to 1 (2 of 2)",
    ]
    assert list(mutation.unfounded(explained)) == []
    (project / "explained.toml").write_text(entry + entry)
    with pytest.raises(ValueError, match="twice"):
        mutation.read_explained()


@pytest.mark.parametrize(
    "literal", [r"'\n'", r"'\\'", "'\"'", '"\'"', "b'x'", "'ü…'", r"'\x7f\ud800'"]
)
def test_an_entry_to_paste_names_the_mutant_it_was_written_for(project: Path, literal: str) -> None:
    for it in mutants.generate(f"def f():\n    return {literal}\n"):
        mutant = Mutant("rooms.m", it.function, it.change)
        (project / "explained.toml").write_text(mutation.blank_entry(mutant))
        assert mutation.read_explained() == {mutant: ""}


def test_the_outcome_of_a_run_has_the_name_of_the_mutant(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "swarm/rooms/m.py").write_text(
        "class A:\n    def f(self):\n        return 0, 'x', 0\n"
    )
    made = ran(project, monkeypatch)
    found = {it.mutant.change: it for it in mutation.outcomes(project, "rooms.m")}
    assert {it.mutant[:2] for it in found.values()} == {("rooms.m", "A.f")} and len(found) == len(
        made
    )
    second = found["number: 0 to 1 (2 of 2)"]
    assert second.exit_code == len(made) - 1
    assert "-        return 0, 'x', 0\n+        return 0, 'x', 1" in second.diff

    (project / "swarm/rooms/m.py").write_text("class A:\n    def f(self):\n        return 0, 'x'\n")
    with pytest.raises(RuntimeError, match=r"rooms\.m"):
        list(mutation.outcomes(project, "rooms.m"))


def ran(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Leave the files of a mutmut run, each mutant with its number as its exit code."""
    monkeypatch.chdir(PROJECT)  # mutmut reads its settings in the current directory
    monkeypatch.setattr(configuration, "_config", None)
    monkeypatch.setattr(file_mutation, "mutation_operators", mutants.OPERATORS)
    made = file_mutation.mutate_file_contents("m.py", (project / "swarm/rooms/m.py").read_text())
    folder = project / "mutants" / "swarm" / "rooms"
    folder.mkdir(parents=True)
    (folder / "m.py").write_text(made.code)
    codes = {f"swarm.rooms.m.{name}": number for number, name in enumerate(made.mutant_names)}
    (folder / "m.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    spans = {name: [span.start, span.end] for name, span in made.line_span_by_function_name.items()}
    (folder / "m.py.spans").write_text(json.dumps({"spans": spans}))
    return list(made.mutant_names)


def outcome(change: str, code: int | None) -> Outcome:
    return Outcome(Mutant("m", "f", change), code, f"-was\n+{change}")


def test_an_unexplained_survivor_fails_the_row_and_is_printed_as_an_entry(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(quiet=True)
    found = [outcome("a", 1), outcome("b", 36), outcome("c", -24), outcome("d", 0)]
    mutation.add_row(report, "m", found, {outcome("d", 0).mutant: "because"}, "")
    assert (
        report.rows[0].held
        and report.rows[0].figures == "4 mutants, 3 killed (2 by never ending), 1 explained"
    )
    mutation.add_row(
        report,
        "m",
        [*found, outcome("e", 0), outcome("f", 33)],
        {outcome("d", 0).mutant: "because"},
        "",
    )
    assert not report.rows[1].held and report.rows[1].figures.endswith(", 1 explained, 2 survived")
    shown = capsys.readouterr().err
    assert "-was\n+e" in shown and '[["m"]]\nfunction = "f"\nchanges = ["e"]\nwhy = ""\n' in shown


def test_a_run_without_outcomes_fails_the_row_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(quiet=True)
    for found in ([], [outcome("a", None), outcome("b", None)]):
        mutation.add_row(report, "m", found, {}, "the clean tests failed")
        assert not report.rows[-1].held and capsys.readouterr().err == "the clean tests failed"
    mutation.add_row(report, "m", [outcome("a", 1), outcome("b", None)], {}, "interrupted")
    assert not report.rows[-1].held


def test_decorated_functions_are_mutated_too(tmp_path: Path) -> None:
    mutation.prepare(tmp_path, "locks.lease")
    path = tmp_path / "swarm/locks/lease.py"
    text = path.read_text()
    assert "    @property" not in text and "\nLease.token = property(Lease.token)\n" in text
    assert "Lease.token" in {mutant.function for mutant in mutation.generate(path)}


def test_a_decorator_of_the_mutated_module_is_applied_at_each_call() -> None:
    """At the time of the import none of its mutants is active yet."""
    source = (
        "def own(call):\n    return call\n\nclass A:\n    @own\n    def f(self):\n        "
        "return 1\n"
    )
    text = mutation._undecorated(source)
    assert "    @own" not in text and "\nA.f = (lambda inner: " in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    assert scope["A"]().f() == 1


def test_every_mutated_module_and_its_tests_exist() -> None:
    for module in mutation_run.OWN:
        named = [f"swarm/{module.replace('.', '/')}.py", *mutation_run.arguments(module)]
        assert [
            path for path in named if not (mutation.ROOT / path.partition("::")[0]).is_file()
        ] == []


def test_every_test_left_out_of_mutation_testing_exists() -> None:
    """A renamed test would be run again, and a removed one would stay in the list for
    ever.
    """
    written = "".join(path.read_text() for path in (mutation.ROOT / "tests").rglob("test_*.py"))
    names = mutation_tests._LEFT_OUT | set(mutation_tests._ENOUGH)
    assert [name for name in sorted(names) if f"def {name}(" not in written] == []
