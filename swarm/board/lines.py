"""Lines of a screen, made of coloured pieces: wrap a text, cut and paint a line."""

from __future__ import annotations

from collections.abc import Callable

from swarm.terminal.text import cut, width

Paint = Callable[[str, str], str]
Line = list[tuple[str, str]]  # pieces of text, each with its colour, "" for none


def wrapped(text: str, first: int, columns: int, most: int) -> list[str]:
    """Return a text as at most `most` lines, broken between words.

    `first` is the width of the first line. The last line may be too long.
    """
    lines: list[str] = []
    room = first
    while len(lines) < most - 1 and width(text) > room:
        fits = cut(text, room).removesuffix("…")
        end = len(fits) if text[len(fits) : len(fits) + 1] == " " else fits.rfind(" ")
        if end < len(fits) // 2:
            end = len(fits)  # a word that is longer than half a line
        if not end:
            break
        lines.append(text[:end])
        text, room = text[end:].lstrip(), columns
    return [*lines, text]


def painted(line: Line, columns: int, paint: Paint) -> str:
    """Return a line with its colours.

    The line is cut to the width of the screen before the colours are added.
    """
    while line and not line[-1][0].strip():
        line = line[:-1]
    done, left = [], columns
    for index, (piece, colour) in enumerate(line):
        if index == len(line) - 1:
            piece = piece.rstrip()  # noqa: PLW2901
        fits = cut(piece, left)
        if fits == piece and width(fits) == left and any(more for more, _ in line[index + 1 :]):
            fits = cut(piece + "…", left)
        left -= width(fits)
        done.append(paint(fits, colour) if colour and fits.strip() else fits)
        if fits != piece:
            break
    return "".join(done)
