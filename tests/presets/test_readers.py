"""Readers of agents' output, with what the real programs printed."""

from __future__ import annotations

import json

import pytest

from swarm.presets.contract import ASK, EDIT, LOGIN, MODEL, OVERLOAD, RATE, USAGE, Report, Request
from tests.presets.recorded import OUTPUT, lines_of, read, reader

RECORDED = [
    (path.parent.name, path.stem) for path in sorted(OUTPUT.glob("*/*.out")) if path.stat().st_size
]


class TestClaude:
    def test_the_final_message_the_session_and_the_cost_are_reported(self) -> None:
        shown, report = read("claude", "success_edit", 0)
        assert shown == ["I write it.", "→ Write new.txt", "Done: wrote new.txt."]
        assert report.result == "Done: wrote new.txt."
        assert report.session == "013bf590-fadf-4e43-8e63-e802c5d0f61d"
        assert report.usage == {
            "turns": 2,
            "input_tokens": 2000,
            "output_tokens": 200,
            "cost_usd": 0.012,
        }
        assert not report.error and not report.denials and report.limit is None

    def test_a_resumed_session_counts_only_the_usage_of_this_attempt(self) -> None:
        _, report = read("claude", "resume", 0)
        assert report.usage == {
            "turns": 1,
            "input_tokens": 1000,
            "output_tokens": 100,
            "cost_usd": 0.006,
        }

    def test_the_tokens_of_an_attempt_that_was_cut_off_are_counted(self) -> None:
        used = reader("claude")
        for line in lines_of("claude", "success_edit")[0][:-1]:
            used.feed(line)
        usage = used.report(143).usage
        assert (usage["turns"], usage["input_tokens"]) == (2, 2000)

    @pytest.mark.parametrize(
        ("name", "permissions", "tool", "what", "cure"),
        [
            ("denied_write_default_mode", ASK, "Write", "new.txt", "--permissions edit"),
            ("denied_bash_acceptEdits", EDIT, "Bash", "python3 -c", "--allow python3"),
            ("denied_outside_acceptEdits", EDIT, "Write", "/tmp/outside-xyz.txt", "outside of"),
        ],
    )
    def test_a_denied_tool_is_reported_with_the_setting_that_allows_it(
        self, name: str, permissions: str, tool: str, what: str, cure: str
    ) -> None:
        shown, report = read("claude", name, 0, Request("x", permissions=permissions))
        (denial,) = report.denials
        assert denial.tool == tool and what in denial.what and cure in denial.cure
        assert any(line.startswith("✘ denied: ") for line in shown)

    @pytest.mark.parametrize(
        ("name", "kind", "until", "text"),
        [
            ("429_unified_oauth", USAGE, 1794972896.0, "5-hour limit"),
            ("429_unified_oauth_7d", USAGE, 1794972896.0, "weekly limit"),
            ("429_no_retry_after", RATE, None, "429"),
            ("429_oauth_noheaders", RATE, None, "not your usage limit"),
            ("529", OVERLOAD, None, "Overloaded"),
            ("401_oauth", LOGIN, None, "/login"),
            ("403", LOGIN, None, "/login"),
            ("no_login", LOGIN, None, "Log in: "),
            ("credit_balance", USAGE, None, "Credit balance"),
            ("404_model", MODEL, None, "--model, or model in swarm.toml"),
        ],
    )
    def test_a_limit_is_recognised(
        self, name: str, kind: str, until: float | None, text: str
    ) -> None:
        _, report = read("claude", name, 1)
        assert report.limit is not None and report.error
        assert (report.limit.kind, report.limit.until) == (kind, until)
        assert text in report.limit.text

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("500", "500 Internal server error"),
            ("cut", "Connection lost"),
            ("prompt_too_long", "Prompt is too long"),
            ("root_bypass_mode", "cannot be used with root"),
        ],
    )
    def test_another_error_is_no_limit(self, name: str, error: str) -> None:
        _, report = read("claude", name, 1)
        assert error in report.error and report.limit is None

    def test_a_limit_that_claude_waited_for_is_none(self) -> None:
        shown, report = read("claude", "429_once_then_ok", 0)
        assert report.limit is None and not report.error and report.result == "fine"
        assert "retry 1 of 10" in shown[0]

    def test_a_session_that_is_gone_is_recognised(self) -> None:
        _, report = read("claude", "resume_gone", 1)
        assert report.session_is_gone and "No conversation found" in report.error

    def test_the_words_of_the_model_are_no_limit(self) -> None:
        used = reader("claude")
        text = "I fixed the test: the API answered 429, you've hit your usage limit · resets 3pm"
        content = [{"type": "text", "text": text}]
        used.feed(json.dumps({"type": "assistant", "message": {"content": content}}))
        used.feed(json.dumps({"type": "result", "is_error": True, "result": "Execution error"}))
        assert used.report(1).limit is None


