"""Which errors of agents are limits, and which are not."""

from __future__ import annotations

import json

import pytest

from swarm.presets.contract import LOGIN, MODEL, OVERLOAD, RATE, USAGE
from swarm.presets.limits import limit_in
from tests.presets.recorded import lines_of, reader


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Server is temporarily limiting requests (not your usage limit)", RATE),
        ("You’ve hit your usage limit. Try again later.", USAGE),
        ("Claude AI usage limit reached|1795010400", USAGE),
        ("OAuth token has expired. Please obtain a new token", LOGIN),
        ("unexpected status 401 Unauthorized", LOGIN),
        ("unexpected status 529 <unknown status code>: Overloaded", OVERLOAD),
        ("429 Too Many Requests", RATE),
        ("API Error: 400 This organization has been disabled.", LOGIN),
        ("You must specify the GEMINI_API_KEY environment variable.", LOGIN),
        ("Your account is not active, please check your billing details.", USAGE),
        ("404 Not Found: The model `gpt-9` does not exist or you do not have access to it.", MODEL),
        ("The 'gpt-9' model is not supported when using Codex with a ChatGPT account.", MODEL),
        ("models/gemini-9 is not found for API version v1beta", MODEL),
        ("ProviderModelNotFoundError Model not found: anthropic/nope", MODEL),
        ("exit code 42", None),
        ("No conversation found with session ID: 013bf590", None),
        ("the model wrote 4290 lines", None),
    ],
)
def test_an_error_is_a_limit_of_its_kind_or_none(error: str, kind: str | None) -> None:
    found = limit_in(error, 0.0)
    assert (found.kind if found else None) == kind


def test_an_error_on_the_way_to_a_good_end_is_no_limit() -> None:
    """For instance of a subagent."""
    used = reader("claude")
    for line in lines_of("claude", "429_unified_oauth")[0][:-1]:
        used.feed(line)
    used.feed(json.dumps({"type": "result", "is_error": False, "result": "done without it"}))
    report = used.report(0)
    assert report.limit is None and not report.error
