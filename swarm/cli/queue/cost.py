"""`swarm cost`: what tasks, agents and days cost, as the agents report it."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command, Option
from swarm.queue.usage import BY, UsageLog
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import fill, money, shown, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.queue.usage import Usage

_NO_AGENT = "(unknown)"
_NO_COST = "not reported"


def cost(call: Call) -> int:
    log, by = UsageLog(default_store()), call.options.get("--by", "task")
    found, total = log.totals(by), log.total()
    rows = [{by: name or None, **_numbers(usage)} for name, usage in found.items()]
    if call.answer({"estimate": True, "by": by, "rows": rows, "total": _numbers(total)}):
        return 0
    if not found:
        output.out("No cost was reported yet\n")
        return 0
    names = {shown(name) or _NO_AGENT: usage for name, usage in found.items()}
    column = max(map(width, (*names, "total", by)))
    output.out(f"{fill(by, column)}    cost (USD)   turns   tokens in  tokens out\n")
    for name, usage in (*names.items(), ("total", total)):
        output.out(
            f"{fill(name, column)}  {money(usage.cost_usd) or _NO_COST:>12} {usage.turns:>7} "
            f"{usage.input_tokens:>11} {usage.output_tokens:>11}\n"
        )
    output.out("These are estimates, as the agents report them.\n")
    return 0


def _numbers(usage: Usage) -> dict[str, Any]:
    return {
        "cost_usd": round(usage.cost_usd, 6) or None,
        "turns": usage.turns,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }


COMMAND = Command(
    cost,
    "Show what tasks cost, as the agents report it: an estimate.",
    "swarm cost --by agent",
    options=(Option("--by", "WHAT", f"add up by {', '.join(BY)} (UTC); default: task"),),
)