class TestCodex:
    def test_the_final_message_the_session_and_the_tokens_are_reported(self) -> None:
        shown, report = read("codex", "success_exec", 0)
        assert shown == ["I run it.", "$ echo hi > new.txt; git status --short; id -u", "Done."]
        assert report.result == "Done."
        assert report.session == "01a1ec82-f31a-72e3-845c-58666c4b2285"
        assert report.usage == {"turns": 1, "input_tokens": 2000, "output_tokens": 200}

    def test_an_edited_file_is_one_line(self) -> None:
        shown, report = read("codex", "success_patch", 0)
        assert shown[1].startswith("→ edit /tmp/") and shown[1].endswith("/new.txt")
        assert not report.denials

    @pytest.mark.parametrize(
        ("name", "tool", "what"),
        [
            ("denied_exec_read_only", "shell", "echo hi > new.txt"),
            ("denied_patch_read_only", "apply_patch", "read-only sandbox"),
            ("escalation", "shell", "approval policy is Never"),
            ("denied_network", "shell", "Operation not permitted"),
        ],
    )
    def test_what_the_sandbox_refuses_is_a_denial(self, name: str, tool: str, what: str) -> None:
        shown, report = read("codex", name, 0)
        (denial,) = report.denials
        assert denial.tool == tool and what in denial.what
        assert "--permissions full" in denial.cure
        assert any(line.startswith("✘ denied: ") for line in shown)

    @pytest.mark.parametrize(
        ("name", "kind", "has_time"),
        [
            ("429_usage_limit", USAGE, True),
            ("429_usage_limit_no_time", USAGE, False),
            ("429_quota", USAGE, False),
            ("429_no_retry_after", RATE, False),
            ("429_retry_after_2", RATE, False),
            ("503", OVERLOAD, False),
            ("529", OVERLOAD, False),
            ("500", OVERLOAD, False),  # Codex writes "high demand" for it
            ("401", LOGIN, False),
            ("no_key", LOGIN, False),
        ],
    )
    def test_a_limit_is_recognised(self, name: str, kind: str, has_time: bool) -> None:
        _, report = read("codex", name, 1)
        assert report.limit is not None and report.error
        assert report.limit.kind == kind
        assert (report.limit.until is not None) == has_time

    @pytest.mark.parametrize(
        ("name", "error"), [("400", "Bad thing"), ("cut", "stream disconnected")]
    )
    def test_another_error_is_no_limit(self, name: str, error: str) -> None:
        _, report = read("codex", name, 1)
        assert report.limit is None and report.error.startswith(error)

    def test_a_session_that_is_gone_is_recognised(self) -> None:
        _, report = read("codex", "resume_gone", 1)
        assert report.session_is_gone and "no rollout found" in report.error


