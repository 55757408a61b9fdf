"""Single keys from standard input, which must be a terminal.

Between `enter` and `leave`, the terminal passes each key on at once and does not show it.
Ctrl-C and Ctrl-Z still send their signals. A process in the background of the terminal
changes nothing and reads nothing: the terminal would stop it.

A pasted text is one key, so that no line of it is taken for a command.
"""

from __future__ import annotations

import os
import select
import termios
from typing import Any, NamedTuple

from swarm.terminal import output

# The terminal puts marks around pasted text, if it can.
_MARK_PASTES, _LEAVE_PASTES = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_ESCAPE_WAIT = 0.05  # seconds in which the rest of an escape sequence must come
_MAX_PASTE = 64 << 10  # bytes
_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x15": "clear",
    b"\x17": "word",
    b"\x04": "end",
}


class Key(NamedTuple):
    """A key: its name, or `text` for a character, or `paste`; and the text."""

    name: str
    text: str = ""


class Keyboard:
    def __init__(self) -> None:
        self._modes: list[Any] | None = None
        self._rest = b""

    @property
    def is_active(self) -> bool:
        """Whether keys can be read now."""
        return self._modes is not None

    def enter(self) -> None:
        """Take single keys. Do nothing in the background, or if that is so already."""
        if self._modes is not None or not is_in_foreground():
            return
        before = termios.tcgetattr(0)
        changed = termios.tcgetattr(0)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
        self._modes = before
        termios.tcsetattr(0, termios.TCSADRAIN, changed)
        output.out(_MARK_PASTES)

    def leave(self) -> None:
        """Set the terminal as it was."""
        modes, self._modes = self._modes, None
        if modes is None or not is_in_foreground():
            return  # a shell has set its own modes meanwhile
        output.out(_LEAVE_PASTES)
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, modes)
        except termios.error:
            pass  # the terminal is gone

    def read(self) -> list[Key]:
        """Return the keys that were pressed. Wait only for the rest of a sequence.

        The key `end` says that the terminal is gone.
        """
        data = self._rest + os.read(0, 4096)
        if not data:
            return [Key("end")]
        while _is_begun(data) and select.select([0], [], [], _ESCAPE_WAIT)[0]:
            more = os.read(0, 4096)
            data += more
            if not more:
                break
        keys, self._rest = parsed(data)
        return keys

    def drop(self) -> None:
        """Forget keys that were pressed and not read yet."""
        self._rest = b""
        if self._modes is not None and is_in_foreground():
            termios.tcflush(0, termios.TCIFLUSH)


def is_in_foreground() -> bool:
    """Return whether this process may read the terminal and change its modes."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def parsed(data: bytes) -> tuple[list[Key], bytes]:
    """Return the keys in what a terminal sent, and the bytes of an unfinished character."""
    keys: list[Key] = []
    while data:
        if data.startswith(_PASTE_BEGIN):
            pasted, _, data = data.removeprefix(_PASTE_BEGIN).partition(_PASTE_END)
            keys.append(Key("paste", pasted.decode(errors="replace").replace("\r", "\n")))
            continue
        size = _sequence(data) if data[:1] == b"\x1b" else _character(data)
        if size > len(data):
            return keys, data
        one, data = data[:size], data[size:]
        if one in _NAMES:
            keys.append(Key(_NAMES[one]))
        elif one == b"\x1b":
            keys.append(Key("escape"))
        elif (text := one.decode(errors="replace")).isprintable():
            keys.append(Key("text", text))
    return keys, b""


def _is_begun(data: bytes) -> bool:
    """Return whether the rest of a sequence or of a pasted text may come."""
    begin = data.rfind(_PASTE_BEGIN)
    if begin >= 0 and _PASTE_END not in data[begin:] and len(data) < _MAX_PASTE:
        return True
    at = data.rfind(b"\x1b")
    return at >= 0 and len(data) - at < 3


def _sequence(data: bytes) -> int:
    """Return the length of the escape sequence at the beginning: 1 for the key itself."""
    if data[1:2] == b"O" and len(data) > 2:
        return 3
    if data[1:2] != b"[":
        return 1
    for at, byte in enumerate(data[2:], 2):
        if 0x40 <= byte <= 0x7E:
            return at + 1
    return len(data)  # nothing more of it came


def _character(data: bytes) -> int:
    """Return the length of the character at the beginning, in UTF-8."""
    first = data[0]
    size = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0) if first < 0xF8 else 1
    whole = data[1:size]
    return size if all(byte & 0xC0 == 0x80 for byte in whole) else 1
