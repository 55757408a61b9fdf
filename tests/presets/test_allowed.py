"""Which commands an agent may run, and what a user must do if one was denied."""

from __future__ import annotations

import pytest

from swarm.presets.allowed import cure_of_command
from swarm.presets.contract import ASK, FULL, Request
from swarm.presets.registry import find
from tests.presets.recorded import Config

EVERY_OPENCODE = '{"edit": "allow", "bash": {"*": "allow"}, "external_directory": "ask"}'
REQUEST = Request("x", allow=("make test", "npm run"))


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python3 -c 'print(1)'", ["python3"]),
        ("make lint", ["make lint"]),
        ("make -j4 lint", ["make"]),
        ("cd sub && cargo build --release", ["cargo build"]),
        ("git add . && make test 2>&1 | tail -5 && npm install", ["npm install"]),
        ("git status; ruff check . || mypy", ["ruff", "mypy"]),
        ("for f in a b; do ruff check $f; done", ["ruff"]),
        ("echo 'a && b' > out.txt\nruff check .", ["ruff"]),
        ("cat < in.txt | ./run.sh & wait-for x", ["./run.sh", "wait-for"]),
        ("cd sub && git status", []),
        ("FOO=1 make lint", []),
        ("touch /outside", []),
        ("make test", []),
        ("$(which x) y", []),
        ("", []),
    ],
)
def test_the_cure_names_the_programs_that_are_not_allowed_yet(
    command: str, named: list[str]
) -> None:
    cure = cure_of_command(command, REQUEST)
    assert "--permissions full" in cure
    listed = ", ".join(f'"{name}"' for name in named) if named else '"*"'
    assert cure.startswith(f"add {listed}")


def test_a_quote_that_is_not_closed_hides_no_program_before_it() -> None:
    assert '"ruff"' in cure_of_command("ruff check; cat <<X\nit's\nX", REQUEST)


def test_under_ask_the_cure_begins_with_the_permissions() -> None:
    cure = cure_of_command("make lint", Request("x", permissions=ASK))
    assert cure.startswith('use --permissions edit and add "make lint"')


def test_swarm_gives_no_advice_about_permissions_that_it_did_not_choose() -> None:
    assert "own settings" in cure_of_command("make lint", None)


@pytest.mark.parametrize(
    ("name", "rule", "every"),
    [
        ("claude", "--allowedTools=Bash(make test:*)", "--allowedTools=Bash"),
        (
            "gemini",
            "--allowed-tools=run_shell_command(make test)",
            "--allowed-tools=run_shell_command",
        ),
        ("opencode", '"make test *": "allow"', EVERY_OPENCODE),
    ],
)
def test_allowed_commands_are_rules_of_the_agent_under_edit(
    name: str, rule: str, every: str
) -> None:
    def launch(**options: object) -> str:
        found = find(name, Config()).new_attempt(Request("x", **options))  # type: ignore[arg-type]
        return "\n".join((*found.command, *found.environment.values(), ""))

    assert rule in launch(allow=("make test",))
    assert every in launch(allow=("make test", "*")).split("\n")
    assert rule not in launch(allow=("make test", "*"))
    for permissions in (ASK, FULL):
        assert "make test" not in launch(allow=("make test",), permissions=permissions)
