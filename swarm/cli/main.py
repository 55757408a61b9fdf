"""The command `swarm`: finds the command that was meant, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

from swarm import __version__
from swarm.errors import BadInput, SwarmError
from swarm.formats import json_codec
from swarm.terminal import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.cli.arguments import Command

SCHEMA_VERSION = 1
_GROUPS = ("lock", "log", "sprint", "task")  # the module has COMMANDS
# The module has a COMMAND:
_COMMANDS = ("doctor", "hook", "mcp", "migrate", "prime", "reserve", "run", "setup", "status", "wait", "web", "worker")
_TMUX_COMMANDS = ("up", "attach", "down", "agents", "send", "capture", "restart")  # COMMANDS of one module, cli.tmux
_HELP = ("-h", "--help", "help")
_VERSION = ("-V", "--version", "version")

_USAGE = """\
Usage: swarm COMMAND …

  run      run a command that holds a task's lock    swarm run TASK -- COMMAND
  task     add tasks to a queue, claim, finish them  swarm task --help
  worker   run a worker: it gives tasks to an agent  swarm worker --help
  status   show problems and who works on what       swarm status --watch
  web      show the same as a live page              swarm web --help
  wait     wait until a task is done, or free        swarm wait TASK

  lock     take, keep and release task locks         swarm lock --help
  log      write and read the shared status log      swarm log --help
  sprint   run one sprint at a time in a project     swarm sprint --help

  up       start a master and workers in tmux        swarm up --workers 5
  attach   open them in tmux      agents   list them   send   type to one
  capture  print its screen       restart  a dead one  down   end them all

  setup    tell Claude Code or Codex about swarm     swarm setup claude
  prime    print what an agent needs to know now     swarm prime
  reserve  reserve files so that others do not edit  swarm reserve 'src/api/**'
  mcp      serve tools to an agent over MCP          swarm mcp --help
  hook     answer hooks of Claude Code and Codex     swarm hook --help

  doctor   check Python, state directory and store   swarm doctor
  migrate  move a swarm to a server, or back         swarm migrate --help
  demo     see three workers at work, one is killed  swarm demo
  help     explain a command                         swarm help task add
  version  print the version                         swarm version

Examples:
  swarm task add login --prompt 'Fix the login bug'
  swarm worker --id 1 --exec 'claude -p {prompt}'
  swarm run nightly-build -- make all
  swarm lock acquire task-001 worker-0 300
  swarm log follow

State lives in $SWARM_STATE_DIR (or $AI_SWARM_DIR), by default /tmp/ai_swarm;
on a server if $SWARM_STORE or --store names one, such as redis://host/0.
"""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code. An error that no command handles becomes a message here."""
    store, rest = _split_store(argv)
    code = _run_guarded(store, rest)
    is_hook = "hook" in (store, *rest[:1])
    return 1 if code == 2 and is_hook else code  # agents read 2 as "block", which a mistake must not say


def _split_store(argv: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """A --store that stands before the command, None if there is none and "" if it lacks its value; and the rest."""
    name, equals, url = argv[0].partition("=") if argv else ("", "", "")
    if name != "--store":
        return None, argv
    return (url, argv[1:]) if equals else ("".join(argv[1:2]), argv[2:])


def _run_guarded(store: str | None, argv: Sequence[str]) -> int:
    try:
        if store is not None:
            _choose_store(store)
        return _run(argv)
    except SwarmError as error:
        return _report(str(error), error.exit_code, argv)
    except KeyboardInterrupt:
        output.err("\n")
        return 130
    except BrokenPipeError:
        return 0  # the reader has seen enough
    except OSError as error:
        where = error.filename or "cannot read standard input or write standard output"
        return _report(f"{where}: {error.strerror or error}.", 3, argv)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return _report(f"this is a fault in swarm: {error!r}. Run it with python3 -X dev to see where it happens.", 3, argv)


def _run(argv: Sequence[str]) -> int:
    name = argv[0] if argv else ""
    if name in _GROUPS:
        return _run_group(f"swarm {name}", _commands_of(name), argv[1:])
    if name in _TMUX_COMMANDS:
        return _run_group("swarm", _commands_of("tmux"), argv)
    if name in _COMMANDS:
        return _run_command(f"swarm {name}", __import__(f"swarm.cli.{name}", fromlist=["COMMAND"]).COMMAND, argv[1:])
    if name == "demo":
        return int(__import__("swarm.cli.demo.play", fromlist=["main"]).main(argv[1:]))
    if name in _HELP and argv[1:]:
        return _run([*argv[1:], "--help"])
    if name in _HELP or not argv:
        output.out(_USAGE)
        return 0 if argv else 2
    if name in _VERSION:
        answer = json_codec.dumps({"schema_version": SCHEMA_VERSION, "version": __version__})
        output.out(f"{answer}\n" if "--json" in argv else f"swarm {__version__}\n")
        return 0
    known = (*_GROUPS, *_COMMANDS, *_TMUX_COMMANDS, "demo", "help", "version")
    raise BadInput(f"there is no command {name[:40]!r}.{_did_you_mean('swarm', name, known)} See: swarm --help")


def _commands_of(module: str) -> dict[str, Command]:
    commands: dict[str, Command] = __import__(f"swarm.cli.{module}", fromlist=["COMMANDS"]).COMMANDS
    return commands


def _run_group(title: str, commands: dict[str, Command], args: Sequence[str]) -> int:
    name = args[0] if args else ""
    if name in commands:
        if _asks_for_help(args[1:]):
            from swarm.cli.help import help_for  # here and below: only some calls need it

            output.out(help_for(title, commands, name))
            return 0
        return _call(f"{title} {name}", commands[name], args[1:])
    if name and name not in _HELP:
        meant = _did_you_mean(title, name, tuple(commands))
        raise BadInput(f"{title} has no command {name[:40]!r}.{meant} It has: {' '.join(commands)}.")
    from swarm.cli.help import help_for

    output.out(help_for(title, commands))
    return 0 if name else 2


def _run_command(title: str, command: Command, args: Sequence[str]) -> int:
    if _asks_for_help(args):
        from swarm.cli.help import help_for_one

        output.out(help_for_one(title, command))
        return 0
    return _call(title, command, args)


def _call(title: str, command: Command, args: Sequence[str]) -> int:
    call = command.parse(title, args)
    if "--store" in call.options:
        _choose_store(call.options["--store"])
    return int(command.run(call))


def _choose_store(url: str) -> None:
    """Use this store in this process, and in every one that it starts."""
    from swarm.stores.default import choose_store

    if not url:
        raise BadInput("--store needs a value, such as redis://host/0.")
    choose_store(url)


def _did_you_mean(title: str, name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f" Did you mean: {title} {close[0]}?" if close else ""


def _asks_for_help(args: Sequence[str]) -> bool:
    before = _before_text(args)
    return "--help" in before or list(before) == ["-h"]


def _report(text: str, code: int, argv: Sequence[str]) -> int:
    output.error(text)
    if "--json" in _before_text(argv):
        try:
            output.out(json_codec.dumps({"schema_version": SCHEMA_VERSION, "error": text, "exit_code": code}) + "\n")
        except OSError:
            pass
    return code


def _before_text(args: Sequence[str]) -> Sequence[str]:
    """The words that may be options: behind `--` stands text, or another command."""
    return args[: args.index("--")] if "--" in args else args
