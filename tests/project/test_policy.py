"""The policy of a project: no command of an agent gets past a rule that does not mean it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.project.policy import ALLOW, ASK, DENY, Decision, Policy, ToolCall


def bash(command: str) -> ToolCall:
    return ToolCall("Bash", (command,))


def verdict(policy: Policy, call: ToolCall) -> str:
    found = policy.decide(call)
    return found.verdict if found else ""


class TestAllow:
    @pytest.mark.parametrize(
        ("rule", "command"),
        [
            ("Bash(make test)", "make test"),
            ("Bash(git *)", "git status"),
            ("Bash(git *)", "git log --format='%h %s' -- a*.py"),
            ("Bash(git *)", 'git commit -m "Größe: 中文"'),
            ("Bash(npm run *:ci)", "npm run test:ci"),
            ("Bash(*)", "ls"),
            ("Bash", "ls; rm -rf x"),
            ("*", "ls"),
            ("Bash(make lint && make test)", "make lint && make test"),
        ],
    )
    def test_a_rule_fits_the_command_that_it_names(self, rule: str, command: str) -> None:
        assert Policy(allow=[rule]).decide(bash(command)) == Decision(ALLOW, rule)

    HOSTILE = (
        "git status; touch pwned",
        "git status & touch pwned",
        "git status && touch pwned",
        "git status || touch pwned",
        "git status | touch pwned",
        "git status |& touch pwned",
        "git status\ntouch pwned",
        "git status\r\ntouch pwned",
        "git status \\\n; touch pwned",
        "git log $(touch pwned)",
        "git log `touch pwned`",
        'git log "$(touch pwned)"',
        'git log "`touch pwned`"',
        "git log ${x:-$(touch pwned)}",
        "git log $IFS",
        "git log $'\\ntouch pwned'",
        "git log > pwned",
        "git log >> pwned",
        "git log 2>pwned",
        "git log >| pwned",
        "git log &> pwned",
        "git log < /etc/passwd",
        "git log <(touch pwned)",
        "git log << EOF\nx\nEOF\ntouch pwned",
        "git log {a,b}",
        "git log (touch pwned)",
        "git log 'open",
        'git log "open',
        "git log \\",
        "git status\x00touch pwned",
        "git status\x0btouch pwned",
        "git status\x85touch pwned",
        "git status\u2028touch pwned",
        "git status\u2029touch pwned",
        "git\u00a0status",
        "git status \u202etouch",
        "git sta\u200btus",
        "git status\ud800",
        " git status",
        "\tgit status",
        "\ngit status",
        "X=1 git status",
        "PATH=. git status",
        "env git status",
        "sudo git status",
        "./git status",
        "gitx status",
        "git",
        "Git status",
        "g\u0456t status",  # a Cyrillic letter
        "\uff47\uff49\uff54 status",  # letters of full width
        "touch pwned # git status",
        "",
    )

    @pytest.mark.parametrize("command", HOSTILE, ids=ascii)
    def test_a_rule_with_a_star_never_fits_more_than_one_plain_command(self, command: str) -> None:
        assert verdict(Policy(allow=["Bash(git *)"]), bash(command)) == ""

    @pytest.mark.parametrize("shell", ["sh", "bash"])
    def test_no_shell_runs_a_second_command_of_a_text_that_a_rule_fits(
        self, shell: str, tmp_path: Path
    ) -> None:
        policy = Policy(allow=["Bash(echo *)"])
        signs = [chr(code) for code in (*range(1, 0x180), 0x2028, 0x2029, 0x3000, 0xFF1B, 0xFF5C)]
        texts = [f"echo a{one}{two}touch pwned" for one in signs[:128] for two in ("", " ", one)]
        texts += [f"echo a {sign} touch pwned {sign}" for sign in signs]
        fitting = [text for text in texts if verdict(policy, bash(text)) == ALLOW]
        assert len(fitting) > 300
        script = "\n".join([*(f"eval {_word(text)}" for text in fitting), "echo all"])
        done = subprocess.run([shell, "-c", script], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.stdout.endswith(b"all\n")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("command", ["make test ", "make test x", "make tes", "make  test"])
    def test_a_rule_without_a_star_fits_exactly_one_text(self, command: str) -> None:
        assert verdict(Policy(allow=["Bash(make test)"]), bash(command)) == ""

    def test_a_rule_fits_only_its_tool(self) -> None:
        policy = Policy(allow=["Bash(ls)", "mcp__docs__*"])
        assert verdict(policy, ToolCall("bash", ("ls",))) == ""
        assert verdict(policy, ToolCall("mcp__docs__find")) == ALLOW
        assert verdict(policy, ToolCall("mcp__docs")) == ""

    def test_each_path_of_a_call_must_fit(self) -> None:
        policy = Policy(allow=["Edit(src/*)"])
        assert verdict(policy, ToolCall("Edit", (), ("src/a.py", "src/b/c.py"))) == ALLOW
        assert verdict(policy, ToolCall("Edit", (), ("src/a.py", "/etc/passwd"))) == ""

    def test_a_path_beside_a_command_does_not_stand_for_the_command(self) -> None:
        policy = Policy(allow=["Bash(src/*)"])
        assert verdict(policy, ToolCall("Bash", ("rm -r x",), ("src/a",))) == ""

    def test_a_pattern_does_not_fit_a_call_of_which_nothing_is_known(self) -> None:
        assert verdict(Policy(allow=["Task(*)"]), ToolCall("Task")) == ""
        assert verdict(Policy(allow=["Task"]), ToolCall("Task")) == ALLOW


class TestDenyAndAsk:
    @pytest.mark.parametrize(
        "command",
        [
            "rm -rf x",
            "  rm -rf x",
            "cd /; rm -rf x",
            "true && rm -rf x",
            "true\nrm -rf x",
            "echo $(rm -rf x)",
            "echo `rm -rf x`",
            "(rm -rf x)",
            "X=1 Y=2 rm -rf x",
            "sudo -n rm -rf x",
            "env X=1 rm -rf x",
            "/bin/rm -rf x",
            "'rm' -rf x",
            'r"m" -rf x',
            "\\rm -rf x",
            "rm   -rf\tx",
            "find . | xargs rm -f",
            "true || command rm x",
            "rm",
            "if true; then rm -rf y; fi",
            "if rm -rf y; then true; fi",
            "if a; then b; elif c; then d; else rm y; fi",
            "for i in 1; do rm -rf y; done",
            "while true; do rm -rf y; done",
            "until rm -rf y; do true; done",
            "while ! rm -rf y; do true; done",
            "case x in x) rm -rf y;; esac",
            "f() { rm -rf y; }; f",
            "! rm -rf y",
            "time rm -rf y",
            "time -p rm -rf y",
            "{ rm -rf y; }",
            "sudo -u bob rm -rf y",
            "sudo -nu bob rm -rf y",
            "sudo --user bob rm -rf y",
            "sudo --user=bob -- rm -rf y",
            "doas -u bob rm -rf y",
            "env -i -u HOME X=1 rm -rf y",
            "env -S 'rm -rf y'",
            "timeout 5 rm -rf y",
            "timeout -s KILL -k 1 5 rm -rf y",
            "timeout --signal KILL 5 rm -rf y",
            "nice -n 5 rm -rf y",
            "nice -5 rm -rf y",
            "ionice -c 3 rm -rf y",
            "stdbuf -o L rm -rf y",
            "setsid -w nohup rm -rf y",
            "exec -a x rm -rf y",
            "sudo env X=1 timeout 5 nice /bin/rm -rf y",
            "find . -print0 | xargs -0 -n 1 rm",
        ],
    )
    def test_a_rule_fits_also_a_part_of_a_command(self, command: str) -> None:
        rules = ["Bash(rm *)"]
        assert verdict(Policy(deny=rules, allow=["Bash"]), bash(command)) == DENY
        assert verdict(Policy(ask=rules, allow=["Bash"]), bash(command)) == ASK

    @pytest.mark.parametrize(
        "command",
        [
            "git push",
            "git push origin",
            "git -C . push origin",
            "git --no-pager push",
            "git -c a.b=c --git-dir x --work-tree=y push origin",
            "/usr/bin/git -p push",
            "cd x && git -C y push",
        ],
    )
    def test_options_before_the_subcommand_of_git_hide_nothing(self, command: str) -> None:
        policy = Policy(deny=["Bash(git push *)"], allow=["Bash(git *)", "Bash"])
        assert verdict(policy, bash(command)) == DENY

    UNCLEAR = (
        "sh -c 'rm -rf y'",
        "sh script",
        "/bin/bash x",
        "sudo -Z sh x",
        "eval ls",
        ". ./x",
        "source x",
        "alias ls=x",
        "'sh' x",
        "echo $(ls)",
        "echo `ls`",
        "cat << EOF\nx\nEOF",
        "echo 'open",
        "ls; ls",
        "ls && ls",
        "ls > x",
        "ls\nls",
        "X=1 ls",
        "if ls",
        "! ls",
        "/bin/r? -rf y",
        "/bin/r[m] -rf y",
        "find . -exec rm x +",
        "find . -exec /bin/RM x +",
        "busybox rm x",
        "chroot / rm x",
        "su '-crm x'",
        "env '-vSrm x'",
        "env ls",
        "xargs -a list env",
        "flock lock rm x",
        "python3 -c 'import os, sys, x.rm; os.system(\"rm x\")'",
        "echo rm",
        "echo 'rm'",
        "ls x?m *m",
        "git -c alias.x=push x",
        "git --unknown x push",
        "git commit -m 'push it'",
        "git pus?",
        "",
    )

    @pytest.mark.parametrize("command", UNCLEAR, ids=ascii)
    @pytest.mark.parametrize("allow", ["Bash", "Bash(*)", "*"])
    @pytest.mark.parametrize("kind", ["deny", "ask"])
    def test_beside_a_deny_or_ask_rule_an_unclear_command_is_never_allowed(
        self, command: str, allow: str, kind: str
    ) -> None:
        rules = ["Bash(rm *)", "Bash(git push *)"]
        policy = replace(Policy(allow=[allow]), **{kind: rules})  # type: ignore[arg-type]
        assert verdict(policy, bash(command)) in ("", kind)

    @pytest.mark.parametrize(
        "command", ["ls", "git status", "git commit -m 'a b'", "timeout 5 make test", "rmdir x"]
    )
    def test_beside_a_deny_rule_a_plain_command_is_allowed(self, command: str) -> None:
        policy = Policy(allow=["Bash"], deny=["Bash(rm *)", "Bash(git push *)"])
        assert verdict(policy, bash(command)) == ALLOW

    def test_the_exact_text_of_an_allow_rule_is_allowed_beside_a_deny_rule(self) -> None:
        exact = "make lint && echo rm"
        policy = Policy(allow=[f"Bash({exact})", "Bash"], deny=["Bash(rm *)"])
        assert policy.decide(bash(exact)) == Decision(ALLOW, f"Bash({exact})")
        assert verdict(policy, bash("make lint && make test")) == ""

    def test_rules_for_another_tool_change_nothing(self) -> None:
        policy = Policy(allow=["Bash"], deny=["Edit(*.env)"])
        assert verdict(policy, bash("ls; ls")) == ALLOW

    def test_a_call_of_which_nothing_is_known_is_not_allowed_beside_a_deny_rule(self) -> None:
        policy = Policy(allow=["Bash"], deny=["Bash(rm *)"])
        assert verdict(policy, ToolCall("Bash")) == ""

    PIECES = st.sampled_from(
        [
            *(
                "rm",
                "/bin/rm",
                "'rm'",
                'r"m"',
                "RM",
                "ls",
                "git",
                "push",
                "x",
                "5",
                "-n",
                "--",
                "-u",
            ),
            *("--user", "X=1", "sudo", "env", "timeout", "xargs", "nice", "if", "then", "do", "!"),
            *(";", "&&", "|", "(", "{", "$(", "`", "\n", "'", '"', "<<", ">", "=", "*", "?", "#"),
            *("sh", "-c", "eval", "find", "-exec", "time", "\\", "\t"),
        ]
    )

    @given(st.lists(PIECES, max_size=8), st.sampled_from(["rm", "/bin/rm", "'rm'", '"rm"']), PIECES)
    def test_no_command_with_a_denied_program_as_a_word_is_ever_allowed(
        self, pieces: list[str], denied: str, last: str
    ) -> None:
        policy = Policy(allow=["Bash", "Bash(*)", "Bash(ls *)"], deny=["Bash(rm *)"])
        for words in ([*pieces, denied, last], [denied, *pieces], [*pieces, denied]):
            assert verdict(policy, bash(" ".join(words))) != ALLOW

    @pytest.mark.parametrize("shell", ["sh", "bash"])
    def test_no_shell_starts_a_denied_program_from_a_command_that_is_allowed(
        self, shell: str, tmp_path: Path
    ) -> None:
        """All programs that the commands can start are harmless ones of this test."""
        programs, here = tmp_path / "programs", tmp_path / "here"
        programs.mkdir()
        here.mkdir()
        (here / "rm").touch()  # a pattern of the shell may find it
        for name in ("ls", "git", "find", "x"):
            (programs / name).write_text("#!/bin/sh\n")
        for name in ("sudo", "env", "nice", "nohup"):
            (programs / name).write_text('#!/bin/sh\n"$@"\n')
        (programs / "rm").write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n")
        for each in programs.iterdir():
            each.chmod(0o755)
        policy = Policy(allow=["Bash"], deny=["Bash(rm *)"])
        words = [
            "rm",
            "r?",
            "*",
            "r\\m",
            "'r'm",
            "$x",
            "ls",
            "x",
            "sudo",
            "env",
            "nice",
            "!",
            "time",
        ]
        words += [
            "command",
            "exec",
            "eval",
            "X=1",
            ";",
            "&&",
            "if",
            "then",
            "{",
            "}",
            "nohup",
            "ls;",
        ]
        texts = [" ".join(each) for size in (1, 2, 3) for each in product(words, repeat=size)]
        fitting = [text for text in texts if verdict(policy, bash(text)) == ALLOW]
        assert len(fitting) > 100
        script = "\n".join(["x=rm", *(f"(eval {_word(text)})" for text in fitting), "echo all"])
        done = subprocess.run(
            [f"/bin/{shell}", "-c", script],
            cwd=here,
            env={"PATH": str(programs)},
            capture_output=True,
            timeout=120,
        )
        assert done.stdout.endswith(b"all\n")
        assert not (tmp_path / "ran").exists()

    def test_other_commands_pass(self) -> None:
        policy = Policy(deny=["Bash(rm *)", "Bash(git push *)"])
        for command in ("ls", "rmdir x", "git pushed", "echo rm", "farm x"):
            assert verdict(policy, bash(command)) == ""

    def test_one_name_of_one_file_is_enough(self) -> None:
        policy = Policy(deny=["Edit(*.env)"], allow=["Edit"])
        assert verdict(policy, ToolCall("Edit", (), ("a", "b.env"))) == DENY
        assert verdict(policy, ToolCall("Edit", (), ("a",), ("/home/me/.env",))) == DENY
        assert verdict(policy, ToolCall("Edit", (), ("a",))) == ALLOW

    def test_deny_wins_over_ask_and_ask_over_allow(self) -> None:
        policy = Policy(
            allow=["Bash(make *)"], ask=["Bash(make d*)"], deny=["Bash(make deploy-live)"]
        )
        assert policy.decide(bash("make test")) == Decision(ALLOW, "Bash(make *)")
        assert policy.decide(bash("make deploy")) == Decision(ASK, "Bash(make d*)")
        assert policy.decide(bash("make deploy-live")) == Decision(DENY, "Bash(make deploy-live)")

    def test_without_a_rule_the_policy_decides_nothing(self) -> None:
        assert Policy().decide(bash("ls")) is None


def test_a_long_command_takes_no_long_time() -> None:
    policy = Policy(deny=["Bash(*a*b*c*d*e*f*g)"], allow=["Bash(*a*b*c*d*e*f*g)"])
    begin = time.process_time()
    policy.decide(bash("abcdef" * 20_000))
    policy.decide(bash("a; " * 20_000))
    policy.decide(bash("sudo --a x " * 10_000))
    policy.decide(bash("*a*" * 20_000))
    assert time.process_time() - begin < 5


def _word(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
