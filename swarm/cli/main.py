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

SCHEMA_VERSION = 1
_FACES = ("lock", "log", "sprint", "task")  # each has COMMANDS
# Each is a COMMAND:
_ALONE = ("doctor", "hook", "mcp", "migrate", "prime", "reserve", "run", "setup", "status", "wait", "web", "worker")
_IN_TMUX = ("up", "attach", "down", "agents", "send", "capture", "restart")  # of one face

_USAGE = """\
Usage: swarm COMMAND …

  run      run a command that has a task meanwhile    swarm run TASK -- COMMAND
  task     add tasks to the queue, claim, finish      swarm task --help
  worker   take tasks and have an agent do them       swarm worker --help
  status   what is wrong, and who works on what       swarm status --watch
  web      the same as a live page in a browser       swarm web --help
  wait     sleep until a task is done, or free        swarm wait TASK

  lock     take, keep and give back task locks        swarm lock --help
  log      write and read the shared status log       swarm log --help
  sprint   one sprint at a time in a project          swarm sprint --help

  up       start a master and workers in tmux         swarm up --workers 5
  attach   look at them       agents   how each is    send   type to one
  capture  what one shows     restart  one that died  down   end them all

  setup    tell Claude Code or Codex about it         swarm setup claude
  prime    what an agent needs to know now            swarm prime
  reserve  files that are one worker's to change      swarm reserve 'src/api/**'
  mcp      tools for an agent, over MCP               swarm mcp --help
  hook     what agents call at their events           swarm hook --help

  doctor   find out what is wrong with the ground     swarm doctor
  migrate  move a swarm to a server, or back          swarm migrate --help
  demo     see it work: three workers, one is killed  swarm demo

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
    """Runs one command; its exit code. Nothing but this prints an error or decides an exit code."""
    code = _run_guarded(argv)
    return 1 if code == 2 and _is_hook(argv) else code  # agents read 2 as "block", which is not for a mistake to say


def _run_guarded(argv: Sequence[str]) -> int:
    try:
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
    argv = _chosen_store(argv)
    name = argv[0] if argv else ""
    if name in _FACES:
        face = __import__(f"swarm.cli.{name}", fromlist=["COMMANDS"])
        return _run_face(f"swarm {name}", face, argv[1:])
    if name in _IN_TMUX:
        return _run_face("swarm", __import__("swarm.cli.tmux", fromlist=["COMMANDS"]), argv)
    if name in _ALONE:
        return _run_alone(f"swarm {name}", __import__(f"swarm.cli.{name}", fromlist=["COMMAND"]), argv[1:])
    if name == "demo":
        return int(__import__("swarm.cli.demo.play", fromlist=["main"]).main(argv[1:]))
    if name in ("-h", "--help", "help"):
        output.out(_USAGE)
        return 0
    if name in ("-V", "--version"):
        output.out(f"swarm {__version__}\n")
        return 0
    if not argv:
        output.out(_USAGE)
        return 2
    raise BadInput(f"there is no command {name[:40]!r}. See: swarm --help")


def _chosen_store(argv: Sequence[str]) -> Sequence[str]:
    """What follows --store, which may also stand before the command."""
    name, equals, url = argv[0].partition("=") if argv else ("", "", "")
    if name != "--store":
        return argv
    if not equals and len(argv) < 2:
        raise BadInput("--store needs a value, such as redis://host/0.")
    from swarm.stores.default import choose_store

    choose_store(url if equals else argv[1])
    return argv[1 if equals else 2 :]


def _is_hook(argv: Sequence[str]) -> bool:
    """Also where what stands before it makes no sense."""
    return argv[:1] == ["hook"] or (argv[0].startswith("--store") and "hook" in argv[1:3]) if argv else False


def _run_face(title: str, face: object, args: Sequence[str]) -> int:
    commands = face.COMMANDS  # type: ignore[attr-defined]
    name = args[0] if args else ""
    if name in commands:
        before = _before_text(args)
        if "--help" in before or list(before[1:]) == ["-h"]:
            from swarm.cli.help import help_for  # here and below: only some calls need it

            output.out(help_for(title, commands, name))
            return 0
        return int(commands[name].run(commands[name].parse(f"{title} {name}", args[1:])))
    if name and name not in ("-h", "--help", "help"):
        raise BadInput(f"{title} has no command {name[:40]!r}. It has: {' '.join(commands)}.")
    from swarm.cli.help import help_for

    output.out(help_for(title, commands))
    return 0 if name else 2


def _run_alone(title: str, face: object, args: Sequence[str]) -> int:
    command = face.COMMAND  # type: ignore[attr-defined]
    before = _before_text(args)
    if "--help" in before or list(before) == ["-h"]:
        from swarm.cli.help import help_for_one

        output.out(help_for_one(title, command))
        return 0
    return int(command.run(command.parse(title, args)))


def _report(text: str, code: int, argv: Sequence[str]) -> int:
    output.error(text)
    if "--json" in _before_text(argv):
        try:
            output.out(json_codec.dumps({"schema_version": SCHEMA_VERSION, "error": text, "exit_code": code}) + "\n")
        except OSError:
            pass
    return code


def _before_text(args: Sequence[str]) -> Sequence[str]:
    """What may be options: behind `--` stands text, or another command."""
    return args[: args.index("--")] if "--" in args else args
