"""The QR code: known vectors of the standard, and every code read back module by module.

Codes of 1 to 271 bytes were decoded once with zxing-cpp 3.1.1, from the lines that
`drawn` returns.
"""

from __future__ import annotations

import hashlib

import pytest

from swarm.errors import BadInput
from swarm.terminal import qr_code
from swarm.terminal.qr_code import (
    Matrix,
    capacity,
    drawn,
    format_bits,
    interleaved,
    matrix,
    penalty,
    reed_solomon,
    version_bits,
)

URL = "http://192.168.1.20:8765/?token=" + "aB3-" * 8
GOLDEN = "dfe39876f27a44ab"  # decoded once with zxing-cpp


def test_the_error_correction_of_a_published_example() -> None:
    """HELLO WORLD in version 1-M, the worked example of several tutorials."""
    data = bytes([32, 91, 11, 120, 209, 114, 220, 77, 67, 64, 236, 17, 236, 17, 236, 17])
    assert list(reed_solomon(data, 10)) == [196, 35, 39, 119, 235, 215, 231, 226, 93, 23]


@pytest.mark.parametrize(
    ("level", "mask", "bits"),
    [("L", 0, "111011111000100"), ("L", 4, "110011000101111"), ("M", 0, "101010000010010")],
)
def test_the_format_bits_of_the_standard(level: str, mask: int, bits: str) -> None:
    assert format_bits(level, mask) == int(bits, 2)


def test_the_version_bits_of_the_standard() -> None:
    assert version_bits(7) == 0b000111110010010100
    assert version_bits(10) == 0b001010010011010011


def test_the_capacities_of_the_standard() -> None:
    assert [capacity("L", n) for n in (1, 2, 5, 9, 10)] == [17, 32, 106, 230, 271]
    assert [capacity("M", n) for n in (1, 2, 5, 9, 10)] == [14, 26, 84, 180, 213]


def test_blocks_of_unequal_size_take_turns() -> None:
    """Version 8-M has two blocks of 38 and two of 39 words."""
    words = interleaved(bytes(range(154)), "M", 8)
    assert list(words[:5]) == [0, 38, 76, 115, 1]
    assert list(words[148:154]) == [37, 75, 113, 152, 114, 153]
    assert words[154::4] == reed_solomon(bytes(range(38)), 22)


@pytest.mark.parametrize("size", [1, 14, 15, 26, 42, 62, 84, 85, 106, 122, 152, 180, 213, 214, 271])
def test_a_code_can_be_read_back(size: int) -> None:
    data = bytes(ord("a") + (7 * at) % 26 for at in range(size))
    code = matrix(data)
    assert len(code) == 17 + 4 * ((len(code) - 17) // 4)
    assert read(code) == data


def test_a_code_that_a_decoder_has_read_is_still_the_same() -> None:
    lines = drawn(URL)
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == GOLDEN
    assert all(len(line) == 37 + 8 for line in lines) and len(lines) == 23
    assert lines[0] == lines[1] == lines[-1] == "█" * 45, "the quiet zone"


def test_the_chosen_mask_is_the_one_that_is_easiest_to_read() -> None:
    bare, is_free = qr_code._frame(2)
    qr_code._write_data(bare, is_free, interleaved(qr_code._codewords(b"x" * 20, "M", 2), "M", 2))
    codes = [qr_code._masked(bare, is_free, "M", 2, number) for number in range(8)]
    assert penalty(matrix(b"x" * 20)) == min(map(penalty, codes)) < max(map(penalty, codes))


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput, match="272 bytes"):
        matrix(b"x" * 272)


def read(code: Matrix) -> bytes:
    """Read a code without errors, as a scanner does after it has found the modules."""
    size = len(code)
    version = (size - 17) // 4
    assert [row[:7] for row in code[:7]] == [row[-7:] for row in code[:7]]
    row = [code[8][x] for x in (0, 1, 2, 3, 4, 5, 7, 8)] + [
        code[y][8] for y in (7, 5, 4, 3, 2, 1, 0)
    ]
    bits = int("".join(map(str, row)), 2)
    (level, mask) = next(
        (level, mask) for level in "LM" for mask in range(8) if format_bits(level, mask) == bits
    )
    again = [code[size - 1 - at][8] for at in range(7)] + [
        code[8][size - 8 + at] for at in range(8)
    ]
    assert again == row, "both copies of the format are the same"
    assert code[size - 8][8] == 1
    words = _words(code, version, mask)
    count, blocks = qr_code._BLOCKS[level][version - 1]
    whole = len(words) - count * blocks
    short, longer = divmod(whole, blocks)
    parts: list[list[int]] = [[] for _ in range(blocks)]
    at = 0
    for turn in range(short + 1):
        for number in range(blocks):
            if turn < short or number >= blocks - longer:
                parts[number].append(words[at])
                at += 1
    for number, part in enumerate(parts):
        assert bytes(words[whole + number :: blocks]) == reed_solomon(bytes(part), count)
    stream = "".join(f"{word:08b}" for part in parts for word in part)
    assert stream[:4] == "0100"
    width = 8 if version < 10 else 16
    length = int(stream[4 : 4 + width], 2)
    begin = 4 + width
    return bytes(int(stream[at : at + 8], 2) for at in range(begin, begin + 8 * length, 8))


def _words(code: Matrix, version: int, mask: int) -> list[int]:
    _, is_free = qr_code._frame(version)
    size, bits, up = len(code), "", True
    right = size - 1
    while right > 0:
        if right == 6:
            right -= 1
        for y in range(size - 1, -1, -1) if up else range(size):
            for x in (right, right - 1):
                if is_free[y][x]:
                    bits += str(code[y][x] ^ int(not qr_code._MASKS[mask](y, x)))
        up, right = not up, right - 2
    return [int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8)]
