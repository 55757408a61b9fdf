"""What an agent requests through its hook, and the forms of the answers that it reads.

A request is the event PermissionRequest of Claude Code or Codex. Claude Code also sends
it for AskUserQuestion, whose answers become a part of the tool's input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from swarm.agents.hook_event import HookEvent
from swarm.formats import json_codec
from swarm.locks.path_pattern import in_project, names_of, project_root
from swarm.project.policy import REFUSED_BY_A_PERSON, ToolCall
from swarm.queue.questions.question import NO, YES, Question
from swarm.terminal.text import foreign_name, shorten

Answer = dict[str, Any]
QUESTION_TOOL = "AskUserQuestion"
_MAX_SHOWN = 4000  # characters of a command; a question has room for 16 KiB
_MAX_FAULT = 500  # characters of what is wrong with swarm.toml
_MAX_LABEL = 120  # characters of an option


def tool_call(event: HookEvent) -> ToolCall:
    """Return a call as rules see it."""
    command, url = event.arguments.get("command"), event.arguments.get("url")
    words = [command] if isinstance(command, str) else command
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    commands = (" ".join(words),) if is_list and words and event.tool != "apply_patch" else ()
    here = os.path.abspath(event.directory)
    root = project_root(here)
    names, others = [], []
    for path in event.files:
        real = os.path.realpath(os.path.join(here, os.path.expanduser(path)))
        names.append(in_project(real, os.path.realpath(root), here))
        others += names_of(path, root, here)
    if isinstance(url, str) and url:
        names.append(url)
    return ToolCall(event.tool, commands, tuple(names), tuple(others))


def call_key(event: HookEvent) -> str:
    """Return a name for a call, the same before and after it.

    Agents add fields meanwhile: the answers to questions, or a description.
    """
    given = event.arguments
    if event.tool == QUESTION_TOOL:
        given = {"questions": given.get("questions")}
    fields = {name: value for name, value in given.items() if name != "description"}
    return sha256(json_codec.dumps([event.tool, fields]).encode()).hexdigest()[:16]


def denied(event: HookEvent, text: str) -> Answer:
    """Return the answer that refuses a request."""
    return decision(event, {"behavior": "deny", "message": text})


def decision(event: HookEvent, decision: Mapping[str, Any]) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event.given_name, "decision": decision}}


def answered(event: HookEvent, question: Question) -> Answer:
    """Return the answer of a person to the request for a permission.

    Only a word for yes allows the call.
    """
    words, who = question.answer, foreign_name(question.answered_by)
    if words.casefold() in YES:
        return decision(event, {"behavior": "allow"})
    if words.casefold() in NO:
        return denied(event, f"{REFUSED_BY_A_PERSON} ({who}). Do not try it in another way.")
    return denied(event, f"{REFUSED_BY_A_PERSON} ({who}), and answers: {words}")


def with_answers(event: HookEvent, found: Sequence[Question]) -> Answer:
    """Return the answers to the questions of an agent, in the order of `own_questions`."""
    answers = {
        str(own["question"]): _in_own_words(own, each.answer)
        for own, each in zip(own_questions(event), found, strict=True)
    }
    given = {**event.arguments, "answers": answers}
    return decision(event, {"behavior": "allow", "updatedInput": given})


def question_text(question: Mapping[str, Any]) -> str:
    """Return a question of AskUserQuestion as swarm asks it."""
    text = shown_in_question(str(question["question"]))
    if not _takes_several(question):
        return text
    return f"{text} (You may choose several: separate them by commas.)"


def permission_text(event: HookEvent, fault: str = "") -> str:
    """Return the question whether an agent may use a tool. `fault` says why the policy
    cannot be read.
    """
    what = event.arguments.get("command")
    if not isinstance(what, str) or not what.strip():
        what = ", ".join(event.files) or event.detail or json_codec.dumps(event.arguments)
    text = f"May I use {event.tool}? {shown_in_question(what)}"
    if not fault:
        return text
    return f"{text} (No rule of the policy counts, because it cannot be read: {fault[:_MAX_FAULT]})"


def shown_in_question(text: str) -> str:
    """Return a text as a question shows it. No two long texts look alike, because equal
    questions of a claim share their answer.
    """
    if len(text) <= _MAX_SHOWN:
        return text.strip() or "(empty)"
    mark = sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[:_MAX_SHOWN]}… ({len(text)} characters in all, SHA-256 {mark})"


def own_questions(event: HookEvent) -> list[dict[str, Any]]:
    """Return the questions of AskUserQuestion, each once."""
    found = event.arguments.get("questions")
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    named = {str(each.get("question")): each for each in listed if each.get("question")}
    return list(named.values())


def _options(question: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = question.get("options")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _label(option: Mapping[str, Any]) -> str:
    return shorten(" ".join(str(option.get("label", "")).split()), _MAX_LABEL)


def labels(question: Mapping[str, Any]) -> list[str]:
    """Return the options as swarm shows them. Other words are an answer, too."""
    unique = {label.casefold(): label for each in _options(question) if (label := _label(each))}
    return list(unique.values())


def descriptions(question: Mapping[str, Any]) -> dict[str, str]:
    return {_label(each): str(each.get("description", ""))[:500] for each in _options(question)}


def _in_own_words(question: Mapping[str, Any], answer: str) -> str:
    """Return an answer with the agent's own words for its options. An answer to a question
    with several answers has commas, and may have the numbers of options.
    """
    own = {_label(each): str(each["label"]) for each in _options(question) if _label(each)}
    if answer in own or not _takes_several(question):
        return own.get(answer, answer)
    names = {str(number): label for number, label in enumerate(labels(question), 1)}
    names |= {label.casefold(): label for label in labels(question)}
    pieces = [piece.strip() for piece in answer.split(",")]
    chosen = [names.get(piece.casefold(), piece) for piece in pieces if piece]
    return ", ".join(own.get(each, each) for each in dict.fromkeys(chosen)) or answer


def _takes_several(question: Mapping[str, Any]) -> bool:
    return question.get("multiSelect") is True
