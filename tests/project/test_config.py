"""`swarm.toml`: each key has its type, and a mistake names its file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarm.errors import BadInput
from swarm.project import config
from swarm.project.config import Config, Hooks, OwnAgent, Progress, parse
from swarm.project.creation import make_state_dir, plan
from swarm.project.keys import keys_of
from swarm.project.notify_table import NotifyTable
from swarm.project.policy import Policy

FILE = "/p/swarm.toml"
FAULTS = {
    "an unknown key": ('agent = "a"\nagnet = "b"\n', 2, "Did you mean agent?"),
    "an unknown table": ("\n\n[other]\nx = 1\n", 3, "there is no key other"),
    "an unknown key of an agent": (
        '[agents.mine]\ncommand = "x"\n\n# text\ncomand = "y"\n',
        5,
        "agents.mine.comand",
    ),
    "a dotted key": ('model = "m"\nagents.mine.comand = "y"\n', 2, "agents.mine.comand"),
    "text for a number": ('# text\nworkers = "3"\n', 2, "workers must be a whole number"),
    "yes for a number": ("workers = true\n", 1, "workers must be a whole number"),
    "a number for text": ("agent = 3\n", 1, "agent must be a text in quotes"),
    "a list of several lines": ("model = [\n  1,\n]\n", 1, "model must be"),
    "a value out of range": ("workers = 0\n", 1, "from 1 to"),
    "a choice": ('permissions = "all"\n', 1, "one of: ask, edit, full"),
    "a negative budget": ("\nbudget = -1\n", 2, "more than 0"),
    "an endless budget": ("budget = inf\n", 1, "more than 0"),
    "a huge number": (f"budget = 1{'0' * 400}\n", 1, "budget must be"),
    "a number that Python does not read": (f"workers = {'1' * 5000}\n", 1, "digits"),
    "a name with a space": ('[agents."a b"]\ncommand = "x"\n', 1, "is not a name"),
    "an agent without a command": ('model = ""\n[agents.mine]\noutput = "text"\n', 2, "command"),
    "an empty command": ('[agents.mine]\ncommand = " "\n', 2, "must not be empty"),
    "an agent that is no table": ("[agents]\nmine = 1\n", 2, "must be a table"),
    "tables in a list": ("[[agents]]\n", 1, "agents must be a table"),
    "a regular expression": (
        '[agents.mine]\ncommand = "x"\nlimit = "("\n',
        3,
        "must be a regular expression",
    ),
    "an inline table": ('\nagents = {mine = {command = "x", output = "x"}}\n', 2, "one of: text"),
    "a line like a key in a text": ('model = """\nbudget = 1\n"""\nbudget = "x"\n', 4, "budget"),
    "no TOML": ('agent = "a"\nworkers 3\n', 2, "'='"),
    "a key twice": ("workers = 1\nworkers = 2\n", 2, "overwrite"),
    "a text without quotes": ("agent = claude\n", 1, "Put text in quotes"),
    "a command that is no text": ("allow = [1]\n", 1, "a list of texts in quotes"),
    "two commands in one": ('allow = ["make && rm x"]\n', 1, "the beginning of one command"),
    "a check of numbers": ("check = [1]\n", 1, "a command in quotes"),
    "an empty check": ('check = ["a", " "]\n', 1, "a command in quotes"),
    "a number for a check": ("check = 1\n", 1, "a text in quotes, or a list of texts"),
    "a timeout of 0": ("check_timeout = 0\n", 1, "more than 0"),
    "a branch that git refuses": ('land = "a..b"\n', 1, "the name of a branch"),
    "a branch like an option": ('land = "-f"\n', 1, "the name of a branch"),
    "a remote like an option": ('push = "--all"\n', 1, "the name of a remote"),
    "an unknown hook": ('[hooks]\nbefore_run = "x"\nafter = "y"\n', 3, "no key hooks.after"),
    "a hook that is no text": ("[hooks]\nbefore_run = 1\n", 2, "hooks.before_run must be"),
    "hooks that are no table": ("hooks = 1\n", 1, "hooks must be a table"),
    "an unknown key of the policy": ("[policy]\nask = []\ndenny = []\n", 3, "Did you mean deny?"),
    "rules that are no list": ('[policy]\nallow = "Bash"\n', 2, "policy.allow must be a list"),
    "a rule that is no text": ("[policy]\nallow = [1]\n", 2, "a list of rules in quotes"),
    "a rule without a tool": ('[policy]\ndeny = ["(x)"]\n', 2, "a rule is TOOL"),
    "an open rule": ('[policy]\ndeny = ["Bash(x"]\n', 2, "a rule is TOOL"),
    "a rule with two lines": ('[policy]\ndeny = ["Bash(a\\nb)"]\n', 2, "printable"),
    "a rule in another form": ('[policy]\nallow = ["Bash(git:*)"]\n', 2, "Bash(git status *)"),
    "a rule for two commands": ('[policy]\nallow = ["Bash(a && *)"]\n', 2, "one plain command"),
    "a wait that is too long": ("[policy]\nwait = 3600\n", 2, "from 0 to 3500"),
    "a negative time": ("[progress]\nstalled_after = -1\n", 2, "stalled_after must be 0 or more"),
    "an unknown policy": ('[progress]\non_stall = "kill"\n', 2, "one of: tell, interrupt, retry"),
    "an open text": ('model = "x', 1, ""),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_mistake_names_its_file_and_its_line(case: str) -> None:
    text, line, rule = FAULTS[case]
    with pytest.raises(BadInput) as raised:
        parse(text, FILE)
    assert str(raised.value).startswith(f"{FILE}, line {line}: ")
    assert rule in str(raised.value)


def test_all_keys_are_read() -> None:
    text = """
