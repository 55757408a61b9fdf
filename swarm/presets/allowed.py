"""The commands that an agent may run under `edit`, and the cure if one was denied.

These are git and swarm, and the beginnings of commands in `allow` of swarm.toml or in
`--allow`. "*" allows every command.
"""

from __future__ import annotations

import re
import shlex

from swarm.presets.contract import ASK, EDIT, Request

EVERY = "*"
_FULL = "use --permissions full"
_FOR_EVERY = f'add "{EVERY}", every command, to allow in swarm.toml, or {_FULL}'
_OWN = "allow it in the agent's own settings, or in its command in swarm.toml"
_MAX_NAMED = 3
_SEPARATORS = "();<>|&\n"
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time")
_ENDS = ("done", "fi", "for", "case", "esac", "select", "function", "[[")
# What agents run by themselves inside of the workspace. Denied, they went outside.
_HARMLESS = (
    *("cd", "echo", "printf", "ls", "cat", "head", "tail", "wc", "grep", "rg", "find", "sort"),
    *("uniq", "cut", "tr", "diff", "pwd", "true", "false", "test", "[", "mkdir", "touch", "rm"),
    *("rmdir", "mv", "cp", "sed", "sleep", "export", "set"),
)
# Programs of which one subcommand is enough.
_WITH_SUBCOMMANDS = (
    *("make", "just", "npm", "pnpm", "yarn", "bun", "cargo", "go", "uv", "poetry", "pip", "pip3"),
    *("docker", "kubectl", "gh", "mvn", "gradle", "dotnet", "bundle", "rake", "mix", "terraform"),
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+@-]+")


def allowed(request: Request) -> tuple[str, ...]:
    """Return the beginnings of the commands that the agent may run, each as a text.

    EVERY stands alone. Return nothing if the agent's own settings decide.
    """
    if request.permissions != EDIT:
        return ()
    if EVERY in request.allow:
        return (EVERY,)
    own = ("git", "swarm", "python3 -m swarm", shlex.join(request.swarm))
    return tuple(dict.fromkeys((*own, *request.allow)))


def cure_of_command(command: str, request: Request | None) -> str:
    """Return what a user must do so that the agent may run this command.

    `request` is None if swarm did not choose the agent's permissions.
    """
    if request is None:
        return _OWN
    names = _missing(command, allowed(request) or ("git", "swarm"))
    if not names:
        return _for_edit(_FOR_EVERY, request)
    shown = ", ".join(f'"{name}"' for name in names)
    options = " ".join(f"--allow {shlex.quote(name)}" for name in names)
    return _for_edit(f"add {shown} to allow in swarm.toml (or {options}), or {_FULL}", request)


def cure_of_edit(path: str, workspace: str, request: Request | None) -> str:
    """Return what a user must do so that the agent may write this file."""
    if request is None:
        return _OWN
    if request.permissions == ASK:
        return "use --permissions edit"
    root = workspace.rstrip("/")
    if path.startswith("/") and root and not path.startswith(f"{root}/"):
        return f"{_FULL}: the file is outside of the workspace {root}"
    return _FULL


def cure_of_tool(option: str, request: Request | None) -> str:
    """Return what a user must do so that the agent may use another tool. `option` is the
    agent's own option for it.
    """
    return _OWN if request is None else f"start the worker with -- {option}, or {_FULL}"


def _for_edit(cure: str, request: Request) -> str:
    return f"use --permissions edit and {cure}" if request.permissions == ASK else cure


def _missing(command: str, known: tuple[str, ...]) -> list[str]:
    """Return the beginnings of the simple commands in a command that are not allowed yet.

    Return nothing if no rule about a beginning helps: the reason is another one.
    """
    found: list[str] = []
    for words in _simple_commands(command):
        if _ASSIGNMENT.match(words[0]):
            return []  # agents compare a command from its first word on
        text = " ".join(words)
        if words[0] in _HARMLESS or any(f"{text} ".startswith(f"{each} ") for each in known):
            continue
        name = words[0]
        if name in _WITH_SUBCOMMANDS and len(words) > 1 and words[1][0].isalpha():
            name = f"{name} {words[1]}"
        if not all(_PLAIN.fullmatch(word) for word in name.split(" ")):
            return []
        if name not in found:
            found.append(name)
    return found[:_MAX_NAMED] if EVERY not in known else []


def _simple_commands(command: str) -> list[list[str]]:
    """Return the words of each simple command in a shell command."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    commands: list[list[str]] = [[]]
    redirected = False  # the words behind a redirection are no program
    try:
        for word in lexer:
            if not set(word) <= set(_SEPARATORS):
                if not redirected:
                    commands[-1].append(word)
            elif set(word) & set("<>"):
                redirected = True
            else:
                commands.append([])
                redirected = False
    except ValueError:
        pass  # a quote that is not closed, perhaps in a text after <<
    for words in commands:
        while words and words[0] in _KEYWORDS:
            del words[0]
    return [words for words in commands if words and words[0] not in _ENDS]
