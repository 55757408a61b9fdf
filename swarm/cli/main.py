"""The command `swarm`: find the command of a call, and turn errors into messages and
exit codes.
"""

from __future__ import annotations

import sys

from swarm import __version__, settings
from swarm.cli.arguments import print_json
from swarm.errors import BadInput, StoreError, SwarmError
from swarm.terminal import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.cli.arguments import Command

# Every command with its line in `swarm --help`, in groups. The module `swarm.cli.NAME`
# has a COMMAND, or COMMANDS if NAME is a group of commands. `_MODULES` names the other
# modules.
_COMMANDS = {
    "Work": {
        "init": "make a project: a state directory of its own, and swarm.toml",
        "run": "run a command while holding a task's lock",
        "task": "add, claim and finish tasks of the queue",
        "worker": "run a worker that gives queued tasks to an agent",
        "work": "list the workspaces of agents, and clean up",
        "diff": "show the changes of a task's saved work",
        "checkout": "get a task's saved work back as a worktree",
        "land": "land finished work on its branch, or show what waits to land",
        "status": "show problems, and which worker has which task",
        "web": "show the swarm as a live page in the browser",
        "ask": "ask a question about your task, and wait for the answer",
        "answer": "answer a question of an agent",
        "questions": "list the questions that wait for an answer",
        "cost": "show what tasks cost, as the agents report it",
        "pause": "stop all claims, and with --halt the agents too",
        "resume": "end a pause",
        "gate": "stop the workers of an agent for a while",
        "tell": "send a message to a worker, to the holder of a task, or to all",
        "inbox": "show the messages for a worker",
        "notify": "tell people about questions, failures and other events",
        "wait": "wait until a task is done, or until its lock is free",
        "demo": "see workers share a queue and a repository; one worker is killed",
    },
    "Building blocks": {
        "lock": "acquire, renew and release task locks",
        "log": "write and read the shared status log",
        "reserve": "reserve files so that other agents do not edit them",
        "sprint": "run one sprint at a time in a project",
    },
    "Agents in tmux": {
        "up": "start a master and workers in tmux panes",
        "attach": "open the panes of master and workers in this terminal",
        "agents": "list master and workers with their state",
        "send": "type text into the tmux pane of an agent",
        "capture": "print what the tmux pane of an agent shows",
        "restart": "restart an ended agent in its pane",
        "down": "end master and workers, and close their panes",
        "watch-prompts": "answer prompts of interactive agents without hooks",
    },
    "Claude Code, Codex and others": {
        "setup": "tell a coding agent about swarm",
        "prime": "print an agent's task, the other workers, and the commands to use",
        "mcp": "offer swarm's tools to an agent over MCP",
        "hook": "answer an event of Claude Code or Codex; not for users",
    },
    "Maintenance": {
        "doctor": "check Python, state directory, store and leftovers",
        "migrate": "copy a swarm to another store",
        "help": "explain a command",
        "version": "print the version",
    },
}
_MODULES = {
    "demo": "demo.play",
    **dict.fromkeys(("diff", "checkout"), "work.saved"),
    "work": "work.workspaces",
    **dict.fromkeys(("ask", "answer", "questions"), "queue.questions"),
    **dict.fromkeys(("pause", "resume"), "queue.pause"),
    **{name: f"messages.{name}" for name in ("tell", "inbox")},
    **{name: f"queue.{name}" for name in ("task", "wait", "gate", "cost")},
    **dict.fromkeys(_COMMANDS["Agents in tmux"], "panes.tmux"),
}
# What users type, and the command that does it.
_ELSEWHERE = {
    "swarm lock wait": "swarm wait TASK --for free",
    "swarm task wait": "swarm wait TASK",
    "swarm task ask": "swarm ask TEXT",
    "swarm task answer": "swarm answer TASK TEXT",
}
# They keep programs away that remove old files; so do `run` and `worker`, once there is a
# state directory.
_RUN_LONG = (
    "swarm web",
    "swarm mcp",
    "swarm wait",
    "swarm ask",
    "swarm log follow",
    "swarm watch-prompts",
    "swarm notify run",
)
_KEEP_STATE_DIR = ("swarm run", "swarm worker")  # so do those that run long
_CHOICES = {"--store": "redis://host/0", "--state-dir": "./state"}
_HELP = ("-h", "--help", "help")
_VERSION = ("-V", "--version", "version")
_EXAMPLES = (
    "swarm init",
    "swarm task add login --prompt 'Fix the login bug'",
    "swarm up --agent claude --workers 3",
    "swarm run nightly-build -- make all",
    "swarm status --watch",
    "swarm help task add",
)
_NOTES = """\
In a project, the state is in its directory .swarm, which `swarm init` makes. Elsewhere it is
in /tmp/ai_swarm. $SWARM_STATE_DIR (or $AI_SWARM_DIR, or --state-dir) names another directory.
If $SWARM_STORE or --store names a server, such as redis://host/0, the state is on the server."""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code.

    If the command raises an error, print the error.
    """
    chosen, rest = _split_choices(argv)
    code = _run_guarded(chosen, rest)
    is_hook = "hook" in (*chosen.values(), *rest[:1])
    # agents read 2 as "block", and a mistake must not block an agent
    return 1 if code == 2 and is_hook else code


def _split_choices(argv: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """Return the options before the command that choose a swarm, and the remaining
    words. The value of an option without a value is "".
    """
    chosen: dict[str, str] = {}
    while argv:
        name, equals, value = argv[0].partition("=")
        if name not in _CHOICES:
            break
        chosen[name], argv = (value, argv[1:]) if equals else ("".join(argv[1:2]), argv[2:])
    return chosen, argv


def _run_guarded(chosen: dict[str, str], argv: Sequence[str]) -> int:
    try:
        if chosen:
            _choose(chosen)
        return _run(argv)
    except SwarmError as error:
        return _report(f"{error}{_withheld(error)}", error.exit_code, argv)
    except KeyboardInterrupt:
        output.err("\n")
        return 130
    except BrokenPipeError:
        return 0  # the reader has closed the pipe, as `head` does
    except OSError as error:
        where = error.filename or "cannot read standard input or write standard output"
        return _report(f"{where}: {error.strerror or error}.", 3, argv)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return _report(
            (
                f"this is a fault in swarm: {error!r}. Run it with python3 -X dev to see where it "
                f"happens."
            ),
            3,
            argv,
        )


def _withheld(error: SwarmError) -> str:
    """Return a hint if an agent cannot use the store because it has no password."""
    if not isinstance(error, StoreError) or not settings.store_is_withheld():
        return ""
    return (
        " This process was started without the store's password. To give it to agents, start "
        "their worker with --store-for-agent."
    )


def _run(argv: Sequence[str]) -> int:
    name = argv[0] if argv else ""
    if name in _HELP and argv[1:]:
        return _run([*argv[1:], "--help"])
    if name in _HELP or not argv:
        from swarm.cli.help import overview

        output.out(overview(_COMMANDS, _EXAMPLES, _NOTES, output.columns()))
        return 0 if argv else 2
    if name in _VERSION:
        if "--json" in argv:
            print_json({"version": __version__})
        else:
            output.out(f"swarm {__version__}\n")
        return 0
    if not any(name in group for group in _COMMANDS.values()):
        known = [known for group in _COMMANDS.values() for known in group]
        raise BadInput(
            f"there is no command {name[:40]!r}.{_did_you_mean('swarm', name, known)} "
            "See: swarm --help"
        )
    found = _find(name)
    if isinstance(found, dict):
        return _run_in_group(f"swarm {name}", found, argv[1:])
    return _run_command(f"swarm {name}", found, argv[1:])


def _find(name: str) -> Command | dict[str, Command]:
    """Import a command, or a group of commands."""
    module = __import__(f"swarm.cli.{_MODULES.get(name, name)}", fromlist=["COMMAND"])
    found: Command | dict[str, Command] = getattr(module, "COMMAND", None) or module.COMMANDS
    if isinstance(found, dict) and name in _MODULES:
        return found.get(name, found)  # several commands may share a module
    return found


def _run_in_group(title: str, commands: dict[str, Command], args: Sequence[str]) -> int:
    name = args[0] if args else ""
    if name in commands:
        return _run_command(f"{title} {name}", commands[name], args[1:])
    if name and name not in _HELP:
        meant = _did_you_mean(title, name, tuple(commands))
        raise BadInput(
            f"{title} has no command {name[:40]!r}.{meant} It has: {' '.join(commands)}."
        )
    from swarm.cli.help import group_help

    output.out(group_help(title, commands, output.columns()))
    return 0 if name else 2


def _run_command(title: str, command: Command, args: Sequence[str]) -> int:
    if _asks_for_help(args):
        from swarm.cli.help import command_help

        output.out(command_help(title, command, output.columns()))
        return 0
    call = command.parse(title, args)
    if "--store" in call.options or "--state-dir" in call.options:
        _choose(call.options)
    runs_long = title in _RUN_LONG or "--watch" in call.options
    if runs_long or title in _KEEP_STATE_DIR:
        from swarm.stores.default import keep_state_dir

        keep_state_dir()
    if not runs_long:
        return int(command.run(call))
    from swarm.stores import cleaners

    with cleaners.keep_away():
        return int(command.run(call))


def _choose(options: dict[str, str]) -> None:
    """Use the swarm of --store and --state-dir in this process and in all processes that
    this process starts.

    Raise BadInput if a value is invalid.
    """
    from swarm.stores.default import choose_state_dir, choose_store

    for name, example in _CHOICES.items():
        if options.get(name) == "":
            raise BadInput(f"{name} needs a value, such as {example}.")
    if path := options.get("--state-dir"):
        choose_state_dir(path)
    if url := options.get("--store"):
        choose_store(url)


def _did_you_mean(title: str, name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    if meant := _ELSEWHERE.get(f"{title} {name}"):
        return f" Use: {meant}."
    close = get_close_matches(name, known, 1)
    return f" Did you mean: {title} {close[0]}?" if close else ""


def _asks_for_help(args: Sequence[str]) -> bool:
    before = _before_text(args)
    return "--help" in before or list(before) == ["-h"]


def _report(text: str, code: int, argv: Sequence[str]) -> int:
    output.error(text)
    if "--json" in _before_text(argv):
        try:
            print_json({"error": text, "exit_code": code})
        except OSError:
            pass
    return code


def _before_text(args: Sequence[str]) -> Sequence[str]:
    """Return the words before `--`. Words after `--` are never options of swarm."""
    return args[: args.index("--")] if "--" in args else args
