"""Draw a text as a QR code with characters of a terminal.

Byte mode, versions 1 to 10, error correction M, or L if the text is too long for M. That
is enough for an address of up to 271 bytes. The rules are those of ISO/IEC 18004.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

from swarm.errors import BadInput

_QUIET = 4  # modules around the code
_MAX_VERSION = 10
# For each level and version: error correction bytes in a block, and blocks.
_BLOCKS = {
    "L": ((7, 1), (10, 1), (15, 1), (20, 1), (26, 1), (18, 2), (20, 2), (24, 2), (30, 2), (18, 4)),
    "M": ((10, 1), (16, 1), (26, 1), (18, 2), (24, 2), (16, 4), (18, 4), (22, 4), (22, 5), (26, 5)),
}
_LEVEL_BITS = {"L": 1, "M": 0}
_ALIGNMENT: tuple[tuple[int, ...], ...] = (
    (),
    (6, 18),
    (6, 22),
    (6, 26),
    (6, 30),
    (6, 34),
    (6, 22, 38),
    (6, 24, 42),
    (6, 26, 46),
    (6, 28, 50),
)
_MASKS: tuple[Callable[[int, int], int], ...] = (
    lambda y, x: (y + x) % 2,
    lambda y, x: y % 2,
    lambda y, x: x % 3,
    lambda y, x: (y + x) % 3,
    lambda y, x: (y // 2 + x // 3) % 2,
    lambda y, x: y * x % 2 + y * x % 3,
    lambda y, x: (y * x % 2 + y * x % 3) % 2,
    lambda y, x: ((y + x) % 2 + y * x % 3) % 2,
)
_FINDER_LIKE = ((1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0), (0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1))

Matrix = list[list[int]]  # 1 is dark


def drawn(text: str) -> list[str]:
    """Return the lines of a code, light on dark: two modules in each character.

    A full block is a light module, as most terminals are dark. On any terminal, draw the
    lines with white letters on black. Raise BadInput if the text is too long.
    """
    size = len(rows := matrix(text.encode()))
    wide = size + 2 * _QUIET
    light = [[1] * wide for _ in range(wide + wide % 2)]
    for y, row in enumerate(rows):
        for x, module in enumerate(row):
            light[y + _QUIET][x + _QUIET] = 1 - module
    blocks = {(1, 1): "█", (1, 0): "▀", (0, 1): "▄", (0, 0): " "}
    return [
        "".join(blocks[pair] for pair in zip(light[y], light[y + 1], strict=True))
        for y in range(0, len(light), 2)
    ]


def matrix(data: bytes) -> Matrix:
    """Return the modules of the smallest code with the best mask. Raise BadInput if the
    data does not fit.
    """
    level, version = _fitting(len(data))
    words = interleaved(_codewords(data, level, version), level, version)
    bare, is_free = _frame(version)
    _write_data(bare, is_free, words)
    codes = [_masked(bare, is_free, level, version, number) for number in range(len(_MASKS))]
    return min(codes, key=penalty)


def reed_solomon(data: bytes, count: int) -> bytes:
    """Return `count` bytes of error correction: the remainder of the data, as a polynomial
    over GF(256), by the generator.
    """
    generator = [1]
    for power in range(count):
        root = _powers()[power]
        longer = [*generator, 0]
        for at, factor in enumerate(generator):
            longer[at + 1] ^= _times(factor, root)
        generator = longer
    rest = [*data, *([0] * count)]
    for at in range(len(data)):
        factor = rest[at]
        for offset, coefficient in enumerate(generator):
            rest[at + offset] ^= _times(factor, coefficient)
    return bytes(rest[len(data) :])


def interleaved(words: bytes, level: str, version: int) -> bytes:
    """Return the data words of all blocks in turn, then their error correction in turn."""
    count, blocks = _BLOCKS[level][version - 1]
    short, longer = divmod(len(words), blocks)
    parts, at = [], 0
    for number in range(blocks):
        size = short + (number >= blocks - longer)
        parts.append(words[at : at + size])
        at += size
    checks = [reed_solomon(part, count) for part in parts]
    data = [part[at] for at in range(short + 1) for part in parts if at < len(part)]
    return bytes([*data, *(check[at] for at in range(count) for check in checks)])


def format_bits(level: str, mask: int) -> int:
    """Return the 15 bits that name level and mask."""
    data = _LEVEL_BITS[level] << 3 | mask
    return (data << 10 | _remainder(data << 10, 0b10100110111, 10)) ^ 0b101010000010010


def version_bits(version: int) -> int:
    """Return the 18 bits that name a version from 7 on."""
    return version << 12 | _remainder(version << 12, 0b1111100100101, 12)


def penalty(code: Matrix) -> int:
    """Return how hard a code is to read: long runs, squares, patterns like a finder, and
    an uneven share of dark modules.
    """
    size, found = len(code), 0
    for line in (*code, *map(list, zip(*code, strict=True))):
        run, last = 0, -1
        for module in [*line, -1]:
            if module == last:
                run += 1
                continue
            found += run - 2 if run >= 5 else 0
            run, last = 1, module
        windows = (tuple(line[at : at + 11]) for at in range(size - 10))
        found += 40 * sum(window in _FINDER_LIKE for window in windows)
    for y in range(size - 1):
        for x in range(size - 1):
            found += 3 * (code[y][x] == code[y][x + 1] == code[y + 1][x] == code[y + 1][x + 1])
    dark = sum(map(sum, code)) * 100 // (size * size)
    return found + 10 * (abs(dark - 50) // 5)


# The data -----------------------------------------------------------------------------


def _fitting(size: int) -> tuple[str, int]:
    for level in ("M", "L"):
        for version in range(1, _MAX_VERSION + 1):
            if size <= capacity(level, version):
                return level, version
    raise BadInput(f"a text of {size} bytes is too long for a QR code.")


def capacity(level: str, version: int) -> int:
    """Return how many bytes fit: mode and length take 12 bits, or 20 from version 10 on."""
    return _data_words(level, version) - (2 if version < 10 else 3)


def _data_words(level: str, version: int) -> int:
    _, is_free = _frame(version)
    count, blocks = _BLOCKS[level][version - 1]
    return sum(map(sum, is_free)) // 8 - count * blocks


def _codewords(data: bytes, level: str, version: int) -> bytes:
    """Return mode, length and data, filled to the capacity of the code."""
    bits = f"0100{len(data):0{8 if version < 10 else 16}b}" + "".join(f"{b:08b}" for b in data)
    whole = 8 * _data_words(level, version)
    bits += "0" * min(4, whole - len(bits))
    bits += "0" * (-len(bits) % 8)
    words = [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)]
    pads = (0b11101100, 0b00010001)
    words += [pads[at % 2] for at in range(whole // 8 - len(words))]
    return bytes(words)


# The modules --------------------------------------------------------------------------


def _frame(version: int) -> tuple[Matrix, Matrix]:
    """Return the fixed patterns of a code, and which modules are free for data."""
    size = 17 + 4 * version
    code = [[0] * size for _ in range(size)]
    free = [[1] * size for _ in range(size)]

    def put(y: int, x: int, dark: int) -> None:
        if 0 <= y < size and 0 <= x < size:
            code[y][x], free[y][x] = dark, 0

    for at in range(size):  # timing
        put(6, at, 1 - at % 2)
        put(at, 6, 1 - at % 2)
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):  # finders, with their border
        for y in range(-1, 8):
            for x in range(-1, 8):
                put(top + y, left + x, int(max(abs(y - 3), abs(x - 3)) in (0, 1, 3)))
    centres = _ALIGNMENT[version - 1]
    corners = {(6, 6), (6, size - 7), (size - 7, 6)}
    for centre in ((y, x) for y in centres for x in centres):
        if centre in corners:
            continue
        for y in range(-2, 3):
            for x in range(-2, 3):
                put(centre[0] + y, centre[1] + x, int(max(abs(y), abs(x)) != 1))
    for y, x in itertools.chain(*_format_positions(size)):
        put(y, x, 0)
    put(size - 8, 8, 1)
    if version >= 7:
        for number, (y, x) in enumerate(_version_positions(size)):
            dark = version_bits(version) >> number & 1
            put(y, x, dark)
            put(x, y, dark)
    return code, free


def _format_positions(size: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the two positions of each format bit, from bit 0 on."""
    beside = [(y, 8) for y in (*range(6), 7, 8)] + [(8, x) for x in (7, *range(5, -1, -1))]
    apart = [(8, size - 1 - at) for at in range(8)] + [(size - 7 + at, 8) for at in range(7)]
    return beside, apart


