"""Mutation testing: the lock, log and queue modules with one small change at a time, to see whether the tests notice.

A mutant that all tests pass is a *survivor*. Each is either killed by a test or explained in `proof/surviving_mutants.toml`,
by its function and the changed lines, so that an explanation moves with its code; any other survivor fails the proof. Whoever
runs into a timeout counts as killed: a loop without end is noticed. Which modules and which tests: `[tool.mutmut]` in
`pyproject.toml`.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proof.report import Report

ROOT = Path(__file__).resolve().parent.parent
EXPLAINED = ROOT / "proof" / "surviving_mutants.toml"
WORKERS = 2
_COPIED = ("swarm", "tests", "proof", "scripts", "pyproject.toml")
_KILLED = (1, 3)  # pytest's exit codes for a failed test and for a failure outside of one
_TIMEOUTS = (24, 36, 152, 255, -signal.SIGXCPU, -signal.SIGKILL)  # mutmut's and our plugin's


class Mutant(NamedTuple):
    """A change: in which function, the lines as they were and as they are, without their indentation."""

    module: str
    function: str
    was: str
    now: str


class Outcome(NamedTuple):
    mutant: Mutant
    exit_code: int | None
    diff: str

    @property
    def killed(self) -> bool:
        return self.exit_code in _KILLED or self.timed_out or (self.exit_code or 0) < 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code in _TIMEOUTS


def prove(report: Report, *, short: bool) -> None:
    explained = read_explained()
    wrong = list(unfounded(explained))
    report.row(
        "mutation",
        "explained survivors",
        "; ".join(wrong) if wrong else f"{len(explained)}, each of a line that is there",
        held=not wrong,
    )
    if short:
        return
    with tempfile.TemporaryDirectory(prefix="swarm-mutants-") as place:
        prepare(Path(place))
        said = run(Path(place), report)
        for module in modules():
            add_row(report, module, list(outcomes(Path(place), module)), explained, said)


def add_row(report: Report, module: str, found: list[Outcome], explained: dict[Mutant, str], said: str) -> None:
    survivors = [outcome for outcome in found if not outcome.killed]
    unexplained = [outcome for outcome in survivors if outcome.mutant not in explained]
    timeouts = sum(outcome.timed_out for outcome in found)
    figures = f"{len(found)} mutants, {len(found) - len(survivors)} killed"
    figures += f" ({timeouts} by never ending)" if timeouts else ""
    figures += f", {len(survivors) - len(unexplained)} explained"
    figures += f", {len(unexplained)} survived" if unexplained else ""
    report.row("mutation", module, figures, held=bool(found) and not unexplained)
    for outcome in unexplained:
        sys.stderr.write(f"\n{outcome.mutant.function}, exit code {outcome.exit_code}:\n{outcome.diff}\n")
    if not found:
        sys.stderr.write(said)


def modules() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [".".join(Path(path).with_suffix("").parts[1:]) for path in config["tool"]["mutmut"]["only_mutate"]]


def read_explained() -> dict[Mutant, str]:
    """Survivors and why they survive. One entry may name several changes of a line."""
    found: dict[Mutant, str] = {}
    for module, entries in tomllib.loads(EXPLAINED.read_text()).items():
        for entry in entries:
            changes = entry["now"] if isinstance(entry["now"], list) else [entry["now"]]
            for now in changes:
                mutant = Mutant(module, entry["function"], _flat(entry["was"]), _flat(now))
                if mutant in found:
                    raise ValueError(f"{EXPLAINED.name} explains {mutant} twice")
                found[mutant] = entry["why"]
    return found


def unfounded(explained: dict[Mutant, str]) -> Iterator[str]:
    """What is wrong with the explanations: those of code that is no longer there, and those that explain nothing."""
    sources = {module: dict(_functions(_path(ROOT, module))) for module in modules()}
    for mutant, why in explained.items():
        lines = sources.get(mutant.module, {}).get(mutant.function, "")
        if f"\n{mutant.was}\n" not in lines:
            yield f"{mutant.module}.{mutant.function} has no line {mutant.was!r}"
        elif mutant.was == mutant.now or not why.strip():
            yield f"{mutant.module}.{mutant.function}: {mutant.was!r} is not explained"


def prepare(place: Path) -> None:
    """A copy of what the tests need. mutmut leaves decorated functions alone, so there a decorator is a call below the class."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place / name)
    for module in modules():
        path = _path(place, module)
        path.write_text(_undecorated(path.read_text()))


