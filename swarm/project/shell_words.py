"""Find the programs that a command of an agent starts, without running it.

A shell can hide a program in many ways. In doubt, each function gives the
answer with which a person is asked:

    forms              the commands in a text, each as a rule would write it
    is_one_command     whether every shell reads a text as one plain command
    names_its_program  whether such a command says which program it starts
    mentions           whether the words of a pattern are in a text, in this order
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterator

OPERATORS = ";&|<>(){}$`\\\n\r"
_BETWEEN_COMMANDS = re.compile(r"[;&|<>(){}$`\n\r]+")
_BETWEEN_WORDS = re.compile(r"[\s;&|<>(){}$`=,:!@]+")
_QUOTES = re.compile(r"[\"'\\]")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
_WILDCARDS = frozenset("*?[")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = {
    *("!", "case", "coproc", "do", "elif", "else", "for"),
    *("function", "if", "select", "then", "until", "while"),
}
# Wrappers, programs that start the one after them: their options that take the next word.
_WRAPPERS = {
    "builtin": "",
    "command": "",
    "doas": "Cu",
    "env": "Cu",
    "exec": "a",
    "ionice": "cnPpu",
    "nice": "n",
    "nohup": "",
    "setsid": "",
    "stdbuf": "eio",
    "sudo": "CDRTUghprtu",
    "time": "fo",
    "timeout": "ks",
    "xargs": "EILPadns",
}
_RUN_TEXT = {
    *(".", "alias", "ash", "bash", "busybox", "csh", "dash", "env", "eval", "fish"),
    *("ksh", "mksh", "pwsh", "sh", "source", "tcsh", "trap", "xargs", "zsh"),
}
_GIT_OPTIONS = {
    *("-C", "-c", "--attr-source", "--config-env"),
    *("--git-dir", "--namespace", "--super-prefix", "--work-tree"),
}
_MAX_WRAPPERS = 50  # in one command


def forms(text: str) -> Iterator[str]:
    """Yield a text and the commands in it. Each is also without quotes, keywords of the
    shell, assignments, wrappers, and the directory of its program.
    """
    yield text
    for part in (text, *_BETWEEN_COMMANDS.split(text)):
        words = _QUOTES.sub("", part).split()
        yield " ".join(words)
        for found in _programs(words):
            program = _name(found[0])
            yield " ".join([program, *found[1:]])
            if program == "git":
                yield " ".join([program, *_after_git_options(found[1:])])


def is_one_command(text: str) -> bool:
    """Return whether every shell reads a text as one plain command."""
    if not text.isprintable() or any(sign in text for sign in OPERATORS):
        return False
    try:
        return bool(shlex.split(text))
    except ValueError:  # an open quote
        return False


def names_its_program(text: str) -> bool:
    """Return whether one plain command says which program it starts: not a keyword, an
    assignment, a wildcard, or a program that may run a text.
    """
    first, *rest = text.split()
    if not _PROGRAM.fullmatch(first) or first in _KEYWORDS:
        return False
    words = [first, *rest] if _name(first) in _WRAPPERS else [first]
    return not any(_name(_QUOTES.sub("", word)) in _RUN_TEXT for word in words)


def mentions(text: str, pattern: str) -> bool:
    """Return whether a text has all words of a pattern, in this order, also in quotes."""
    wanted = [word for word in _split(pattern.casefold()) if word.strip("*")]
    return any(
        _has_in_order(_split(plain.casefold()), wanted)
        for plain in (_QUOTES.sub("", text), _QUOTES.sub(" ", text))
    )


def glob(pattern: str, text: str) -> bool:
    """Return whether a pattern fits a whole text. The time grows with the length only."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    last = rest.pop()
    if len(text) < len(first) + len(last):
        return False
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in rest:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _programs(words: list[str]) -> Iterator[list[str]]:
    """Yield the words from each position on where a program may stand. There is more
    than one after a long option, which may take the next word.
    """
    positions, seen = [0], 0
    while positions and seen < _MAX_WRAPPERS:
        at = positions.pop()
        while at < len(words) and (words[at] in _KEYWORDS or _ASSIGNMENT.match(words[at])):
            at += 1
        if at >= len(words):
            continue
        wrapper = _name(words[at])
        if wrapper not in _WRAPPERS:
            yield words[at:]
            continue
        seen += 1
        at, option = at + 1, ""
        while at < len(words) and words[at].startswith("-"):
            option = words[at]
            at += 2 if _takes_next(option, _WRAPPERS[wrapper]) else 1
            if option == "--":
                break
        if option.startswith("--") and option != "--" and "=" not in option:
            positions.append(at + 1 + (wrapper == "timeout"))
        positions.append(at + (wrapper == "timeout"))


def _takes_next(option: str, letters: str) -> bool:
    """Return whether the last letter of short options is the first that takes a word."""
    taking = [at for at, letter in enumerate(option) if letter in letters]
    return not option.startswith("--") and taking[:1] == [len(option) - 1]


def _after_git_options(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_OPTIONS else 1
    return words[at:]


def _split(text: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(text) if word]


def _has_in_order(words: list[str], wanted: list[str]) -> bool:
    left = iter(words)
    return all(any(_may_mean(word, each) for word in left) for each in wanted)


def _may_mean(word: str, wanted: str) -> bool:
    """Return whether a word may be the wanted one, with a directory or after an option."""
    if word.startswith("-") and not word.startswith("--") and glob(f"*{wanted}", word):
        return True  # such as -crm
    return _may_be(word, wanted) or _may_be(_name(word), _name(wanted))


def _may_be(word: str, wanted: str) -> bool:
    """Return whether a word fits the wanted one, or may do so as a pattern of the shell."""
    if not wanted.strip("*"):
        return False  # such as the end of src/*
    if glob(wanted, word):
        return True
    return not _WILDCARDS.isdisjoint(word) and ("*" in wanted or fnmatch.fnmatchcase(wanted, word))


def _name(program: str) -> str:
    return program.rpartition("/")[2]