@pytest.mark.parametrize(("agent", "name"), RECORDED)
class TestAnyOutput:
    def test_every_cut_of_a_recorded_run_is_read(self, agent: str, name: str) -> None:
        out, err = lines_of(agent, name)
        for at in range(len(out)):
            used = reader(agent)
            for line in [*err, *out[:at], out[at][: len(out[at]) // 2]]:
                used.feed(line)
            report = used.report(137)
            assert report.error, "an agent that was killed did not end well"

    def test_events_with_other_types_in_every_field_are_read(self, agent: str, name: str) -> None:
        out, _ = lines_of(agent, name)
        for line in out:
            event = json.loads(line)
            for key in event:
                for value in (None, 1, -1, True, "x", [], [1], ["x"], {}, {"x": 1}, 1e300):
                    used = reader(agent)
                    shown = used.feed(json.dumps({**event, key: value}))
                    report = used.report(0)
                    assert all(type(text) is str for text in (*shown, report.result, report.error))

    def test_readable_lines_are_safe_to_print(self, agent: str, name: str) -> None:
        out, _ = lines_of(agent, name)
        evil = "\\u001b[2J\\u001b]0;title\\u0007\\u0008\\r\\u202e\\u2028x"
        used = reader(agent)
        for line in out:
            changed = line.replace("Done", evil).replace("could not", evil).replace("hit", evil)
            for shown in used.feed(changed):
                assert shown.isprintable() and "\n" not in shown


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
@pytest.mark.parametrize(
    "line",
    ["", "   ", "{", "[]", "null", '"x"', "{}", '{"type": 5}', '{"type": "later"}', "[" * 10_000],
    ids=lambda line: repr(line[:20]),
)
def test_a_line_that_is_no_event_is_read(agent: str, line: str) -> None:
    used = reader(agent)
    used.feed(line)
    assert used.report(0).error, "there was no final message"
    assert not used.report(0).result


class TestGemini:
    EVENTS = (
        {"type": "init", "session_id": "5f0f", "model": "gemini-3-pro"},
        {"type": "message", "role": "user", "content": "Do the work."},
        {"type": "message", "role": "assistant", "content": "I ", "delta": True},
        {"type": "message", "role": "assistant", "content": "look.\nThen", "delta": True},
        {
            "type": "tool_use",
            "tool_name": "run_shell_command",
            "tool_id": "t1",
            "parameters": {"command": "make"},
        },
        {
            "type": "tool_result",
            "tool_id": "t1",
            "status": "error",
            "error": {"type": "policy_violation", "message": "Tool execution denied by policy."},
        },
        {"type": "message", "role": "assistant", "content": "Done.", "delta": True},
    )

    def read(self, *more: dict[str, object], code: int = 0) -> tuple[list[str], Report]:
        used = reader("gemini")
        shown = [line for event in (*self.EVENTS, *more) for line in used.feed(json.dumps(event))]
        return shown, used.report(code)

    def test_pieces_of_a_message_become_lines_and_the_last_message_is_the_result(self) -> None:
        stats = {"input_tokens": 10, "output_tokens": 2}
        shown, report = self.read({"type": "result", "status": "success", "stats": stats})
        assert shown == ["I look.", "Then", "$ make", "✘ denied: run_shell_command: make", "Done."]
        assert (report.result, report.session, report.error) == ("Done.", "5f0f", "")
        assert report.usage == stats
        assert [denial.what for denial in report.denials] == ["make"]

    @pytest.mark.parametrize(
        ("tool", "denied"),
        [("write_file", ["write_file"]), ("run_shell_command", ["run_shell_command"]), ("fly", [])],
    )
    def test_a_tool_that_gemini_withholds_is_denied(self, tool: str, denied: list[str]) -> None:
        used = reader("gemini")
        used.feed(json.dumps({"type": "tool_use", "tool_name": tool, "tool_id": "t1"}))
        error = {"type": "tool_not_registered", "message": f'Tool "{tool}" not found.'}
        used.feed(json.dumps({"type": "tool_result", "tool_id": "t1", "error": error}))
        assert [denial.tool for denial in used.report(0).denials] == denied

    @pytest.mark.parametrize(
        ("kind", "message", "limit"),
        [
            ("RetryableQuotaError", "[API Error: Please retry in 34.07s (Status: x)]", RATE),
            ("TerminalQuotaError", "You have exhausted your capacity on this model.", USAGE),
            ("Error", "[API Error: API key not valid. Please pass a valid API key.]", LOGIN),
            ("Error", "[API Error: The model is overloaded.]", OVERLOAD),
        ],
    )
    def test_a_limit_is_recognised(self, kind: str, message: str, limit: str) -> None:
        error = {"type": kind, "message": message}
        _, report = self.read({"type": "result", "status": "error", "error": error}, code=1)
        assert report.limit is not None and report.limit.kind == limit


class TestOpenCode:
    def test_text_tools_cost_and_rejections_are_reported(self) -> None:
        used = reader("opencode")
        step = {"cost": 0.01, "tokens": {"input": 5, "output": 2, "cache": {"read": 3}}}
        tool = {"tool": "bash", "state": {"status": "error", "input": {"command": "curl x"}}}
        tool["state"]["error"] = "The user rejected permission to use this specific tool call."  # type: ignore[index]
        events: list[dict[str, object]] = [
            {"type": "tool_use", "part": tool},
            {"type": "step_finish", "part": step},
            {"type": "step_finish", "part": step},
            {"type": "text", "part": {"text": "Done."}},
            {"type": "done", "reason": "idle", "rejected": ["bash"]},
        ]
        shown = [
            line
            for event in events
            for line in used.feed(json.dumps({"sessionID": "ses_1"} | event))
        ]
        report = used.report(0)
        assert shown == ["$ curl x", "✘ denied: bash: curl x", "Done."]
        assert (report.result, report.session, report.error) == ("Done.", "ses_1", "")
        assert report.usage["input_tokens"] == 16 and report.usage["cost_usd"] == 0.02
        assert len(report.denials) == 1

    def test_a_limit_is_recognised_by_the_status_of_the_request(self) -> None:
        used = reader("opencode")
        error = {"name": "APIError", "data": {"message": "no", "statusCode": 429}}
        used.feed(json.dumps({"type": "error", "error": error}))
        report = used.report(1)
        assert report.limit is not None and report.limit.kind == RATE
