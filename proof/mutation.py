"""Mutation testing: change modules a little, one change at a time, and run their tests.

A mutant that passes all tests is a *survivor*. Each mutant is either killed by a test
or explained in `proof/surviving_mutants.toml`. Any other survivor fails the proof, and
so does an explanation that fits no mutant. The module `mutants` says how a mutant is
named in that file. A mutant that runs into a timeout counts as killed: a test would
notice an endless loop.

Each module is run by itself, in a copy of the tree of its own. `mutation_run` lists the
modules and their tests. `python -m proof.mutation queue.ready` runs one module alone.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proof.mutation_run import OWN
from proof.report import Report

if TYPE_CHECKING:
    from proof.mutants import Generated

ROOT = Path(__file__).resolve().parent.parent
EXPLAINED = ROOT / "proof" / "surviving_mutants.toml"
_COPIED = ("swarm", "tests", "proof", "scripts", "pyproject.toml")
_KILLED = (1, 3)  # pytest's exit codes for a failed test and for a failure outside of a test
# mutmut's exit codes for a timeout, and the code of `mutation_tests`
_TIMEOUTS = (24, 36, 152, 255, -signal.SIGXCPU, -signal.SIGKILL)


class Mutant(NamedTuple):
    """A change of a function, as `mutants` names it."""

    module: str
    function: str
    change: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.change}"


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


def prove(report: Report, *, short: bool, only: Sequence[str] = ()) -> None:
    """Check the explanations.

    Unless `short`, run all mutants, or the mutants of some modules.
    """
    explained = read_explained()
    wrong = list(unfounded(explained))
    figures = (
        f"{len(wrong)} of {len(explained)} are wrong"
        if wrong
        else f"{len(explained)}, each of a mutant that is there"
    )
    report.row("mutation", "explained survivors", figures, held=not wrong)
    report.say(*wrong)
    if short:
        return
    for module in only or OWN:
        with tempfile.TemporaryDirectory(prefix="swarm-mutants-") as tree:
            prepare(Path(tree), module)
            output = run(Path(tree), module, report)
            add_row(report, module, list(outcomes(Path(tree), module)), explained, output)


def add_row(
    report: Report, module: str, found: list[Outcome], explained: dict[Mutant, str], output: str
) -> None:
    if not any(outcome.exit_code is not None for outcome in found):
        report.row("mutation", module, f"none of {len(found)} mutants was run", held=False)
        sys.stderr.write(output)
        return
    survivors = [outcome for outcome in found if not outcome.killed]
    unexplained = [outcome for outcome in survivors if outcome.mutant not in explained]
    timeouts = sum(outcome.timed_out for outcome in found)
    figures = f"{len(found)} mutants, {len(found) - len(survivors)} killed"
    figures += f" ({timeouts} by never ending)" if timeouts else ""
    figures += f", {len(survivors) - len(unexplained)} explained"
    figures += f", {len(unexplained)} survived" if unexplained else ""
    report.row("mutation", module, figures, held=not unexplained)
    for outcome in unexplained:
        sys.stderr.write(
            f"\nexit code {outcome.exit_code}:\n{outcome.diff}\n{blank_entry(outcome.mutant)}"
        )


def blank_entry(mutant: Mutant) -> str:
    """Write the explanation of a mutant as it goes into the file, without the reason."""
    # as TOML writes strings
    module, function, change = (json.dumps(part, ensure_ascii=False) for part in mutant)
    return f'[[{module}]]\nfunction = {function}\nchanges = [{change}]\nwhy = ""\n'


def read_explained() -> dict[Mutant, str]:
    """Read which mutants survive, and why. One entry may name several changes of a function."""
    found: dict[Mutant, str] = {}
    for module, entries in tomllib.loads(EXPLAINED.read_text()).items():
        for entry in entries:
            for change in entry["changes"]:
                mutant = Mutant(module, entry["function"], change)
                if mutant in found:
                    raise ValueError(f"{EXPLAINED.name} explains this mutant twice: {mutant}")
                found[mutant] = entry["why"]
    return found


def unfounded(explained: dict[Mutant, str]) -> Iterator[str]:
    """Return the faults of the explanations: an explanation that fits no mutant, or
    that has no reason.
    """
    generated = {
        module: generate(_path(ROOT, module))
        for module in OWN
        if any(it.module == module for it in explained)
    }
    for mutant, why in explained.items():
        others = {
            it.change: it.line
            for it in generated.get(mutant.module, [])
            if it.function == mutant.function
        }
        if mutant.change not in others:
            alike = [
                f"\n           {it} (line {line})"
                for it, line in others.items()
                if _operator(it) == _operator(mutant.change)
            ]
            yield f"there is no mutant {mutant}" + "".join(
                ["; of that kind there are:", *alike] if alike else []
            )
        elif not why.strip():
            yield f"the explanation has no reason: {mutant}"


def generate(path: Path) -> list[Generated]:
    """List the mutants of a module that may still have its decorators."""
    from proof import mutants  # only here: the other parts of the proof need no mutmut

    return list(mutants.generate(_undecorated(path.read_text())))


def prepare(tree: Path, module: str) -> None:
    """Copy the files that the tests need.

    mutmut does not change decorated functions. So the copy has, in place of a
    decorator, a call below the class.
    """
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    path = _path(tree, module)
    path.write_text(_undecorated(path.read_text()))


def run(tree: Path, module: str, report: Report) -> str:
    """Run mutmut and return its output.

    Kill the processes that a mutant left behind.
    """
    (tree / "tmp").mkdir()
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DEBUG_TEMPROOT": str(tree / "tmp"),
    }
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "proof.mutation_run", module]
    transcript = tree / "output"
    with transcript.open("wb") as output:
        mutmut = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        # Do not reap mutmut before the others are killed: until then its pid cannot be
        # reused.
        while os.waitid(os.P_PID, mutmut.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(1)
            report.progress(f"mutation: {module}: {_last_line(transcript)}")
    finally:
        os.killpg(mutmut.pid, signal.SIGKILL)
        mutmut.wait()
    return transcript.read_text(errors="replace")[-20_000:]


def _last_line(transcript: Path) -> str:
    """Return the progress line, which mutmut overwrites again and again."""
    return transcript.read_text(errors="replace")[-300:].rpartition("\r")[2].strip()


def outcomes(tree: Path, module: str) -> Iterator[Outcome]:
    generated = _path(tree / "mutants", module)
    if not generated.with_name(generated.name + ".meta").exists():
        return
    codes = json.loads(generated.with_name(generated.name + ".meta").read_text())[
        "exit_code_by_key"
    ]
    spans = json.loads(generated.with_name(generated.name + ".spans").read_text())["spans"]
    lines = generated.read_text().splitlines()
    names = {mutant.mangled: mutant for mutant in generate(_path(tree, module))}
    if names.keys() != {key.rpartition(".")[2] for key in codes}:
        raise RuntimeError(f"mutmut made other mutants of {module} than `mutants` names")

    def source(name: str) -> list[str]:
        start, end = spans[name]
        return [line.replace(f"def {name}(", "def f(") for line in lines[start - 1 : end]]

    for key, code in codes.items():
        name = key.rpartition(".")[2]
        mangled, _, _ = name.rpartition("__mutmut_")
        original, mutated = source(f"{mangled}__mutmut_orig"), source(name)
        diff = list(difflib.unified_diff(original, mutated, lineterm="", n=3))[2:]
        yield Outcome(
            Mutant(module, names[name].function, names[name].change), code, "\n".join(diff)
        )


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
                    # A decorator of this module has mutants too. None of them is active
                    # yet while the module is imported.
                    late = (
                        "(lambda inner: lambda *args, **options: {0}(inner)(*args, **options))({1})"
                    )
                    calls.append(
                        f"{name} = "
                        + (late if decorator.id in own else "{0}({1})").format(decorator.id, name)
                    )
    return "\n".join([*lines, *calls, ""])


def _path(root: Path, module: str) -> Path:
    return root / "swarm" / f"{module.replace('.', '/')}.py"


def _operator(change: str) -> str:
    return re.split("[: ]", change)[0]


def main() -> int:
    unknown = [module for module in sys.argv[1:] if module not in OWN]
    if unknown:
        print(
            f"{unknown[0]} is not among the modules that are mutated: {', '.join(OWN)}",
            file=sys.stderr,
        )
        return 2
    report = Report()
    prove(report, short=False, only=sys.argv[1:])
    print(report.table())
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