def _version_positions(size: int) -> Iterator[tuple[int, int]]:
    return ((size - 11 + at % 3, at // 3) for at in range(18))


def _write_data(code: Matrix, is_free: Matrix, words: bytes) -> None:
    """Fill the free modules, two columns at a time, upwards and downwards in turn."""
    size = len(code)
    bits = iter("".join(f"{word:08b}" for word in words))
    columns = [x for x in range(size - 1, 0, -2) if x > 6] + [5, 3, 1]
    for number, right in enumerate(columns):
        rows = range(size) if number % 2 else range(size - 1, -1, -1)
        for y in rows:
            for x in (right, right - 1):
                if is_free[y][x]:
                    code[y][x] = int(next(bits, "0"))


def _masked(bare: Matrix, is_free: Matrix, level: str, version: int, number: int) -> Matrix:
    mask, size = _MASKS[number], len(bare)
    code = [
        [module ^ int(bool(is_free[y][x]) and not mask(y, x)) for x, module in enumerate(row)]
        for y, row in enumerate(bare)
    ]
    bits = format_bits(level, number)
    for positions in _format_positions(size):
        for at, (y, x) in enumerate(positions):
            code[y][x] = bits >> at & 1
    return code


# Arithmetic ---------------------------------------------------------------------------


@functools.cache
def _powers() -> tuple[int, ...]:
    """Return the powers of 2 in GF(256)."""
    found = [1]
    for _ in range(254):
        found.append(found[-1] << 1 ^ (0x11D if found[-1] & 0x80 else 0))
    return tuple(found)


@functools.cache
def _logarithms() -> dict[int, int]:
    return {value: power for power, value in enumerate(_powers())}


def _times(a: int, b: int) -> int:
    if not a or not b:
        return 0
    return _powers()[(_logarithms()[a] + _logarithms()[b]) % 255]


def _remainder(value: int, divisor: int, degree: int) -> int:
    while value.bit_length() > degree:
        value ^= divisor << (value.bit_length() - divisor.bit_length())
    return value
