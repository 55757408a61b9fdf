"""Everything that a document names exists: files, tests, modules with their attributes,
targets of make.

A document names a file by its path from the root and a module by its path or its dotted
name, in backticks. In the documents for contributors a path counts anywhere. `*`,
`<name>` and a NAME in capitals stand for any name: one file must fit.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.support.documents import BLOCK, DOCUMENTS

CONTRIBUTORS = ("AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")
THEIRS = (
    "CLAUDE.md",
    "GEMINI.md",
    "SKILL.md",
)  # files of users and of agents, which a document may name

_PATH = re.compile(
    r"(?<![\w./~-])(?:swarm|tests|proof|bench|scripts|docs|requirements|\.ci|\.planning)/[\w.*<>/-]*[\w*>/]"
)
_AT_THE_ROOT = re.compile(
    r"[A-Z][A-Z_]+\.md|Makefile|LICENSE|pyproject\.toml|\.[a-z][a-z-]*\.(?:yaml|toml)"
)
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_DOTTED = re.compile(r"(?<![\w./-])(?:swarm|tests|proof|bench)(?:\.[A-Za-z_]\w*)+")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[a-z]\w*)*")
# `swarm.toml` is a file, not an attribute
_ENDINGS = {"json", "log", "md", "py", "sh", "toml", "txt", "yaml"}


def code_in(text: str) -> list[str]:
    """What stands in backticks, blocks left out."""
    return [
        code
        for _, code in re.findall(
            r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", BLOCK.sub("", text), re.DOTALL
        )
    ]


def missing_files(text: str, *, everywhere: bool = False) -> Iterator[str]:
    """The paths and files at the root that a text names and that do not exist."""
    for part in [text] if everywhere else code_in(text):
        yield from (name for name in _PATH.findall(part) if not _fits_a_file(name))
    for code in code_in(text):
        if _AT_THE_ROOT.fullmatch(code) and code not in THEIRS and not (ROOT / code).exists():
            yield code


def _fits_a_file(name: str) -> bool:
    return (ROOT / name).exists() or any(_fitting(name))


def _fitting(name: str) -> Iterator[Path]:
    return ROOT.glob(re.sub(r"<\w+>|\bNAME\b", "*", name))


def missing_tests(text: str) -> Iterator[str]:
    for file, name in _TEST.findall(text):
        if not (ROOT / file).exists() or not re.search(
            rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE
        ):
            yield f"{file}::{name}"


def unknown_names(text: str) -> Iterator[str]:
    """The dotted names of modules, and of what is in them, that do not exist."""
    for code in code_in(text):
        yield from (
            name
            for name in _DOTTED.findall(code)
            if name.rpartition(".")[2] not in _ENDINGS and not _is_known(name)
        )


def _is_known(name: str) -> bool:
    module = _module_of(name)
    if module == name:
        return True
    found: object = importlib.import_module(module)
    for attribute in name.removeprefix(f"{module}.").split("."):
        if attribute in getattr(found, "__annotations__", {}):
            return True  # a field: what it holds is not to be known here
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return True


def _module_of(name: str) -> str:
    """The longest beginning of a dotted name that is a module."""
    return name if _is_module(name) else _module_of(name.rpartition(".")[0])


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what should be its package is none
        return False


def missing_targets(text: str) -> Iterator[str]:
    there = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = [
        *code_in(text),
        *(line for block in BLOCK.findall(text) for line in block.splitlines()),
    ]
    named = [found[1] for line in lines if (found := re.match(r"make ([a-z][a-z-]*)", line))]
    yield from (name for name in named if name not in there)


def unknown_words(step: str) -> Iterator[str]:
    """The identifiers that a step of a how-to names and that stand in none of the files
    and modules that it names.
    """
    codes = code_in(step)
    dotted = [name for code in codes for name in _DOTTED.findall(code)]
    specs = [importlib.util.find_spec(_module_of(name)) for name in dotted]
    files = [Path(spec.origin) for spec in specs if spec and spec.origin]
    paths = [code for code in codes if _PATH.fullmatch(code) or _AT_THE_ROOT.fullmatch(code)]
    files += [path for name in paths for path in _fitting(name) if path.is_file()]
    sources = "\n".join(path.read_text() for path in files)
    words = [code for code in codes if _WORD.fullmatch(code) and code not in (*dotted, *paths)]
    for word in (part for code in words for part in code.split(".")):
        if files and not re.search(rf"\b{word}\b", sources):
            yield word


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_of_the_project_that_is_named_exists(document: str) -> None:
    assert (
        list(missing_files((ROOT / document).read_text(), everywhere=document in CONTRIBUTORS))
        == []
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document: str) -> None:
    assert list(missing_tests((ROOT / document).read_text())) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_module_and_attribute_that_is_named_exists(document: str) -> None:
    assert list(unknown_names((ROOT / document).read_text())) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_of_make_that_is_named_exists(document: str) -> None:
    assert list(missing_targets((ROOT / document).read_text())) == []


@pytest.mark.parametrize("document", CONTRIBUTORS)
def test_a_how_to_names_what_stands_in_the_files_that_it_names(document: str) -> None:
    steps = re.findall(
        r"^\d\. .*?(?=^\S|\Z)", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE
    )
    assert [word for step in steps for word in unknown_words(step)] == []


def test_a_name_of_something_that_does_not_exist_is_found() -> None:
    text = (
        "```\nmake nothing\nbench/gone.py\n```\n"
        "`swarm/errors.py`, `swarm/gone.py`, proof/gone.py, `swarm/cli/NAME.py`, "
        "`swarm/gone/NAME.py`, `tests/*.py`\n"
        "`docs/*.gone`, `swarm.errors`, `swarm.gone`, `swarm.errors.Gone`, "
        "`swarm.errors.SwarmError.exit_code`\n"
        "`README.md`, `GONE.md`, `CLAUDE.md`, `~/docs/x`, `tests/conftest.py::HandClock`, "
        "`tests/test_settings.py::test_gone`\n"
        "`swarm.locks.gone.X`, `swarm.toml`, `make test`, `make gone ARGS=x`, ``make `gone` ``\n"
    )
    assert list(missing_files(text)) == [
        "swarm/gone.py",
        "swarm/gone/NAME.py",
        "docs/*.gone",
        "GONE.md",
    ]
    assert {*missing_files(text, everywhere=True)} - {*missing_files(text)} == {
        "bench/gone.py",
        "proof/gone.py",
    }
    assert list(missing_tests(text)) == [
        "tests/conftest.py::HandClock",
        "tests/test_settings.py::test_gone",
    ]
    assert list(unknown_names(text)) == ["swarm.gone", "swarm.errors.Gone", "swarm.locks.gone.X"]
    assert list(missing_targets(text)) == ["gone", "nothing"]
    step = (
        "1. `swarm/errors.py`: `SwarmError`, `SwarmError.exit_code`, `Gone.absent`; "
        "`swarm.errors.BadInput`, `no=`, `NotOne`"
    )
    assert list(unknown_words(step)) == ["Gone", "absent", "NotOne"]


def test_the_hooks_before_a_commit_are_checks_of_make_and_fetch_nothing() -> None:
    (recipe,) = re.findall(
        r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    checks = {line.split()[0].replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()}
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {each["repo"] for each in repositories} == {"local"}
    hooks = [hook for each in repositories for hook in each["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["entry"].split()[0] for hook in hooks} == checks