agent = "claude"
permissions = "full"
allow = ["make test", "*"]
model = "m"
workers = 5
budget = 20
task_budget = 2.5
workspace = "copy"
land = "release/1.x"
land_by = "merge"
check = "make test"
check_timeout = 60
require_changes = true
review = "codex"
push = "origin"
pr = "./pr.sh"
land_checkout = "leave"
[hooks]
after_create = "a"
before_run = "b"
after_run = "c"
before_remove = "d"
[policy]
allow = ["Bash(make test)", "Bash(a && b)"]
deny = ["Bash(x; *)"]
ask = ["mcp__github__*"]
wait = 0
[progress]
stalled_after = 60
loop_calls = 0
loop_checks = 5
on_stall = "interrupt"
on_loop = "retry"
[agents.mine]
command = "my-agent run"
resume = "my-agent resume {session}"
output = "codex"
limit = "quota .* exceeded"
[agents.other]
command = "x"
[notify.phone]
kind = "ntfy"
url = "https://ntfy.sh/topic"
on = "questions"
again = 600
"""
    found = parse(text, FILE)
    assert (found.agent, found.permissions, found.model, found.workers) == (
        "claude",
        "full",
        "m",
        5,
    )
    assert found.allow == ["make test", "*"]
    assert (found.budget, found.task_budget) == (20.0, 2.5)
    assert (found.workspace, found.land, found.land_by) == ("copy", "release/1.x", "merge")
    assert (found.check, found.check_timeout, found.require_changes) == (("make test",), 60.0, True)
    assert (found.review, found.push, found.pr) == ("codex", "origin", "./pr.sh")
    assert found.land_checkout == "leave"
    assert found.hooks == Hooks("a", "b", "c", "d")
    assert found.policy == Policy(
        ["Bash(make test)", "Bash(a && b)"], ["Bash(x; *)"], ["mcp__github__*"], 0.0
    )
    assert found.progress == Progress(60.0, 0, 5, "interrupt", "retry")
    assert dict(found.agents) == {
        "mine": OwnAgent("my-agent run", "my-agent resume {session}", "codex", "quota .* exceeded"),
        "other": OwnAgent("x"),
    }
    assert dict(found.notify) == {
        "phone": NotifyTable("ntfy", url="https://ntfy.sh/topic", on=("questions",), again=600.0)
    }


def test_lines_may_end_as_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, b'agent = "a"\r\nworkers = "x"\r\n')
    monkeypatch.chdir(root)
    with pytest.raises(BadInput, match="line 2: workers"):
        config.load()


def test_the_file_of_init_changes_nothing_and_each_of_its_lines_is_valid() -> None:
    text = config.template()
    assert parse(text, FILE) == Config()
    lines = text.splitlines()
    uncommented = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in lines
    ]
    found = parse("\n".join(uncommented), FILE)
    assert all(getattr(found, name) for name in keys_of(Config))
    assert max(map(len, lines)) <= 100


def test_a_check_may_be_one_text_or_a_list() -> None:
    assert parse('check = "a"', FILE).check == ("a",)
    assert parse('check = ["a", "b && c"]', FILE).check == ("a", "b && c")
    assert parse("check = []", FILE).check == ()


def test_the_file_of_init_in_a_checkout_names_the_branch_to_land_on() -> None:
    for name in ("main", 'we"ird', "feature/ü"):
        assert parse(config.template(name), FILE) == Config(land=name)


def test_without_a_project_or_a_file_all_settings_have_their_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swarm.toml").write_text("rubbish")
    assert config.load() == Config()
    (tmp_path / "swarm.toml").unlink()
    project(tmp_path)
    assert config.load() == Config()


def test_the_settings_are_those_of_the_project_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(tmp_path / "here", b"workers = 1")
    there = project(tmp_path / "there", b"workers = 2")
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    assert config.load().workers == 1
    monkeypatch.setenv("SWARM_STATE_DIR", str(there / ".swarm"))
    assert config.load().workers == 2


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"agent = 'a'\n# \xff\n", "line 2: the text is not UTF-8"),
        (b"# " + b"x" * (1 << 16), "larger than"),
    ],
)
def test_a_file_that_is_no_text_is_refused(
    content: bytes, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path, content))
    with pytest.raises(BadInput, match=rule):
        config.load()


def test_a_pipe_in_place_of_the_file_blocks_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project(tmp_path))
    os.mkfifo(tmp_path / "swarm.toml")
    with pytest.raises(BadInput, match="not a plain file"):
        config.load()
    (tmp_path / "swarm.toml").unlink()
    (tmp_path / "swarm.toml").mkdir()
    with pytest.raises(BadInput, match=r"swarm\.toml"):
        config.load()


def project(root: Path, content: bytes | None = None) -> Path:
    root.mkdir(exist_ok=True)
    make_state_dir(plan(str(root)))
    if content is not None:
        (root / "swarm.toml").write_bytes(content)
    return root