def run(place: Path, report: Report) -> str:
    """Lets mutmut do its work; what it said. Whatever a mutant left running or stopped ends with it."""
    (place / "tmp").mkdir()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DEBUG_TEMPROOT": str(place / "tmp")}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "proof.mutation_run", "run", "--max-children", str(WORKERS)]
    said = place / "said"
    with said.open("wb") as output:
        mutmut = subprocess.Popen(
            command, cwd=place, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        # Not reaped before the others are killed: as long as it is there, nobody else gets its number.
        while os.waitid(os.P_PID, mutmut.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(1)
            report.progress(f"mutation: {_last_line(said)}")
    finally:
        os.killpg(mutmut.pid, signal.SIGKILL)
        mutmut.wait()
    return said.read_text(errors="replace")[-20_000:]


def _last_line(said: Path) -> str:
    """mutmut writes one line over and over."""
    return said.read_text(errors="replace")[-300:].rpartition("\r")[2].strip()


def outcomes(place: Path, module: str) -> Iterator[Outcome]:
    generated = _path(place / "mutants", module)
    if not generated.with_name(generated.name + ".meta").exists():
        return
    codes = json.loads(generated.with_name(generated.name + ".meta").read_text())["exit_code_by_key"]
    spans = json.loads(generated.with_name(generated.name + ".spans").read_text())["spans"]
    lines = generated.read_text().splitlines()

    def source(name: str) -> list[str]:
        start, end = spans[name]
        return [line.replace(f"def {name}(", "def f(") for line in lines[start - 1 : end]]

    for key, code in codes.items():
        name = key.rpartition(".")[2]
        mangled, _, _ = name.rpartition("__mutmut_")
        original, mutated = source(f"{mangled}__mutmut_orig"), source(name)
        diff = list(difflib.unified_diff(original, mutated, lineterm="", n=3))[2:]
        was = _flat("\n".join(line[1:] for line in diff if line.startswith("-")))
        now = _flat("\n".join(line[1:] for line in diff if line.startswith("+")))
        function = mangled.removeprefix("x_") if mangled.startswith("x_") else mangled.removeprefix("xǁ").replace("ǁ", ".")
        yield Outcome(Mutant(module, function, was, now), code, "\n".join(diff))


def _undecorated(source: str) -> str:
    lines = source.splitlines()
    module = ast.parse(source).body
    own = {node.name for node in module if isinstance(node, ast.FunctionDef)}
    calls = []
    for holder in [node for node in module if isinstance(node, ast.ClassDef)]:
        for function in [node for node in holder.body if isinstance(node, ast.FunctionDef)]:
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Name):
                    lines[decorator.lineno - 1] = ""
                    name = f"{holder.name}.{function.name}"
                    # A decorator of this module has mutants too, and at the time of the import none of them is alive yet.
                    late = "(lambda inner: lambda *args, **options: {0}(inner)(*args, **options))({1})"
                    calls.append(f"{name} = " + (late if decorator.id in own else "{0}({1})").format(decorator.id, name))
    return "\n".join([*lines, *calls, ""])


def _functions(path: Path) -> Iterator[tuple[str, str]]:
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.parse(source).body:
        holder, inner = (f"{node.name}.", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for function in inner:
            if isinstance(function, ast.FunctionDef):
                body = "\n".join(lines[function.lineno - 1 : function.end_lineno])  # with the comment behind its last line
                yield holder + function.name, f"\n{_flat(body)}\n"


def _path(root: Path, module: str) -> Path:
    return root / "swarm" / f"{module.replace('.', '/')}.py"


def _flat(code: str) -> str:
    return "\n".join(line.strip() for line in code.strip().splitlines())
