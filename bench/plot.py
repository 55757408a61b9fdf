"""A plot of growing costs, as SVG.

Both axes are in powers of ten, so that a cost which grows in proportion has slope one.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.peers import module
from bench.report import FIGURES


def write(name: str, what: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    """Write docs/design/performance/NAME.svg: a line for each operation, in seconds by
    number of `what`.
    """
    matplotlib = module("matplotlib")
    matplotlib.use("svg")
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "swarm",
        "font.family": "sans-serif",
        "font.size": 10,
    }
    with matplotlib.rc_context(settings):
        figure, axes = module("matplotlib.pyplot").subplots(figsize=(8, 4.5), layout="constrained")
        for label, line in lines.items():
            axes.plot(list(line), list(line.values()), marker="o", markersize=4, label=label)
        axes.set(xscale="log", yscale="log", xlabel=what, ylabel="time for one")
        ticks = sorted({size for line in lines.values() for size in line})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(module("matplotlib.ticker").EngFormatter(unit="s"))
        axes.grid(visible=True, alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)
        FIGURES.parent.mkdir(exist_ok=True)
        figure.savefig(FIGURES.with_name(f"{name}.svg"), metadata={"Date": None, "Creator": None})
