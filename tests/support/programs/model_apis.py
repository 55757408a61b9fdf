"""Turns of a scripted model, in the forms of Anthropic's Messages API and of OpenAI's
Responses API.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 100  # of every answer


@dataclass(frozen=True)
class Call:
    """A tool that the model wants to use.

    A tool without JSON takes a `text`. Codex groups the tools of MCP servers in namespaces.
    """

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    text: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Say:
    """Answer with text, then call tools.

    With `hold`, the stream stops after the text until `Server.release`. With `cut`, the
    connection is closed there.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    hold: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Refuse:
    """Answer with an error in the form of the API that was called.

    With `streamed`, the answer begins well and the error is an event of the stream.
    """

    status: int
    message: str
    kind: str = "api_error"
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, object] = field(default_factory=dict)  # further fields of the error
    streamed: bool = False


Turn = Say | Refuse


class MessagesApi:
    """Answers in the form of Anthropic's Messages API."""

    def __init__(self, body: JSON) -> None:
        self._message = {
            "id": f"msg_{uuid.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "model"),
            "stop_sequence": None,
        }

    def error(self, turn: Refuse) -> JSON:
        return {"type": "error", "error": {"type": turn.kind, "message": turn.message, **turn.more}}

    def error_event(self, turn: Refuse) -> JSON:
        return self.error(turn)

    def whole(self, turn: Say) -> JSON:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        return {
            **self._message,
            "content": [{"type": "text", "text": turn.text}] * bool(turn.text)
            + [{**_tool_use(call), "input": dict(call.arguments)} for call in turn.calls],
            "stop_reason": "tool_use" if turn.calls else "end_turn",
            "usage": usage,
        }

    def opening(self, turn: Say) -> list[JSON]:
        start = {
            **self._message,
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
        }
        events: list[JSON] = [{"type": "message_start", "message": start}]
        if turn.text:
            events += _block(
                0, {"type": "text", "text": ""}, {"type": "text_delta", "text": turn.text}
            )
        return events

    def rest(self, turn: Say) -> list[JSON]:
        events: list[JSON] = []
        for index, call in enumerate(turn.calls, start=int(bool(turn.text))):
            arguments = json.dumps(dict(call.arguments))
            delta = {"type": "input_json_delta", "partial_json": arguments}
            events += _block(index, {**_tool_use(call), "input": {}}, delta)
        reason = "tool_use" if turn.calls else "end_turn"
        return [
            *events,
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            },
            {"type": "message_stop"},
        ]


def _tool_use(call: Call) -> JSON:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": call.tool}


def _block(index: int, block: JSON, delta: JSON) -> list[JSON]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


class ResponsesApi:
    """Answers in the form of OpenAI's Responses API."""

    def __init__(self, body: JSON) -> None:
        self._response = {
            "id": f"resp_{uuid.uuid4().hex[:24]}",
            "object": "response",
            "model": body.get("model", "model"),
        }

    def error(self, turn: Refuse) -> JSON:
        return {
            "error": {"type": turn.kind, "code": turn.kind, "message": turn.message, **turn.more}
        }

    def error_event(self, turn: Refuse) -> JSON:
        return {
            "type": "response.failed",
            "response": {**self._response, "status": "failed", **self.error(turn)},
        }

    def whole(self, turn: Say) -> JSON:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        text = [_output_message(turn.text)] if turn.text else []
        calls = [_output_call(call) for call in turn.calls]
        return {**self._response, "status": "completed", "output": text + calls, "usage": usage}

    def opening(self, turn: Say) -> list[JSON]:
        events: list[JSON] = [{"type": "response.created", "response": self._response}]
        if turn.text:
            events.append(
                {
                    "type": "response.output_item.done",
                    "output_index": 0,
                    "item": _output_message(turn.text),
                }
            )
        return events

    def rest(self, turn: Say) -> list[JSON]:
        return [
            *(
                {
                    "type": "response.output_item.done",
                    "output_index": index,
                    "item": _output_call(call),
                }
                for index, call in enumerate(turn.calls, start=int(bool(turn.text)))
            ),
            {"type": "response.completed", "response": self.whole(turn)},
        ]


def _output_message(text: str) -> JSON:
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _output_call(call: Call) -> JSON:
    names = {"id": f"fc_{uuid.uuid4().hex[:24]}", "call_id": f"call_{uuid.uuid4().hex[:24]}"}
    if call.text is not None:
        return {"type": "custom_tool_call", **names, "name": call.tool, "input": call.text}
    if call.tool == "tool_search":
        search = {"execution": "client", "arguments": dict(call.arguments), "status": "completed"}
        return {"type": "tool_search_call", **names, **search}
    if call.namespace is not None:
        names["namespace"] = call.namespace
    arguments = json.dumps(dict(call.arguments))
    return {"type": "function_call", **names, "name": call.tool, "arguments": arguments}


def texts_of(body: JSON, role: str) -> Iterator[str]:
    """The texts of the messages with a role, without calls and results of tools."""
    for message in _messages(body):
        if message.get("role") != role:
            continue
        content = message.get("content")
        if isinstance(content, str):
            yield content
            continue
        for part in content or []:
            if part.get("type") in {"text", "input_text", "output_text"}:
                yield part["text"]


def tool_results_of(body: JSON) -> Iterator[str]:
    for message in _messages(body):
        if str(message.get("type")).endswith("call_output"):
            yield _text_of(message.get("output"))
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                if part.get("type") == "tool_result":
                    yield _text_of(part.get("content"))


def _messages(body: JSON) -> list[JSON]:
    messages = body.get("messages", body.get("input"))
    return (
        [message for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )


def _text_of(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content)
